//! Writing and reading a thread needs the memory of its largest event, however long it is. A program of its own, so that
//! nothing else counts.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]
#![allow(unreachable_pub, reason = "the support is that of other tests too")]

#[allow(dead_code, reason = "each test program uses its part")]
mod support;
#[allow(dead_code, reason = "each test program uses its part")]
#[path = "../../events/tests/support/mod.rs"]
mod vocabulary;

use std::io::Seek;

use mcode_events::event::{Event, EventBody};
use mcode_events::tool::ToolCallStatus;
use mcode_events::{ToolCall, ToolResult};
use mcode_histories::{
    Identity, Importing, Limits, Rendering, ThreadFile, write_markdown, write_messages, write_thread,
};
use mcode_ids::Seq;
use serde_json::json;
use support::{Home, moment};
use vocabulary::{event, id, one_of_each, thread};

/// Calls in the thread, each with as much output as a tool may give.
const CALLS: u64 = 600;

/// In all 30 MB.
const OUTPUT_BYTES: usize = 50 * 1024;

/// The most bytes that the process has held.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn events() -> impl Iterator<Item = Result<Event, std::io::Error>> {
    let call = |number: u64| {
        let tool_call_id = id("tc_", number);
        let call = ToolCall { tool_call_id, name: "shell".into(), arguments: json!({"command": "cat log"}) };
        // Each line another, and a hash in it as tools print them.
        let line = format!("{number} {}\n", blake3::hash(&number.to_le_bytes()).to_hex());
        let text = line.repeat(OUTPUT_BYTES / line.len());
        [
            EventBody::ToolCallStarted { call, item_id: id("itm_", 1) },
            EventBody::ToolCallFinished {
                name: "shell".into(),
                result: ToolResult::text(tool_call_id, ToolCallStatus::Done, text),
            },
        ]
    };
    let bodies = std::iter::once(one_of_each()[0].clone()).chain((0..CALLS).flat_map(call));
    bodies.enumerate().map(|(at, body)| Ok(event(at as u64 + 1, body)))
}

#[test]
fn a_thread_with_much_output_needs_little_memory() {
    let home = Home::new();
    home.thread(thread(), one_of_each(), event);
    let mut info = home.info(thread());
    info.last_seq = Seq::new(1 + 2 * CALLS);
    let blobs = home.blobs();
    let mut file = tempfile::tempfile().unwrap();
    let before = peak();
    let written = write_thread(&info, events(), &*blobs, moment(), &mut file).unwrap();
    assert!(written.bytes > 29_000_000, "{}", written.bytes);
    write_markdown(&info, events().take(200), Rendering::default(), moment(), &mut std::io::sink()).unwrap_err();
    write_messages(&info, events(), Rendering::default(), moment(), &mut std::io::sink()).unwrap();
    file.rewind().unwrap();
    let mut read = ThreadFile::open(file, Limits::DEFAULT, moment()).unwrap();
    let importing = Importing { identity: Identity::Fresh(id("thr_", 9)), place: None };
    assert_eq!(read.events(&importing).unwrap().map(Result::unwrap).count(), 1 + 2 * CALLS as usize);
    let grown = peak() - before;
    assert!(grown < 10 * 1024 * 1024, "{grown} bytes");
}
