//! How long an append to the log takes until it is on the disk: one event of 400 bytes at a time, as a step makes them.
//! Prints `{"p50_us": …, "p99_us": …}`; `cargo xtask bench` runs it.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program, not part of the product")]

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use mcode_env::{IdGen, SystemClock, SystemIds};
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::state::ThreadState;
use mcode_ids::{ProjectId, Seq, ThreadId};
use mcode_store::{Append, Store, ThreadRow};

/// Appends measured.
const COUNT: u64 = 2_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path().join("mcode.db"), dir.path().join("blobs"), Arc::new(SystemClock))?;
    let (project_id, thread_id) = (ProjectId::from_uuid(SystemIds.next()), ThreadId::from_uuid(SystemIds.next()));
    let mut state = ThreadState::new(thread_id);
    state.project_id = Some(project_id);
    let mut row = ThreadRow::of(&state).context("a thread with a project has a row")?;
    let created = EventBody::ThreadCreated {
        project_id,
        cwd: "/".to_owned(),
        root: String::new(),
        title: String::new(),
        model: "fake/m".to_owned(),
        mode: "build".to_owned(),
        ephemeral: false,
    };
    let mut next = Some(created);
    let mut micros = Vec::new();
    for number in 0..COUNT {
        let body = next.take().unwrap_or_else(|| EventBody::Notice { level: "info".to_owned(), text: "x".repeat(400) });
        row.last_seq = Seq::new(number + 1);
        let append = Append {
            thread_id,
            expected: Seq::new(number),
            events: vec![NewEvent::of_thread(body)],
            at_ms: 1,
            row: row.clone(),
            runs: Vec::new(),
            request: None,
        };
        let start = Instant::now();
        store.append(append).await?;
        micros.push(u64::try_from(start.elapsed().as_micros())?);
    }
    micros.sort_unstable();
    let at = |share: usize| micros.get(micros.len() * share / 100).copied().unwrap_or(0);
    println!("{}", serde_json::json!({"p50_us": at(50), "p99_us": at(99)}));
    Ok(())
}
