//! What a large store costs: a thread of 1,000,000 events opened at its end and searched, 10,000 threads listed and found by their titles, 50 forks of a
//! thread with 1 GB of output. Prints figures as JSON; `cargo xtask bench` runs it. `SCALE` (in the environment) divides all
//! of it, to try it out.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program, not part of the product")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use mcode_env::{IdGen, SystemClock, SystemIds};
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::state::ThreadState;
use mcode_events::{Event, Message, Part, Role, ToolCallStatus, ToolResult};
use mcode_ids::{ItemId, ProjectId, Seq, ThreadId, ToolCallId};
use mcode_store::{Append, SearchFilter, Store, ThreadFilter, ThreadRow};
use serde_json::{Value, json};

/// Events that are appended at once.
const AT_ONCE: u64 = 1_000;

/// Events of the last page that a client opens with.
const PAGE_EVENTS: u32 = 200;

/// Bytes of one output of the thread that is forked.
const OUTPUT_BYTES: usize = 256 * 1024;

struct Log {
    store: Store,
    state: ThreadState,
    first: Option<NewEvent>,
}

impl Log {
    fn new(store: &Store, project_id: ProjectId) -> Self {
        let state = ThreadState::new(ThreadId::from_uuid(SystemIds.next()));
        let created = EventBody::ThreadCreated {
            project_id,
            cwd: "/work".to_owned(),
            root: "/work".to_owned(),
            title: format!("Refactor the parser of module {}", state.thread_id),
            model: "fake/m".to_owned(),
            mode: "build".to_owned(),
            ephemeral: false,
        };
        Self { store: store.clone(), state, first: Some(NewEvent::of_thread(created)) }
    }

    async fn append(&mut self, events: Vec<NewEvent>) -> anyhow::Result<()> {
        let events: Vec<NewEvent> = self.first.take().into_iter().chain(events).collect();
        let (expected, at_ms) = (self.state.last_seq, self.state.updated_at_ms + 1);
        for new in &events {
            let (seq, body) = (self.state.last_seq.next(), new.body.clone());
            let thread_id = self.state.thread_id;
            self.state.apply(&Event { thread_id, seq, at_ms, run_id: None, turn_id: None, body });
        }
        // The history is not needed here, and would take the memory.
        self.state.history.clear();
        self.state.said_at.clear();
        let row = ThreadRow::of(&self.state).context("a thread that was made has a row")?;
        let thread_id = self.state.thread_id;
        self.store.append(Append { thread_id, expected, events, at_ms, row, runs: Vec::new(), request: None }).await?;
        Ok(())
    }
}

fn said(number: u64) -> NewEvent {
    let text = format!("message {number} about module_{} and function_{}", number % 977, number % 7919);
    let parts = vec![Part::text(text)];
    let role = if number.is_multiple_of(2) { Role::User } else { Role::Assistant };
    let message = Message { item_id: ItemId::from_uuid(SystemIds.next()), role, parts, origin: None };
    NewEvent::of_thread(EventBody::MessageFinished { message })
}

fn event(number: u64) -> NewEvent {
    // One in five is said; the others are steps, turns and the like.
    if number.is_multiple_of(5) {
        return said(number / 5);
    }
    NewEvent::of_thread(EventBody::Notice { level: "info".to_owned(), text: "x".repeat(100) })
}

fn output(number: u64) -> NewEvent {
    let mut text = String::with_capacity(OUTPUT_BYTES + 64);
    while text.len() < OUTPUT_BYTES {
        text.push_str(&format!("line {} of output {number}\n", text.len()));
    }
    let result = ToolResult::text(ToolCallId::from_uuid(SystemIds.next()), ToolCallStatus::Done, text);
    NewEvent::of_thread(EventBody::ToolCallFinished { name: "shell".to_owned(), result })
}

/// The median of some milliseconds.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn open(dir: &Path) -> anyhow::Result<Store> {
    Ok(Store::open(dir.join("mcode.db"), dir.join("blobs"), Arc::new(SystemClock))?)
}

