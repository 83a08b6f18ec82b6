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
}

impl Decision {
    pub(crate) fn new(verdict: Verdict, why: impl Into<String>) -> Self {
        Self { verdict, why: why.into(), rule: None, file: None, line: 0, source: None, firm: false }
    }

    pub(crate) fn by(verdict: Verdict, word: &str, rule: &Rule) -> Self {
        let (text, file) = (Some(rule.text.clone()), Some(rule.file.clone()));
        let (source, firm) = (Some(rule.source), matches!(rule.source, RuleSource::Managed | RuleSource::BuiltIn));
        Self { verdict, why: format!("the {word} rule {rule}"), rule: text, file, line: rule.line, source, firm }
    }

    /// It may be what a deny rule means.
    pub(crate) fn perhaps(why: &str, word: &str, rule: Option<&Rule>) -> Self {
        let meant = rule.map_or_else(|| format!("{word} rules are"), |rule| format!("the {word} rule {rule} is"));
        let mut decision = Self::new(Verdict::Ask, format!("{why}, and {meant} in force"));
        (decision.firm, decision.source) = (word == "deny", rule.map(|rule| rule.source));
        decision
    }
}
