//! Finding a model that goes round in circles (pure): the same calls with the same results, step after step, or a few
//! different steps over and over.
//!
//! Equal calls within one step are not a circle: the model had not seen a result yet.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use mcode_events::tool::ToolResult;
use serde_json::Value;

/// So many equal steps in a row get a note for the model.
pub const WARN_AT: u32 = 3;

/// So many end the run.
pub const STOP_AT: u32 = 6;

/// The most steps of one round of a circle.
pub const ROUND_MAX: usize = 4;

/// So many steps in rounds of more than one step get a note.
pub const CIRCLE_WARN_AT: u32 = 10;

/// So many end the run.
pub const CIRCLE_STOP_AT: u32 = 20;

/// What to do about a step that was just done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Tell the model that it repeats itself: so many times in a row.
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

/// Counts equal steps in a row, and equal rounds of steps.
#[derive(Debug, Default)]
pub struct Repetition {
    /// Digests of the last steps, newest first.
    recent: VecDeque<u64>,
    /// How many steps in a row were equal to the one so many steps before, for one and more.
    runs: [u32; ROUND_MAX],
}

impl Repetition {
    /// Notes a step whose calls have ended. Their order does not matter: some of them ran side by side.
    pub fn note(&mut self, mut step: StepTrace) -> Verdict {
        step.0.sort_unstable();
        if step.0.is_empty() {
            return Verdict::Fine;
        }
        let mut hasher = DefaultHasher::new();
        step.0.hash(&mut hasher);
        let digest = hasher.finish();
        for (run, before) in self.runs.iter_mut().enumerate() {
            *before = if self.recent.get(run) == Some(&digest) { *before + 1 } else { 0 };
        }
        self.recent.push_front(digest);
        self.recent.truncate(ROUND_MAX);
        match self.runs[0] + 1 {
            count if count >= STOP_AT => return Verdict::Stop(count),
            count if count >= WARN_AT => return Verdict::Warn(count),
            _ => {}
        }
        (2u32..)
            .zip(&self.runs[1..])
            .map(|(round, run)| circle(round, *run))
            .find(|it| *it != Verdict::Fine)
            .unwrap_or(Verdict::Fine)
    }
}

/// A circle of `round` steps that `run` further steps have followed.
fn circle(round: u32, run: u32) -> Verdict {
    match round + run {
        _ if run == 0 => Verdict::Fine,
        steps if steps >= CIRCLE_STOP_AT => Verdict::Stop(steps / round),
        steps if steps >= CIRCLE_WARN_AT && run.is_multiple_of(round) => Verdict::Warn(steps / round),
        _ => Verdict::Fine,
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

    #[test]
    fn rounds_of_a_few_steps_are_circles_too() {
        for round in [["a", "b", "a", "b"], ["a", "b", "c", "d"]] {
            let mut seen = Repetition::default();
            let verdicts: Vec<Verdict> =
                (0..CIRCLE_STOP_AT as usize).map(|n| seen.note(step(&[("view", round[n % 4])]))).collect();
            let (last, before) = verdicts.split_last().unwrap();
            assert!(matches!(last, Verdict::Stop(_)), "{last:?}");
            assert!(!before.iter().any(|it| matches!(it, Verdict::Stop(_))), "{before:?}");
            assert!(before.iter().any(|it| matches!(it, Verdict::Warn(_))), "{before:?}");
        }
        // One step that differs begins anew.
        let mut seen = Repetition::default();
        for n in 0..200 {
            let text = if n % 19 == 18 { n.to_string() } else { (n % 2).to_string() };
            assert!(!matches!(seen.note(step(&[("view", text.as_str())])), Verdict::Stop(_)), "{n}");
        }
    }
}
