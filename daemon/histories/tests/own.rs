//! mcode's own file: nothing is lost, and nothing wrong is taken.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]
#![allow(unreachable_pub, reason = "the support is that of other tests too")]

#[allow(dead_code, reason = "each test program uses its part")]
mod support;
#[allow(dead_code, reason = "each test program uses its part")]
#[path = "../../events/tests/support/mod.rs"]
mod vocabulary;

use mcode_events::event::EventBody;
use mcode_events::run::{Kept, RunStatus};
use mcode_events::{BlobRef, Delivery, Message, Part, Role};
use mcode_histories::{Fault, Identity, Importing, Limits, Place, ThreadFile};
use mcode_ids::ThreadId;
use serde_json::{Value, json};
use support::{Home, moment, open};
use vocabulary::{event, id, one_of_each, thread};

/// What a message of these tests refers to and no store has.
const LOST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn user(number: u64, parts: Vec<Part>) -> EventBody {
    EventBody::MessageFinished {
        message: Message { item_id: id("itm_", number), role: Role::User, parts, origin: None },
    }
}

fn opaque(kind: &str, version: u32, payload: &str) -> EventBody {
    EventBody::Opaque { kind: kind.into(), version, payload: payload.into() }
}

/// A thread with every kind, kinds of a later version, bodies by reference and by name, and one that the store lost.
fn rich(home: &Home) {
    let blobs = home.blobs();
    let picture = blobs.put(&vec![7; 1_300_000], "image/png").unwrap();
    let output = blobs.put(b"the whole output", "text/plain").unwrap();
    let empty = blobs.put(b"", "text/plain").unwrap();
    let lost = BlobRef { hash: LOST.into(), size_bytes: 4, media_type: "image/png".into() };
    let mut bodies = one_of_each();
    let media = |blob| Part::Media { blob, name: "a picture".into() };
    bodies.push(user(50, vec![media(picture), media(lost), media(empty), Part::text("x".repeat(100_000))]));
    bodies.push(user(51, vec![Part::text(format!("view it with blob:{} not {}", output.hash, "ab".repeat(32)))]));
    bodies.push(opaque("kind_of_tomorrow", 1, "{ \"kind\" : \"kind_of_tomorrow\", \"a\": 1.0e5,\"a\":\"\\u00e9\" }"));
    bodies.push(opaque("notice", 2, "not json\n  at all\u{0}"));
    bodies.push(opaque("notice", 3, " {} "));
    bodies.push(opaque("notice", 4, "{\n}"));
    home.thread(thread(), bodies, event);
}

#[test]
fn a_thread_goes_to_another_store_and_back_byte_for_byte() {
    let (one, two) = (Home::new(), Home::new());
    rich(&one);
    let file = one.export(thread());
    let state = two.import(&file, Identity::Kept);
    assert!(state.open.is_empty());
    assert_eq!(two.export(thread()), file);
    let read = |home: &Home| home.events(thread()).map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(read(&one), read(&two));
    // What is only a hash is no body, and of what was lost the file says so.
    let contents = open(&file).unwrap().contents().clone();
    assert_eq!((contents.blobs, contents.missing.len(), contents.was_at_work), (3, 2, false));
    assert_eq!(contents.run_ids, [vocabulary::run()]);
}

#[test]
fn no_line_of_a_body_is_longer_than_a_mebibyte() {
    let home = Home::new();
    rich(&home);
    let file = home.export(thread());
    let longest = file.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap();
    assert!(longest > 600_000 && longest < 1024 * 1024, "{longest}");
}

#[test]
fn a_copy_beside_the_original_shares_no_id_with_it() {
    let home = Home::new();
    rich(&home);
    let file = home.export(thread());
    let new: ThreadId = id("thr_", 99);
    home.import(&file, Identity::Fresh(new));
    let copy = String::from_utf8(home.export(new)).unwrap();
    for prefix in ["thr_", "run_", "trn_", "stp_", "itm_", "tc_", "apr_", "qst_", "inp_", "prc_"] {
        let ids = |text: &str| -> std::collections::BTreeSet<String> {
            let found = text.match_indices(prefix).filter_map(|(at, _)| text.get(at..at + prefix.len() + 32));
            found.filter(|id| id[prefix.len()..].bytes().all(|b| b.is_ascii_hexdigit())).map(str::to_owned).collect()
        };
        let (old, new) = (ids(std::str::from_utf8(&file).unwrap()), ids(&copy));
        assert_eq!(old.len(), new.len(), "{prefix}");
        assert!(old.is_disjoint(&new), "{prefix}: {old:?} {new:?}");
    }
    // The original is as it was, and the copy goes on like it.
    assert_eq!(home.export(thread()), file);
    let (original, copied) = (home.info(thread()), home.info(new));
    assert_eq!((copied.title, copied.model, copied.last_seq), (original.title, original.model, original.last_seq));
}

