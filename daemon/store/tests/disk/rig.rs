//! A store in a folder of its own, and threads to put into it.

use std::path::PathBuf;
use std::sync::Arc;

use mcode_env::{Clock, IdGen, ManualClock, SeededIds};
use mcode_events::run::{ApprovalPolicy, RunLimits};
use mcode_events::{Event, EventBody, NewEvent, RunOptions, ThreadState};
use mcode_ids::{ProjectId, RequestId, RunId, Seq, ThreadId};
use mcode_store::{Append, AppendError, RunRow, Store, StoredResponse, ThreadRow};
use rusqlite::Connection;
use tempfile::TempDir;

pub struct Rig {
    /// Gone when the test ends.
    _dir: Option<TempDir>,
    pub root: PathBuf,
    pub clock: Arc<ManualClock>,
    pub ids: SeededIds,
}

impl Rig {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        Self { _dir: Some(dir), ..Self::at(root) }
    }

    /// A store in a folder that is there already and stays.
    pub fn at(root: PathBuf) -> Self {
        Self { _dir: None, root, clock: Arc::new(ManualClock::default()), ids: SeededIds::new(7) }
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("data/mcode.db")
    }

    pub fn blobs(&self) -> PathBuf {
        self.root.join("data/blobs")
    }

    pub fn open(&self) -> Store {
        Store::open(self.database(), self.blobs(), Arc::clone(&self.clock) as Arc<dyn Clock>).unwrap()
    }

    /// A second hand on the database, for damage.
    pub fn sql(&self, statement: &str) {
        let changed = Connection::open(self.database()).unwrap().execute(statement, []).unwrap();
        assert!(changed > 0, "nothing was changed by: {statement}");
    }

    /// The database for this test alone, with everything in its one file. The writer of a store that was dropped ends a
    /// moment later; it is waited for.
    pub fn alone(&self) -> Connection {
        let connection = Connection::open(self.database()).unwrap();
        let mut mode = String::new();
        while mode != "delete" {
            mode = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).unwrap_or_default();
            std::thread::yield_now();
        }
        connection
    }

    pub fn thread(&self) -> Thread {
        let thread_id = ThreadId::from_uuid(self.ids.next());
        let created = NewEvent::of_thread(EventBody::ThreadCreated {
            project_id: ProjectId::from_uuid(self.ids.next()),
            cwd: "/work".into(),
            root: String::new(),
            title: "a thread".into(),
            model: "fake/one".into(),
            mode: "build".into(),
            ephemeral: false,
        });
        Thread { state: ThreadState::new(thread_id), first: Some(created) }
    }

    /// A new thread that begins with what another was.
    pub fn thread_of(&self, state: ThreadState) -> Thread {
        Thread { state: ThreadState { thread_id: ThreadId::from_uuid(self.ids.next()), ..state }, first: None }
    }

    /// A thread of the store, as it stands.
    pub async fn known(&self, store: &Store, thread_id: ThreadId) -> Thread {
        Thread { state: store.load(thread_id).await.unwrap().unwrap().state, first: None }
    }

    pub fn run_id(&self) -> RunId {
        RunId::from_uuid(self.ids.next())
    }
}

/// A thread as its actor would hold it.
pub struct Thread {
    pub state: ThreadState,
    first: Option<NewEvent>,
}

impl Thread {
    pub fn id(&self) -> ThreadId {
        self.state.thread_id
    }

    /// Has it be made in this project.
    pub fn first_project(&mut self, of: ProjectId) {
        if let Some(NewEvent { body: EventBody::ThreadCreated { project_id, .. }, .. }) = &mut self.first {
            *project_id = of;
        }
    }

    /// The append of these events to the thread as it stands; the state moves on.
    pub fn next(&mut self, events: Vec<NewEvent>, at_ms: i64) -> Append {
        let events: Vec<NewEvent> = self.first.take().into_iter().chain(events).collect();
        let expected = self.state.last_seq;
        let mut runs = Vec::new();
        for new in &events {
            let event = Event {
                thread_id: self.id(),
                seq: self.state.last_seq.next(),
                at_ms,
                run_id: new.run_id,
                turn_id: new.turn_id,
                body: new.body.clone(),
            };
            self.state.apply(&event);
            runs.extend(new.run_id);
        }
        let record = |run_id: &RunId| self.state.run(*run_id).cloned();
        let runs =
            runs.iter().filter_map(record).map(|record| RunRow { thread_id: self.state.thread_id, record }).collect();
        let row = ThreadRow::of(&self.state).unwrap();
        Append { thread_id: self.id(), expected, events, at_ms, row, runs, request: None }
    }

    pub async fn say(&mut self, store: &Store, text: &str) -> Result<Seq, AppendError> {
        let before = self.state.clone();
        let append = self.next(vec![notice(text)], before.updated_at_ms + 1);
        let result = store.append(append).await;
        if result.is_err() {
            self.state = before;
        }
        result
    }
}

pub fn notice(text: &str) -> NewEvent {
    NewEvent::of_thread(EventBody::Notice { level: "info".into(), text: text.into() })
}

pub fn started(run_id: RunId) -> NewEvent {
    let options = RunOptions {
        model: "fake/one".into(),
        mode: "build".into(),
        thinking: None,
        approval: ApprovalPolicy::Ask,
        interactive: false,
        limits: RunLimits::default(),
        cwd: "/work".into(),
        add_dirs: Vec::new(),
        answer_schema: None,
        trigger: Default::default(),
        model_given: false,
        detached: false,
        goal_id: None,
        kept: None,
        key_source: String::new(),
    };
    NewEvent::of_run(run_id, None, EventBody::RunStarted { options })
}

pub fn request_id(id: &str) -> RequestId {
    RequestId::parse(id).unwrap()
}

pub fn request(id: &str, fingerprint: &str, response: &str) -> Option<(RequestId, StoredResponse)> {
    let response = StoredResponse { fingerprint: fingerprint.into(), response: response.into() };
    Some((request_id(id), response))
}

/// The words of all notices of a thread.
pub async fn words(store: &Store, thread_id: ThreadId) -> Vec<String> {
    let events = store.read(thread_id, Seq::ZERO, 10_000, usize::MAX / 2).await.unwrap();
    events
        .into_iter()
        .filter_map(|event| match event.body {
            EventBody::Notice { text, .. } => Some(text),
            _ => None,
        })
        .collect()
}
