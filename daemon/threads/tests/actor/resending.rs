//! A message that is said again, changed.

use mcode_events::event::EventBody;
use mcode_events::message::Part;
use mcode_events::state::Entry;
use mcode_events::{BlobRef, RunStatus};
use mcode_ids::{RequestId, Seq, ThreadId};
use mcode_threads::{NewRun, Resend, ThreadError};

use crate::rig::{Rig, Step, said};

fn again(rig: &Rig, thread_id: ThreadId, text: &str, at: Option<Seq>, in_fork: bool) -> NewRun {
    NewRun { resend: Some(Resend { at, in_fork }), ..rig.prompt(Some(thread_id), text) }
}

async fn two_turns(rig: &Rig) -> ThreadId {
    let (thread_id, _) = rig.start("one").await;
    rig.idle(thread_id).await;
    rig.threads.start_run(rig.prompt(Some(thread_id), "two")).await.unwrap();
    rig.idle(thread_id).await;
    thread_id
}

/// The event of what the user said.
async fn event_of(rig: &Rig, thread_id: ThreadId, words: &str) -> Seq {
    let state = rig.threads.state(thread_id).await.unwrap();
    let place = state.history.iter().position(|entry| match entry.as_ref() {
        Entry::Message { message, .. } => message.text() == words,
        Entry::ToolResult { .. } => false,
    });
    state.said_at[place.unwrap()]
}

#[tokio::test]
async fn the_thread_goes_back_and_the_run_begins_in_one_commit() {
    let rig = Rig::new(vec![Step::Say("a")]);
    let thread_id = two_turns(&rig).await;
    let mut run = again(&rig, thread_id, "other", None, false);
    run.request = Some((RequestId::parse("again").unwrap(), "hash".into()));
    let started = rig.threads.start_run(run.clone()).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await), ["one", "a", "other", "a"]);
    let events = rig.events(thread_id).await;
    let back = events.iter().position(|event| matches!(event.body, EventBody::Rewound { .. })).unwrap();
    let commit: Vec<&str> = events[back..back + 4].iter().map(|event| event.body.kind()).collect();
    assert_eq!(commit, ["rewound", "run_started", "turn_started", "message_finished"]);
    assert_eq!(events[back].seq, started.seq.next());
    // A retry takes nothing back once more.
    assert_eq!(rig.threads.start_run(run).await.unwrap(), started);
    assert_eq!(rig.events(thread_id).await.len(), events.len());
    // The earlier one, which still counts; what was taken back does not.
    let taken = events
        .iter()
        .find(|event| matches!(&event.body, EventBody::MessageFinished { message } if message.text() == "two"));
    let error = rig.threads.start_run(again(&rig, thread_id, "x", Some(taken.unwrap().seq), false)).await.unwrap_err();
    assert!(error.to_string().contains("no message of the user's that counts"), "{error}");
    let one = event_of(&rig, thread_id, "one").await;
    rig.threads.start_run(again(&rig, thread_id, "first", Some(one), false)).await.unwrap();
    assert_eq!(said(&*rig.idle(thread_id).await), ["first", "a"]);
}

#[tokio::test]
async fn a_fork_begins_with_its_run_and_leaves_the_thread_as_it_is() {
    let rig = Rig::new(vec![Step::Say("a")]);
    let thread_id = two_turns(&rig).await;
    let two = event_of(&rig, thread_id, "two").await;
    let before = rig.events(thread_id).await.len();
    let mut run = again(&rig, thread_id, "other", Some(two), true);
    run.title = "another way".into();
    run.request = Some((RequestId::parse("fork").unwrap(), "hash".into()));
    let started = rig.threads.start_run(run.clone()).await.unwrap();
    assert_ne!(started.thread_id, thread_id);
    assert_eq!(rig.threads.start_run(run).await.unwrap(), started);
    let state = rig.idle(started.thread_id).await;
    assert_eq!(
        (said(&state), state.title.as_str()),
        (vec!["one".to_owned(), "a".into(), "other".into(), "a".into()], "another way")
    );
    // It left before the run of the message, so it shows none that was cut off.
    assert!(state.runs.iter().all(|run| run.status == RunStatus::Done), "{:?}", state.runs);
    assert_eq!(rig.events(thread_id).await.len(), before);
    assert_eq!(said(&rig.threads.state(thread_id).await.unwrap()), ["one", "a", "two", "a"]);
}

