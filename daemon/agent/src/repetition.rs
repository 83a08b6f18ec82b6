//! Finding a model that goes round in circles (pure): the same calls with the same results, step after step.
//!
//! Equal calls within one step are not a circle: the model had not seen a result yet.

use mcode_events::tool::ToolResult;
use serde_json::Value;

/// So many equal steps in a row get a note for the model.
pub const WARN_AT: u32 = 3;

/// So many end the run.
pub const STOP_AT: u32 = 6;

/// What to do about a step that was just done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Tell the model that it repeats itself.
    Warn(u32),
    /// End the run.
    Stop(u32),
}

/// What a step did, as far as its repetition shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StepTrace(Vec<String>);

impl StepTrace {
    /// Adds a call and what came of it.
    pub fn add(&mut self, name: &str, arguments: &Value, result: &ToolResult) {
        // `process` polls a running command: the same answer again is what waiting looks like.
        if name != "process" {
            self.0.push(format!("{name} {arguments} {} {}", result.status.as_str(), result.joined_text()));
        }
    }
}

/// Counts equal steps in a row.
#[derive(Debug, Default)]
pub struct Repetition {
    last: StepTrace,
    count: u32,
}

impl Repetition {
    /// Notes a step whose calls have ended. Their order does not matter: some of them ran side by side.
    pub fn note(&mut self, mut step: StepTrace) -> Verdict {
        step.0.sort_unstable();
        if step.0.is_empty() {
            return Verdict::Fine;
        }
        if self.last == step {
            self.count += 1;
        } else {
            self.last = step;
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

    fn step(calls: &[(&str, &str)]) -> StepTrace {
        let mut trace = StepTrace::default();
        for (name, text) in calls {
            let id = ToolCallId::from_uuid(SeededIds::new(3).next());
            trace.add(name, &json!({"path": "a"}), &ToolResult::text(id, ToolCallStatus::Done, *text));
        }
        trace
    }

    #[test]
    fn equal_steps_are_counted_whatever_the_order_of_their_calls() {
        let mut seen = Repetition::default();
        let orders: [&[(&str, &str)]; 2] = [&[("view", "x"), ("grep", "y")], &[("grep", "y"), ("view", "x")]];
        let verdicts: Vec<Verdict> = (0..STOP_AT as usize).map(|n| seen.note(step(orders[n % 2]))).collect();
        let fine = Verdict::Fine;
        assert_eq!(verdicts, [fine, fine, Verdict::Warn(3), Verdict::Warn(4), Verdict::Warn(5), Verdict::Stop(6)]);
        assert_eq!(seen.note(step(&[("view", "z")])), fine);
    }

    #[test]
    fn progress_polling_and_many_equal_calls_at_once_are_no_circles() {
        let mut seen = Repetition::default();
        assert_eq!(seen.note(step(&[("view", "x"); 40])), Verdict::Fine);
        for n in 0..20 {
            assert_eq!(seen.note(step(&[("shell", n.to_string().as_str())])), Verdict::Fine);
            assert_eq!(seen.note(step(&[("process", "")])), Verdict::Fine);
        }
    }
}
