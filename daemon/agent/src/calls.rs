//! Tool calls: arguments, permission, running, results.
//!
//! Calls run in the order in which the model gave them; neighbours that only look run at the same time. Each call is
//! checked, planned and decided right before it runs, since an earlier call of the step may have changed what it
//! would do.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use mcode_events::event::{ApprovalRequest, EventBody, Question};
use mcode_events::message::Part;
use mcode_events::run::{RunError, RunErrorKind};
use mcode_events::tool::{ResultPart, TaskItem, ToolCall, ToolCallStatus, ToolResult};
use mcode_ids::{ProcessId, QuestionId, ToolCallId, TurnId};
use mcode_permissions::{Access, RuleSet, Verdict};
use mcode_tools::port::{StartedProcess, Warning};
use mcode_tools::{
    AskOutcome, CallBounds, CallContext, CallPlan, Submission, Tool, ToolFailure, ToolOutput, ToolPort, ToolSpec,
};
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::drive::{Driver, RunContext, RunServices, Stop};
use crate::live::LiveKey;
use crate::permit::{Judged, permit};
use crate::reach::{call_bounds, decide};
use crate::repetition::{StepTrace, Verdict as Repeated};

/// Calls that run at the same time at most.
const PARALLEL_MAX: usize = 8;

/// How long a cancelled tool may take to end by itself before it is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(8);

/// The tool whose call hands a plan to the user.
pub(crate) const SUBMIT_PLAN: &str = "submit_plan";

/// A call that the model asked for.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    /// What is wrong with it before it is even planned.
    problem: Option<String>,
    tool: Option<(Arc<dyn Tool>, ToolSpec)>,
    /// What an earlier daemon has asked about it.
    pub(crate) asked: Option<ApprovalRequest>,
}

impl Call {
    pub(crate) fn event(&self) -> ToolCall {
        ToolCall { tool_call_id: self.tool_call_id, name: self.name.clone(), arguments: self.arguments.clone() }
    }
}

/// A call that may run beside others, or has to run alone.
struct Planned {
    call: Call,
    plan: Result<Looked, ToolFailure>,
}

/// What was found when a call was looked at.
pub(crate) struct Looked {
    pub(crate) plan: CallPlan,
    /// The kernel holds what deny rules name.
    pub(crate) shielded: bool,
    /// The plan that it hands to the user.
    pub(crate) submission: Option<Submission>,
    /// With what was found of deny rules on the disk.
    bounds: CallBounds,
    /// The rules that these bounds are made from.
    rules: Arc<RuleSet>,
}

impl Driver {
    /// The calls of a message, their arguments checked and mended where that is safe.
    pub(crate) fn prepare_calls(&self, parts: &[Part]) -> Vec<Call> {
        parts
            .iter()
            .filter_map(|part| match part {
                Part::ToolCall { tool_call_id, name, arguments, .. } => {
                    Some(self.prepare(*tool_call_id, name, arguments))
                }
                _ => None,
            })
            .collect()
    }

    fn prepare(&self, tool_call_id: ToolCallId, name: &str, arguments: &Value) -> Call {
        let tools = &self.services.tools;
        let tool = tools.get(name).cloned().zip(tools.spec(name).cloned());
        let (arguments, problem) = match (&tool, arguments) {
            (None, _) => {
                let known: Vec<&str> = tools.names().collect();
                (
                    arguments.clone(),
                    Some(format!("There is no tool named '{name}'. The tools are: {}.", known.join(", "))),
                )
            }
            (Some(_), Value::String(raw)) if serde_json::from_str::<Value>(raw).is_err() => {
                let reason =
                    serde_json::from_str::<Value>(raw).err().map(|error| error.to_string()).unwrap_or_default();
                let text = format!(
                    "The arguments of this call are not valid JSON ({reason}), so nothing was run. Send the call again."
                );
                (arguments.clone(), Some(text))
            }
            (Some(_), given) => match tools.check_arguments(name, given) {
                Ok(mended) => (mended, None),
                Err(failure) => (given.clone(), Some(failure.to_string())),
            },
        };
        Call { tool_call_id, name: name.to_owned(), arguments, problem, tool, asked: None }
    }

