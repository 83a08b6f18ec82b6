//! Histories of other agents, in their own forms. `MCODE_GOLDEN=write cargo test -p mcode-histories --test foreign`
//! writes anew what is made of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]
#![allow(unreachable_pub, reason = "the support is that of other tests too")]

#[allow(dead_code, reason = "each test program uses its part")]
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mcode_env::{SeededIds, Timestamp};
use mcode_events::event::{Event, EventBody};
use mcode_events::message::Part;
use mcode_events::tool::ResultPart;
use mcode_events::{Role, RunStatus, ThreadState};
use mcode_histories::Place;
use mcode_histories::foreign::{Discovery, ForeignError, Found, Imported, Maker, Places, Reading, discover, read};
use mcode_ids::{ProjectId, ThreadId};
use support::Home;

/// After everything in the fixtures.
const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    }
}

/// A home with everything that the fixtures have.
fn home() -> (tempfile::TempDir, Places) {
    let home = tempfile::tempdir().unwrap();
    let at = |path: &str| home.path().join(path);
    copy(
        &fixture("claude-code.jsonl"),
        &at(".claude/projects/-home-me-app/5e551011-0000-4000-8000-000000000001.jsonl"),
    );
    std::fs::write(at(".claude/projects/-home-me-app/agent-1234.jsonl"), "{\"type\":\"user\"}\n").unwrap();
    let codex = ".codex/sessions/2026/01/05/rollout-2026-01-05T10-00-00-0199a213-81c0-7800-8aa1-bbab2a035a53.jsonl";
    copy(&fixture("codex.jsonl"), &at(codex));
    let flat = ".codex/sessions/rollout-2025-06-01T10-00-00-0198b213-81c0-7800-8aa1-bbab2a035a53.jsonl";
    copy(&fixture("codex-flat.jsonl"), &at(flat));
    copy(&fixture("codex-document.json"), &at(".codex/sessions/rollout-2025-04-01-oldest.json"));
    std::fs::write(
        at(".codex/session_index.jsonl"),
        "{\"id\":\"0199a213-81c0-7800-8aa1-bbab2a035a53\",\"thread_name\":\"Named in the index\",\"updated_at\":\"x\"}\n",
    )
    .unwrap();
    copy(&fixture("opencode"), &at(".local/share/opencode"));
    database(&fixture("mastra-code.sql"), &at("mastra/mastra.db"));
    let mut places = Places::of(home.path(), |_| None);
    places.mastra_code = at("mastra/mastra.db");
    (home, places)
}

fn database(sql: &Path, path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch(&std::fs::read_to_string(sql).unwrap()).unwrap();
}

fn found<'a>(discovery: &'a Discovery, id: &str) -> &'a Found {
    discovery.found.iter().find(|found| found.id.ends_with(id)).unwrap_or_else(|| panic!("{id} in {discovery:?}"))
}

fn import(found: &Found, store: &Home) -> Result<Imported, ForeignError> {
    let ids = SeededIds::new(7);
    let blobs = store.blobs();
    read(found, Reading { ids: &ids, blobs: &*blobs, now: NOW })
}

fn events(imported: Imported) -> Vec<Event> {
    let thread_id: ThreadId = "thr_01900000000070008000000000000001".parse().unwrap();
    let project_id: ProjectId = "prj_01900000000070008000000000000002".parse().unwrap();
    let place = Place { project_id, cwd: imported.cwd.clone(), root: imported.cwd.clone() };
    imported.into_events(thread_id, &place, "anthropic/stand-in")
}

/// What the thread says, a line for each event.
fn outline(imported: Imported) -> String {
    let (key, report) = (imported.key.clone(), imported.report.clone());
    let mut out = format!("key {key}\n");
    for (kind, count) in &report.left_out {
        out.push_str(&format!("left out {kind}: {count}\n"));
    }
    for place in &report.damaged {
        out.push_str(&format!("damaged {place}\n"));
    }
    for event in events(imported) {
        out.push_str(&format!("{} ", &Timestamp::from_millis(event.at_ms).to_string()[11..19]));
        out.push_str(&line(&event.body));
        out.push('\n');
    }
    out
}

