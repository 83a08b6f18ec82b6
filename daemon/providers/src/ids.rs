//! Ids of tool calls in the alphabet of the target.
//!
//! An id goes back as it was given when the target takes it and no other call of the prompt has it; else it becomes
//! a short text that depends on the id alone, so that the prompt stays the same from request to request.

use std::collections::{HashMap, HashSet};

use mcode_ids::ToolCallId;

/// Which ids a target takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdRule {
    /// `^[a-zA-Z0-9_-]{1,64}$`.
    Anthropic,
    /// At most this many characters, printable.
    AtMost(usize),
    /// Exactly nine letters and digits.
    Mistral,
}

impl IdRule {
    fn takes(self, id: &str, own: bool) -> bool {
        match self {
            Self::Anthropic => {
                (1..=64).contains(&id.len())
                    && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            }
            Self::AtMost(most) => {
                let most = if own { MAX_OWN_ID_BYTES } else { most };
                (1..=most).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
            }
            Self::Mistral => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        }
    }
}

/// The longest id that goes back to the provider that gave it.
const MAX_OWN_ID_BYTES: usize = 512;
/// Length of the ids we make: fits every rule.
const MADE_LENGTH: usize = 9;

/// The ids of one prompt.
#[derive(Debug)]
pub(crate) struct IdMap {
    rule: IdRule,
    by_call: HashMap<ToolCallId, String>,
    used: HashSet<String>,
}

impl IdMap {
    /// An empty map for a target.
    pub(crate) fn new(rule: IdRule) -> Self {
        Self { rule, by_call: HashMap::new(), used: HashSet::new() }
    }

    /// The id of a call for this target; the same for the call and its answer. `own` says that this provider gave
    /// `given` over this wire.
    pub(crate) fn id(&mut self, call: ToolCallId, given: &str, own: bool) -> String {
        if let Some(id) = self.by_call.get(&call) {
            return id.clone();
        }
        let id = if self.rule.takes(given, own) && !self.used.contains(given) {
            given.to_owned()
        } else {
            let seed = if given.is_empty() || self.used.contains(given) { call.to_string() } else { given.to_owned() };
            (0u64..).map(|salt| made(&seed, salt)).find(|id| !self.used.contains(id)).unwrap_or_default()
        };
        self.used.insert(id.clone());
        self.by_call.insert(call, id.clone());
        id
    }
}

/// Nine letters and digits from a text (FNV-1a; only distinctness matters).
fn made(seed: &str, salt: u64) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ salt;
    for byte in seed.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (0..MADE_LENGTH)
        .map(|_| {
            let letter = ALPHABET[(hash % 62) as usize];
            hash /= 62;
            char::from(letter)
        })
        .collect()
}

/// A tool name that every target takes: the model may have made one up that its own provider would refuse.
pub(crate) fn tool_name(name: &str) -> String {
    let name: String = name
        .chars()
        .take(64)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u128) -> ToolCallId {
        format!("tc_{number:032x}").parse().unwrap()
    }

    #[test]
    fn legal_ids_stay_and_others_are_made_to_fit() {
        let mut anthropic = IdMap::new(IdRule::Anthropic);
        assert_eq!(anthropic.id(call(1), "toolu_01", true), "toolu_01");
        let made = anthropic.id(call(2), "functions.add:0", false);
        assert!(IdRule::Anthropic.takes(&made, false), "{made}");
        assert_eq!(anthropic.id(call(2), "functions.add:0", false), made);

        let mut openai = IdMap::new(IdRule::AtMost(40));
        assert_eq!(openai.id(call(1), "functions.add:0", false), "functions.add:0");
        let long = "x".repeat(60);
        assert_eq!(openai.id(call(2), &long, true), long, "its own id goes back");
        assert_eq!(openai.id(call(3), &"y".repeat(60), false).len(), MADE_LENGTH);

        let mut mistral = IdMap::new(IdRule::Mistral);
        assert_eq!(mistral.id(call(1), "ab12CD34e", true), "ab12CD34e");
        assert!(IdRule::Mistral.takes(&mistral.id(call(2), "toolu_01", false), false));
    }

    #[test]
    fn ids_are_distinct_within_a_prompt() {
        let mut map = IdMap::new(IdRule::AtMost(40));
        let ids: HashSet<String> = (0..200).map(|number| map.id(call(number), "functions.add:0", true)).collect();
        assert_eq!(ids.len(), 200);
        let empty: HashSet<String> = (300..400).map(|number| map.id(call(number), "", true)).collect();
        assert_eq!(empty.len(), 100);
    }

    #[test]
    fn the_same_prompt_gets_the_same_ids() {
        let ids = |rule| IdMap::new(rule).id(call(7), "a.very/odd id", false);
        assert_eq!(ids(IdRule::Anthropic), ids(IdRule::Anthropic));
    }
}