    /// Runs the calls of a step, in order; looks beside each other, everything else alone.
    pub(crate) async fn run_calls(&mut self, turn_id: TurnId, calls: Vec<Call>) -> Result<(), Stop> {
        let names: std::collections::BTreeSet<String> = calls.iter().map(|call| call.name.clone()).collect();
        let mut calls = calls.into_iter().peekable();
        let mut next = None;
        let mut trace = StepTrace::default();
        while let Some(planned) = match next.take() {
            Some(planned) => Some(planned),
            None => match calls.next() {
                Some(call) => Some(self.plan(turn_id, call).await),
                None => None,
            },
        } {
            let mut group = vec![planned];
            while group.iter().all(is_parallel) && group.len() < PARALLEL_MAX {
                let Some(call) = calls.next() else { break };
                let planned = self.plan(turn_id, call).await;
                if is_parallel(&planned) {
                    group.push(planned);
                } else {
                    next = Some(planned);
                    break;
                }
            }
            self.run_group(turn_id, group, &mut trace).await?;
            // A call that was planned beside its forerunners is planned again if it has to run after them.
            if let Some(stale) = next.take() {
                next = Some(self.plan(turn_id, stale.call).await);
            }
        }
        self.check_repetition(turn_id, trace, &names.into_iter().collect::<Vec<_>>().join(", ")).await
    }

    /// Tells a model that goes round in circles so, and ends the run of one that does not listen.
    async fn check_repetition(&mut self, turn_id: TurnId, trace: StepTrace, names: &str) -> Result<(), Stop> {
        match self.repetition.note(trace) {
            Repeated::Fine => Ok(()),
            Repeated::Warn(count) => {
                let text = format!("These calls gave the same results {count} times in a row. Try something else.");
                self.tell_model(turn_id, &text).await
            }
            Repeated::Stop(count) => Err(Stop::Failed(RunError {
                kind: RunErrorKind::Limit,
                reason: "LOOP_DETECTED".to_owned(),
                message: format!(
                    "the model made the same calls ({names}) {count} times in a row, with the same results"
                ),
                hint: "say what to do differently and go on with --thread, or use another model".to_owned(),
            })),
        }
    }

    async fn plan(&self, turn_id: TurnId, call: Call) -> Planned {
        let plan = match (&call.problem, &call.tool) {
            (Some(problem), _) => Err(ToolFailure::BadArguments(problem.clone())),
            (None, None) => Err(ToolFailure::Failed("there is no such tool".to_owned())),
            (None, Some(_)) => look(&self.services, &self.context, turn_id, &call).await,
        };
        Planned { call, plan }
    }

    async fn run_group(&mut self, turn_id: TurnId, group: Vec<Planned>, trace: &mut StepTrace) -> Result<(), Stop> {
        let tasks = self.services.port.record(turn_id, Vec::new()).await?.tasks.clone();
        let (services, context) = (&self.services, &self.context);
        let mut running = futures::stream::iter(group.into_iter().map(|planned| {
            let tasks = tasks.clone();
            async move {
                let call = planned.call.clone();
                (call, run_one(services, context, turn_id, planned, tasks).await)
            }
        }))
        .buffer_unordered(PARALLEL_MAX);
        let mut modes = None;
        while let Some(first) = running.next().await {
            // Results that are ready together are committed together; a slow one does not hold the others back.
            let mut ended = vec![first];
            while let Some(Some(another)) = futures::FutureExt::now_or_never(running.next()) {
                ended.push(another);
            }
            let mut bodies = Vec::with_capacity(ended.len());
            for (call, result) in ended {
                let result = services.redactor.result(result?, &services.models.known_secrets());
                self.services.live.close(LiveKey::ToolCall(call.tool_call_id));
                self.last_call_denied =
                    (result.status == ToolCallStatus::Denied).then(|| format!("{} ({})", call.name, result.preview));
                trace.add(&call.name, &call.arguments, &result);
                bodies.push(EventBody::ToolCallFinished { name: call.name, result });
            }
            modes = Some(self.services.port.record(turn_id, bodies).await?);
        }
        drop(running);
        if let Some(state) = modes {
            self.take_on_mode(&state);
        }
        if self.context.cancel.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) }
    }
}

