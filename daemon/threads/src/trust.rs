//! Trust in a project's own configuration: what it is, and whether it is still what was trusted.
//!
//! A cloned repository may bring programs to be run and settings to be used. None of it is used before somebody has seen
//! the list and said yes, and the yes is to the content: each item has a hash, and any change asks again. Absent on
//! purpose: running anything of it.

mod scan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcode_config::ProjectConfig;
use mcode_events::{AuditEntry, AuditKind};
use mcode_store::TrustRow;
use serde::{Deserialize, Serialize};

use crate::deps::Deps;
use crate::error::ThreadError;
use crate::registry::Threads;

pub use scan::{FILE_BYTES_MAX, ITEMS_MAX, Scan, scan};

/// Something of a project's own that would be run or used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrustItem {
    /// `config`, `MCP server`, `hook`, `command`, `skill`, `plugin` or `env file`.
    pub kind: String,
    /// Its file, from the project's root.
    pub path: String,
    /// What it is called; empty when the file says it all.
    pub name: String,
    /// What would be run or used, in one line.
    #[serde(skip)]
    pub what: String,
    /// BLAKE3 of its content.
    pub hash: String,
}

/// How far a project is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustState {
    /// It has nothing of its own.
    Nothing,
    /// Nobody has said that it is trusted.
    Untrusted,
    /// It was trusted, and has changed since.
    Changed,
    /// It is trusted as it is.
    Trusted,
}

impl TrustState {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Untrusted => "untrusted",
            Self::Changed => "changed",
            Self::Trusted => "trusted",
        }
    }
}

/// A project's own configuration and the trust in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectTrust {
    /// The root of the project.
    pub root: PathBuf,
    /// How far it is trusted.
    pub state: TrustState,
    /// What it has, each with `new`, `changed` or nothing since it was trusted.
    pub items: Vec<(TrustItem, &'static str)>,
    /// Of all items; what is to be trusted is named by it.
    pub fingerprint: String,
    /// What of the project is left out of account, and why.
    pub problems: Vec<String>,
    /// When it was trusted, milliseconds since 1970 UTC, and by whom.
    pub given: Option<(i64, String)>,
}

/// What a project says, if it is trusted as it is.
///
/// # Errors
/// When the file of a trusted project is broken: what it forbids is not known then.
pub(crate) async fn project_config(deps: &Deps, root: &Path) -> Result<Option<Arc<ProjectConfig>>, ThreadError> {
    let (scan, trust) = look(deps, root).await?;
    if trust.is_none_or(|trust| trust.fingerprint != scan.fingerprint()) {
        return Ok(None);
    }
    let Some((file, text)) = scan.config else { return Ok(None) };
    match ProjectConfig::parse(&file, &text) {
        Ok(config) => Ok(Some(Arc::new(config))),
        Err(errors) => Err(ThreadError::ProjectConfig(
            errors.first().map_or_else(|| file.display().to_string(), ToString::to_string),
        )),
    }
}

async fn look(deps: &Deps, root: &Path) -> Result<(Scan, Option<TrustRow>), ThreadError> {
    let folder = root.to_path_buf();
    let scan = tokio::task::spawn_blocking(move || scan(&folder))
        .await
        .map_err(|error| ThreadError::Store(Box::new(error)))?;
    let trust = deps.store.trust(root.to_string_lossy().into_owned()).await?;
    Ok((scan, trust))
}

