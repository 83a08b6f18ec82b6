//! Whether a call may run: decided by rules, asked if need be, and recorded before it takes effect.

use mcode_events::audit::{AuditEntry, AuditKind};
use mcode_events::event::{ApprovalOutcome, ApprovalRequest, EventBody};
use mcode_events::plan::PlanOutcome;
use mcode_events::tool::{ToolCallStatus, ToolResult};
use mcode_ids::{ApprovalId, TurnId};
use mcode_permissions::access::Access;
use mcode_permissions::{Decision, Verdict};
use mcode_text::truncate_middle;
use mcode_tools::{CallPlan, Submission, ToolSpec};

use crate::calls::{Call, SUBMIT_PLAN, failed, look};
use crate::drive::{RunContext, RunServices, Stop};
use crate::plans;
use crate::port::ApprovalAnswer;
use crate::reach::{decide, input};

/// How long an approval waits before silence is a refusal, in milliseconds (24 h).
pub const APPROVAL_WAIT_MS: i64 = 24 * 60 * 60 * 1000;

/// Most bytes of what a call touches in the record of permissions.
const SUBJECT_BYTES_MAX: usize = 1024;

/// What is judged of a call.
pub(crate) struct Judged<'a> {
    pub(crate) plan: &'a CallPlan,
    /// The kernel holds what deny rules name.
    pub(crate) shielded: bool,
    /// The plan that it hands to the user.
    pub(crate) submission: Option<Submission>,
}

/// `Ok(Ok(asked))` is a permission, and whether a person was asked for it; `Ok(Err(result))` is a refusal that the model
/// is told.
pub(crate) async fn permit(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    call: &Call,
    spec: &ToolSpec,
    judged: Judged<'_>,
) -> Result<Result<bool, ToolResult>, Stop> {
    if let Some(asked) = &call.asked {
        return permit_asked(services, context, turn_id, (call, asked), spec).await;
    }
    let Judged { plan, shielded, submission } = judged;
    let mut decision = decide(services, context, spec, &plan.access, shielded);
    if submission.is_some() {
        decision = plans::decided(decision, context);
    }
    let ask = decision.verdict == Verdict::Ask && context.options.interactive;
    let approval_id = ask.then(|| ApprovalId::from_uuid(services.ids.next()));
    let mut record = recorded(services, context, call, plan, &decision);
    record.approval_id = approval_id;
    services.port.audit(record).await?;
    let refused = |preview: &str, text: String| refusal(call, preview, text);
    let why = &decision.why;
    if let (Some(submission), true) = (&submission, decision.verdict != Verdict::Deny) {
        let request = |preview: String| {
            let id = approval_id?;
            let request = approval_request(services, context, id, call, spec, plan, &decision);
            // A rule would approve plans that nobody has seen.
            Some(ApprovalRequest { preview, proposed_rule: None, ..request })
        };
        return permit_plan(services, context, turn_id, call, (submission, decision.verdict), request).await;
    }
    match (decision.verdict, approval_id) {
        (Verdict::Allow, _) => Ok(Ok(false)),
        (Verdict::Deny, _) => Ok(Err(refused(
            why,
            format!("Permission denied: {why}. Nothing was run. Do without it, or tell the user what you would need."),
        ))),
        (Verdict::Ask, None) => Ok(Err(refused(
            &format!("{why}, and nobody is there to answer"),
            format!(
                "Permission denied: {why}, and nobody is there to answer. Nothing was run. \
                 Do without it, or tell the user what you would need."
            ),
        ))),
        (Verdict::Ask, Some(approval_id)) => {
            let request = approval_request(services, context, approval_id, call, spec, plan, &decision);
            let asked = services.port.await_approval(turn_id, request);
            let answer = tokio::select! {
                answer = asked => answer?,
                () = context.cancel.cancelled() => return Err(Stop::Cancelled),
            };
            let answered = match answered(&answer, refused) {
                Ok(()) => still(services, context, turn_id, call, spec, &shown(services, plan)).await,
                refused => refused,
            };
            begin(services, turn_id, call, answered).await
        }
    }
}

/// A plan: on record first, and then for a person to decide, or for whoever allows everything.
async fn permit_plan(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    call: &Call,
    (submission, verdict): (&Submission, Verdict),
    request: impl FnOnce(String) -> Option<ApprovalRequest>,
) -> Result<Result<bool, ToolResult>, Stop> {
    let preview = plans::submit(services, turn_id, call, submission).await?;
    let settle = |outcome, comment: &'static str| plans::settle(services, context, turn_id, call, (outcome, comment));
    if verdict == Verdict::Allow {
        settle(PlanOutcome::Approved, "this run allows everything").await?;
        return Ok(Ok(false));
    }
    let Some(request) = request(preview) else {
        settle(PlanOutcome::Dropped, "nobody is there to answer").await?;
        let text = "Nobody is there to decide about the plan, so it was not approved; it is kept. Do not carry it out: \
                    say in your final answer what it is, and that it waits to be asked for.";
        return Ok(Err(refusal(
            call,
            "a plan is for the user to decide, and nobody is there to answer",
            text.to_owned(),
        )));
    };
    let answer = tokio::select! {
        answer = services.port.await_approval(turn_id, request) => answer?,
        () = context.cancel.cancelled() => return Err(Stop::Cancelled),
    };
    // What the answer led to is on record with it.
    begin(services, turn_id, call, plans::answered(&answer, call)).await
}

