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

/// Programs whose next word says what they do, and how many such words there are.
const SUBCOMMANDS: [(&str, usize); 20] = [
    ("cargo", 1),
    ("git", 1),
    ("go", 1),
    ("npm", 1),
    ("pnpm", 1),
    ("yarn", 1),
    ("bun", 1),
    ("deno", 1),
    ("uv", 1),
    ("pip", 1),
    ("poetry", 1),
    ("docker", 1),
    ("kubectl", 1),
    ("make", 1),
    ("just", 1),
    ("gradle", 1),
    ("mvn", 1),
    ("dotnet", 1),
    ("cmake", 1),
    ("bundle", 1),
];

/// Subcommands that run what the next word names, so that the next word belongs to the rule.
const RUNNING: [&str; 6] = ["run", "exec", "x", "run-script", "compose", "tool"];

/// The narrowest useful rule that would have allowed this call; `None` when no single rule would.
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
    let known: Option<Vec<&str>> = simple.words.iter().map(Word::known).collect();
    // What is only known when it runs may stand among the arguments of a subcommand, but not in an exact rule.
    let texts: Vec<&str> = simple.words.iter().map_while(Word::known).collect();
    let (&program, rest) = texts.split_first()?;
    let plain = |text: &&&str| {
        !text.starts_with('-') && text.chars().all(|char| char.is_ascii_alphanumeric() || "-_:.".contains(char))
    };
    if let Some((_, count)) = SUBCOMMANDS.iter().find(|(name, _)| *name == program) {
        let running = rest.first().is_some_and(|first| RUNNING.contains(first));
        let wanted = if running { count + 1 } else { *count };
        let subcommand: Vec<&str> = rest.iter().take(wanted).take_while(plain).copied().collect();
        if subcommand.len() == wanted {
            return Some(format!("shell({program} {} *)", subcommand.join(" ")));
        }
    }
    let exact: Vec<String> = known?.iter().map(|text| quoted(text)).collect();
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
