//! The names that rules may begin with.

use globset::GlobMatcher;
use mcode_config::nearest;

/// Categories of tools that a rule may name in place of one.
const CATEGORIES: [&str; 4] = ["read", "edit", "execute", "network"];

/// The tools of the house, also those that a daemon may come without: a rule about one that is not there is no slip.
pub const TOOL_NAMES: [&str; 18] = [
    "view",
    "write",
    "edit",
    "apply_patch",
    "glob",
    "grep",
    "shell",
    "process",
    "web_fetch",
    "web_search",
    "lsp",
    "ask_user",
    "tasks",
    "submit_plan",
    "request_access",
    "recall",
    "skill",
    "agent",
];

/// Tools of other servers: which there are is known only when these run.
const FOREIGN: &str = "mcp__";

/// What others call a tool or a category.
const ELSEWHERE: [(&str, &str); 7] = [
    ("bash", "shell"),
    ("command", "shell"),
    ("run", "shell"),
    ("exec", "execute"),
    ("multiedit", "edit"),
    ("patch", "apply_patch"),
    ("fetch", "web_fetch"),
];

/// Why a rule of this name would speak of nothing; `None` when it speaks of something.
pub(crate) fn unknown(name: &str, glob: &GlobMatcher) -> Option<String> {
    let known = || CATEGORIES.into_iter().chain(TOOL_NAMES);
    if name.starts_with(FOREIGN)
        || name.contains('*') && (glob.is_match(FOREIGN) || known().any(|tool| glob.is_match(tool)))
    {
        return None;
    }
    if known().any(|tool| tool == name) {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == lower).map(|(_, ours)| *ours);
    Some(match elsewhere.or_else(|| nearest(&lower, known())) {
        Some(meant) => format!("there is no tool and no category named '{name}'; did you mean '{meant}'?"),
        None => {
            let names: Vec<&str> = known().collect();
            format!("there is no tool and no category named '{name}'; there are {} and mcp__*", names.join(", "))
        }
    })
}