/// What a call would do, and what it needs, as things stand now.
pub(crate) async fn look(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    call: &Call,
) -> Result<Looked, ToolFailure> {
    let Some((tool, spec)) = &call.tool else {
        return Err(ToolFailure::Failed("there is no such tool".to_owned()));
    };
    let (tool, arguments, name) = (Arc::clone(tool), call.arguments.clone(), spec.name);
    let (rules, asked) = (services.rules.now(), call.asked.is_some());
    let of_call = call_context(services, context, turn_id, call.tool_call_id, spec);
    let looking = tokio::task::spawn_blocking(move || {
        // What an earlier daemon has asked about is on record, whatever became of the file.
        let submitted = asked && name == SUBMIT_PLAN;
        let mut plan = if submitted { CallPlan::of_nothing() } else { tool.plan(&arguments, &of_call)? };
        let submission = if submitted { None } else { tool.submission(&arguments, &of_call).transpose()? };
        // Before the rest, so that it is the reason that people are told.
        plan.access.splice(..0, of_call.bounds.beyond(&plan.access));
        let shielded = of_call.bounds.shields(name, &plan.access);
        Ok(Looked { plan, shielded, submission, bounds: of_call.bounds, rules })
    });
    tokio::select! {
        plan = looking => plan.unwrap_or_else(|_| {
            Err(ToolFailure::Failed("the tool crashed while it looked at the call".to_owned()))
        }),
        // A file system that does not answer must not hold up the end of the run.
        () = cancelled_for(&context.cancel, CANCEL_GRACE) => Err(ToolFailure::Cancelled),
    }
}

fn is_parallel(planned: &Planned) -> bool {
    planned.plan.as_ref().is_ok_and(|looked| looked.plan.parallel)
}

/// One call from its plan to its result. Fails only when the run has to stop.
async fn run_one(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    planned: Planned,
    tasks: Vec<TaskItem>,
) -> Result<ToolResult, Stop> {
    let Planned { call, plan } = planned;
    let id = call.tool_call_id;
    if context.cancel.is_cancelled() {
        return Ok(ToolResult::text(id, ToolCallStatus::Cancelled, "Cancelled by the user before it began."));
    }
    let Looked { plan, shielded, submission, bounds, rules } = match plan {
        Ok(looked) => looked,
        Err(failure) => return Ok(failed(id, failure)),
    };
    let Some((tool, spec)) = call.tool.clone() else {
        return Ok(ToolResult::text(id, ToolCallStatus::Failed, "there is no such tool"));
    };
    let asked =
        match permit(services, context, turn_id, &call, &spec, Judged { plan: &plan, shielded, submission }).await? {
            Ok(asked) => asked,
            Err(refusal) => return Ok(refusal),
        };
    let changes = !plan.parallel && crate::snapshots::may_change(&plan.access);
    if changes {
        tokio::select! {
            taken = services.snapshots.before(services, turn_id) => taken?,
            () = context.cancel.cancelled() => {
                return Ok(ToolResult::text(id, ToolCallStatus::Cancelled, "Cancelled by the user before it began."));
            }
        }
    }
    let granted = Some(plan.access.into());
    let mut call_context =
        CallContext { tasks, shielded, granted, ..call_context(services, context, turn_id, id, &spec) };
    // Where no time has passed and the rules are the same, what was found of them is not looked for again.
    if !asked && Arc::ptr_eq(&rules, &services.rules.now()) {
        call_context.bounds = bounds;
    }
    // A task of its own: a tool that panics fails its call, not the run. Dropped with the call, it does not outlive it.
    let mut running = AbortOnDropHandle::new(tokio::spawn(tool.run(call.arguments.clone(), call_context)));
    let joined = tokio::select! {
        joined = &mut running => joined,
        () = cancelled_for(&context.cancel, CANCEL_GRACE) => {
            if changes {
                services.snapshots.after(id).await;
            }
            return Ok(ToolResult::text(id, ToolCallStatus::Cancelled, "Cancelled by the user."));
        }
    };
    if changes {
        services.snapshots.after(id).await;
    }
    Ok(match joined {
        Ok(Ok(output)) => finished(id, output),
        Ok(Err(failure)) => failed(id, failure),
        Err(_) => {
            ToolResult::text(id, ToolCallStatus::Failed, "The tool crashed; this is a fault of mcode, not of the call.")
        }
    })
}

async fn cancelled_for(cancel: &tokio_util::sync::CancellationToken, grace: Duration) {
    cancel.cancelled().await;
    tokio::time::sleep(grace).await;
}

