//! What the server gave out that has to come back as it was, or not at all.

use std::collections::BTreeMap;

use super::recorded::Wire;

/// Who was given a signature, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Made {
    /// `None` = any, for histories made by hand.
    wire: Option<Wire>,
    model: String,
    /// What it vouches for; `None` = anything.
    of: Option<String>,
}

/// Signatures, encrypted reasoning, and which reasoning led to which item.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    signatures: BTreeMap<String, Vec<Made>>,
    led_by: BTreeMap<String, String>,
}

/// How a signature came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// As it was given.
    Right,
    /// From another model or wire, or from nobody.
    Foreign,
    /// With something that it was not given for.
    Moved,
}

impl Given {
    /// Takes `signature` from `model` on every wire, with anything.
    pub(super) fn trust(&mut self, signature: &str, model: &str) {
        let made = Made { wire: None, model: model.to_owned(), of: None };
        self.signatures.entry(signature.to_owned()).or_default().push(made);
    }

    /// Remembers that `model` signed `of` with `signature`.
    pub(super) fn sign(&mut self, wire: Wire, model: &str, signature: &str, of: &str) {
        let made = Made { wire: Some(wire), model: model.to_owned(), of: Some(of.to_owned()) };
        let known = self.signatures.entry(signature.to_owned()).or_default();
        if !known.contains(&made) {
            known.push(made);
        }
    }

    /// Remembers that the reasoning item `reasoning` led to the item `id`.
    pub(super) fn lead(&mut self, reasoning: &str, id: &str) {
        self.led_by.insert(id.to_owned(), reasoning.to_owned());
    }

    /// The reasoning item that led to the item `id`.
    pub(super) fn leader(&self, id: &str) -> Option<&str> {
        self.led_by.get(id).map(String::as_str)
    }

    /// Whether `signature` may come back to `model` on `wire`, with `of`.
    pub(super) fn seen(&self, wire: Wire, model: &str, signature: &str, of: &str) -> Seen {
        let known = self.signatures.get(signature).map_or(&[][..], Vec::as_slice);
        let mut own =
            known.iter().filter(|made| made.model == model && made.wire.is_none_or(|made| made == wire)).peekable();
        if own.peek().is_none() {
            return Seen::Foreign;
        }
        if own.any(|made| made.of.as_deref().is_none_or(|made| made == of)) { Seen::Right } else { Seen::Moved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_belongs_to_a_wire_a_model_and_a_text() {
        let mut given = Given::default();
        given.sign(Wire::Anthropic, "m", "S", "text");
        assert_eq!(given.seen(Wire::Anthropic, "m", "S", "text"), Seen::Right);
        assert_eq!(given.seen(Wire::Anthropic, "m", "S", "edited"), Seen::Moved);
        assert_eq!(given.seen(Wire::Anthropic, "other", "S", "text"), Seen::Foreign);
        assert_eq!(given.seen(Wire::Bedrock, "m", "S", "text"), Seen::Foreign);
        assert_eq!(given.seen(Wire::Anthropic, "m", "T", "text"), Seen::Foreign);
        given.trust("H", "m");
        assert_eq!(given.seen(Wire::Bedrock, "m", "H", "whatever"), Seen::Right);
    }
}
