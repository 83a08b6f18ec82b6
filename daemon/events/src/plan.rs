//! Plans: what the model means to do, as the user was asked about it.

use mcode_ids::{Seq, ToolCallId};
use serde::{Deserialize, Serialize};

use crate::blob::BlobRef;
use crate::event::{ApprovalOutcome, Event, EventBody};
use crate::state::ThreadState;

/// The mode in which an approved plan is carried out.
pub const MODE_OF_APPROVED: &str = "build";

/// A plan that the model has submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The call that submitted it; the plan is known by it.
    pub tool_call_id: ToolCallId,
    /// Its file, from the project's root.
    pub path: String,
    /// Its first heading, or the name of the file.
    pub title: String,
    /// Its text.
    pub content: BlobRef,
}

/// What became of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanOutcome {
    /// It is to be carried out.
    Approved,
    /// It is to be changed, as the user says.
    Changes,
    /// It is not to be carried out.
    Declined,
    /// Nobody was asked, or the run ended first.
    Dropped,
}

impl PlanOutcome {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Changes => "changes",
            Self::Declined => "declined",
            Self::Dropped => "dropped",
        }
    }

    /// What an answer to the question about a plan means: a no with words asks for changes.
    #[must_use]
    pub fn of_answer(outcome: ApprovalOutcome, reason: &str) -> Self {
        match outcome {
            ApprovalOutcome::Allowed | ApprovalOutcome::AllowedAlways => Self::Approved,
            ApprovalOutcome::Denied if !reason.trim().is_empty() => Self::Changes,
            ApprovalOutcome::Denied => Self::Declined,
            ApprovalOutcome::Expired | ApprovalOutcome::Withdrawn => Self::Dropped,
        }
    }
}

/// A plan where it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMark {
    /// The plan.
    pub plan: Plan,
    /// Its event.
    pub seq: Seq,
    /// What became of it, and at which event; `None` while it waits for an answer.
    pub settled: Option<(PlanOutcome, Seq)>,
}

impl ThreadState {
    /// The plan that is carried out: the one that was approved last.
    #[must_use]
    pub fn approved_plan(&self) -> Option<&Plan> {
        let approved = self.plans.iter().filter_map(|mark| match mark.settled {
            Some((PlanOutcome::Approved, seq)) => Some((seq, &mark.plan)),
            _ => None,
        });
        approved.max_by_key(|(seq, _)| *seq).map(|(_, plan)| plan)
    }

    /// The plan that a call has submitted.
    #[must_use]
    pub fn plan_of(&self, tool_call_id: ToolCallId) -> Option<&PlanMark> {
        self.plans.iter().rev().find(|mark| mark.plan.tool_call_id == tool_call_id)
    }

    /// The plan that was submitted from the same file before this one.
    #[must_use]
    pub fn plan_before(&self, plan: &Plan) -> Option<&Plan> {
        let same = self.plans.iter().rev().map(|mark| &mark.plan).filter(|it| it.path == plan.path);
        same.skip_while(|it| it.tool_call_id != plan.tool_call_id).nth(1)
    }

    pub(crate) fn apply_plan(&mut self, event: &Event) {
        match &event.body {
            EventBody::PlanSubmitted { plan } => {
                // An earlier daemon may have come no further than this; the call was made again.
                self.plans.retain(|mark| mark.plan.tool_call_id != plan.tool_call_id);
                self.plans.push(PlanMark { plan: plan.clone(), seq: event.seq, settled: None });
            }
            EventBody::PlanSettled { tool_call_id, outcome, .. } => {
                let mark = self.plans.iter_mut().rev().find(|mark| mark.plan.tool_call_id == *tool_call_id);
                if let Some(mark) = mark.filter(|mark| mark.settled.is_none()) {
                    mark.settled = Some((*outcome, event.seq));
                }
            }
            _ => {}
        }
    }

    /// Plans that wait for an answer wait no more.
    pub(crate) fn drop_open_plans(&mut self, now: Seq) {
        for mark in self.plans.iter_mut().filter(|mark| mark.settled.is_none()) {
            mark.settled = Some((PlanOutcome::Dropped, now));
        }
    }

