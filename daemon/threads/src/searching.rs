//! Finding threads: by what was said, by what they are called, by where one stands.

use std::time::Duration;

use mcode_ids::ThreadId;
use mcode_store::{Found, SearchFilter, ThreadFilter, ThreadRow};
use tokio::time::Instant;

use crate::error::ThreadError;
use crate::registry::Threads;

/// How long a search looks through what is new before it answers with what it knows.
const CATCH_UP: Duration = Duration::from_millis(100);

/// How often what was said is looked through in the background.
const INDEX_EVERY: Duration = Duration::from_secs(3);

/// Forks of a thread that are shown.
const FORKS_SHOWN_MAX: u32 = 100;

/// The thread to go on with in a folder.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Latest {
    /// The latest of this work tree.
    pub here: Option<ThreadRow>,
    /// The latest of the same project in another folder.
    pub elsewhere: Option<ThreadRow>,
}

impl Threads {
    /// Where something was said, best first.
    pub async fn search(&self, filter: SearchFilter) -> Result<Found, ThreadError> {
        let store = &self.deps().store;
        let until = Instant::now() + CATCH_UP;
        // What can not be looked through now (the disk is full) keeps nobody from finding the rest.
        while store.index_some().await.unwrap_or(false) && Instant::now() < until {}
        Ok(store.search(filter).await?)
    }

    /// Keeps the index of what was said up to date, for as long as the daemon runs.
    pub async fn keep_index(&self) {
        loop {
            tokio::time::sleep(INDEX_EVERY).await;
            loop {
                match self.deps().store.index_some().await {
                    // Appends that wait go first.
                    Ok(true) => tokio::task::yield_now().await,
                    Ok(false) => break,
                    Err(error) => {
                        tracing::debug!(%error, "what was said cannot be looked through now");
                        break;
                    }
                }
            }
            // What a daemon that ended while it deleted a thread has left.
            if let Err(error) = self.deps().store.forget_rest().await {
                tracing::debug!(%error, "what deleted threads have left cannot be removed now");
            }
            self.tidy().await;
        }
    }

    /// Gives back what is free on the disk, for as long as no run is at work.
    async fn tidy(&self) {
        while self.active_runs().await.is_ok_and(|active| active == 0) {
            match self.deps().store.tidy_some().await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(%error, "space cannot be given back now");
                    return;
                }
            }
        }
    }

    /// The thread to go on with in a folder: the latest of its work tree, never one of another.
    pub async fn latest(&self, cwd: String) -> Result<Latest, ThreadError> {
        let place = crate::project::resolve(self.deps(), cwd).await?;
        let newest = |root: Option<String>| ThreadFilter {
            project_id: root.is_none().then_some(place.project.project_id),
            root,
            by_activity: true,
            page_size: 1,
            ..ThreadFilter::default()
        };
        let here = self.list(newest(Some(place.root.clone()))).await?.rows.into_iter().next();
        let elsewhere = match here {
            Some(_) => None,
            None => self.list(newest(None)).await?.rows.into_iter().next(),
        };
        Ok(Latest { here, elsewhere })
    }

    /// Threads that were forked from one, newest first.
    pub async fn forks(&self, parent: ThreadId) -> Result<Vec<ThreadRow>, ThreadError> {
        let filter = ThreadFilter {
            parent: Some(parent),
            include_archived: true,
            page_size: FORKS_SHOWN_MAX,
            ..ThreadFilter::default()
        };
        Ok(self.list(filter).await?.rows)
    }
}