fn line(body: &EventBody) -> String {
    match body {
        EventBody::ThreadCreated { cwd, title, model, .. } => format!("thread {title:?} {cwd} {model}"),
        EventBody::Notice { level, text } => format!("notice {level} {text:?}"),
        EventBody::ModelChanged { model } => format!("model {model}"),
        EventBody::RunStarted { options } => format!("run {} {}", options.model, options.cwd),
        EventBody::RunFinished { status, usage, .. } => {
            format!(
                "end of run {} in {} out {} read {} write {} ${}",
                status.as_str(),
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.cost_usd
            )
        }
        EventBody::MessageFinished { message } => {
            let parts: Vec<String> = message.parts.iter().map(part).collect();
            let role = if message.role == Role::User { "user" } else { "assistant" };
            let origin = message.origin.as_ref().map(|it| format!(" {}/{} over {}", it.provider, it.model, it.wire));
            format!("{role}{} {}", origin.unwrap_or_default(), parts.join(" | "))
        }
        EventBody::ToolCallStarted { call, .. } => format!("call {} {}", call.name, call.arguments),
        EventBody::ToolCallFinished { name, result } => {
            let content = result.content.iter().map(|part| match part {
                ResultPart::Text { text } => format!("{text:?}"),
                ResultPart::Media { blob, name } => format!("{name} {} {}", blob.media_type, blob.size_bytes),
            });
            let exit = result.exit_code.map(|code| format!(" exit {code}")).unwrap_or_default();
            let diff = result.diff.as_ref().map(|diff| format!(" diff {diff:?}")).unwrap_or_default();
            format!("result {name} {}{exit}{diff} {}", result.status.as_str(), content.collect::<Vec<_>>().join(" | "))
        }
        EventBody::StepFinished { status, stop_reason, .. } => format!("end of step {} {stop_reason}", status.as_str()),
        EventBody::TurnFinished { status, .. } => format!("end of turn {}", status.as_str()),
        other => other.kind().to_owned(),
    }
}

fn part(part: &Part) -> String {
    match part {
        Part::Text { text, .. } => format!("{text:?}"),
        Part::Thinking { text, opaque } => {
            let signed = opaque.as_ref().map(|it| format!(" {}", it.0)).unwrap_or_default();
            format!("thinking {text:?}{signed}")
        }
        Part::RedactedThinking { opaque } => format!("redacted {}", opaque.0),
        Part::Media { blob, name } => format!("{name} {} {}", blob.media_type, blob.size_bytes),
        Part::ToolCall { name, provider_call_id, .. } => format!("calls {name} as {provider_call_id}"),
        Part::Provider { opaque } => format!("provider {}", opaque.0),
    }
}

