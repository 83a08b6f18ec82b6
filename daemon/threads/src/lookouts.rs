//! Snapshots for the runs that are at work in a project.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use mcode_agent::{Care, TakeSnapshot, TakenSnapshot};
use mcode_checkpoints::{CheckpointError, Depot, Lookout, Snapshot, SnapshotId};
use mcode_events::checkpoint::Changes;

use crate::checkpoints::{Depots, summed};

/// A project in which a run is at work.
#[derive(Debug)]
struct Project {
    depots: Arc<Depots>,
    root: PathBuf,
    lookout: OnceLock<Arc<Lookout>>,
    run: u64,
}

impl Drop for Project {
    fn drop(&mut self) {
        self.depots.held.hold(self.run, &self.root, None);
    }
}

impl Project {
    fn lookout(&self) -> Result<&Arc<Lookout>, CheckpointError> {
        match self.lookout.get() {
            Some(lookout) => Ok(lookout),
            None => {
                let lookout = self.depots.lookout(&self.root)?;
                Ok(self.lookout.get_or_init(|| lookout))
            }
        }
    }

    /// Takes a snapshot, and makes room for it where need be. Blocking.
    fn take(&self, since: Option<&str>, care: Care) -> Result<TakenSnapshot, CheckpointError> {
        let lookout = self.lookout()?;
        let care = match care {
            Care::All => mcode_checkpoints::Care::All,
            Care::Trusting => mcode_checkpoints::Care::Trusting,
        };
        let since: Option<SnapshotId> = since.and_then(|since| since.parse().ok());
        let mut pinned = self.depots.held.of(&self.root);
        pinned.extend(since);
        let snapshot = match lookout.snapshot(care) {
            Err(CheckpointError::Full { .. }) => {
                lookout.depot().make_room(&pinned)?;
                lookout.snapshot(care)?
            }
            taken => taken?,
        };
        self.depots.held.hold(self.run, &self.root, Some(snapshot.id));
        if snapshot.is_nearly_full() {
            pinned.insert(snapshot.id);
            lookout.depot().make_room(&pinned)?;
        }
        Ok(taken(lookout.depot(), &snapshot, since))
    }

    /// The same where it is known what was touched. Blocking.
    fn glance(&self, since: Option<&str>) -> Option<TakenSnapshot> {
        let lookout = self.lookout.get()?;
        // What fails here is tried again, and told, by the next that is taken.
        let snapshot = lookout.glance()?.ok()?;
        self.depots.held.hold(self.run, &self.root, Some(snapshot.id));
        Some(taken(lookout.depot(), &snapshot, since.and_then(|since| since.parse().ok())))
    }
}

fn taken(depot: &Depot, snapshot: &Snapshot, since: Option<SnapshotId>) -> TakenSnapshot {
    let changes = match since.filter(|since| *since != snapshot.id) {
        // The state before may have made room for others.
        Some(since) => depot.changes(since, snapshot.id).map(|changes| summed(&changes)).unwrap_or_default(),
        None => Changes::default(),
    };
    TakenSnapshot { snapshot: snapshot.id.to_string(), changes }
}

/// Takes snapshots of a project for one run.
#[derive(Debug)]
pub(crate) struct ProjectSnapshots(Arc<Project>);

impl ProjectSnapshots {
    pub(crate) fn new(depots: Arc<Depots>, root: PathBuf, last: Option<&str>) -> Self {
        let run = depots.held.run();
        depots.held.hold(run, &root, last.and_then(|last| last.parse().ok()));
        Self(Arc::new(Project { depots, root, lookout: OnceLock::new(), run }))
    }
}

impl TakeSnapshot for ProjectSnapshots {
    fn take(&self, since: Option<String>, care: Care) -> BoxFuture<'static, Option<TakenSnapshot>> {
        let project = Arc::clone(&self.0);
        let take = move || match project.take(since.as_deref(), care) {
            Ok(taken) => Some(taken),
            Err(error) => {
                project.depots.note_failure(&project.root, &error);
                None
            }
        };
        Box::pin(async move { tokio::task::spawn_blocking(take).await.ok().flatten() })
    }

    fn glance(&self, since: Option<String>) -> BoxFuture<'static, Option<TakenSnapshot>> {
        let project = Arc::clone(&self.0);
        let glance = move || project.glance(since.as_deref());
        Box::pin(async move { tokio::task::spawn_blocking(glance).await.ok().flatten() })
    }
}
