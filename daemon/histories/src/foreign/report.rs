//! What became of the records of a history.

use std::collections::BTreeMap;

use mcode_text::{sanitize_line, truncate_bytes};

use super::Maker;

/// Kinds of records that are told apart; further ones are summed.
const KINDS_MAX: usize = 64;

/// The name of the further ones.
const OTHERS: &str = "other records";

/// The longest name of a kind, in bytes.
const KIND_BYTES_MAX: usize = 60;

/// Damaged places that are named; further ones are counted.
const DAMAGED_MAX: usize = 100;

/// What was made of a history, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Inputs, each a run of its own.
    pub runs: u64,
    /// Messages of people and models.
    pub messages: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Those of them that had no result.
    pub interrupted_calls: u64,
    /// What was left out, by kind.
    pub left_out: BTreeMap<String, u64>,
    /// Places that could not be read, with line or file and reason.
    pub damaged: Vec<String>,
    /// Further places that could not be read.
    pub damaged_more: u64,
}

impl Report {
    pub(crate) fn leave_out(&mut self, kind: &str) {
        let kind = sanitize_line(truncate_bytes(kind, KIND_BYTES_MAX)).into_owned();
        let known = self.left_out.contains_key(&kind) || self.left_out.len() < KINDS_MAX;
        *self.left_out.entry(if known { kind } else { OTHERS.to_owned() }).or_default() += 1;
    }

    pub(crate) fn damage(&mut self, place: &str, why: &str) {
        if self.damaged.len() < DAMAGED_MAX {
            let told = format!("{place}: {why}");
            self.damaged.push(sanitize_line(truncate_bytes(&told, 300)).into_owned());
        } else {
            self.damaged_more += 1;
        }
    }

    /// Places that could not be read.
    #[must_use]
    pub fn damages(&self) -> u64 {
        self.damaged.len() as u64 + self.damaged_more
    }

    /// Said in the thread.
    pub(crate) fn told(&self, maker: Maker, id: &str) -> String {
        let id = sanitize_line(truncate_bytes(id, 100)).into_owned();
        let mut text = format!(
            "Imported from {} ({id}): {} messages, {} tool calls.",
            maker.title(),
            self.messages,
            self.tool_calls
        );
        let left_out: u64 = self.left_out.values().sum();
        if left_out > 0 {
            let kinds: Vec<String> = self.left_out.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
            text.push_str(&format!(" Left out: {}.", kinds.join(", ")));
        }
        if self.damages() > 0 {
            text.push_str(&format!(" Not readable: {} places.", self.damages()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_bounded() {
        let mut report = Report::default();
        for number in 0..KINDS_MAX + 5 {
            report.leave_out(&format!("kind {number:03}\u{1b}[31m"));
        }
        for number in 0..DAMAGED_MAX + 7 {
            report.damage(&format!("line {number}"), "no JSON");
        }
        assert_eq!((report.left_out.len(), report.left_out[OTHERS]), (KINDS_MAX + 1, 5));
        assert_eq!((report.damaged.len(), report.damages()), (DAMAGED_MAX, DAMAGED_MAX as u64 + 7));
        assert!(!report.told(Maker::Codex, "x").contains('\u{1b}'));
    }
}
