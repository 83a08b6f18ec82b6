//! Threads in a real store, written to files and read back.

use std::sync::Arc;

use mcode_env::{Clock, ManualClock, SystemClock, Timestamp};
use mcode_events::event::{Event, EventBody, NewEvent};
use mcode_events::{Blobs, ThreadState};
use mcode_histories::{Identity, Importing, Limits, ThreadFile, ThreadInfo};
use mcode_ids::{Seq, ThreadId};
use mcode_store::{Append, RunRow, Store, ThreadRow};

/// A store on the disk and what runs its calls.
pub struct Home {
    pub store: Store,
    pub runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("mcode.db"), dir.path().join("blobs"), Arc::new(SystemClock)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { store, runtime, _dir: dir }
    }

    pub fn blobs(&self) -> Arc<dyn Blobs> {
        self.store.blobs()
    }

    /// Appends one event, at its own time.
    pub fn append(&self, state: &mut ThreadState, event: Event) {
        assert_eq!(event.seq, state.last_seq.next());
        let expected = state.last_seq;
        state.apply(&event);
        let runs = event.run_id.and_then(|id| state.run(id)).cloned();
        let append = Append {
            thread_id: state.thread_id,
            expected,
            events: vec![NewEvent { run_id: event.run_id, turn_id: event.turn_id, body: event.body }],
            at_ms: event.at_ms,
            row: ThreadRow::of(state).unwrap(),
            runs: runs.map(|record| RunRow { thread_id: state.thread_id, record }).into_iter().collect(),
            request: None,
        };
        self.runtime.block_on(self.store.append(append)).unwrap();
    }

    /// Keeps a thread of these events, one millisecond after the other.
    pub fn thread(&self, thread_id: ThreadId, bodies: Vec<EventBody>, event: impl Fn(u64, EventBody) -> Event) {
        let mut state = ThreadState::new(thread_id);
        for (number, body) in bodies.into_iter().enumerate() {
            self.append(&mut state, event(number as u64 + 1, body));
        }
    }

    /// The events of a thread, a few at a time.
    pub fn events(&self, thread_id: ThreadId) -> impl Iterator<Item = Result<Event, std::io::Error>> + '_ {
        let mut after = Seq::ZERO;
        let mut page = Vec::new().into_iter();
        std::iter::from_fn(move || {
            if page.len() == 0 {
                page = self.runtime.block_on(self.store.read(thread_id, after, 3, 1024)).unwrap().into_iter();
            }
            let event: Event = page.next()?;
            after = event.seq;
            Some(Ok(event))
        })
    }

    pub fn info(&self, thread_id: ThreadId) -> ThreadInfo {
        let row = self.runtime.block_on(self.store.thread(thread_id)).unwrap().unwrap();
        ThreadInfo {
            thread_id,
            title: row.title,
            model: row.model,
            cwd: row.cwd,
            project_id: row.project_id,
            project_name: "project".into(),
            project_root: "/home/me/project".into(),
            created_at_ms: row.created_at_ms,
            last_seq: row.last_seq,
        }
    }

    pub fn export(&self, thread_id: ThreadId) -> Vec<u8> {
        let mut out = Vec::new();
        let info = self.info(thread_id);
        mcode_histories::write_thread(&info, self.events(thread_id), &*self.blobs(), moment(), &mut out).unwrap();
        out
    }

    /// Reads a file into this store, as its own or a new thread.
    pub fn import(&self, file: &[u8], identity: Identity) -> ThreadState {
        let mut file = open(file).unwrap();
        for blob in file.blobs().unwrap() {
            let (media_type, content) = blob.unwrap();
            self.blobs().put(&content, &media_type).unwrap();
        }
        let thread_id = match identity {
            Identity::Kept => file.contents().thread_id,
            Identity::Fresh(new) => new,
        };
        let mut state = ThreadState::new(thread_id);
        for event in file.events(&Importing { identity, place: None }).unwrap() {
            self.append(&mut state, event.unwrap());
        }
        assert_eq!(state.last_seq.get(), file.contents().events);
        state
    }
}

/// When these tests export.
pub fn moment() -> Timestamp {
    ManualClock::default().now()
}

pub fn open(file: &[u8]) -> Result<ThreadFile<std::io::Cursor<Vec<u8>>>, mcode_histories::ImportError> {
    ThreadFile::open(std::io::Cursor::new(file.to_vec()), Limits::DEFAULT, moment())
}