fn described(root: PathBuf, scan: Scan, trust: Option<TrustRow>) -> ProjectTrust {
    let fingerprint = scan.fingerprint();
    let known: Vec<TrustItem> =
        trust.as_ref().and_then(|trust| serde_json::from_str(&trust.items).ok()).unwrap_or_default();
    let state = match &trust {
        _ if scan.used().next().is_none() => TrustState::Nothing,
        None => TrustState::Untrusted,
        Some(trust) if trust.fingerprint == fingerprint => TrustState::Trusted,
        Some(_) => TrustState::Changed,
    };
    let news = |item: &TrustItem| {
        let same = |other: &&TrustItem| (&other.kind, &other.path, &other.name) == (&item.kind, &item.path, &item.name);
        match (trust.is_some(), known.iter().find(same)) {
            (false, _) => "",
            (true, None) => "new",
            (true, Some(other)) if other.hash != item.hash => "changed",
            (true, Some(_)) => "",
        }
    };
    let items = scan.items.iter().map(|item| (item.clone(), news(item))).collect();
    let given = trust.as_ref().map(|trust| (trust.at_ms, trust.given_by.clone()));
    let mut problems = scan.problems;
    problems.extend(ignored(&root, scan.config.as_ref()));
    ProjectTrust { root, state, items, fingerprint, problems, given }
}

/// What of the project's own configuration has no effect: keys that nobody knows, and what a project may not set.
fn ignored(root: &Path, config: Option<&(PathBuf, String)>) -> Vec<String> {
    let Some((file, text)) = config else { return Vec::new() };
    let told = |fault: mcode_config::ConfigError| {
        let file = fault.file.strip_prefix(root).unwrap_or(&fault.file).display().to_string();
        format!("{file}:{}: {}: {}", fault.line, fault.key, fault.message)
    };
    let faults = ProjectConfig::parse(file, text).map_or_else(|errors| errors, |config| config.warnings);
    faults.into_iter().map(told).collect()
}

impl Threads {
    /// What the project of a folder has of its own, and whether it is trusted.
    ///
    /// # Errors
    /// [`ThreadError::InvalidArgument`] when the folder can not be used.
    pub async fn trust(&self, cwd: String) -> Result<ProjectTrust, ThreadError> {
        let root = crate::project::root(cwd).await?;
        let (scan, trust) = look(self.deps(), &root).await?;
        Ok(described(root, scan, trust))
    }

    /// Trusts the project of a folder as whoever asks has seen it.
    ///
    /// # Errors
    /// [`ThreadError::InvalidArgument`] when it is no longer what was seen.
    pub async fn allow_trust(&self, cwd: String, seen: &str, by: String) -> Result<ProjectTrust, ThreadError> {
        let root = crate::project::root(cwd.clone()).await?;
        let (scan, _) = look(self.deps(), &root).await?;
        let fingerprint = scan.fingerprint();
        if fingerprint != seen {
            let message = "the project is not what you have seen: look at it again".to_owned();
            return Err(ThreadError::InvalidArgument { field: "fingerprint", message });
        }
        let items = serde_json::to_string(&scan.items).map_err(|error| ThreadError::Store(Box::new(error)))?;
        let text = root.to_string_lossy().into_owned();
        let at_ms = self.deps().clock.now().millis();
        let why = format!("{} items, {fingerprint}", scan.items.len());
        self.audit_change(AuditKind::TrustAllowed, &text, &why, &by).await?;
        self.deps().store.set_trust(TrustRow { root: text, fingerprint, items, at_ms, given_by: by }).await?;
        self.trust(cwd).await
    }

    /// Trusts the project of a folder no longer; whether it was trusted.
    ///
    /// # Errors
    /// [`ThreadError::InvalidArgument`] when the folder can not be used.
    pub async fn revoke_trust(&self, cwd: String, by: String) -> Result<(PathBuf, bool), ThreadError> {
        let root = crate::project::root(cwd).await?.to_string_lossy().into_owned();
        let was = self.deps().store.remove_trust(root.clone()).await?;
        if was {
            self.audit_change(AuditKind::TrustRevoked, &root, "", &by).await?;
        }
        Ok((root.into(), was))
    }

    /// Records a change of rules or trust.
    pub(crate) async fn audit_change(
        &self,
        kind: AuditKind,
        subject: &str,
        why: &str,
        by: &str,
    ) -> Result<(), ThreadError> {
        let entry = AuditEntry {
            subject: crate::audit::brief(subject),
            why: why.to_owned(),
            asker: by.to_owned(),
            answerer: by.to_owned(),
            ..AuditEntry::new(kind, "")
        };
        Ok(self.deps().store.audit(vec![entry]).await?)
    }
}