pub(crate) fn finished(tool_call_id: ToolCallId, output: ToolOutput) -> ToolResult {
    ToolResult {
        tool_call_id,
        status: if output.failed { ToolCallStatus::Failed } else { ToolCallStatus::Done },
        content: if output.content.is_empty() {
            vec![ResultPart::Text { text: "(no output)".to_owned() }]
        } else {
            output.content
        },
        preview: output.preview,
        exit_code: output.exit_code,
        files: output.files,
        diff: output.diff,
    }
}

pub(crate) fn failed(tool_call_id: ToolCallId, failure: ToolFailure) -> ToolResult {
    let status = match failure {
        ToolFailure::Cancelled => ToolCallStatus::Cancelled,
        ToolFailure::BadArguments(_) | ToolFailure::Failed(_) => ToolCallStatus::Failed,
    };
    ToolResult::text(tool_call_id, status, failure.to_string())
}

fn call_context(
    services: &RunServices,
    context: &RunContext,
    turn_id: TurnId,
    tool_call_id: ToolCallId,
    spec: &ToolSpec,
) -> CallContext {
    let bounds = call_bounds(services, context, spec);
    CallContext {
        thread_id: context.thread_id,
        tool_call_id,
        cwd: context.options.cwd.clone().into(),
        project_root: context.project_root.clone(),
        env: Arc::clone(&context.tool_env),
        umask: context.umask,
        ledger: Arc::clone(&services.ledger),
        blobs: Arc::clone(&services.blobs),
        port: Arc::new(CallPort {
            services: services.clone(),
            context: context.clone(),
            spec: spec.clone(),
            turn_id,
            tool_call_id,
            bounds: bounds.clone(),
        }),
        tasks: Vec::new(),
        bounds,
        shielded: false,
        granted: None,
        cancel: context.cancel.child_token(),
        clock: Arc::clone(&services.clock),
        ids: Arc::clone(&services.ids),
    }
}

/// A tool's line to its run.
#[derive(Debug)]
struct CallPort {
    services: RunServices,
    context: RunContext,
    spec: ToolSpec,
    turn_id: TurnId,
    tool_call_id: ToolCallId,
    bounds: CallBounds,
}

impl ToolPort for CallPort {
    fn ask(&self, question: String, options: Vec<String>, multiple: bool) -> BoxFuture<'_, AskOutcome> {
        Box::pin(async move {
            if !self.context.options.interactive {
                return AskOutcome::NobodyThere;
            }
            let question = Question {
                question_id: QuestionId::from_uuid(self.services.ids.next()),
                tool_call_id: self.tool_call_id,
                question,
                options,
                multiple,
            };
            tokio::select! {
                answer = self.services.port.await_answer(self.turn_id, question) => match answer {
                    Ok(Some(text)) => AskOutcome::Answered(text),
                    Ok(None) | Err(_) => AskOutcome::Cancelled,
                },
                () = self.context.cancel.cancelled() => AskOutcome::Cancelled,
            }
        })
    }

    fn set_tasks(&self, items: Vec<TaskItem>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // A log that cannot be written ends the run at the next record; the list is not worth an error of its own.
            let _ = self.services.port.record(self.turn_id, vec![EventBody::TasksChanged { items }]).await.is_ok();
        })
    }

    fn process_started(&self, process: StartedProcess) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let body = EventBody::ProcessStarted {
                process_id: process.process_id,
                tool_call_id: self.tool_call_id,
                pid: process.pid,
                started_ticks: process.started_ticks,
                command: process.command,
                background: process.background,
            };
            let _ = self.services.port.record(self.turn_id, vec![body]).await.is_ok();
        })
    }

    fn process_exited(
        &self,
        process_id: ProcessId,
        exit_code: Option<i32>,
        reason: String,
        notice: Option<String>,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.services.port.process_exited(process_id, exit_code, reason, notice).await.is_ok();
        })
    }

    fn warn(&self, warning: Warning) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.services.port.warn(warning, self.context.thread_id, self.tool_call_id).await.is_ok();
        })
    }

    fn may_read(&self, path: &std::path::Path) -> bool {
        let names = std::iter::once(path.to_path_buf()).chain(self.bounds.original(path));
        let access: Vec<Access> = names.map(Access::ReadPath).collect();
        self.bounds.may_read(path)
            && decide(&self.services, &self.context, &self.spec, &access, false).verdict == Verdict::Allow
    }

    fn output(&self, text: &str) {
        let text = self.services.redactor.values(text);
        self.services.live.push_text(LiveKey::ToolCall(self.tool_call_id), &text);
    }
}