#[test]
fn the_environment_of_a_run_does_not_leave() {
    let home = Home::new();
    let mut bodies = one_of_each();
    for body in &mut bodies {
        if let EventBody::RunStarted { options } = body {
            let env = [("PATH".to_owned(), "/home/me/secret/bin".to_owned())].into();
            options.kept = Some(Kept { env, umask: 0o22, own_access: true });
        }
    }
    home.thread(thread(), bodies, event);
    let file = String::from_utf8(home.export(thread())).unwrap();
    assert!(!file.contains("/home/me/secret/bin"));
    // Nor does one come in with a file that was made by hand.
    let begins = line_of(file.as_bytes(), "run_started");
    let forged = changed(file.as_bytes(), begins, |line| {
        line["payload"]["options"]["kept"] = json!({"env": {"PATH": "/tmp/evil"}, "umask": 0, "own_access": true});
    });
    let importing = Importing { identity: Identity::Kept, place: None };
    let mut read = open(&forged).unwrap();
    let events: Vec<_> = read.events(&importing).unwrap().map(Result::unwrap).collect();
    let EventBody::RunStarted { options } = &events[begins - 1].body else { panic!() };
    assert_eq!(options.kept, None);
}

#[test]
fn a_thread_at_work_is_ended_and_waits_for_nobody() {
    let home = Home::new();
    let mut bodies = one_of_each();
    let ask = bodies.iter().position(|body| matches!(body, EventBody::ApprovalRequested { .. })).unwrap();
    let process = bodies.iter().find(|body| matches!(body, EventBody::ProcessStarted { .. })).unwrap().clone();
    bodies.truncate(ask + 2);
    bodies.push(process);
    let queued = EventBody::InputQueued {
        input_id: id("inp_", 70),
        delivery: Delivery::Queue,
        parts: vec![Part::text("and then delete everything")],
    };
    bodies.push(queued);
    home.thread(thread(), bodies, event);
    let file = home.export(thread());
    assert!(open(&file).unwrap().contents().was_at_work);
    let other = Home::new();
    let state = other.import(&file, Identity::Kept);
    assert!(state.open.is_empty() && state.queue.is_empty());
    assert_eq!(state.runs.last().unwrap().status, RunStatus::Interrupted);
    let again = other.export(thread());
    assert!(again.len() > file.len());
    assert!(!open(&again).unwrap().contents().was_at_work);
}

#[test]
fn runs_within_runs_are_ended_too() {
    let home = Home::new();
    let start = one_of_each().into_iter().find(|body| matches!(body, EventBody::RunStarted { .. })).unwrap();
    home.thread(thread(), vec![one_of_each()[0].clone(), start.clone(), start], |seq, body| {
        let mut event = event(seq, body);
        event.run_id = Some(id("run_", 100 + seq));
        event
    });
    let state = Home::new().import(&home.export(thread()), Identity::Kept);
    assert!(state.runs.iter().all(|run| run.ended_at_ms.is_some()), "{:?}", state.runs);
}

/// The lines with a right last line, whatever was done to them.
fn sealed(mut lines: Vec<Vec<u8>>) -> Vec<u8> {
    let values: Vec<Value> = lines.iter().map(|line| serde_json::from_slice(line).unwrap_or(Value::Null)).collect();
    let mut end = values.last().unwrap().clone();
    lines.pop();
    let bodies = values.iter().filter(|value| value["data"].is_string() && value["chunk"] == value["chunks"]);
    end["end"]["blobs"] = json!(bodies.count());
    end["end"]["missing"] = json!(values.iter().filter(|value| value["missing"].is_string()).count());
    end["end"]["events"] = json!(values.iter().filter(|value| value["seq"].is_number()).count());
    end["end"]["lines"] = json!(lines.len() + 1);
    let mut out = lines.concat();
    end["end"]["blake3"] = json!(blake3::hash(&out).to_hex().as_str());
    out.extend(format!("{end}\n").into_bytes());
    out
}

