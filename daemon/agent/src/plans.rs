//! Plans that the model hands to the user: put on record, asked about like any other call, and carried out.
//!
//! What is on record is what was read when the call was made; the answer is about that. It is one commit with what follows
//! from it (`threads/asking.rs`): the plan's end and, for a yes, the mode. So whichever daemon goes on finds both or none.

use std::sync::Arc;
use std::time::Duration;

use mcode_events::event::{ApprovalOutcome, EventBody};
use mcode_events::plan::{MODE_OF_APPROVED, Plan, PlanOutcome};
use mcode_events::run::{ApprovalPolicy, RunTrigger};
use mcode_events::state::ThreadState;
use mcode_events::tool::{ToolCallStatus, ToolResult};
use mcode_ids::TurnId;
use mcode_permissions::{Decision, Mode, Verdict};
use mcode_tools::Submission;

use crate::calls::Call;
use crate::drive::{Driver, RunContext, RunServices, Stop};
use crate::port::ApprovalAnswer;

/// Most bytes of a plan, or of what is new in it, that people are shown when they are asked.
const SHOWN_BYTES_MAX: usize = 12 * 1024;

/// How long it is looked for the shortest diff.
const DIFF_TIME_MAX: Duration = Duration::from_millis(200);

/// Lines of a diff around what differs.
const DIFF_CONTEXT: usize = 3;

/// The decision about a plan: rules and modes may forbid it, and else only the run's policy says who decides.
pub(crate) fn decided(decision: Decision, context: &RunContext) -> Decision {
    let firm = decision.verdict == Verdict::Deny;
    if firm {
        return decision;
    }
    let mode = crate::reach::mode(context);
    let (verdict, why) = match context.options.approval {
        _ if mode == Mode::Explore => (Verdict::Deny, "explore mode changes nothing, so it has no plans"),
        ApprovalPolicy::Deny => {
            (Verdict::Deny, "a plan is for the user to decide, and this run refuses what would be asked")
        }
        // A run that a tool call has started would give itself more than that call has.
        ApprovalPolicy::All if matches!(context.options.trigger, RunTrigger::Person | RunTrigger::Background) => (
            Verdict::Allow,
            "this run allows everything that is not denied (otherwise: a plan is for the user to decide)",
        ),
        ApprovalPolicy::All | ApprovalPolicy::Ask => (Verdict::Ask, "a plan is for the user to decide"),
    };
    Decision { verdict, why: why.to_owned(), ..decision }
}

/// Puts a plan on record; gives what people are shown of it.
pub(crate) async fn submit(
    services: &RunServices,
    turn_id: TurnId,
    call: &Call,
    submission: &Submission,
) -> Result<String, Stop> {
    let text = services.redactor.values(&submission.text).into_owned();
    let (blobs, kept) = (Arc::clone(&services.blobs), text.clone());
    let content = tokio::task::spawn_blocking(move || blobs.put(kept.as_bytes(), "text/markdown")).await;
    let content = match content {
        Ok(Ok(content)) => content,
        Ok(Err(error)) => return Err(crate::port::RecordError::Log(error.to_string()).into()),
        Err(error) => return Err(crate::port::RecordError::Log(error.to_string()).into()),
    };
    let plan = Plan {
        tool_call_id: call.tool_call_id,
        path: submission.path.clone(),
        title: services.redactor.values(&submission.title).into_owned(),
        content,
    };
    let state = services.port.record(turn_id, vec![EventBody::PlanSubmitted { plan: plan.clone() }]).await?;
    let before = match state.plan_before(&plan) {
        Some(before) => content_of(services, &before.content.hash).await,
        None => None,
    };
    Ok(shown(&plan, &text, before.as_deref()))
}

/// The text of a plan on record; `None` when it can not be read.
async fn content_of(services: &RunServices, hash: &str) -> Option<String> {
    let (blobs, hash) = (Arc::clone(&services.blobs), hash.to_owned());
    let content = tokio::task::spawn_blocking(move || blobs.get(&hash)).await.ok()?.ok()?;
    String::from_utf8(content).ok()
}

/// What differs between two texts of a plan, as a unified diff; empty when nothing does.
#[must_use]
pub fn diff(before: &str, now: &str) -> String {
    let diff = similar::TextDiff::configure().timeout(DIFF_TIME_MAX).diff_lines(before, now);
    diff.unified_diff().context_radius(DIFF_CONTEXT).header("before", "now").to_string()
}

