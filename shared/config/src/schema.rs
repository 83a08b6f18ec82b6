//! The keys that a file may hold, and what each takes (interface.md section 2).

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// Text that may be a secret and is never shown as it is.
    Secret,
    /// A span of time.
    Duration,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number from 0 up to this.
    Whole(u64),
    /// A number of US dollars from 0 to [`MONEY_MAX`].
    Money,
    /// `true` or `false`.
    Switch,
    /// A list of texts.
    Texts,
}

impl Kind {
    /// The kind in words, for messages.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Text | Self::Secret => "text in quotes".to_owned(),
            Self::Duration => crate::duration::DurationError.to_string().replace("expected ", ""),
            Self::Choice(words) => format!("one of \"{}\"", words.join("\", \"")),
            Self::Whole(most) => format!("a whole number from 0 to {most}"),
            Self::Money => format!("a number of US dollars from 0 to {MONEY_MAX}"),
            Self::Switch => "true or false".to_owned(),
            Self::Texts => "a list of texts, such as [\"a\", \"b\"]".to_owned(),
        }
    }
}

/// A place in the tree of keys.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    /// A value.
    Leaf(Kind),
    /// A table with these keys.
    Table(&'static [(&'static str, Node)]),
    /// A table whose keys are the user's own names.
    Named(&'static Node),
    /// A list of tables with these keys, of which the first must be there.
    List(&'static [(&'static str, Node)]),
}

use Kind::{Choice, Duration, Money, Secret, Switch, Text, Texts, Whole};
use Node::{Leaf, List, Named, Table};

/// Largest amount of money; what is counted in billionths of it has to fit into 64 bits.
pub(crate) const MONEY_MAX: f64 = 1e9;
/// Largest count of tokens: what TOML's integers hold.
const WHOLE_MAX: u64 = i64::MAX.unsigned_abs();
/// Most days that anything is kept: a hundred years.
const DAYS_MAX: u64 = 36_500;
/// Largest count that is kept in 32 bits.
const SMALL_MAX: u64 = u32::MAX as u64;

/// The whole tree.
pub(crate) const ROOT: &[(&str, Node)] = &[
    ("model", Leaf(Text)),
    ("small_model", Leaf(Text)),
    ("fallback", Leaf(Texts)),
    ("approve", Leaf(Choice(&["ask", "deny", "all"]))),
    ("modes", Named(&Table(&[("model", Leaf(Text))]))),
    ("pack", Leaf(Text)),
    ("packs", Named(&Table(PACK))),
    ("providers", Named(&Table(PROVIDER))),
    (
        "limits",
        Table(&[
            ("max_cost_per_run", Leaf(Money)),
            ("max_cost_per_day", Leaf(Money)),
            ("max_tokens_per_run", Leaf(Whole(WHOLE_MAX))),
            ("max_steps_per_run", Leaf(Whole(SMALL_MAX))),
        ]),
    ),
    (
        "memory",
        Table(&[
            ("observer_model", Leaf(Text)),
            ("reflector_model", Leaf(Text)),
            ("observe_tokens", Leaf(Whole(WHOLE_MAX))),
            ("reflect_tokens", Leaf(Whole(WHOLE_MAX))),
        ]),
    ),
    (
        "permissions",
        Table(&[
            ("allow", Leaf(Texts)),
            ("ask", Leaf(Texts)),
            ("deny", Leaf(Texts)),
            ("env", Leaf(Texts)),
            (
                "test",
                List(&[
                    ("call", Leaf(Text)),
                    ("expect", Leaf(Choice(&["allow", "ask", "deny"]))),
                    ("mode", Leaf(Choice(&["build", "plan", "explore"]))),
                ]),
            ),
        ]),
    ),
    (
        "sandbox",
        Table(&[
            ("enabled", Leaf(Switch)),
            ("network", Leaf(Choice(&["deny", "ask", "allow"]))),
            ("hosts", Leaf(Texts)),
            ("write", Leaf(Texts)),
        ]),
    ),
    ("background", Table(&[("wake", Leaf(Switch))])),
    (
        "threads",
        Table(&[
            ("titles", Leaf(Switch)),
            ("keep_days", Leaf(Whole(DAYS_MAX))),
            ("max_bytes_per_project", Leaf(Whole(WHOLE_MAX))),
            ("max_body_bytes", Leaf(Whole(WHOLE_MAX))),
        ]),
    ),
    (
        "goals",
        Table(&[
            ("judge_model", Leaf(Text)),
            ("max_attempts", Leaf(Whole(SMALL_MAX))),
            ("resume", Leaf(Choice(&["auto", "ask", "never"]))),
        ]),
    ),
    (
        "login",
        Named(&Table(&[
            ("authorize_url", Leaf(Text)),
            ("token_url", Leaf(Text)),
            ("device_url", Leaf(Text)),
            ("revoke_url", Leaf(Text)),
            ("client_id", Leaf(Text)),
            ("client_secret", Leaf(Secret)),
            ("scopes", Leaf(Texts)),
            ("flow", Leaf(Choice(&["loopback", "paste", "device"]))),
            ("redirect", Leaf(Text)),
            ("query", Named(&Leaf(Text))),
        ])),
    ),
];

