//! Rules: `tool(pattern)`, `tool`, or a category (`read`, `edit`, `execute`, `network`) in place of the tool.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use mcode_config::effective::{PermissionRules, RuleSource, WrittenRule};

use crate::matching::CommandPattern;
use crate::paths::PathPattern;
use crate::vocabulary;

/// Longest rule in bytes.
pub(crate) const RULE_BYTES_MAX: usize = 4096;

/// A rule that can not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: the {effect} rule '{rule}' can not be read: {reason}")]
pub struct RuleError {
    /// The file it stands in.
    pub file: String,
    /// `allow`, `ask` or `deny`.
    pub effect: &'static str,
    /// The rule as written.
    pub rule: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What a rule speaks of.
#[derive(Debug, Clone)]
pub(crate) enum Subject {
    /// Reading files with `view`; a rule that restricts covers every way to read.
    View,
    /// Reading files with any tool.
    Read,
    /// Changing files with any tool.
    Edit,
    /// Running commands.
    Shell,
    /// Reaching hosts.
    Network,
    /// The tool of this name, whatever it touches.
    Tool(GlobMatcher),
}

/// What a rule's pattern is matched with; only those that its subject needs are there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pattern {
    pub(crate) path: Option<PathPattern>,
    pub(crate) command: Option<CommandPattern>,
    pub(crate) host: Option<GlobMatcher>,
}

/// A rule, read.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) subject: Subject,
    pub(crate) pattern: Option<Pattern>,
    /// As written.
    pub(crate) text: String,
    pub(crate) file: String,
    /// From 1; 0 when it is not known.
    pub(crate) line: usize,
    pub(crate) source: RuleSource,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' in {}", self.text, self.file)
    }
}

/// What a rule does with the calls that it speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// They run without asking.
    Allow,
    /// Somebody is asked.
    Ask,
    /// They do not run.
    Deny,
}

impl Effect {
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

impl Rule {
    /// What the pattern says of paths, for the rules that are about reading or changing files.
    pub(crate) fn path_pattern(&self) -> Option<&PathPattern> {
        let about_files = matches!(self.subject, Subject::View | Subject::Read | Subject::Edit);
        self.pattern.as_ref().filter(|_| about_files).and_then(|pattern| pattern.path.as_ref())
    }
}

/// The rules of a run.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    pub(crate) allow: Vec<Rule>,
    pub(crate) ask: Vec<Rule>,
    pub(crate) deny: Vec<Rule>,
    /// Restricting rules that can not be read: nothing is allowed while there is one.
    pub(crate) broken: Vec<RuleError>,
}

impl RuleSet {
    /// Reads rules. Those that can not be read are returned, for the user to mend; a broken `allow` rule is left out,
    /// and a broken `deny` or `ask` rule makes the set allow nothing without asking.
    #[must_use]
    pub fn parse(rules: &PermissionRules) -> (Self, Vec<RuleError>) {
        let mut errors = Vec::new();
        let mut set = Self::default();
        let lists = [("allow", &rules.allow), ("ask", &rules.ask), ("deny", &rules.deny)];
        for (effect, list) in lists {
            for WrittenRule { text, file, line, source } in list {
                // A project may only tighten.
                if effect == "allow" && *source == RuleSource::Project {
                    continue;
                }
                match parse_rule(text, file, *line, *source) {
                    Ok(rule) => match effect {
                        "allow" => set.allow.push(rule),
                        "ask" => set.ask.push(rule),
                        _ => set.deny.push(rule),
                    },
                    Err(reason) => {
                        let rule: String = text.chars().take(200).collect();
                        errors.push(RuleError { file: file.clone(), effect, rule, reason });
                    }
                }
            }
        }
        set.broken = errors.iter().filter(|error| error.effect != "allow").cloned().collect();
        (set, errors)
    }
}

/// Whether a rule can be read.
///
/// # Errors
/// What is wrong with it, in words.
pub fn check_rule(text: &str) -> Result<(), String> {
    parse_rule(text, "", 0, RuleSource::User).map(drop)
}

pub(crate) fn parse_rule(text: &str, file: &str, line: usize, source: RuleSource) -> Result<Rule, String> {
    let trimmed = text.trim();
    if trimmed.len() > RULE_BYTES_MAX {
        return Err(format!("it is longer than {RULE_BYTES_MAX} bytes"));
    }
    let (name, pattern) = match trimmed.split_once('(') {
        None => (trimmed, None),
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(pattern) => (name.trim_end(), Some(pattern.trim())),
            None => return Err("the closing ')' is missing; write tool(pattern)".into()),
        },
    };
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '*' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        return Err("it must begin with the name of a tool or of a category; write tool(pattern) or tool".into());
    }
    let subject = match name {
        "view" => Subject::View,
        "read" => Subject::Read,
        "edit" => Subject::Edit,
        "shell" | "execute" => Subject::Shell,
        "network" => Subject::Network,
        other => {
            let glob = simple_glob(other)?;
            // A rule that speaks of nothing would be dropped without a word, and a deny rule with it.
            if let Some(reason) = vocabulary::unknown(other, &glob) {
                return Err(reason);
            }
            Subject::Tool(glob)
        }
    };
    let pattern = pattern.map(|text| parse_pattern(&subject, text)).transpose()?;
    Ok(Rule { subject, pattern, text: trimmed.to_owned(), file: file.to_owned(), line, source })
}

fn parse_pattern(subject: &Subject, text: &str) -> Result<Pattern, String> {
    if text.is_empty() {
        return Err("the pattern is empty; write the name alone to mean everything".into());
    }
    let path = || PathPattern::parse(text).map(Some);
    let command = || CommandPattern::parse(text).map(Some);
    let host = || simple_glob(&text.to_lowercase()).map(Some);
    Ok(match subject {
        Subject::View | Subject::Read | Subject::Edit => Pattern { path: path()?, ..Pattern::default() },
        Subject::Shell => Pattern { command: command()?, ..Pattern::default() },
        Subject::Network => Pattern { host: host()?, ..Pattern::default() },
        Subject::Tool(_) => Pattern { path: path()?, command: command()?, host: host()? },
    })
}

fn simple_glob(text: &str) -> Result<GlobMatcher, String> {
    GlobBuilder::new(text).build().map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}
