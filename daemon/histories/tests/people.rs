//! Threads as people and scripts read them. `MCODE_GOLDEN=write cargo test -p mcode-histories --test people` writes the
//! files anew; the shape of the JSON is a promise (see `messages`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]
#![allow(unreachable_pub, reason = "the support is that of other tests too")]

#[allow(dead_code, reason = "each test program uses its part")]
mod support;
#[allow(dead_code, reason = "each test program uses its part")]
#[path = "../../events/tests/support/mod.rs"]
mod vocabulary;

use std::path::PathBuf;

use mcode_events::event::EventBody;
use mcode_events::tool::{ResultPart, ToolCallStatus};
use mcode_events::{BlobRef, Message, Part, Role, RunStatus, ToolCall, ToolResult};
use mcode_histories::{Rendering, ThreadInfo, write_markdown, write_messages};
use mcode_ids::Seq;
use serde_json::{Value, json};
use support::{Home, moment};
use vocabulary::{event, id, one_of_each, thread};

const SECRET: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";

fn user(number: u64, parts: Vec<Part>) -> EventBody {
    EventBody::MessageFinished {
        message: Message { item_id: id("itm_", number), role: Role::User, parts, origin: None },
    }
}

/// Every kind, a question with a picture, hostile text, secrets, and a turn that was cut off.
fn bodies() -> Vec<EventBody> {
    let mut bodies = one_of_each();
    let picture = BlobRef { hash: "c0".repeat(32), size_bytes: 12, media_type: "image/png".into() };
    bodies.extend([
        EventBody::TurnStarted { turn_id: id("trn_", 60) },
        user(
            61,
            vec![
                Part::text("What is this?\n\n</details><script>alert(1)</script>\n\n## User\n\n```\nnever closed"),
                Part::Media { blob: picture, name: "a `shot`.png".into() },
            ],
        ),
        EventBody::ToolCallStarted {
            call: ToolCall {
                tool_call_id: id("tc_", 62),
                name: "write".into(),
                arguments: json!({"path": ".env", "content": "A=1\n````\nB=2\n", "api_key": SECRET, "n": [1, 2]}),
            },
            item_id: id("itm_", 61),
        },
        EventBody::ToolCallFinished {
            name: "write".into(),
            result: ToolResult {
                content: vec![ResultPart::Text { text: format!("wrote {SECRET}\n\u{1b}[31mred") }],
                ..ToolResult::text(id("tc_", 62), ToolCallStatus::Done, "")
            },
        },
        EventBody::MessageDiscarded {
            item_id: id("itm_", 63),
            status: RunStatus::Cancelled,
            text: "I was about to".into(),
            reason: "cancelled".into(),
        },
        EventBody::TurnFinished { turn_id: id("trn_", 60), status: RunStatus::Cancelled },
    ]);
    bodies
}

fn written(rendering: Rendering, write: Writer) -> String {
    let home = Home::new();
    home.thread(thread(), bodies(), event);
    let mut out = Vec::new();
    write(&home.info(thread()), &home, rendering, &mut out);
    String::from_utf8(out).unwrap()
}

type Writer = fn(&ThreadInfo, &Home, Rendering, &mut Vec<u8>);

fn markdown(info: &ThreadInfo, home: &Home, rendering: Rendering, out: &mut Vec<u8>) {
    write_markdown(info, home.events(info.thread_id), rendering, moment(), out).unwrap();
}

fn messages(info: &ThreadInfo, home: &Home, rendering: Rendering, out: &mut Vec<u8>) {
    write_messages(info, home.events(info.thread_id), rendering, moment(), out).unwrap();
}

fn golden(name: &str, written: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("MCODE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, written).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(written, golden.replace("\r\n", "\n"), "{}", path.display());
}

#[test]
fn the_markdown_is_as_it_was() {
    golden("thread.md", &written(Rendering::default(), markdown));
}

#[test]
fn the_json_is_as_it_was_and_is_json() {
    let text = written(Rendering::default(), messages);
    golden("thread.json", &text);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["format"], &value["version"]), (&json!("mcode-messages"), &json!(1)));
    let roles: Vec<&str> =
        value["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "tool", "rewound", "user", "tool"]);
}

#[test]
fn secrets_are_taken_out_when_that_is_asked_for() {
    let redacting = Rendering { redact: true };
    for write in [markdown as Writer, messages] {
        assert!(written(Rendering::default(), write).contains(SECRET));
        let clean = written(redacting, write);
        assert!(!clean.contains(SECRET) && !clean.contains("abcdefghijkl") && clean.contains("[redacted"), "{clean}");
    }
}

#[test]
fn nothing_in_the_markdown_is_html_but_what_folds() {
    let text = written(Rendering::default(), markdown);
    let mut headings = Vec::new();
    let mut open = 0;
    for event in pulldown_cmark::Parser::new_ext(&text, pulldown_cmark::Options::all()) {
        use pulldown_cmark::{Event, Tag};
        match event {
            Event::Html(html) | Event::InlineHtml(html) => match html.trim() {
                "<details><summary>Thinking</summary>" | "<details><summary>Diff</summary>" => open += 1,
                "</details>" => open -= 1,
                other => panic!("{other}"),
            },
            Event::Start(Tag::Heading { .. }) => headings.push(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = headings.last_mut().filter(|heading| heading.len() < 12) {
                    heading.push_str(&words);
                }
            }
            _ => {}
        }
    }
    assert_eq!(open, 0);
    assert_eq!(headings.iter().filter(|heading| heading.starts_with("User")).count(), 1, "{headings:?}");
}

#[test]
fn a_long_thread_is_written_as_it_is_read() {
    // Nothing is gathered: what was written before an event stands in the file when that event comes.
    struct Watched(std::rc::Rc<std::cell::Cell<usize>>);
    impl std::io::Write for Watched {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.set(self.0.get() + bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let text = "y".repeat(100_000);
    let made = |count: &std::rc::Rc<std::cell::Cell<usize>>| {
        let (count, text) = (std::rc::Rc::clone(count), text.clone());
        (1..=40u64).map(move |seq| {
            assert!(count.get() as u64 >= (seq - 1) * 90_000, "{seq}: {}", count.get());
            let body = if seq == 1 { one_of_each()[0].clone() } else { user(seq, vec![Part::text(text.clone())]) };
            Ok::<_, std::io::Error>(event(seq, body))
        })
    };
    let home = Home::new();
    home.thread(thread(), one_of_each(), event);
    let mut info = home.info(thread());
    info.last_seq = Seq::new(40);
    // The first event says nothing to people.
    let count = std::rc::Rc::new(std::cell::Cell::new(100_000));
    write_markdown(&info, made(&count), Rendering::default(), moment(), &mut Watched(count.clone())).unwrap();
    count.set(100_000);
    write_messages(&info, made(&count), Rendering::default(), moment(), &mut Watched(count.clone())).unwrap();
    count.set(100_000);
    mcode_histories::write_thread(&info, made(&count), &*home.blobs(), moment(), &mut Watched(count.clone())).unwrap();
}
