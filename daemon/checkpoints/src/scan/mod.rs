//! Looking at the project: which files there are, and the content of those that are new or changed.
//!
//! Folders are tasks that all processors take from one pile. A file whose size, dates, inode and mode are as they were is
//! not read again, unless it was changed within [`RACY_MS`] of the look that read it. What is ignored is not entered;
//! `.git` never. Nothing is opened but files, and those without waiting for a pipe's other end.
//! Reading order: [`Scan::run`], `worker.rs` for one folder, `reading.rs` for one file, `finish.rs` for the folders' bodies.

mod budget;
mod finish;
mod lists;
mod reading;
mod tracked;
mod worker;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mcode_env::Clock;

pub(crate) use budget::Budget;
pub use lists::global_excludes;
pub(crate) use tracked::{Indexes, Tracked};

use crate::cache::{Dir, Item};
use crate::error::CheckpointError;
use crate::ground::{Ground, Meta};
use crate::ids::ObjectId;
use crate::limits::Limits;
use crate::path::TreePath;
use crate::rules::{LIST_BYTES_MAX, Lists, Outside, Rules};
use crate::store::{Objects, Writer};

/// A file that was changed this shortly before it was read, in milliseconds, is read again the next time: another change
/// may get the same date, where dates are coarse (FAT has 2 s).
pub(crate) const RACY_MS: i64 = 2000;
/// Threads at most; more only wait for the disk.
const THREADS_MAX: usize = 8;

/// Everything that a look needs.
pub(crate) struct Scan<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) root: &'a Path,
    pub(crate) objects: &'a Objects,
    pub(crate) writer: &'a Writer,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) limits: &'a Limits,
    pub(crate) budget: &'a Budget<'a>,
    /// The user's own list of what is ignored.
    pub(crate) excludes: Option<&'a Path>,
    /// What repositories track, as far as it was read.
    pub(crate) indexes: &'a Indexes,
    /// Paths that are left out: where mcode keeps its own files.
    pub(crate) skip: &'a HashSet<Vec<u8>>,
    /// How files begin that a restore which was cut off has left.
    pub(crate) leftover: Option<&'a [u8]>,
    /// Objects may have gone since the last look: everything that is referred to is asked for.
    pub(crate) check: bool,
    /// All that can have changed, if that is known.
    pub(crate) only: Option<&'a [TreePath]>,
}

/// What a look found.
pub(crate) struct Found {
    pub(crate) root: Arc<Dir>,
    pub(crate) outside: Outside,
    /// Files that were read.
    pub(crate) read: u64,
    /// Files that kept changing while they were read; they are kept as they were read last.
    pub(crate) unsteady: Vec<TreePath>,
}

/// A folder to be looked at.
struct Task {
    number: usize,
    path: Vec<u8>,
    rules: Arc<Rules>,
    old: Option<Arc<Dir>>,
    /// Everything in it may have changed.
    whole: bool,
}

/// What became of a task.
enum Outcome {
    /// It is no longer there.
    Gone,
    /// It may not be read.
    Closed(Option<Meta>),
    Found(Fresh),
}

/// A folder that was looked at, before those in it are known.
struct Fresh {
    mode: u32,
    rules: Arc<Rules>,
    /// The items when they are no longer those of `old`.
    new: Option<Items>,
    ignored: Option<Box<[u8]>>,
    old: Option<Arc<Dir>>,
    /// One for each folder among the items, in order.
    children: Vec<Child>,
}

/// Items and their names.
struct Items {
    names: Box<[u8]>,
    items: Box<[Item]>,
}

enum Child {
    Task(usize),
    Known(Arc<Dir>),
}

/// The pile of folders that are still to be looked at.
#[derive(Default)]
struct Pile {
    inner: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: Vec<Task>,
    /// Threads that may still add tasks.
    busy: usize,
    /// What ended it early.
    fault: Option<CheckpointError>,
    next: usize,
}