fn golden(name: &str, imported: Imported) {
    check(imported.clone());
    let written = outline(imported);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("MCODE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &written).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(written, golden.replace("\r\n", "\n"), "{}", path.display());
}

/// The fold and the store take it, nothing is open, and nothing in it decides anything.
fn check(imported: Imported) {
    let store = Home::new();
    let all = events(imported);
    let mut state = ThreadState::new(all[0].thread_id);
    let mut before = 0;
    let mut started = BTreeSet::new();
    let mut ended = BTreeSet::new();
    for event in all {
        assert!(event.at_ms >= before && event.at_ms <= NOW.millis(), "{event:?}");
        before = event.at_ms;
        match &event.body {
            EventBody::ToolCallStarted { call, .. } => assert!(started.insert(call.tool_call_id)),
            EventBody::ToolCallFinished { result, .. } => assert!(ended.insert(result.tool_call_id)),
            EventBody::RunStarted { options } => {
                assert!(options.kept.is_none() && !options.interactive && options.goal_id.is_none());
                assert_eq!(options.approval, mcode_events::run::ApprovalPolicy::Ask);
            }
            EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalResolved { .. }
            | EventBody::InputQueued { .. }
            | EventBody::ProcessStarted { .. }
            | EventBody::UsageRecorded { .. } => panic!("{event:?}"),
            _ => {}
        }
        store.append(&mut state, event);
    }
    assert_eq!(started, ended);
    assert!(state.open.is_empty() && state.queue.is_empty(), "{:?}", state.open);
    assert!(state.runs.iter().all(|run| !matches!(run.status, RunStatus::Running | RunStatus::Waiting)));
    assert_eq!(state.usage.cost_usd.to_bits(), 0f64.to_bits());
}

#[test]
fn everything_is_found() {
    let (_home, places) = home();
    let discovery = discover(&places, None);
    assert_eq!(discovery.problems, Vec::<String>::new());
    let mut listed: Vec<String> = discovery
        .found
        .iter()
        .map(|it| format!("{} {} {:?} {} {:?}", it.maker.as_str(), it.id, it.title, it.cwd, it.messages))
        .collect();
    listed.sort();
    assert_eq!(
        listed,
        [
            "claude-code 5e551011-0000-4000-8000-000000000001 \"The \\\\x1b[31mmended test\" /home/me/app Some(21)",
            "codex 0198b213-81c0-7800-8aa1-bbab2a035a53 \"An old question\"  Some(2)",
            "codex 0199a213-81c0-7800-8aa1-bbab2a035a53 \"Named in the index\" /home/me/app Some(10)",
            "codex rollout-2025-04-01-oldest \"\"  None",
            "mastra-code thread-1 \"Looking around\" /home/me/app Some(6)",
            "mastra-code thread-2 \"\"  Some(2)",
            "opencode ses_1 \"Reading a file\" /home/me/app Some(5)",
        ]
    );
    let only = discover(&places, Some(Maker::Codex));
    assert_eq!(only.found.len(), 3);
    assert!(discover(&Places::of(Path::new("/nowhere"), |_| None), None).found.is_empty());
}

#[test]
fn claude_code() {
    let (_home, places) = home();
    let discovery = discover(&places, Some(Maker::ClaudeCode));
    golden("claude-code.txt", import(&discovery.found[0], &Home::new()).unwrap());
}

#[test]
fn codex() {
    let (_home, places) = home();
    let discovery = discover(&places, Some(Maker::Codex));
    let store = Home::new();
    golden("codex.txt", import(found(&discovery, "0199a213-81c0-7800-8aa1-bbab2a035a53"), &store).unwrap());
    golden("codex-flat.txt", import(found(&discovery, "0198b213-81c0-7800-8aa1-bbab2a035a53"), &store).unwrap());
    golden("codex-document.txt", import(found(&discovery, "oldest"), &store).unwrap());
}

#[test]
fn opencode_files_and_database_give_the_same() {
    let (home, places) = home();
    let store = Home::new();
    let of_files = import(&discover(&places, Some(Maker::Opencode)).found[0], &store).unwrap();
    golden("opencode-files.txt", of_files.clone());
    database(&fixture("opencode.sql"), &home.path().join(".local/share/opencode/opencode.db"));
    let discovery = discover(&places, Some(Maker::Opencode));
    assert_eq!(discovery.found.len(), 2, "{discovery:?}");
    let of_database = import(found(&discovery, "ses_1"), &store).unwrap();
    assert!(found(&discovery, "ses_1").path.is_file());
    assert_eq!(of_database.key, of_files.key);
    assert_eq!(of_database.events, of_files.events);
    golden("opencode-newer.txt", import(found(&discovery, "ses_3"), &store).unwrap());
}

#[test]
fn mastra_code() {
    let (_home, places) = home();
    let discovery = discover(&places, Some(Maker::MastraCode));
    let store = Home::new();
    golden("mastra-code.txt", import(found(&discovery, "thread-1"), &store).unwrap());
    golden("mastra-code-small.txt", import(found(&discovery, "thread-2"), &store).unwrap());
}

/// Every file below a folder with its content.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let content = std::fs::read(&path).unwrap();
            all.push((path, content));
        }
    }
    all.sort();
    all
}

#[test]
fn the_originals_are_as_they_were() {
    let (home, places) = home();
    database(&fixture("opencode.sql"), &home.path().join(".local/share/opencode/opencode.db"));
    let before = contents(home.path());
    let store = Home::new();
    for found in &discover(&places, None).found {
        import(found, &store).unwrap();
    }
    assert!(before == contents(home.path()), "something was written");
}

#[test]
fn an_import_is_known_again() {
    let (_home, places) = home();
    let store = Home::new();
    for found in &discover(&places, None).found {
        let (first, second) = (import(found, &store).unwrap(), import(found, &store).unwrap());
        assert_eq!(first.key, second.key);
        assert_eq!(first.key, found.key());
        assert!(first.key.starts_with(&format!("import:{}:", found.maker.as_str())) && first.key.len() <= 128);
        assert_eq!(Maker::named(found.maker.as_str()), Some(found.maker));
    }
    let odd = Found { id: "a b\n".repeat(100), ..discover(&places, None).found[0].clone() };
    assert!(odd.key().len() <= 128 && !odd.key().contains(char::is_whitespace));
}

/// A database whose last messages are in its log only, and that somebody works with.
fn at_work(dir: &Path) -> (PathBuf, rusqlite::Connection) {
    let path = dir.join("mastra.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.execute_batch(&std::fs::read_to_string(fixture("mastra-code.sql")).unwrap()).unwrap();
    (path, connection)
}

#[test]
fn a_database_at_work_is_read_beside_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let (path, writer) = at_work(dir.path());
    let places = Places { mastra_code: path, ..Places::of(dir.path(), |_| None) };
    writer.execute_batch("BEGIN IMMEDIATE; UPDATE mastra_threads SET title = 'not yet';").unwrap();
    let before = contents(dir.path());
    let discovery = discover(&places, Some(Maker::MastraCode));
    assert_eq!(discovery.problems, Vec::<String>::new());
    assert_eq!(found(&discovery, "thread-1").title, "Looking around");
    assert_eq!(import(found(&discovery, "thread-1"), &Home::new()).unwrap().report.messages, 5);
    assert!(before == contents(dir.path()), "something was written");
    writer.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    assert_eq!(found(&discover(&places, Some(Maker::MastraCode)), "thread-1").title, "not yet");
}

