//! Looks at one project, again and again, while something is at work in it.

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

/// Takes snapshots of one project and leaves out what the system says was not touched since the last one. It costs the
/// system a watch for each folder, so keep it no longer than something is at work. Everything blocks.
#[derive(Debug)]
pub struct Lookout {
    depot: Arc<Depot>,
    inner: Mutex<Inner>,
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
        Self { depot, inner: Mutex::new(Inner { watch, last: None }) }
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

    /// The state as it is now, if that is known without looking at every file; `None` when it is not.
    pub fn glance(&self) -> Option<Result<Snapshot, CheckpointError>> {
        let mut inner = self.inner();
        match inner.watch.as_ref()?.touched() {
            Touched::Unknown => {
                // It was asked, and will not say it again.
                inner.watch.as_ref()?.doubt();
                None
            }
            touched => Some(self.look(&mut inner, touched)),
        }
    }

    fn look(&self, inner: &mut Inner, touched: Touched) -> Result<Snapshot, CheckpointError> {
        if let (Touched::Unknown, Some(watch)) = (&touched, &inner.watch) {
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
        if matches!(touched, Touched::Unknown) {
            self.cover(inner);
        }
        inner.last = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// Has all folders watched that were found, beside whatever comes next.
    fn cover(&self, inner: &mut Inner) {
        let is = |what: fn(&Watch) -> bool| inner.watch.as_deref().is_some_and(what);
        if is(Watch::is_refused) {
            inner.watch = None;
        } else if is(Watch::is_outdated) {
            inner.watch = Watch::new(&self.depot.root, &self.depot.folder).map(Arc::new);
        }
        let Some(watch) = inner.watch.clone() else { return };
        let new = watch.uncovered(self.depot.folders());
        if !new.is_empty() {
            // Without a thread nothing is watched, and everything looked at as before.
            drop(std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch.cover(new)));
        }
    }
}
