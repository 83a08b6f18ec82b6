//! What threads work with, given once at start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_agent::{Gates, Treasury};
use mcode_config::Effective;
use mcode_env::{Clock, IdGen};
use mcode_histories::foreign::Places;
use mcode_ids::ToolCallId;
use mcode_models::ModelRegistry;
use mcode_models::retry::RetryPolicy;
use mcode_permissions::Effect;
use mcode_store::Store;
use mcode_tools::shell::ProcessTable;
use mcode_tools::{Bounds, ToolSet};

use crate::checkpoints::Depots;
use crate::plans::PlanShelf;
use crate::resuming::GoingOn;
use crate::rules::RuleBook;

/// Gives the present value of something that can change.
pub type Current<T> = Arc<dyn Fn() -> Arc<T> + Send + Sync>;

/// Ends the process group of a dead daemon's child, if pid and start time still name the same process.
pub type ReapOrphan = Arc<dyn Fn(u32, u64) -> BoxFuture<'static, ()> + Send + Sync>;

/// Ends what carries one of these tool calls' ids in its environment: processes of a dead daemon that it had no time to
/// record.
pub type ReapMarked = Arc<dyn Fn(Vec<ToolCallId>) -> BoxFuture<'static, ()> + Send + Sync>;

/// A change of the user's permission rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleChange {
    /// Which list.
    pub effect: Effect,
    /// The rule.
    pub rule: String,
    /// Whether it is added or removed.
    pub add: bool,
}

/// Changes the user's permission rules for good; `false` when nothing had to be done, and the error says why it could
/// not. Blocking.
pub type ChangeRule = Arc<dyn Fn(&RuleChange) -> Result<bool, String> + Send + Sync>;

/// What threads work with.
#[derive(Clone)]
pub struct Deps {
    /// The log.
    pub store: Store,
    /// Models by name.
    pub models: Arc<dyn ModelRegistry>,
    /// The tools.
    pub tools: Arc<ToolSet>,
    /// The rules.
    pub rules: Arc<RuleBook>,
    /// What commands and file tools are held to.
    pub bounds: Arc<Bounds>,
    /// Every place beside the database that mcode writes, for the report of what takes space.
    pub places: Vec<crate::space::Place>,
    /// Where states of projects' files are kept.
    pub depots: Arc<Depots>,
    /// Where files are put that are to be imported, until they were looked through.
    pub spool: PathBuf,
    /// Where other agents of this user keep their histories.
    pub elsewhere: Places,
    /// Where plans are kept as files.
    pub plans: PlanShelf,
    /// The configuration as it now is.
    pub config: Current<Effective>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Makes ids.
    pub ids: Arc<dyn IdGen>,
    /// When to try a model again.
    pub retry: RetryPolicy,
    /// Where all runs wait for providers.
    pub gates: Arc<Gates>,
    /// What all runs may spend together.
    pub treasury: Arc<Treasury>,
    /// Whether the small model may be asked for titles of new threads.
    pub titles: bool,
    /// For recovery.
    pub reap_orphan: ReapOrphan,
    /// For recovery.
    pub reap_marked: ReapMarked,
    /// What the commands of threads are doing, and what was found of an earlier daemon's.
    pub processes: Arc<ProcessTable>,
    /// Where recovery notes which runs are gone on with.
    pub going_on: Arc<GoingOn>,
    /// The daemon's own environment: for the models of runs that it goes on with or begins by itself, and only where that
    /// gives what the client's gave.
    pub own_env: Arc<BTreeMap<String, String>>,
    /// For "always allow", and for whoever edits the rules.
    pub change_rule: ChangeRule,
}

impl std::fmt::Debug for Deps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deps").finish_non_exhaustive()
    }
}