async fn long_thread(scale: u64) -> anyhow::Result<Value> {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let mut log = Log::new(&store, ProjectId::from_uuid(SystemIds.next()));
    for batch in 0..1_000_000 / scale / AT_ONCE {
        log.append((batch * AT_ONCE..(batch + 1) * AT_ONCE).map(event).collect()).await?;
    }
    while store.index_some().await? {}
    let (mut opened, mut rare, mut common) = (Vec::new(), Vec::new(), Vec::new());
    let (thread_id, last) = (log.state.thread_id, log.state.last_seq.get());
    for _ in 0..9 {
        let begun = Instant::now();
        store.thread(thread_id).await?.context("the thread is there")?;
        let after = Seq::new(last.saturating_sub(u64::from(PAGE_EVENTS)));
        let page = store.read(thread_id, after, PAGE_EVENTS, usize::MAX).await?;
        anyhow::ensure!(page.len() == PAGE_EVENTS as usize, "{} events", page.len());
        opened.push(begun.elapsed().as_secs_f64() * 1000.0);
        for (query, times) in [("function_77", &mut rare), ("message about", &mut common)] {
            let filter = SearchFilter {
                query: query.to_owned(),
                thread_id: Some(thread_id),
                page_size: 50,
                ..SearchFilter::default()
            };
            let begun = Instant::now();
            let found = store.search(filter).await?;
            anyhow::ensure!(!found.hits.is_empty(), "{query} is not found");
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let begun = Instant::now();
    let loaded = store.load_to(thread_id, None).await?.context("the thread is there")?;
    anyhow::ensure!(loaded.state.last_seq.get() == last, "it is loaded to its end");
    Ok(json!({
        "open_ms": median(opened), "search_rare_ms": median(rare), "search_common_ms": median(common),
        "load_s": begun.elapsed().as_secs_f64(),
    }))
}

/// Listing all of them, and finding some by a title that is not written quite so.
async fn many_threads(scale: u64) -> anyhow::Result<(f64, f64)> {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let project_id = ProjectId::from_uuid(SystemIds.next());
    let count = 10_000 / scale;
    for number in 0..count {
        Log::new(&store, project_id).append(vec![said(number)]).await?;
    }
    while store.index_some().await? {}
    let (mut times, mut found) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begun = Instant::now();
        let filter = SearchFilter { query: "refctor parsr".to_owned(), page_size: 50, ..SearchFilter::default() };
        let hits = store.search(filter).await?.hits;
        anyhow::ensure!(hits.iter().all(|hit| hit.role == "title") && !hits.is_empty(), "no title is found");
        found.push(begun.elapsed().as_secs_f64() * 1000.0);
        let begun = Instant::now();
        let (mut page_token, mut seen) = (None, 0);
        loop {
            let filter = ThreadFilter { page_size: 500, page_token, ..ThreadFilter::default() };
            let page = store.threads(filter).await?;
            seen += page.rows.len() as u64;
            page_token = page.next;
            if page_token.is_none() {
                break;
            }
        }
        anyhow::ensure!(seen == count, "{seen} of {count} threads");
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok((median(times), median(found)))
}

/// How many times the bytes of a thread 50 forks of it take, with it.
async fn forks(scale: u64) -> anyhow::Result<f64> {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let mut log = Log::new(&store, ProjectId::from_uuid(SystemIds.next()));
    let outputs = 1_000_000_000 / scale / OUTPUT_BYTES as u64;
    for number in 0..outputs {
        log.append(vec![output(number)]).await?;
    }
    while store.index_some().await? {}
    let alone = bytes_below(dir.path());
    let parent_id = log.state.thread_id;
    for number in 0..50 {
        let parent_seq = Seq::new(1 + outputs * (number + 1) / 50);
        let loaded = store.load_to(parent_id, Some(parent_seq)).await?.context("the thread is there")?;
        let thread_id = ThreadId::from_uuid(SystemIds.next());
        let mut fork = Log { store: store.clone(), state: ThreadState { thread_id, ..loaded.state }, first: None };
        let forked = EventBody::ThreadForked { parent_id, parent_seq, title: format!("fork {number}") };
        fork.append(vec![NewEvent::of_thread(forked), said(number)]).await?;
    }
    while store.index_some().await? {}
    Ok(bytes_below(dir.path()) as f64 / alone as f64)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scale = mcode_env::process::var("SCALE").and_then(|scale| scale.parse().ok()).unwrap_or(1);
    let mut figures = long_thread(scale).await?;
    let (list_ms, titles_ms) = many_threads(scale).await?;
    figures["list_ms"] = list_ms.into();
    figures["titles_ms"] = titles_ms.into();
    figures["fork_times"] = forks(scale).await?.into();
    println!("{figures}");
    Ok(())
}