impl Pile {
    fn inner(&self) -> MutexGuard<'_, Waiting> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next folder and the turn to look at it; `None` when all are done.
    fn take(&self) -> Option<(Task, Turn<'_>)> {
        let mut waiting = self.inner();
        loop {
            if waiting.fault.is_some() {
                return None;
            }
            if let Some(task) = waiting.tasks.pop() {
                waiting.busy += 1;
                drop(waiting);
                return Some((task, Turn { pile: self, tasks: Vec::new(), fault: Some(CheckpointError::Stopped) }));
            }
            if waiting.busy == 0 {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Numbers for so many new tasks.
    fn numbers(&self, count: usize) -> usize {
        let mut waiting = self.inner();
        let first = waiting.next;
        waiting.next += count;
        first
    }
}

/// A folder that a thread looks at. It ends when this is dropped, so that nobody waits for a thread that died.
struct Turn<'p> {
    pile: &'p Pile,
    /// What it found to be looked at.
    tasks: Vec<Task>,
    /// Why it is of no use to go on.
    fault: Option<CheckpointError>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut waiting = self.pile.inner();
        waiting.busy -= 1;
        waiting.tasks.append(&mut self.tasks);
        if let Some(fault) = self.fault.take() {
            waiting.fault.get_or_insert(fault);
        }
        drop(waiting);
        self.pile.more.notify_all();
    }
}

/// What all threads share.
struct Shared<'a> {
    scan: &'a Scan<'a>,
    pile: Pile,
    entries: AtomicU64,
    read: AtomicU64,
    /// Text of the user's own list.
    own: Option<Vec<u8>>,
    /// All that may have changed, if that is known.
    touched: Option<Touched>,
    unsteady: Mutex<Vec<TreePath>>,
    within: Mutex<Vec<(Vec<u8>, Lists)>>,
}

/// What may have changed.
struct Touched {
    /// Folders on the way there.
    ways: HashSet<Vec<u8>>,
    /// The paths themselves.
    paths: HashSet<Vec<u8>>,
}

impl Scan<'_> {
    /// Looks at the project. Bodies that are new go to the writer.
    pub(crate) fn run(&self, old: Option<Arc<Dir>>) -> Result<Found, CheckpointError> {
        let own = self.excludes.and_then(|path| lists::read_at(path, LIST_BYTES_MAX)).filter(|text| !text.is_empty());
        let mut outside = lists::above(self.root, own.as_deref(), self.indexes);
        let shared = Shared {
            scan: self,
            pile: Pile::default(),
            entries: AtomicU64::new(0),
            read: AtomicU64::new(0),
            own,
            touched: self.only.filter(|_| !self.check && old.is_some()).map(Touched::new),
            unsteady: Mutex::default(),
            within: Mutex::default(),
        };
        let first = Task { number: 0, path: Vec::new(), rules: outside.rules(), old, whole: shared.touched.is_none() };
        {
            let mut waiting = shared.pile.inner();
            waiting.tasks.push(first);
            waiting.next = 1;
        }
        let outcomes = self.work(&shared)?;
        let root = finish::Finish::new(self, outcomes)?.root()?;
        outside.within = shared.within.into_inner().unwrap_or_else(PoisonError::into_inner);
        outside.within.sort_by(|a, b| a.0.cmp(&b.0));
        let unsteady = shared.unsteady.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Found { root, outside, read: shared.read.load(Ordering::Relaxed), unsteady })
    }

    /// All outcomes, by number.
    fn work(&self, shared: &Shared<'_>) -> Result<Vec<Option<Outcome>>, CheckpointError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let found: Vec<Result<Vec<(usize, Outcome)>, CheckpointError>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (1..threads)
                .map(|_| scope.spawn(|| worker::Worker::new(shared).and_then(worker::Worker::run)))
                .collect();
            let mine = worker::Worker::new(shared).and_then(worker::Worker::run);
            let died = || Err(CheckpointError::Stopped);
            handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| died())).chain([mine]).collect()
        });
        if let Some(fault) = shared.pile.inner().fault.take() {
            return Err(fault);
        }
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        outcomes.resize_with(shared.pile.inner().next, || None);
        for list in found {
            for (number, outcome) in list? {
                if let Some(slot) = outcomes.get_mut(number) {
                    *slot = Some(outcome);
                }
            }
        }
        Ok(outcomes)
    }

    /// Whether an object that was kept before is still there.
    fn keeps(&self, id: &ObjectId) -> bool {
        !self.check || self.objects.holds(id) || self.writer.holds(id)
    }
}

impl Touched {
    fn new(paths: &[TreePath]) -> Self {
        let mut ways = HashSet::from([Vec::new()]);
        ways.extend(paths.iter().flat_map(TreePath::above).map(|folder| folder.as_bytes().to_vec()));
        Self { ways, paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect() }
    }
}