/// Whether what a person allowed is what would be done now: they may have taken their time, and others went on meanwhile.
/// A rule that was made since counts, and a file that was changed is not overwritten unseen.
async fn still(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    call: &Call,
    spec: &ToolSpec,
    was_shown: &str,
) -> Result<(), ToolResult> {
    let looked = look(services, context, turn_id, call).await.map_err(|failure| failed(call.tool_call_id, failure))?;
    let decision = decide(services, context, spec, &looked.plan.access, looked.shielded);
    if decision.verdict == Verdict::Deny {
        let why = &decision.why;
        return Err(refusal(call, why, format!("Permission denied: {why}. Nothing was run.")));
    }
    if shown(services, &looked.plan) != was_shown {
        let text = "The user allowed this call, but what it would do has changed since they were asked: nothing was \
                    run. Make the call again if it is still wanted.";
        return Err(refusal(call, "it would do something else than what was allowed", text.to_owned()));
    }
    Ok(())
}

/// A call that an earlier daemon has asked about.
async fn permit_asked(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    (call, asked): (&Call, &ApprovalRequest),
    spec: &ToolSpec,
) -> Result<Result<bool, ToolResult>, Stop> {
    let refused = |preview: &str, text: String| refusal(call, preview, text);
    let answer = tokio::select! {
        answer = services.port.await_settled(asked) => answer?,
        () = context.cancel.cancelled() => return Err(Stop::Cancelled),
    };
    if call.name == SUBMIT_PLAN {
        return begin(services, turn_id, call, plans::answered(&answer, call)).await;
    }
    let answered = match answered(&answer, refused) {
        Ok(()) => still(services, context, turn_id, call, spec, &asked.preview).await,
        refused => refused,
    };
    begin(services, turn_id, call, answered).await
}

/// Records that a call that was asked about takes effect, before it does: a daemon that finds it allowed and not begun
/// knows that nothing was run.
async fn begin(
    services: &RunServices,
    turn_id: TurnId,
    call: &Call,
    answered: Result<(), ToolResult>,
) -> Result<Result<bool, ToolResult>, Stop> {
    if answered.is_ok() {
        let body = EventBody::ToolCallBegun { tool_call_id: call.tool_call_id };
        services.port.record(turn_id, vec![body]).await?;
    }
    Ok(answered.map(|()| true))
}

fn refusal(call: &Call, preview: &str, text: String) -> ToolResult {
    let mut result = ToolResult::text(call.tool_call_id, ToolCallStatus::Denied, text);
    preview.clone_into(&mut result.preview);
    result
}

/// What a call would do, as people are shown it.
fn shown(services: &RunServices, plan: &CallPlan) -> String {
    crate::preview::shown(&services.redactor.values(&plan.preview))
}

fn answered(answer: &ApprovalAnswer, refused: impl Fn(&str, String) -> ToolResult) -> Result<(), ToolResult> {
    match answer.outcome {
        ApprovalOutcome::Allowed | ApprovalOutcome::AllowedAlways => Ok(()),
        ApprovalOutcome::Denied => Err(match answer.reason.as_str() {
            "" => refused("the user said no", "The user refused this call. Nothing was run.".to_owned()),
            said => refused(
                &format!("the user said no: {said}"),
                format!("The user refused this call and said: {said}. Nothing was run."),
            ),
        }),
        ApprovalOutcome::Expired => {
            Err(refused("nobody answered in time", "Nobody answered in time, so this call was refused.".to_owned()))
        }
        ApprovalOutcome::Withdrawn => {
            Err(refused("withdrawn", "The question was withdrawn; nothing was run.".to_owned()))
        }
    }
}

fn approval_request(
    services: &RunServices,
    context: &RunContext,
    approval_id: ApprovalId,
    call: &Call,
    spec: &ToolSpec,
    plan: &CallPlan,
    decision: &Decision,
) -> ApprovalRequest {
    let extra_dirs: Vec<std::path::PathBuf> = context.options.add_dirs.iter().map(Into::into).collect();
    ApprovalRequest {
        approval_id,
        tool_call_id: call.tool_call_id,
        tool: call.name.clone(),
        arguments: call.arguments.clone(),
        preview: shown(services, plan),
        why: decision.why.clone(),
        deadline_ms: Some(services.clock.now().plus_millis(APPROVAL_WAIT_MS).millis()),
        proposed_rule: services.rules.now().proposal(&input(context, spec, &plan.access, &extra_dirs)),
        owners: Vec::new(),
    }
}

/// The decision for the record of permissions.
fn recorded(
    services: &RunServices,
    context: &RunContext,
    call: &Call,
    plan: &CallPlan,
    decision: &Decision,
) -> AuditEntry {
    let place = decision.file.as_ref().map(|file| match decision.line {
        0 => file.clone(),
        line => format!("{file}:{line}"),
    });
    let subject: Vec<String> = plan.access.iter().filter_map(subject).collect();
    let subject = services.redactor.all(&subject.join(", ")).into_owned();
    AuditEntry {
        tool: call.name.clone(),
        subject: truncate_middle(&subject, SUBJECT_BYTES_MAX),
        why: services.redactor.all(&decision.why).into_owned(),
        rule: decision.rule.clone(),
        place,
        asker: "model".to_owned(),
        answerer: decision.by.as_str().to_owned(),
        thread_id: Some(context.thread_id),
        run_id: Some(context.run_id),
        tool_call_id: Some(call.tool_call_id),
        ..AuditEntry::new(AuditKind::Decided, decision.verdict.as_str())
    }
}

/// What of an access is told; names in a command are told with the command.
fn subject(access: &Access) -> Option<String> {
    match access {
        Access::ReadPath(path) => Some(format!("read {}", path.display())),
        Access::EditPath(path) => Some(format!("edit {}", path.display())),
        Access::Command { command, .. } => Some(command.clone()),
        Access::Host(host) => Some(host.clone()),
        Access::Unconfined(what) => Some(what.words().to_owned()),
        Access::Mentioned { .. } | Access::Internal => None,
    }
}