/// What people are shown: the plan, or what is new in it since it was submitted before.
fn shown(plan: &Plan, text: &str, before: Option<&str>) -> String {
    let (what, body) = match before {
        Some(before) if before == text => ("The same plan as before".to_owned(), text.to_owned()),
        Some(before) => ("Revised plan".to_owned(), diff(before, text)),
        None => ("Plan".to_owned(), text.to_owned()),
    };
    let cut = mcode_text::truncate_middle(&body, SHOWN_BYTES_MAX);
    format!(
        "{what}: {}\nFile: {}\n\n{}\n\n[all of it: mcode plans show {}; a no with a reason asks for changes]",
        plan.title,
        plan.path,
        cut.trim_end(),
        plan.tool_call_id
    )
}

/// Ends a plan about which nobody is asked.
pub(crate) async fn settle(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    call: &Call,
    (outcome, comment): (PlanOutcome, &str),
) -> Result<(), Stop> {
    let tool_call_id = call.tool_call_id;
    let mut bodies = vec![EventBody::PlanSettled { tool_call_id, outcome, comment: comment.to_owned() }];
    if outcome == PlanOutcome::Approved && context.options.mode != MODE_OF_APPROVED {
        bodies.push(EventBody::ModeChanged { mode: MODE_OF_APPROVED.to_owned() });
    }
    services.port.record(turn_id, bodies).await?;
    Ok(())
}

/// What an answer about a plan means to the model; `Ok` is a yes.
pub(crate) fn answered(answer: &ApprovalAnswer, call: &Call) -> Result<(), ToolResult> {
    let said = answer.reason.trim();
    let result = |status, preview: &str, text: String| {
        let mut result = ToolResult::text(call.tool_call_id, status, text);
        preview.clone_into(&mut result.preview);
        Err(result)
    };
    match PlanOutcome::of_answer(answer.outcome, said) {
        PlanOutcome::Approved => Ok(()),
        PlanOutcome::Changes => result(
            ToolCallStatus::Done,
            "the user asks for changes",
            format!(
                "The user asks for changes to the plan: {said}\n\nEdit the same file accordingly and submit it again. The mode is the same as before."
            ),
        ),
        PlanOutcome::Declined => result(
            ToolCallStatus::Denied,
            "the user declined the plan",
            "The user declined the plan. Do not carry it out, and do not submit it again unasked.".to_owned(),
        ),
        PlanOutcome::Dropped if answer.outcome == ApprovalOutcome::Expired => result(
            ToolCallStatus::Denied,
            "nobody answered in time",
            "Nobody answered in time, so the plan was not approved. Say in your final answer where it is.".to_owned(),
        ),
        PlanOutcome::Dropped => result(
            ToolCallStatus::Denied,
            "withdrawn",
            "The question was withdrawn; the plan was not approved.".to_owned(),
        ),
    }
}

impl Driver {
    /// Takes on the mode that the thread has now: an approved plan is carried out in the run that submitted it.
    pub(crate) fn take_on_mode(&mut self, state: &ThreadState) {
        if let Some(run) = state.run(self.context.run_id)
            && run.options.mode != self.context.options.mode
        {
            self.context.options.mode.clone_from(&run.options.mode);
        }
    }

    /// The text of the plan that is carried out, if there is one.
    pub(crate) async fn approved_plan(&self, state: &ThreadState) -> Option<String> {
        let plan = state.approved_plan()?;
        content_of(&self.services, &plan.content.hash).await
    }
}

#[cfg(test)]
mod tests {
    use mcode_events::BlobRef;

    use super::*;

    #[test]
    fn a_revision_shows_what_is_new_and_nothing_is_longer_than_it_may_be() {
        let content = BlobRef { hash: "0".repeat(64), size_bytes: 1, media_type: "text/markdown".into() };
        let tool_call_id = "tc_01900000000070008000000000000001".parse().unwrap();
        let plan = Plan { tool_call_id, path: ".mcode/plans/a.md".into(), title: "A".into(), content };
        let first = shown(&plan, "# A\none\ntwo\n", None);
        assert!(first.starts_with("Plan: A\nFile: .mcode/plans/a.md\n\n# A\none\ntwo\n"), "{first}");
        let revised = shown(&plan, "# A\none\nthree\n", Some("# A\none\ntwo\n"));
        assert!(revised.contains("Revised plan") && revised.contains("-two\n+three"), "{revised}");
        assert!(shown(&plan, "same", Some("same")).starts_with("The same plan as before"));
        let long = shown(&plan, &"x\n".repeat(SHOWN_BYTES_MAX), None);
        assert!(
            long.len() <= crate::preview::PREVIEW_BYTES_MAX && long.contains("mcode plans show tc_"),
            "{}",
            long.len()
        );
    }
}
