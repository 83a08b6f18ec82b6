//! Databases of every earlier version, with what they may hold, become current ones or stay as they are.

use mcode_env::{IdGen, SeededIds};
use mcode_events::blob::Blobs;
use mcode_events::event::{Event, EventBody};
use mcode_events::state::ThreadState;
use mcode_events::usage::{Usage, UsagePurpose};
use mcode_ids::{ProjectId, RunId, Seq, ThreadId};

use super::*;
use crate::projection::ThreadRow;

/// A database as the version before `known` left it, with so many events of a thread, each with a body of its own, and
/// one of another thread that has the first body too. The last event is in a blob itself.
fn left_by(known: usize, path: &Path, blobs: &BlobFiles, events: usize) -> (ThreadId, Vec<String>) {
    let connection = Connection::open(path).unwrap();
    for step in &MIGRATIONS[..known] {
        connection.execute_batch(step).unwrap();
    }
    connection.pragma_update(None, "user_version", i64::try_from(known).unwrap()).unwrap();
    let thread_id = ThreadId::from_uuid(SeededIds::new(3).next());
    let put = |text: String| blobs.put(text.as_bytes(), "text/plain").unwrap().hash;
    let add = |thread: &str, seq: i64, spilled: bool, payload: String| {
        let row = rusqlite::params![thread, seq, spilled, payload];
        let insert = "INSERT INTO events VALUES (?1, ?2, 0, 'notice', 1, NULL, NULL, ?3, ?4, 0)";
        connection.execute(insert, row).unwrap();
    };
    let mut bodies: Vec<String> = (0..events).map(|at| put(format!("body {at}"))).collect();
    add("thr_other", 1, false, format!("blob:{}", bodies[0]));
    for (at, hash) in bodies.clone().iter().enumerate() {
        let spilled = at + 1 == events;
        let payload = if spilled { put(format!("an event that says blob:{hash}")) } else { format!("blob:{hash}") };
        add(&thread_id.to_string(), i64::try_from(at + 1).unwrap(), spilled, payload.clone());
        bodies.extend(spilled.then_some(payload));
    }
    (thread_id, bodies)
}

