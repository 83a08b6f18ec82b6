//! One file per service.

mod approval;
mod checkpoint;
mod daemon;
mod event;
mod importing;
mod login;
mod model;
mod permission;
mod plan;
mod porting;
mod project;
mod run;
mod search;
mod storage;
mod thread;
mod trust;
mod usage;

use std::sync::Arc;

use crate::ServerDeps;

/// Implements every service of `mcode.v1`. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) deps: Arc<ServerDeps>,
}

impl Services {
    pub(crate) fn new(deps: ServerDeps) -> Self {
        Self { deps: Arc::new(deps) }
    }
}