#[test]
fn a_log_that_a_crash_left_is_read_without_being_put_in() {
    let (dir, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, writer) = at_work(dir.path());
    for name in ["mastra.db", "mastra.db-wal"] {
        std::fs::copy(dir.path().join(name), left.path().join(name)).unwrap();
    }
    drop(writer);
    let before = contents(left.path());
    assert!(std::fs::metadata(left.path().join("mastra.db-wal")).unwrap().len() > 0);
    let places = Places { mastra_code: left.path().join("mastra.db"), ..Places::of(left.path(), |_| None) };
    let discovery = discover(&places, Some(Maker::MastraCode));
    assert_eq!(import(found(&discovery, "thread-1"), &Home::new()).unwrap().report.messages, 5);
    assert!(before == contents(left.path()), "something was written");
    // With the index of the log beside it too, of which nobody holds a lock.
    std::fs::write(left.path().join("mastra.db-shm"), vec![0; 32768]).unwrap();
    let before = contents(left.path());
    assert_eq!(discover(&places, Some(Maker::MastraCode)).found.len(), 2);
    assert!(before == contents(left.path()), "something was written");
    assert!(path.exists());
}

#[test]
fn a_database_that_is_none_or_another_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mastra.db");
    let places = Places { mastra_code: path.clone(), ..Places::of(dir.path(), |_| None) };
    let problem = || discover(&places, Some(Maker::MastraCode)).problems.join("\n");
    std::fs::write(&path, "no database".repeat(1000)).unwrap();
    assert!(
        problem().contains("could not be read as a database of Mastra Code: file is not a database"),
        "{}",
        problem()
    );
    std::fs::remove_file(&path).unwrap();
    let make = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    make("CREATE TABLE mastra_messages (id TEXT)");
    assert!(problem().contains("it has no table 'mastra_threads'"), "{}", problem());
    // A view that never ends is no table.
    make(
        "CREATE VIEW mastra_threads AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n)
         SELECT i AS id, i AS title, i AS metadata, i AS updatedAt FROM n",
    );
    assert!(problem().contains("it has no table 'mastra_threads'"), "{}", problem());
    make("DROP VIEW mastra_threads; CREATE TABLE mastra_threads (id TEXT)");
    assert!(problem().contains("no such column"), "{}", problem());
}

#[test]
fn what_is_not_there_or_holds_nothing_is_told() {
    let (home, places) = home();
    let store = Home::new();
    let discovery = discover(&places, None);
    for id in ["thread-1", "ses_1"] {
        for other in ["gone", "../../../etc/passwd", "x'; DROP TABLE session; --"] {
            let gone = Found { id: other.into(), ..found(&discovery, id).clone() };
            let error = import(&gone, &store).unwrap_err();
            assert!(matches!(error, ForeignError::Missing { .. }), "{error}");
        }
    }
    let empty = home.path().join("empty.jsonl");
    std::fs::write(&empty, "{\"type\":\"summary\",\"summary\":\"x\"}\nnot json\n").unwrap();
    for maker in [Maker::ClaudeCode, Maker::Codex] {
        let found = Found { maker, path: empty.clone(), ..discovery.found[0].clone() };
        let error = import(&found, &store).unwrap_err().to_string();
        assert!(error.contains("holds no message that could be read"), "{error}");
        let found = Found { path: home.path().join("gone.jsonl"), ..found };
        assert!(matches!(import(&found, &store).unwrap_err(), ForeignError::Io { .. }));
    }
}

fn claude(lines: &[serde_json::Value]) -> Imported {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl");
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    std::fs::write(&path, text.join("\n")).unwrap();
    let found = Found {
        maker: Maker::ClaudeCode,
        id: "x".into(),
        title: String::new(),
        cwd: "/home/me/app".into(),
        updated_at_ms: 1_770_000_000_000,
        messages: None,
        path,
    };
    let imported = import(&found, &Home::new()).unwrap();
    check(imported.clone());
    imported
}