#[test]
fn what_older_logs_have_cost_is_known_after_a_start() {
    for known in 1..usize::try_from(USAGE_SINCE).unwrap() {
        let dir = tempfile::tempdir().unwrap();
        let (path, blobs) = (dir.path().join("mcode.db"), BlobFiles::open(dir.path().join("blobs")).unwrap());
        let connection = Connection::open(&path).unwrap();
        for step in &MIGRATIONS[..known] {
            connection.execute_batch(step).unwrap();
        }
        connection.pragma_update(None, "user_version", i64::try_from(known).unwrap()).unwrap();
        let thread = "INSERT INTO threads VALUES ('thr_a', 'prj_a', '/', 't', 'a/b', 'build', 'idle', NULL, 0, 0, 0, 1, 1, 2, '{}')";
        connection.execute(thread, []).unwrap();
        for (seq, cost) in [(1, "0.000000075"), (2, "0.0")] {
            let payload = format!(
                r#"{{"kind":"usage_recorded","model":"a/b/c","usage":{{"input_tokens":{seq},"output_tokens":2,"cost_usd":{cost}}}}}"#
            );
            let insert = "INSERT INTO events VALUES ('thr_a', ?1, 7, 'usage_recorded', 1, 'run_a', NULL, 0, ?2, 0)";
            connection.execute(insert, rusqlite::params![seq, payload]).unwrap();
        }
        // Damaged, and read as far as that goes.
        let odd = r#"{"model":{"a":[1]},"purpose":7,"usage":{"input_tokens":"many","output_tokens":[2],"cost_usd":"1e300"},"priced":"x"}"#;
        for (seq, payload) in [(3, "{}"), (4, r#"{"usage":"none"}"#), (5, odd), (6, "{")] {
            let insert = "INSERT INTO events VALUES ('thr_a', ?1, 8, 'usage_recorded', 1, NULL, NULL, 0, ?2, 0)";
            connection.execute(insert, rusqlite::params![seq, payload]).unwrap();
        }
        // One that is there still, and two of a thread that was deleted.
        for (at, thread, cost) in [(7, "thr_a", 0.000_000_075), (5, "thr_gone", 0.1), (6, "thr_gone", 0.2)] {
            let insert = "INSERT INTO spending VALUES (?1, ?2, ?3)";
            connection.execute(insert, rusqlite::params![at, thread, cost]).unwrap();
        }
        drop(connection);
        let connection = open(&path, &blobs).unwrap();
        let rows =
            "SELECT thread_id, at, model, provider, purpose, run_id, input_tokens + output_tokens, cost_nanos, priced
                    FROM usage ORDER BY thread_id, at, seq";
        let mut statement = connection.prepare(rows).unwrap();
        let rows: Vec<String> = statement
            .query_map([], |row| {
                let text = |at| row.get::<_, String>(at);
                let number = |at| row.get::<_, i64>(at);
                let (of, what) = ((text(0)?, number(1)?, text(2)?), (text(3)?, text(4)?, text(5)?));
                Ok(format!("{of:?} {what:?} {} {} {}", number(6)?, number(7)?, number(8)?))
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(
            rows,
            [
                r#"("thr_a", 7, "a/b/c") ("a", "work", "run_a") 3 75 1"#,
                r#"("thr_a", 7, "a/b/c") ("a", "work", "run_a") 4 0 0"#,
                r#"("thr_a", 8, "") ("", "work", "") 0 0 0"#,
                r#"("thr_a", 8, "") ("", "work", "") 0 0 0"#,
                r#"("thr_a", 8, "{\"a\":[1]}") ("{\"a\":[1]}", "7", "") 0 1000000000000000 1"#,
                r#"("thr_gone", 5, "") ("", "work", "") 0 100000000 1"#,
                r#"("thr_gone", 6, "") ("", "work", "") 0 200000000 1"#,
            ],
            "from schema {known}"
        );
    }
}

#[test]
fn what_older_logs_name_is_known_after_a_start() {
    // From the third version on the writer keeps it itself.
    for known in 1..3 {
        let dir = tempfile::tempdir().unwrap();
        let (path, blobs) = (dir.path().join("mcode.db"), BlobFiles::open(dir.path().join("blobs")).unwrap());
        let (thread_id, bodies) = left_by(known, &path, &blobs, 1003);
        // The daemon that begins it ends on the way: what it has done is not done again.
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, &path).unwrap();
        assert!(crate::named::fill_part(&mut connection, &blobs).unwrap(), "one part is not all of it");
        drop(connection);
        let mut connection = open(&path, &blobs).unwrap();
        let twice: i64 =
            connection.query_row("SELECT count(*) FROM named WHERE times <> 1", [], |row| row.get(0)).unwrap();
        let all: i64 = connection.query_row("SELECT count(*) FROM named", [], |row| row.get(0)).unwrap();
        assert_eq!((all, twice), (i64::try_from(bodies.len() + 1).unwrap(), 0), "from schema {known}");
        crate::forget::thread(&mut connection, &blobs, thread_id).unwrap();
        let left: Vec<&String> = bodies.iter().filter(|hash| blobs.holds(hash)).collect();
        assert_eq!(left, [&bodies[0]], "from schema {known}: the other thread has it");
    }
}

/// A database as version `known` left it, with what it may hold: two threads, a run, costs, a body in a file, and from the
/// fifth version on a fork. Every checksum is true.
fn lived_in(known: usize, path: &Path, blobs: &BlobFiles) -> (ThreadId, ThreadId) {
    let connection = Connection::open(path).unwrap();
    for step in &MIGRATIONS[..known] {
        connection.execute_batch(step).unwrap();
    }
    connection.pragma_update(None, "user_version", i64::try_from(known).unwrap()).unwrap();
    let ids = SeededIds::new(11);
    let (thread, project, run_id) =
        (ThreadId::from_uuid(ids.next()), ProjectId::from_uuid(ids.next()), RunId::from_uuid(ids.next()));
    let created = EventBody::ThreadCreated {
        project_id: project,
        cwd: "/work".into(),
        root: String::new(),
        title: "old".into(),
        model: "a/b".into(),
        mode: "build".into(),
        ephemeral: false,
    };
    let usage = Usage { input_tokens: 5, output_tokens: 2, cost_usd: 0.125, ..Usage::default() };
    let paid = EventBody::UsageRecorded {
        model: "a/b".into(),
        usage,
        purpose: UsagePurpose::Work,
        priced: true,
        goal_id: None,
    };
    let notice = |text: String| EventBody::Notice { level: "info".into(), text };
    let picture = blobs.put(b"a picture", "image/png").unwrap().hash;
    let bodies = [created, notice(format!("see blob:{picture}")), paid, notice("long ".repeat(20_000))];
    let mut state = ThreadState::new(thread);
    let mut named = crate::named::Named::default();
    for (body, seq) in bodies.into_iter().zip(1..) {
        let run = matches!(body, EventBody::UsageRecorded { .. }).then_some(run_id);
        let event = Event { thread_id: thread, seq: Seq::new(seq), at_ms: 7, run_id: run, turn_id: None, body };
        state.apply(&event);
        crate::row::EventRow::encode(&event, blobs, &mut named)
            .unwrap()
            .insert(&connection, &thread.to_string())
            .unwrap();
    }
    let row = ThreadRow::of(&state).unwrap();
    let insert = "INSERT INTO threads (thread_id, project_id, cwd, title, model, mode, activity, active_run, archived,
                  ephemeral, unfinished, created_at, updated_at, last_seq, usage)
                  VALUES (?1, ?2, '/work', 'old', 'a/b', 'build', 'idle', NULL, 0, 0, 0, 7, 7, 4, ?3)";
    let usage = serde_json::to_string(&row.usage).unwrap();
    connection.execute(insert, rusqlite::params![thread.to_string(), project.to_string(), usage]).unwrap();
    if known < 5 {
        let insert = "INSERT INTO projects VALUES (?1, '/work', 'work', 1)";
        connection.execute(insert, [project.to_string()]).unwrap();
    }
    if known < 4 {
        connection.execute("INSERT INTO spending VALUES (7, ?1, 0.125)", [thread.to_string()]).unwrap();
    } else {
        let insert = "INSERT INTO usage VALUES (?1, 3, 7, ?2, ?3, '', 'a/b', 'a', 'work', 5, 2, 0, 0, 0, 125000000, 1)";
        let ids = [thread.to_string(), project.to_string(), run_id.to_string()];
        connection.execute(insert, ids).unwrap();
    }
    if known >= 3 {
        named.keep(&connection, &thread.to_string()).unwrap();
        connection.execute("DELETE FROM naming", []).unwrap();
    }
    (thread, if known >= 5 { forked(&connection, thread, &state, blobs) } else { thread })
}

/// A fork of the thread, as the fifth version wrote it.
fn forked(connection: &Connection, parent: ThreadId, state: &ThreadState, blobs: &BlobFiles) -> ThreadId {
    let child = ThreadId::from_uuid(SeededIds::new(12).next());
    let point = Seq::new(3);
    let body = EventBody::ThreadForked { parent_id: parent, parent_seq: point, title: "fork".into() };
    let event = Event { thread_id: child, seq: Seq::new(4), at_ms: 8, run_id: None, turn_id: None, body };
    let mut named = crate::named::Named::default();
    crate::row::EventRow::encode(&event, blobs, &mut named).unwrap().insert(connection, &child.to_string()).unwrap();
    let insert = "INSERT INTO lineage VALUES (?1, 3, ?2)";
    connection.execute(insert, [child.to_string(), parent.to_string()]).unwrap();
    let mut state = ThreadState { thread_id: child, ..state.clone() };
    state.apply(&event);
    crate::write::write_thread(connection, &child.to_string(), &ThreadRow::of(&state).unwrap()).unwrap();
    child
}

/// What it holds is whole, all of it readable, and what can be told of it is told.
fn is_whole(path: &Path, blobs: &Path, (thread, child): (ThreadId, ThreadId), known: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let clock: std::sync::Arc<dyn mcode_env::Clock> = std::sync::Arc::new(mcode_env::ManualClock::default());
    let store = crate::Store::open(path.to_path_buf(), blobs.to_path_buf(), clock).unwrap();
    runtime.block_on(async {
        while store.index_some().await.unwrap() {}
        let check = store.check().await.unwrap();
        assert!(check.is_whole(), "from schema {known}: {check:?}");
        assert_eq!((check.threads, check.bodies), (if child == thread { 1 } else { 2 }, 2), "from schema {known}");
        let events = store.read(child, Seq::ZERO, 10, 1 << 20).await.unwrap();
        assert_eq!(events.len(), 4, "from schema {known}");
        assert_eq!(store.spent_since(0).await.unwrap(), 125_000_000, "from schema {known}");
        let threads = crate::ThreadFilter { root: Some("/work".into()), page_size: 9, ..Default::default() };
        let listed = store.threads(threads).await.unwrap().rows;
        assert_eq!(listed.iter().any(|row| row.thread_id == thread), known < 5, "from schema {known}: {listed:?}");
        assert_eq!(store.projects(9, None).await.unwrap().rows.len(), usize::from(known < 5));
    });
}

#[test]
fn every_older_database_is_whole_after_a_start() {
    for known in 1..=MIGRATIONS.len() {
        let dir = tempfile::tempdir().unwrap();
        let (path, folder) = (dir.path().join("mcode.db"), dir.path().join("blobs"));
        let ids = lived_in(known, &path, &BlobFiles::open(folder.clone()).unwrap());
        is_whole(&path, &folder, ids, known);
        // Once more: nothing is done twice.
        is_whole(&path, &folder, ids, known);
    }
}

/// Every statement of every migration fails once: the database is the old one, and the next start finishes.
#[test]
fn a_migration_that_fails_anywhere_leaves_the_old_database() {
    use rusqlite::hooks::{AuthContext, Authorization};
    for known in 1..MIGRATIONS.len() {
        let mut failures = 0;
        for fails_at in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let (path, folder) = (dir.path().join("mcode.db"), dir.path().join("blobs"));
            let ids = lived_in(known, &path, &BlobFiles::open(folder.clone()).unwrap());
            let mut connection = Connection::open(&path).unwrap();
            settings(&connection).unwrap();
            let before = objects(&connection).unwrap();
            // What a statement is about to do is asked for when it is made ready.
            let asked = std::sync::atomic::AtomicUsize::new(0);
            let decide = move |_: AuthContext<'_>| {
                let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number == fails_at * STRIDE { Authorization::Deny } else { Authorization::Allow }
            };
            connection.authorizer(Some(decide)).unwrap();
            let failed = migrate(&mut connection, &path).is_err();
            connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>).unwrap();
            if !failed {
                break;
            }
            failures += 1;
            let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
            assert_eq!(found, i64::try_from(known).unwrap(), "failed at {fails_at}");
            assert_eq!(objects(&connection).unwrap(), before, "from schema {known}, failed at {fails_at}");
            if fails_at % 16 == 0 {
                drop(connection);
                is_whole(&path, &folder, ids, known);
            }
        }
        assert!(failures > 0, "from schema {known} only {failures} failures were tried");
    }
}

/// Of so many questions about what statements do one is refused.
const STRIDE: usize = 23;

#[test]
fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, blobs) = (dir.path().join("mcode.db"), BlobFiles::open(dir.path().join("blobs")).unwrap());
    drop(open(&path, &blobs).unwrap());
    let newer = i64::try_from(MIGRATIONS.len()).unwrap() + 1;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", newer).unwrap();
    let before = objects(&Connection::open(&path).unwrap()).unwrap();
    let refused = open(&path, &blobs).unwrap_err();
    assert!(matches!(refused, StoreError::TooNew { found, .. } if found == newer), "{refused}");
    assert!(refused.to_string().contains("newer mcode"), "{refused}");
    let connection = Connection::open(&path).unwrap();
    assert_eq!(objects(&connection).unwrap(), before);
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(found, newer);
}
