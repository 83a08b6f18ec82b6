//! What the record of permissions holds: who wanted what, what was decided by which rule, and who answered.
//!
//! It is beside the threads' logs, since it outlives them and also tells of changes of rules and of trust.

use mcode_ids::{ApprovalId, RunId, ThreadId, ToolCallId};
use serde::{Deserialize, Serialize};

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// A tool call was allowed, refused, or has to be asked about.
    Decided,
    /// Somebody, or the passing of time, settled what was asked.
    Answered,
    /// A rule was added, for good or for a while.
    RuleAdded,
    /// A rule was removed.
    RuleRemoved,
    /// A project's own configuration was trusted.
    TrustAllowed,
    /// It is trusted no longer.
    TrustRevoked,
    /// A command changed or made files that are obeyed outside its sandbox.
    Planted,
    /// Somebody who may not, wanted to answer an approval or to change rules or trust.
    Refused,
    /// A thread was deleted by the user's policy of what is kept.
    LetGo,
}

impl AuditKind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::Answered => "answered",
            Self::RuleAdded => "rule_added",
            Self::RuleRemoved => "rule_removed",
            Self::TrustAllowed => "trust_allowed",
            Self::TrustRevoked => "trust_revoked",
            Self::Planted => "planted",
            Self::Refused => "refused",
            Self::LetGo => "let_go",
        }
    }
}

/// One record. Texts are bounded and hold no secrets; that is for whoever makes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// What it is about.
    pub kind: AuditKind,
    /// `allow`, `ask` or `deny`; of an answer, its outcome; of what was planted, `moved` or `told`.
    pub verdict: String,
    /// The tool; empty when no call is meant.
    pub tool: String,
    /// The command, the path, the rule or the project.
    pub subject: String,
    /// Why it was decided so.
    pub why: String,
    /// The rule that decided, as written.
    pub rule: Option<String>,
    /// Where that rule stands: `file:line`, or the grant.
    pub place: Option<String>,
    /// Who wanted it: `model` for a tool call, else the client.
    pub asker: String,
    /// Who decided: `rules`, `mode`, `default`, or who answered.
    pub answerer: String,
    /// The thread.
    pub thread_id: Option<ThreadId>,
    /// The run.
    pub run_id: Option<RunId>,
    /// The call.
    pub tool_call_id: Option<ToolCallId>,
    /// The approval that was asked for or settled.
    pub approval_id: Option<ApprovalId>,
}

impl AuditEntry {
    /// A record of this kind; what is not known of it stays empty.
    #[must_use]
    pub fn new(kind: AuditKind, verdict: &str) -> Self {
        Self {
            kind,
            verdict: verdict.to_owned(),
            tool: String::new(),
            subject: String::new(),
            why: String::new(),
            rule: None,
            place: None,
            asker: String::new(),
            answerer: String::new(),
            thread_id: None,
            run_id: None,
            tool_call_id: None,
            approval_id: None,
        }
    }
}
