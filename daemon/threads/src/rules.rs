//! The rules in force for a run: the machine's, the user's, the project's, and what was given with an answer.
//!
//! A run asks for them at every call, so that an answer, a changed file or the end of a grant counts from the next call
//! on. They are put together again only when something has changed. Which grants have expired is decided here, by the
//! clock; the decision itself knows no time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mcode_agent::LiveRules;
use mcode_config::{Effective, PermissionRules, ProjectConfig, RuleSource, WrittenRule};
use mcode_env::{Clock, Dirs};
use mcode_ids::{GrantId, ThreadId};
use mcode_permissions::{RuleSet, folder_rule};
use mcode_store::{GrantRow, ReadError, Store};

use crate::deps::Current;
use crate::error::ThreadError;

/// Where rules are wanted.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The thread, for what was given for it alone.
    pub thread_id: Option<ThreadId>,
    /// The root of the project.
    pub root: PathBuf,
    /// What the project itself says, once it is trusted.
    pub project: Option<Arc<ProjectConfig>>,
}

/// The grants as they now are, and how often they have changed.
#[derive(Debug, Default)]
struct Grants {
    rows: Vec<GrantRow>,
    changes: u64,
}

/// All rules that the daemon knows of.
pub struct RuleBook {
    config: Current<Effective>,
    store: Store,
    clock: Arc<dyn Clock>,
    own: PermissionRules,
    grants: RwLock<Grants>,
}

impl std::fmt::Debug for RuleBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleBook").field("grants", &self.grants).finish_non_exhaustive()
    }
}

/// What a set of rules was put together from.
struct Made {
    config: Arc<Effective>,
    changes: u64,
    until_ms: Option<i64>,
    rules: Arc<RuleSet>,
}

impl RuleBook {
    /// Reads what was given.
    ///
    /// # Errors
    /// When the store can not be read.
    pub async fn open(
        config: Current<Effective>,
        store: Store,
        clock: Arc<dyn Clock>,
        own: PermissionRules,
    ) -> Result<Arc<Self>, ReadError> {
        let rows = store.grants().await?;
        Ok(Self::new(config, store, clock, own, rows))
    }

    /// Knows these grants, and rules of mcode's own ([`own_rules`]).
    #[must_use]
    pub fn new(
        config: Current<Effective>,
        store: Store,
        clock: Arc<dyn Clock>,
        own: PermissionRules,
        rows: Vec<GrantRow>,
    ) -> Arc<Self> {
        Arc::new(Self { config, store, clock, own, grants: RwLock::new(Grants { rows, changes: 0 }) })
    }

    /// The rules of all files, mcode's own first.
    #[must_use]
    pub fn of_files(&self) -> PermissionRules {
        let mut rules = self.own.clone();
        rules.extend((self.config)().permissions.clone());
        rules
    }

    /// The rules of a place, as they are whenever they are asked for.
    #[must_use]
    pub fn live(self: &Arc<Self>, place: Place) -> LiveRules {
        let book = Arc::clone(self);
        let made: Mutex<Option<Made>> = Mutex::new(None);
        LiveRules::new(move || {
            let (config, changes, now) = ((book.config)(), book.changes(), book.clock.now().millis());
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            let current = |made: &&Made| {
                Arc::ptr_eq(&made.config, &config)
                    && made.changes == changes
                    && made.until_ms.is_none_or(|until| now < until)
            };
            if let Some(made) = made.as_ref().filter(current) {
                return Arc::clone(&made.rules);
            }
            let grants = book.grants_for(&place);
            let until_ms = grants.iter().filter_map(|grant| grant.expires_at_ms).min();
            let rules = Arc::new(parsed(&joined(&book.own, &config, &place, &grants)));
            *made = Some(Made { config, changes, until_ms, rules: Arc::clone(&rules) });
            rules
        })
    }

    fn changes(&self) -> u64 {
        self.grants.read().unwrap_or_else(PoisonError::into_inner).changes
    }

    /// The grants that have not expired, oldest first.
    #[must_use]
    pub fn grants(&self) -> Vec<GrantRow> {
        let now = self.clock.now().millis();
        let grants = self.grants.read().unwrap_or_else(PoisonError::into_inner);
        let lives = |grant: &&GrantRow| grant.expires_at_ms.is_none_or(|expires| now < expires);
        grants.rows.iter().filter(lives).cloned().collect()
    }

    /// What was given in a thread that is gone goes with it.
    pub(crate) fn forget(&self, thread_id: ThreadId) {
        let mut grants = self.grants.write().unwrap_or_else(PoisonError::into_inner);
        grants.rows.retain(|grant| grant.thread_id != Some(thread_id));
        grants.changes += 1;
    }

    fn grants_for(&self, place: &Place) -> Vec<GrantRow> {
        let here = |grant: &GrantRow| {
            grant.thread_id.is_none_or(|thread| Some(thread) == place.thread_id)
                && grant.root.as_ref().is_none_or(|root| Path::new(root) == place.root)
        };
        self.grants().into_iter().filter(here).collect()
    }

    /// Gives a grant; it counts from the next call on.
    ///
    /// # Errors
    /// When it can not be kept.
    pub async fn add(&self, grant: GrantRow) -> Result<(), ThreadError> {
        self.store.add_grant(grant).await?;
        self.read_again().await
    }

    /// Takes a grant back.
    ///
    /// # Errors
    /// When the store can not be changed.
    pub async fn remove(&self, grant_id: GrantId) -> Result<Option<GrantRow>, ThreadError> {
        let removed = self.store.remove_grant(grant_id).await?;
        self.read_again().await?;
        Ok(removed)
    }

    async fn read_again(&self) -> Result<(), ThreadError> {
        let rows = self.store.grants().await?;
        let mut grants = self.grants.write().unwrap_or_else(PoisonError::into_inner);
        grants.rows = rows;
        grants.changes += 1;
        Ok(())
    }
}

/// The rules that are always there: the database and the record of permissions are changed by nobody but the daemon, and
/// a change of the configuration, which holds the rules, is always asked.
#[must_use]
pub fn own_rules(dirs: &Dirs) -> PermissionRules {
    let rule = |folder: &Path| WrittenRule {
        text: folder_rule("edit", &std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf())),
        file: "mcode itself".to_owned(),
        line: 0,
        source: RuleSource::BuiltIn,
    };
    PermissionRules {
        allow: Vec::new(),
        ask: vec![rule(&dirs.config)],
        deny: vec![rule(&dirs.data), rule(&dirs.state)],
    }
}

/// All rules of a place: those of files first.
fn joined(own: &PermissionRules, config: &Effective, place: &Place, grants: &[GrantRow]) -> PermissionRules {
    let mut rules = own.clone();
    rules.extend(config.permissions.clone());
    if let Some(project) = &place.project {
        rules.extend(project.permissions.clone());
    }
    rules.allow.extend(grants.iter().map(written));
    rules
}

/// A grant as a rule, with what it is known by in place of a file.
pub(crate) fn written(grant: &GrantRow) -> WrittenRule {
    let file = format!("grant {}", grant.grant_id);
    WrittenRule { text: grant.rule.clone(), file, line: 0, source: RuleSource::Grant }
}

fn parsed(rules: &PermissionRules) -> RuleSet {
    let (rules, errors) = RuleSet::parse(rules);
    for error in errors {
        tracing::error!("{error}");
    }
    rules
}