    /// Forgets plans, and what came of them, after an event.
    pub(crate) fn rewind_plans(&mut self, to: Seq, now: Seq) {
        self.plans.retain(|mark| mark.seq <= to);
        for mark in &mut self.plans {
            mark.settled = mark.settled.filter(|(_, seq)| *seq <= to);
        }
        self.drop_open_plans(now);
    }
}

#[cfg(test)]
mod tests {
    use mcode_ids::ThreadId;

    use super::*;
    use crate::closing::closing_events;
    use crate::run::RunStatus;

    fn plan(at: u32, path: &str) -> Plan {
        let content = BlobRef { hash: format!("{at:064}"), size_bytes: 1, media_type: "text/markdown".into() };
        let tool_call_id = format!("tc_0190000000007000800000000000{at:04}").parse().unwrap();
        Plan { tool_call_id, path: path.into(), title: "A".into(), content }
    }

    fn state(bodies: Vec<EventBody>) -> ThreadState {
        let thread_id: ThreadId = "thr_01900000000070008000000000000001".parse().unwrap();
        let mut state = ThreadState::new(thread_id);
        for body in bodies {
            let seq = state.last_seq.next();
            state.apply(&Event { thread_id, seq, at_ms: 1, run_id: None, turn_id: None, body });
        }
        state
    }

    fn settled(plan: &Plan, outcome: PlanOutcome) -> EventBody {
        EventBody::PlanSettled { tool_call_id: plan.tool_call_id, outcome, comment: String::new() }
    }

    #[test]
    fn the_plan_that_was_approved_last_counts_until_it_is_taken_back() {
        let (first, other, second) = (plan(1, "a.md"), plan(2, "b.md"), plan(3, "a.md"));
        let submitted = |plan: &Plan| EventBody::PlanSubmitted { plan: plan.clone() };
        let log = vec![
            submitted(&first),
            settled(&first, PlanOutcome::Changes),
            submitted(&other),
            settled(&other, PlanOutcome::Approved),
            submitted(&second),
            settled(&second, PlanOutcome::Approved),
            // It has its end already.
            settled(&second, PlanOutcome::Declined),
        ];
        let whole = state(log.clone());
        assert_eq!(whole.approved_plan(), Some(&second));
        assert_eq!((whole.plan_before(&second), whole.plan_before(&first)), (Some(&first), None));
        for (to, approved) in [(6, Some(&second)), (5, Some(&other)), (4, Some(&other)), (3, None), (1, None)] {
            let back = EventBody::Rewound { to_seq: Seq::new(to), tasks: Vec::new() };
            let then = state([log.clone(), vec![back]].concat());
            assert_eq!(then.approved_plan(), approved, "{to}");
            assert!(then.plans.iter().all(|mark| mark.settled.is_some()), "{to}");
        }
    }

    #[test]
    fn a_plan_that_waits_is_dropped_with_its_run() {
        let plan = plan(1, "a.md");
        let mut state = state(vec![EventBody::PlanSubmitted { plan: plan.clone() }]);
        let ends = closing_events(&state, RunStatus::Cancelled, "cancelled", true);
        let dropped = EventBody::PlanSettled {
            tool_call_id: plan.tool_call_id,
            outcome: PlanOutcome::Dropped,
            comment: "cancelled".into(),
        };
        assert_eq!(ends.iter().map(|end| &end.body).collect::<Vec<_>>(), [&dropped]);
        let (thread_id, seq) = (state.thread_id, state.last_seq.next());
        state.apply(&Event { thread_id, seq, at_ms: 2, run_id: None, turn_id: None, body: dropped });
        assert!(closing_events(&state, RunStatus::Cancelled, "cancelled", true).is_empty());
    }

    #[test]
    fn a_no_with_words_asks_for_changes() {
        use ApprovalOutcome::{Allowed, Denied, Expired, Withdrawn};
        let of = |outcome, reason| PlanOutcome::of_answer(outcome, reason).as_str();
        assert_eq!((of(Allowed, ""), of(Denied, "shorter"), of(Denied, " ")), ("approved", "changes", "declined"));
        assert_eq!((of(Expired, "nobody answered"), of(Withdrawn, "x")), ("dropped", "dropped"));
    }
}
