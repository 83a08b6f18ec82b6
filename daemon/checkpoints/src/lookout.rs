//! Looks at one project, again and again, while something is at work in it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::depot::{Depot, Hint, Snapshot};
use crate::error::CheckpointError;
use crate::watch::{Touched, Watch};

/// How sure a look has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Every file is looked at.
    All,
    /// What the system says was not touched need not be.
    Trusting,
}

/// Whole looks that are taken until the system's word counts, for each time that it did not.
const SETTLING_LOOKS_MAX: usize = 3;

/// Takes snapshots of one project and leaves out what the system says was not touched since the last one. It costs the
/// system a watch for each folder, so keep it no longer than something is at work. Everything blocks.
#[derive(Debug)]
pub struct Lookout {
    depot: Arc<Depot>,
    inner: Mutex<Inner>,
    settling: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    watch: Option<Arc<Watch>>,
    last: Option<Snapshot>,
}

impl Lookout {
    /// A lookout that has seen nothing yet.
    #[must_use]
    pub fn new(depot: Arc<Depot>) -> Self {
        let watch = Watch::new(&depot.root, &depot.folder).map(Arc::new);
        Self { depot, inner: Mutex::new(Inner { watch, last: None }), settling: AtomicBool::new(false) }
    }

    /// The depot it keeps states in.
    #[must_use]
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the state of the project as it is now, as [`Depot::snapshot`] does.
    ///
    /// # Errors
    /// Those of [`Depot::snapshot`].
    pub fn snapshot(&self, care: Care) -> Result<Snapshot, CheckpointError> {
        let mut inner = self.inner();
        let touched = match &inner.watch {
            Some(watch) if care == Care::Trusting => watch.touched(),
            _ => Touched::Unknown,
        };
        self.look(&mut inner, touched)
    }

    /// The state as it is now, if that is known without a look at every file; `None` when it is not. Then the watch is set
    /// up beside whatever comes next, so that it is known later.
    pub fn glance(self: &Arc<Self>) -> Option<Result<Snapshot, CheckpointError>> {
        let mut inner = self.inner();
        let watch = inner.watch.clone()?;
        match watch.touched() {
            Touched::Unknown => {
                // What it told of until now it does not tell again.
                watch.doubt();
                drop(inner);
                self.begin_to_settle();
                None
            }
            touched => Some(self.look(&mut inner, touched)),
        }
    }

    fn look(&self, inner: &mut Inner, touched: Touched) -> Result<Snapshot, CheckpointError> {
        let whole = touched == Touched::Unknown;
        if let Some(watch) = inner.watch.as_ref().filter(|_| whole) {
            watch.begin_anew();
        }
        let taken = match (&touched, &inner.last) {
            // Room may have been made for others meanwhile.
            (Touched::Nothing, Some(last)) if self.depot.renew(last.id)? => Ok(last.clone()),
            (Touched::Only(paths), Some(_)) => self.depot.snapshot(Hint::Only(paths)),
            _ => self.depot.snapshot(Hint::None),
        };
        if let (Err(_), Some(watch)) = (&taken, &inner.watch) {
            watch.doubt();
        }
        let snapshot = taken?;
        if whole {
            self.uncovered(inner);
        }
        inner.last = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// The watch, renewed where need be, and what it does not watch yet.
    fn uncovered(&self, inner: &mut Inner) -> Option<(Arc<Watch>, Vec<PathBuf>)> {
        let is = |what: fn(&Watch) -> bool| inner.watch.as_deref().is_some_and(what);
        if is(Watch::is_refused) {
            inner.watch = None;
        } else if is(Watch::is_outdated) {
            inner.watch = Watch::new(&self.depot.root, &self.depot.folder).map(Arc::new);
        }
        let watch = inner.watch.clone()?;
        let folders = watch.uncovered(self.depot.folders());
        Some((watch, folders))
    }

    fn begin_to_settle(self: &Arc<Self>) {
        if self.settling.swap(true, Ordering::AcqRel) {
            return;
        }
        let lookout = Arc::clone(self);
        let settle = move || {
            lookout.settle();
            lookout.settling.store(false, Ordering::Release);
        };
        // Without a thread everything is looked at, as before.
        if std::thread::Builder::new().name("watch".to_owned()).spawn(settle).is_err() {
            self.settling.store(false, Ordering::Release);
        }
    }

    /// Has all folders watched, and then looks at everything once: from there on the system's word counts.
    fn settle(&self) {
        for _ in 0..SETTLING_LOOKS_MAX {
            let Some((watch, folders)) = self.uncovered(&mut self.inner()) else { return };
            if folders.is_empty() && !watch.is_lost() {
                return;
            }
            watch.cover(folders);
            if self.look(&mut self.inner(), Touched::Unknown).is_err() {
                return;
            }
        }
    }
}
