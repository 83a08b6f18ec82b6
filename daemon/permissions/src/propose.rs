//! The rule that would allow a call next time.

use std::path::Path;

use mcode_config::effective::RuleSource;
use mcode_events::run::ApprovalPolicy;

use crate::access::Access;
use crate::command::parse;
use crate::decide::DecideInput;
use crate::rule::{RuleSet, parse_rule};
use crate::verdict::Verdict;
use crate::words::Word;

/// The narrowest rule that would have allowed this call; `None` when no single rule would. Of a command, the very same
/// words: whoever says yes to `npm run dev` or `git push origin main` has not said yes to what else begins so. Wider
/// rules are for people to write.
#[must_use]
pub fn propose_rule(tool: &str, accesses: &[Access], project_root: &Path) -> Option<String> {
    // What a command names is allowed with the command.
    let mut accesses = accesses.iter().filter(|access| !matches!(access, Access::Mentioned { .. }));
    let (Some(access), None) = (accesses.next(), accesses.next()) else { return None };
    match access {
        Access::Command { command, .. } => command_rule(command),
        Access::EditPath(path) => Some(format!("edit({})", pattern(path, project_root))),
        Access::ReadPath(path) => {
            let name = if matches!(tool, "view" | "glob" | "grep") { tool } else { "read" };
            Some(format!("{name}({})", pattern(path, project_root)))
        }
        Access::Host(host) => Some(format!("network({})", escape(host))),
        Access::Unconfined(_) | Access::Internal | Access::Mentioned { .. } => None,
    }
}

/// A rule about everything in a folder, such as `edit(/x/**)`.
#[must_use]
pub fn folder_rule(name: &str, folder: &Path) -> String {
    let text = folder.to_string_lossy();
    let text = if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() };
    format!("{name}({}/**)", escape(text.trim_end_matches('/')))
}

impl RuleSet {
    /// The rule that would allow this call from now on; `None` when these rules would still have it asked or refused.
    #[must_use]
    pub fn proposal(&self, input: &DecideInput<'_>) -> Option<String> {
        let text = propose_rule(input.tool, input.accesses, input.project_root)?;
        let mut with = self.clone();
        with.allow.push(parse_rule(&text, "", 0, RuleSource::Grant).ok()?);
        let asked = DecideInput { policy: ApprovalPolicy::Ask, ..*input };
        (with.decide(&asked).verdict == Verdict::Allow).then_some(text)
    }
}

fn pattern(path: &Path, project_root: &Path) -> String {
    let relative = path.strip_prefix(project_root).unwrap_or(path);
    let text = relative.to_string_lossy();
    let text = if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() };
    if text.is_empty() { "**".into() } else { escape(&text) }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!') {
            out.push('\\');
        }
        out.push(char);
    }
    out
}

fn command_rule(command: &str) -> Option<String> {
    let parsed = parse(command)?;
    let [simple] = parsed.commands.as_slice() else { return None };
    if parsed.opaque || !parsed.redirects.is_empty() || !simple.assigned.is_empty() || simple.inner.is_some() {
        return None;
    }
    let known: Vec<&str> = simple.words.iter().map(Word::known).collect::<Option<_>>()?;
    if known.is_empty() {
        return None;
    }
    let exact: Vec<String> = known.iter().map(|text| quoted(text)).collect();
    Some(format!("shell({})", exact.join(" ")))
}

/// A word as the pattern grammar reads it back.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if matches!(char, '*' | '\\' | '\'' | '"') || char.is_whitespace() {
            out.push('\\');
        }
        out.push(char);
    }
    out
}
