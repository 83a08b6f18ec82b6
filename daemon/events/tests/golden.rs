//! The stored form of every kind is a promise: files of one release are read by every later one.
//!
//! `MCODE_GOLDEN=write cargo test -p mcode-events --test golden` writes the files anew; a difference in a file that
//! was released needs a new version and an upcaster instead.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

#[allow(dead_code, reason = "each test program uses its part")]
mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;

use mcode_events::depth::JSON_DEPTH_MAX;
use mcode_events::event::KINDS;
use mcode_events::{EventBody, Opaque, Part};
use serde_json::Value;

fn file(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{kind}.json"))
}

#[test]
fn every_kind_is_stored_as_it_always_was() {
    let write = std::env::var("MCODE_GOLDEN").is_ok_and(|value| value == "write");
    for body in support::one_of_each() {
        let stored: Value = serde_json::from_str(&body.encode().unwrap()).unwrap();
        let path = file(body.kind());
        if write {
            std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&stored).unwrap())).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let expected: Value = serde_json::from_str(&golden).unwrap();
        assert_eq!(stored, expected, "{}", path.display());
        assert_eq!(EventBody::decode(body.kind(), body.version(), &golden).unwrap(), body, "{}", path.display());
    }
}

#[test]
fn there_is_one_file_for_every_kind_and_no_other() {
    let kinds: BTreeSet<String> = KINDS.iter().map(|kind| (*kind).to_owned()).collect();
    assert_eq!(kinds.len(), KINDS.len(), "no kind is listed twice");
    let made: BTreeSet<String> = support::one_of_each().iter().map(|body| body.kind().to_owned()).collect();
    assert_eq!(made, kinds, "these tests make every kind");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files, kinds);
}

#[test]
fn the_kind_in_the_payload_is_the_kind_of_the_column() {
    for body in support::one_of_each() {
        let stored: Value = serde_json::from_str(&body.encode().unwrap()).unwrap();
        assert_eq!(stored["kind"], body.kind());
        assert_eq!(body.version(), 1);
    }
}

#[test]
fn what_this_version_does_not_know_is_kept_word_for_word() {
    let payload = r#"{"kind":"memory_observed","range":[1,  2],"x":1e3}"#;
    let unknown = EventBody::decode("memory_observed", 3, payload).unwrap();
    assert_eq!((unknown.kind(), unknown.version()), ("memory_observed", 3));
    assert_eq!(unknown.encode().unwrap(), payload);
    let again = EventBody::decode(unknown.kind(), unknown.version(), &unknown.encode().unwrap()).unwrap();
    assert_eq!(again, unknown);
    // A known kind in a newer form is not read as if it were the old one.
    let newer = EventBody::decode("notice", 2, r#"{"kind":"notice","level":"info","text":"x"}"#).unwrap();
    assert!(matches!(&newer, EventBody::Opaque { kind, version: 2, .. } if kind == "notice"), "{newer:?}");
    assert_eq!(newer.encode().unwrap(), r#"{"kind":"notice","level":"info","text":"x"}"#);
}

#[test]
fn a_known_kind_with_a_broken_payload_is_an_error_and_no_news() {
    for payload in ["", "{}", "[]", "null", r#"{"kind":"notice"}"#, r#"{"kind":"notice","level":1,"text":"x"}"#, "{"] {
        assert!(EventBody::decode("notice", 1, payload).is_err(), "{payload}");
    }
    // Fields that a later minor version added are no hindrance.
    assert!(EventBody::decode("notice", 1, r#"{"kind":"notice","level":"info","text":"x","later":1}"#).is_ok());
}

/// What is newer than the first form is left out where it says the usual, so that old logs read as what they were.
#[test]
fn usage_that_says_more_is_stored_with_that() {
    let payload = r#"{"kind":"usage_recorded","model":"a/b","usage":{"input_tokens":1,"output_tokens":2,
        "cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost_usd":0.0},"purpose":"judge","priced":true,
        "goal_id":"gol_0190000000007000800000000000002a"}"#;
    let body = EventBody::decode("usage_recorded", 1, payload).unwrap();
    let EventBody::UsageRecorded { purpose, priced, goal_id, .. } = &body else { panic!("{body:?}") };
    assert_eq!((*purpose, *priced, goal_id.is_some()), (mcode_events::usage::UsagePurpose::Judge, true, true));
    let stored: Value = serde_json::from_str(&body.encode().unwrap()).unwrap();
    assert_eq!(stored, serde_json::from_str::<Value>(payload).unwrap());
    assert!(EventBody::decode("usage_recorded", 1, &payload.replace("judge", "fun")).is_err());
}

/// What a model, a client or a provider gives may nest as deep as is taken of it; a payload that could not be read again
/// would take its whole thread with it.
#[test]
fn what_nests_as_deep_as_may_be_is_read_again() {
    let deep = (0..JSON_DEPTH_MAX).fold(serde_json::json!(1), |inner, _| serde_json::json!({"a": inner}));
    for mut body in support::one_of_each() {
        match &mut body {
            EventBody::RunStarted { options } => options.answer_schema = Some(deep.clone()),
            EventBody::RunFinished { structured, .. } => *structured = Some(deep.clone()),
            EventBody::ToolCallStarted { call, .. } => call.arguments = deep.clone(),
            EventBody::ApprovalRequested { request } => request.arguments = deep.clone(),
            EventBody::MessageFinished { message } => {
                message.parts.push(Part::Provider { opaque: Opaque(deep.clone()) })
            }
            _ => continue,
        }
        let stored = body.encode().unwrap();
        assert_eq!(EventBody::decode(body.kind(), body.version(), &stored).unwrap(), body, "{}", body.kind());
    }
}

/// A run that waits for its provider says which and until when; one that waits for its user is stored as it always was.
#[test]
fn a_parked_run_is_stored_with_what_it_waits_for() {
    let payload = r#"{"kind":"run_status_changed","status":"waiting","parked":{"model":"a/b","until_ms":7,"whole_account":true}}"#;
    let body = EventBody::decode("run_status_changed", 1, payload).unwrap();
    let EventBody::RunStatusChanged { parked: Some(parked), .. } = &body else { panic!("{body:?}") };
    assert_eq!((parked.model.as_str(), parked.until_ms, parked.whole_account), ("a/b", 7, true));
    assert_eq!(body.encode().unwrap(), payload);
}

#[test]
fn a_payload_of_another_kind_than_its_column_is_an_error() {
    let payload = r#"{"kind":"title_changed","title":"x"}"#;
    assert!(EventBody::decode("notice", 1, payload).is_err(), "the column says notice, the payload says title_changed");
}
