//! Finding a model that goes round in circles (pure): the same call with the same result, again and again.

use mcode_events::tool::ToolResult;
use serde_json::Value;

/// So many equal calls with equal results in a row get a note for the model.
pub const WARN_AT: u32 = 3;

/// So many end the run.
pub const STOP_AT: u32 = 6;

/// What to do about a call that was just answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Tell the model that it repeats itself.
    Warn(u32),
    /// End the run.
    Stop(u32),
}

/// Counts equal calls in a row.
#[derive(Debug, Default)]
pub struct Repetition {
    last: Option<(String, String)>,
    count: u32,
}

impl Repetition {
    /// Notes a call and what came of it.
    pub fn note(&mut self, name: &str, arguments: &Value, result: &ToolResult) -> Verdict {
        // `process` polls a running command: the same answer again is what waiting looks like.
        if name == "process" {
            return Verdict::Fine;
        }
        let seen = (format!("{name} {arguments}"), result.joined_text());
        if self.last.as_ref() == Some(&seen) {
            self.count += 1;
        } else {
            self.last = Some(seen);
            self.count = 1;
        }
        match self.count {
            count if count >= STOP_AT => Verdict::Stop(count),
            count if count >= WARN_AT => Verdict::Warn(count),
            _ => Verdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use mcode_env::{IdGen, SeededIds};
    use mcode_events::tool::ToolCallStatus;
    use mcode_ids::ToolCallId;
    use serde_json::json;

    use super::*;

    fn result(text: &str) -> ToolResult {
        ToolResult::text(ToolCallId::from_uuid(SeededIds::new(3).next()), ToolCallStatus::Done, text)
    }

    #[test]
    fn equal_calls_with_equal_results_are_counted() {
        let mut seen = Repetition::default();
        let arguments = json!({"path": "a"});
        let verdicts: Vec<Verdict> = (0..STOP_AT).map(|_| seen.note("view", &arguments, &result("x"))).collect();
        assert_eq!(
            verdicts,
            [Verdict::Fine, Verdict::Fine, Verdict::Warn(3), Verdict::Warn(4), Verdict::Warn(5), Verdict::Stop(6)]
        );
        assert_eq!(seen.note("view", &arguments, &result("y")), Verdict::Fine);
    }

    #[test]
    fn progress_and_polling_are_no_loops() {
        let mut seen = Repetition::default();
        for n in 0..20 {
            assert_eq!(seen.note("shell", &json!({"command": "make"}), &result(&n.to_string())), Verdict::Fine);
            assert_eq!(seen.note("process", &json!({"action": "poll"}), &result("")), Verdict::Fine);
        }
    }
}