fn lines(file: &[u8]) -> Vec<Vec<u8>> {
    file.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// The file with one line (from 0) changed.
fn changed(file: &[u8], line: usize, change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut lines = lines(file);
    let mut value: Value = serde_json::from_slice(&lines[line]).unwrap();
    change(&mut value);
    lines[line] = format!("{value}\n").into_bytes();
    sealed(lines)
}

/// The number of the line of this kind, from 0.
fn line_of(file: &[u8], kind: &str) -> usize {
    let kind = format!("\"kind\":\"{kind}\",\"version\":1");
    lines(file).iter().position(|line| has(line, &kind)).unwrap()
}

fn has(line: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(line).contains(text)
}

fn error(file: &[u8]) -> String {
    open(file).map(drop).unwrap_err().to_string()
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_refused() {
    let home = Home::new();
    home.thread(thread(), one_of_each(), event);
    let file = home.export(thread());
    for length in (0..file.len()).step_by(7).chain([file.len() - 1]) {
        let error = open(&file[..length]).map(drop).unwrap_err();
        assert!(matches!(error.fault, Fault::CutOff | Fault::NotAThread), "{length}: {error}");
    }
    open(&file).unwrap();
}

#[test]
fn any_changed_byte_is_found() {
    let home = Home::new();
    home.thread(thread(), one_of_each(), event);
    let file = home.export(thread());
    for at in (0..file.len()).step_by(11) {
        let mut file = file.clone();
        file[at] ^= 1;
        error(&file);
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let home = Home::new();
    rich(&home);
    let file = home.export(thread());
    let lines = lines(&file);
    let piece = lines.iter().position(|line| has(line, "\"chunks\":3")).unwrap();
    let lost = lines.iter().position(|line| has(line, "{\"blob\":\"0123")).unwrap();
    let named = lines.iter().position(|line| has(line, LOST)).unwrap();
    let without = |line: usize| {
        let mut lines = lines.clone();
        lines.remove(line);
        sealed(lines)
    };
    let with = |line: usize, change: fn(&mut Value)| changed(&file, line, change);
    let [titled, forked, begins, paid] =
        ["title_changed", "thread_forked", "run_started", "usage_recorded"].map(|kind| line_of(&file, kind));
    let at = |line: usize, told: &str| format!("line {}: {}", line + 1, told.replace("{seq}", &line.to_string()));
    let cut = sealed(lines[..=piece].iter().chain(lines.last()).cloned().collect());
    let events = lines.iter().filter(|line| line.starts_with(b"{\"seq\"")).count() as u64;
    assert_eq!(error(b""), error(b"{\"type\":\"user\"}\n"));
    for (file, told) in [
        (with(0, |line| line["format"] = json!("other")), at(0, "this is no thread that mcode has exported")),
        (with(0, |line| line["version"] = json!(2)), at(0, "the file has version 2 of the format")),
        (with(0, |line| line["surprise"] = json!(1)), at(0, "the line does not read as a first line: unknown field")),
        (
            with(0, |line| line["thread_id"] = json!("run_1")),
            at(0, "the line does not read as a first line: 'run_1' is"),
        ),
        (with(0, |line| line["events"] = json!(9_999_999)), at(0, "the number of events is more than is taken")),
        (with(0, |line| line["events"] = json!(0)), at(0, "event 1: a thread has at least the event that makes it")),
        (with(0, |line| line["events"] = json!(3)), at(4, "the line does not read as a body or the end")),
        (without(2), at(2, "event 2 should stand here, and it is event 3")),
        (
            with(1, |line| line["kind"] = json!("tomorrow")),
            at(1, "event {seq}: the first event has to make the thread"),
        ),
        (with(2, |line| line["kind"] = json!("Bad Kind")), at(2, "event {seq}: it has no kind")),
        (
            with(titled, |line| line["payload"]["title"] = json!(7)),
            at(titled, "event {seq}: its payload does not read as title_changed"),
        ),
        (
            with(titled, |line| line["payload"]["title"] = json!("x".repeat(3_000))),
            at(titled, "event {seq}: its title, tags, folders or names are too long"),
        ),
        (
            with(forked, |line| line["payload"]["parent_seq"] = json!(2)),
            at(forked, "event {seq}: it shares what comes after it"),
        ),
        (with(2, |line| line["at"] = json!(i64::MAX)), at(2, "event {seq}: its time is before 1970 or lies ahead")),
        (
            with(2, |line| line["payload_text"] = json!("")),
            at(2, "the line does not read as an event: it has to have one"),
        ),
        (
            with(begins, |line| line["run_id"] = json!("run_")),
            at(begins, "the line does not read as an event: 'run_' is not a run id"),
        ),
        (with(begins, |line| line["run_id"] = Value::Null), at(begins, "event {seq}: it begins a run that has no id")),
        (
            with(paid, |line| line["payload"]["usage"]["cost_usd"] = json!(1e300)),
            at(paid, "event {seq}: its cost is beyond reason"),
        ),
        (
            with(paid, |line| line["payload"]["usage"]["cost_usd"] = json!(-1)),
            at(paid, "event {seq}: its cost is beyond reason"),
        ),
        (without(piece), "its pieces are not in order".to_owned()),
        (without(piece + 2), "its pieces are not in order".to_owned()),
        (cut, "its last pieces are missing".to_owned()),
        (without(lost), at(named, &format!("the body {LOST}: it is referred to here, and the file does not hold it"))),
        (with(piece, |line| line["data"] = json!("AAAA")), "its pieces are not of its size".to_owned()),
        (with(piece, |line| line["data"] = json!("!")), "its content is no base64".to_owned()),
        (with(piece, |line| line["size_bytes"] = json!(u64::MAX)), "the size of a body in bytes is more".to_owned()),
        (with(piece, |line| line["blob"] = json!("zz")), "the line does not read as a body or the end".to_owned()),
    ] {
        let error = error(&file);
        assert!(error.contains(&told), "{error}\n  instead of: {told}");
    }
    assert!(events > 30);
}

#[test]
fn a_body_that_no_event_names_is_refused() {
    let home = Home::new();
    home.thread(thread(), one_of_each(), event);
    let mut lines = lines(&home.export(thread()));
    let hash = blake3::hash(b"x").to_hex().to_string();
    let body = json!({"blob": hash, "media_type": "a/b", "size_bytes": 1, "chunk": 1, "chunks": 1, "data": "eA=="});
    lines.insert(lines.len() - 1, format!("{body}\n").into_bytes());
    assert!(error(&sealed(lines)).ends_with("no event names it"));
}

#[test]
fn a_body_with_another_content_is_refused() {
    let home = Home::new();
    rich(&home);
    let file = home.export(thread());
    let small = lines(&file).iter().position(|line| has(line, "\"size_bytes\":16,")).unwrap();
    let forged = changed(&file, small, |line| {
        let size = line["size_bytes"].as_u64().unwrap() as usize;
        use base64::Engine as _;
        line["data"] = json!(base64::engine::general_purpose::STANDARD.encode(vec![b'?'; size]));
    });
    let error = error(&forged);
    assert!(error.contains("its content does not match its hash"), "{error}");
}

#[test]
fn every_limit_is_one() {
    let home = Home::new();
    rich(&home);
    let file = home.export(thread());
    let with = |limits: Limits| {
        let opened = ThreadFile::open(std::io::Cursor::new(file.clone()), limits, moment());
        opened.map(drop).unwrap_err().to_string()
    };
    let small = Limits::DEFAULT;
    assert!(with(Limits { line_bytes: 100, ..small }).starts_with("line 1: the length of this line"));
    assert!(
        with(Limits { file_bytes: 2000, ..small })
            .contains("the size of the file in bytes is more than is taken (2000)")
    );
    assert!(with(Limits { events: 3, ..small }).contains("the number of events is more than is taken (3)"));
    assert!(with(Limits { runs: 0, ..small }).contains("the number of runs is more than is taken (0)"));
    assert!(with(Limits { blobs: 2, ..small }).contains("the number of bodies is more than is taken (2)"));
    assert!(
        with(Limits { blob_bytes: 1000, ..small }).contains("the size of a body in bytes is more than is taken (1000)")
    );
}

#[test]
fn a_call_of_this_store_can_not_be_claimed_by_a_file() {
    // An id behind an escape is the same id to whoever reads JSON.
    let home = Home::new();
    home.thread(thread(), one_of_each(), event);
    let file = String::from_utf8(home.export(thread())).unwrap();
    let call = format!("{}", id::<mcode_ids::ToolCallId>("tc_", 5));
    let escaped = format!("\\u0074{}", &call[1..]);
    let forged = file.replace(&format!("\"{call}\""), &format!("\"{escaped}\""));
    let forged = sealed(lines(forged.as_bytes()));
    let mut read = open(&forged).unwrap();
    let importing = Importing { identity: Identity::Fresh(id("thr_", 99)), place: None };
    for event in read.events(&importing).unwrap() {
        assert!(!event.unwrap().body.encode().unwrap().contains(&call));
    }
}

#[test]
fn the_project_and_the_folder_are_those_of_this_machine() {
    let home = Home::new();
    let mut bodies = one_of_each();
    if let EventBody::ThreadCreated { ephemeral, .. } = &mut bodies[0] {
        *ephemeral = true;
    }
    home.thread(thread(), bodies, event);
    let file = home.export(thread());
    let importing = Importing {
        identity: Identity::Kept,
        place: Some(Place { project_id: id("prj_", 500), cwd: "/srv/here/a".into(), root: "/srv/here".into() }),
    };
    let mut read = open(&file).unwrap();
    let first = read.events(&importing).unwrap().next().unwrap().unwrap();
    let EventBody::ThreadCreated { project_id, cwd, root, ephemeral, .. } = first.body else { panic!() };
    assert_eq!((project_id, ephemeral), (id("prj_", 500), false));
    assert_eq!((cwd.as_str(), root.as_str()), ("/srv/here/a", "/srv/here"));
}

#[test]
fn a_log_that_ends_early_is_not_exported_as_whole() {
    let home = Home::new();
    home.thread(thread(), one_of_each(), event);
    let info = home.info(thread());
    let cut = home.events(thread()).take(5);
    let mut out = Vec::new();
    let error = mcode_histories::write_thread(&info, cut, &*home.blobs(), moment(), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "event 6 of the thread is missing");
}

#[test]
fn a_run_that_a_fork_left_behind_is_ended() {
    let home = Home::new();
    let all = one_of_each();
    let kind = |kind: &str| all.iter().find(|body| body.kind() == kind).unwrap().clone();
    let mut forked = kind("thread_forked");
    if let EventBody::ThreadForked { parent_seq, .. } = &mut forked {
        *parent_seq = mcode_ids::Seq::new(3);
    }
    home.thread(thread(), vec![all[0].clone(), kind("run_started"), kind("turn_started"), forked], event);
    let file = home.export(thread());
    let mut read = open(&file).unwrap();
    let importing = Importing { identity: Identity::Fresh(id("thr_", 99)), place: None };
    let last = read.events(&importing).unwrap().last().unwrap().unwrap();
    assert!(matches!(last.body, EventBody::RunFinished { status: RunStatus::Interrupted, .. }), "{last:?}");
    let other = Home::new();
    let state = other.import(&file, Identity::Kept);
    assert!(state.open.is_empty() && state.runs.iter().all(|run| run.status == RunStatus::Interrupted));
    // Its end is in the log now, and does not come again.
    let again = other.export(thread());
    assert!(!open(&again).unwrap().contents().was_at_work);
    let last = lines(&again).iter().rposition(|line| has(line, "\"kind\":\"run_finished\"")).unwrap();
    let mut twice = lines(&again);
    twice.insert(last, twice[last].clone());
    let twice = sealed(renumbered(twice));
    assert!(error(&twice).contains("it ends a run that has not begun or has ended before"), "{}", error(&twice));
}

/// Events with the numbers of their places, and their count in the first line.
fn renumbered(mut lines: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut count = 0;
    for line in lines.iter_mut().skip(1) {
        let mut value: Value = serde_json::from_slice(line).unwrap();
        if value.get("seq").is_some() {
            count += 1;
            value["seq"] = json!(count);
            *line = format!("{value}\n").into_bytes();
        }
    }
    let mut first: Value = serde_json::from_slice(&lines[0]).unwrap();
    first["events"] = json!(count);
    lines[0] = format!("{first}\n").into_bytes();
    lines
}

#[test]
fn the_same_thread_is_known_again_whenever_it_was_exported() {
    let home = Home::new();
    rich(&home);
    let content = |file: &[u8]| open(file).unwrap().contents().content.clone();
    let file = home.export(thread());
    let later = changed(&file, 0, |line| line["exported_at"] = json!("2030-01-01T00:00:00Z"));
    let later = sealed(lines(&later));
    assert_ne!(later, file);
    assert_eq!(content(&later), content(&file));
    let titled = changed(&file, line_of(&file, "title_changed"), |line| line["payload"]["title"] = json!("another"));
    assert_ne!(content(&sealed(lines(&titled))), content(&file));
}
