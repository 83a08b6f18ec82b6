//! What is decided, and why.

use mcode_config::effective::RuleSource;

use crate::rule::Rule;

/// What becomes of a call. Later is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It runs.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It does not run.
    Deny,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// What made a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecidedBy {
    /// A rule, or that one might be meant.
    Rule,
    /// The run's mode.
    Mode,
    /// What the run does about calls that would be asked.
    Policy,
    /// What holds without any of these.
    #[default]
    Default,
}

impl DecidedBy {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rules",
            Self::Mode => "mode",
            Self::Policy => "policy",
            Self::Default => "default",
        }
    }
}

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of the call.
    pub verdict: Verdict,
    /// Why, for people and the model: names the rule and its file, the mode, or the default.
    pub why: String,
    /// The rule that made it, as written.
    pub rule: Option<String>,
    /// The file of that rule.
    pub file: Option<String>,
    /// Its line there, from 1; 0 when there is none.
    pub line: usize,
    /// Who made that rule.
    pub source: Option<RuleSource>,
    /// It asks also in runs that allow whatever would be asked.
    pub firm: bool,
    /// What made it.
    pub by: DecidedBy,
}

impl Decision {
    pub(crate) fn new(verdict: Verdict, why: impl Into<String>) -> Self {
        let by = DecidedBy::Default;
        Self { verdict, why: why.into(), rule: None, file: None, line: 0, source: None, firm: false, by }
    }

    pub(crate) fn by(verdict: Verdict, word: &str, rule: &Rule) -> Self {
        let (text, file) = (Some(rule.text.clone()), Some(rule.file.clone()));
        let (source, firm) = (Some(rule.source), matches!(rule.source, RuleSource::Managed | RuleSource::BuiltIn));
        let why = format!("the {word} rule {rule}");
        Self { verdict, why, rule: text, file, line: rule.line, source, firm, by: DecidedBy::Rule }
    }

    /// It may be what a deny rule means.
    pub(crate) fn perhaps(why: &str, word: &str, rule: Option<&Rule>) -> Self {
        let meant = rule.map_or_else(|| format!("{word} rules are"), |rule| format!("the {word} rule {rule} is"));
        let mut decision = Self::new(Verdict::Ask, format!("{why}, and {meant} in force"));
        (decision.firm, decision.source) = (word == "deny", rule.map(|rule| rule.source));
        decision.by = DecidedBy::Rule;
        decision
    }
}