#[test]
fn long_texts_and_results_are_bounded_and_a_long_result_is_kept_whole() {
    use serde_json::json;
    let long = "word ".repeat(300_000);
    let deep = (0..=mcode_events::depth::JSON_DEPTH_MAX).fold(json!(1), |inner, _| json!({"a": inner}));
    let blocks: Vec<_> = (0..2005).map(|number| json!({"type": "text", "text": number.to_string()})).collect();
    let imported = claude(&[
        json!({"type": "user", "uuid": "1", "message": {"content": long}}),
        json!({"type": "assistant", "uuid": "2", "parentUuid": "1", "message": {"id": "m", "model": "claude-x", "content": [
            {"type": "tool_use", "id": "t", "name": "x".repeat(300), "input": {"a": "y".repeat(5_000_000)}},
            {"type": "tool_use", "id": "u", "name": "x", "input": deep}]}}),
        json!({"type": "user", "uuid": "3", "parentUuid": "2", "message": {"content": [
            {"type": "tool_result", "tool_use_id": "t", "content": long}]}}),
        json!({"type": "assistant", "uuid": "4", "parentUuid": "3", "message": {"id": "n", "model": "claude-x", "content": blocks}}),
    ]);
    let left_out = &imported.report.left_out;
    assert_eq!(left_out["middles of texts beyond the limit"], 1);
    assert_eq!(left_out["arguments beyond the limit"], 2);
    assert_eq!(left_out["parts of an answer beyond the limit"], 5);
    let result = imported.events.iter().find_map(|timed| match &timed.event.body {
        EventBody::ToolCallFinished { name, result } => Some((name.clone(), result.joined_text())),
        _ => None,
    });
    let (name, result) = result.unwrap();
    assert_eq!(name.len(), 64);
    assert!(result.len() < 60_000 && result.contains("full output: 1500000 bytes, view it with path \"blob:"));
    // No time stands in it: it was when its file was.
    assert_eq!(imported.events[0].at_ms, 1_770_000_000_000);
}

#[test]
fn a_circle_and_a_chain_without_a_beginning_end() {
    use serde_json::json;
    let said = |uuid: &str, parent: &str| json!({"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"content": uuid}, "timestamp": "2999-01-01T00:00:00Z"});
    let imported = claude(&[said("a", "c"), said("b", "a"), said("c", "b"), said("a", "b")]);
    assert_eq!((imported.report.messages, imported.report.left_out["records that are there already"]), (3, 1));
    let imported = claude(&[said("x", "y"), said("b", "nowhere")]);
    assert_eq!((imported.report.messages, imported.report.left_out["records of other branches"]), (1, 1));
}

/// Every place in a document.
fn pointers(value: &serde_json::Value, at: String, places: &mut Vec<String>) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| pointers(value, format!("{at}/{name}"), places));
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(number, value)| pointers(value, format!("{at}/{number}"), places));
        }
        _ => {}
    }
    places.push(at);
}

#[test]
fn whatever_is_changed_in_a_history_it_stays_one_or_is_refused() {
    use serde_json::{Value, json};
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut dice = move |bound: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 16) as usize % bound.max(1)
    };
    let (_home, places) = home();
    let discovery = discover(&places, None);
    let dir = tempfile::tempdir().unwrap();
    let store = Home::new();
    let mut read_whole = 0;
    for (name, id) in [("claude-code.jsonl", "000000000001"), ("codex.jsonl", "0199a213-81c0-7800-8aa1-bbab2a035a53")] {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for round in 0..150 {
            let mut lines = lines.clone();
            for _ in 0..1 + dice(6) {
                let line = dice(lines.len());
                let odd = [
                    json!(null),
                    json!(-1),
                    json!(1e300),
                    json!("\u{0}\u{202e}"),
                    json!([[], {}]),
                    json!({"type": []}),
                    json!(true),
                    lines[dice(lines.len())].clone(),
                ];
                let mut places = Vec::new();
                pointers(&lines[line], String::new(), &mut places);
                let place = lines[line].pointer_mut(&places[dice(places.len())]).unwrap();
                *place = odd[dice(odd.len())].clone();
            }
            let path = dir.path().join(format!("{round}-{name}"));
            std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
            let changed = Found { path, ..found(&discovery, id).clone() };
            let Ok(imported) = import(&changed, &store) else { continue };
            let mut state = ThreadState::new("thr_01900000000070008000000000000001".parse().unwrap());
            for event in events(imported) {
                let stored = event.body.encode().unwrap();
                assert_eq!(EventBody::decode(event.body.kind(), 1, &stored).unwrap(), event.body);
                state.apply(&event);
            }
            assert!(state.open.is_empty() && state.queue.is_empty());
            read_whole += 1;
        }
    }
    assert!(read_whole > 200, "{read_whole}");
}