/// How thinking can be asked for; the words are those of the catalogue.
pub const THINKING_FORMS: &[&str] = &[
    "none",
    "budget",
    "adaptive",
    "adaptive_always",
    "effort",
    "toggle",
    "enable_thinking",
    "open_router",
    "gemini_budget",
    "gemini_level",
];

/// The roles that a pack gives a model to.
pub const ROLES: &[&str] = &["build", "plan", "explore", "small", "judge", "observer", "reflector"];
/// How much a model can be asked to think.
pub const THINKING_LEVELS: &[&str] = &["off", "low", "medium", "high", "xhigh"];
const LEVEL: Node = Leaf(Choice(THINKING_LEVELS));

/// Keys of one pack.
const PACK: &[(&str, Node)] = &[
    ("build", Leaf(Text)),
    ("plan", Leaf(Text)),
    ("explore", Leaf(Text)),
    ("small", Leaf(Text)),
    ("judge", Leaf(Text)),
    ("observer", Leaf(Text)),
    ("reflector", Leaf(Text)),
    (
        "thinking",
        Table(&[
            ("build", LEVEL),
            ("plan", LEVEL),
            ("explore", LEVEL),
            ("small", LEVEL),
            ("judge", LEVEL),
            ("observer", LEVEL),
            ("reflector", LEVEL),
        ]),
    ),
];

/// Keys of one provider.
const PROVIDER: &[(&str, Node)] = &[
    ("wire", Leaf(Text)),
    ("base_url", Leaf(Text)),
    ("api_key", Leaf(Secret)),
    (
        "models",
        List(&[
            ("id", Leaf(Text)),
            ("context", Leaf(Whole(SMALL_MAX))),
            ("max_output", Leaf(Whole(SMALL_MAX))),
            ("images", Leaf(Switch)),
            ("thinking", Leaf(Choice(THINKING_FORMS))),
            ("input_price", Leaf(Money)),
            ("output_price", Leaf(Money)),
            ("cache_read_price", Leaf(Money)),
            ("cache_write_price", Leaf(Money)),
        ]),
    ),
    ("idle_timeout", Leaf(Duration)),
    ("headers", Named(&Leaf(Secret))),
    ("omit_fields", Leaf(Texts)),
];

/// The node at a dotted path; `Err` holds the name that is not known and the names there are.
pub(crate) fn find(path: &[String]) -> Result<Node, (String, Vec<&'static str>)> {
    let mut node = Table(ROOT);
    for name in path {
        node = match node {
            Table(keys) => match keys.iter().find(|(key, _)| key == name) {
                Some((_, child)) => *child,
                None => return Err((name.clone(), keys.iter().map(|(key, _)| *key).collect())),
            },
            Named(child) => *child,
            Leaf(_) | List(_) => return Err((name.clone(), Vec::new())),
        };
    }
    Ok(node)
}

/// "unknown key 'modle'; did you mean 'model'?"
pub(crate) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(key) => format!("unknown key '{name}'; did you mean '{key}'?"),
        None => format!("unknown key '{name}'"),
    }
}

/// The name that was meant, if one of these is near enough.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (steps, key) = known.map(|key| (distance(name, key), key)).min()?;
    (steps <= 2.max(name.len() / 3)).then_some(key)
}

/// Edits (insert, remove, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    /// Longer names are no slips of the keys above.
    const LENGTH_MAX: usize = 64;
    let a: Vec<char> = a.chars().take(LENGTH_MAX).collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_get_a_hint_and_nonsense_does_not() {
        let keys = || ROOT.iter().map(|(key, _)| *key);
        assert_eq!(unknown("modle", keys()), "unknown key 'modle'; did you mean 'model'?");
        assert_eq!(unknown("permisions", keys()), "unknown key 'permisions'; did you mean 'permissions'?");
        assert_eq!(unknown("zzzzzzzz", keys()), "unknown key 'zzzzzzzz'");
        assert!(unknown(&"m".repeat(100_000), keys()).starts_with("unknown key"));
    }
}