#[tokio::test]
async fn a_fork_of_a_thread_at_work_takes_nothing_of_its_work_along() {
    let rig = Rig::new(vec![Step::Hold("thinking"), Step::Say("a")]);
    let (thread_id, run_id) = rig.start("one").await;
    rig.asked(1).await;
    rig.input(thread_id, mcode_events::run::Delivery::Queue, "later").await;
    let started = rig.threads.start_run(again(&rig, thread_id, "other", None, true)).await.unwrap();
    assert_eq!(said(&*rig.idle(started.thread_id).await), ["other", "a"]);
    assert_eq!(rig.threads.state(thread_id).await.unwrap().open.run, Some(run_id));
    let error = rig.threads.start_run(again(&rig, thread_id, "x", None, false)).await.unwrap_err();
    assert!(matches!(error, ThreadError::RunActive { .. }), "{error:?}");
    rig.script.go.add_permits(1);
}

#[tokio::test]
async fn what_can_not_begin_takes_nothing_back() {
    let rig = Rig::new(vec![Step::Say("a")]);
    let thread_id = two_turns(&rig).await;
    let before = rig.events(thread_id).await.len();
    let threads = |page: mcode_store::Page<mcode_store::ThreadRow>| page.rows.len();
    let all = || rig.threads.list(mcode_store::ThreadFilter { page_size: 10, ..Default::default() });
    for in_fork in [false, true] {
        let mut run = again(&rig, thread_id, "x", None, in_fork);
        run.answer_schema = Some(serde_json::json!({"type": "no such type"}));
        assert!(rig.threads.start_run(run).await.is_err());
        for at in [Seq::new(1), Seq::new(9999)] {
            let error = rig.threads.start_run(again(&rig, thread_id, "x", Some(at), in_fork)).await.unwrap_err();
            assert!(matches!(error, ThreadError::InvalidArgument { field: "resend.at_seq", .. }), "{error:?}");
        }
    }
    assert_eq!((rig.events(thread_id).await.len(), threads(all().await.unwrap())), (before, 1));
    let error = rig.threads.start_run(NewRun { thread_id: None, ..again(&rig, thread_id, "x", None, false) }).await;
    assert!(matches!(error, Err(ThreadError::InvalidArgument { field: "thread_id", .. })), "{error:?}");
}

#[tokio::test]
async fn pictures_stay_unless_there_are_others() {
    let rig = Rig::new(vec![Step::Say("a")]);
    let picture = |name: &str| {
        let blob: BlobRef = rig.store().blobs().put(name.as_bytes(), "image/png").unwrap();
        Part::Media { blob, name: name.into() }
    };
    let mut run = rig.prompt(None, "look");
    run.parts.push(picture("old.png"));
    let thread_id = rig.threads.start_run(run).await.unwrap().thread_id;
    rig.idle(thread_id).await;
    let shown = |state: &mcode_events::ThreadState| match state.history[0].as_ref() {
        Entry::Message { message, .. } => message
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Media { name, .. } => Some(name.clone()),
                _ => None,
            })
            .collect::<Vec<_>>(),
        Entry::ToolResult { .. } => Vec::new(),
    };
    rig.threads.start_run(again(&rig, thread_id, "look closer", None, false)).await.unwrap();
    assert_eq!(shown(&*rig.idle(thread_id).await), ["old.png"]);
    let mut run = again(&rig, thread_id, "look there", None, false);
    run.parts.push(picture("new.png"));
    rig.threads.start_run(run).await.unwrap();
    assert_eq!(shown(&*rig.idle(thread_id).await), ["new.png"]);
}
