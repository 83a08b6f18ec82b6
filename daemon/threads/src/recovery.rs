//! What is done at start about a daemon that ended: everything that was started gets its one terminal event.
//!
//! Nothing is run again by itself. Commands outlive the daemon; those that are found, running or ended since, stay open
//! and are taken up by their thread's actor, with the run of a call that waits for one. A run that waits for an answer
//! stays open too, with the calls of which nothing was run yet; and one that waits for a provider's quota, if the daemon can
//! ask that by itself. Everything else that is open is closed as interrupted.
//! Commands that nobody knows any more are ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use mcode_env::Timestamp;
use mcode_events::closing_events;
use mcode_events::event::{ApprovalOutcome, EventBody, NewEvent};
use mcode_events::run::{RunRecord, RunStatus};
use mcode_events::state::ThreadState;
use mcode_ids::{ProcessId, ThreadId, ToolCallId};
use mcode_store::{Append, ThreadRow};
use mcode_tools::shell::Found;

use crate::deps::Deps;
use crate::error::ThreadError;

/// Why things were closed.
const REASON: &str = "the daemon ended while it ran";

/// What was found and mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Threads that had something unfinished.
    pub threads: u32,
    /// Items that were given their terminal event.
    pub items: u32,
    /// Threads that could not be read to their end; they stay read-only.
    pub damaged: u32,
    /// Commands that are gone on with.
    pub kept: u32,
}

/// What of a thread goes on.
#[derive(Debug, Default)]
struct Kept {
    calls: BTreeSet<ToolCallId>,
    processes: BTreeSet<ProcessId>,
    /// Commands whose start is not in the log yet.
    unrecorded: Vec<Found>,
}

/// Closes everything that an earlier daemon left open and nothing goes on with. Call before any thread is loaded, and
/// after the table of processes knows what was found.
pub async fn recover(deps: &Deps) -> Result<Recovered, ThreadError> {
    let mut recovered = Recovered::default();
    let mut known = BTreeSet::new();
    for thread_id in deps.store.unfinished_threads().await? {
        match recover_thread(deps, thread_id).await {
            Ok((items, kept)) => {
                recovered.threads += 1;
                recovered.items += items;
                recovered.kept += u32::try_from(kept.len()).unwrap_or(u32::MAX);
                known.extend(kept);
            }
            Err(ThreadError::Damaged(damage)) => {
                tracing::error!(%damage, "a thread with unfinished work is damaged and stays read-only");
                recovered.damaged += 1;
            }
            // Without space the daemon can still show what there is; the actor records the end when there is space.
            Err(ThreadError::DiskFull) => {
                tracing::error!(%thread_id, "the disk is full: unfinished work could not be closed yet");
                known.extend(deps.processes.found_of(thread_id).iter().map(|found| found.process_id));
            }
            Err(error) => return Err(error),
        }
    }
    dismiss_all_but(deps, &known);
    Ok(recovered)
}

/// Ends what was found and belongs to nothing that is open: its thread was deleted, is damaged, or knows its end.
fn dismiss_all_but(deps: &Deps, known: &BTreeSet<ProcessId>) {
    for thread_id in deps.processes.found_threads() {
        for found in deps.processes.found_of(thread_id) {
            if !known.contains(&found.process_id) {
                let processes = Arc::clone(&deps.processes);
                // Beside the start: what does not want to end takes some seconds.
                drop(tokio::spawn(async move { processes.dismiss(thread_id, found.process_id).await }));
            }
        }
    }
}

/// How many items were closed, and the commands that are gone on with.
async fn recover_thread(deps: &Deps, thread_id: ThreadId) -> Result<(u32, Vec<ProcessId>), ThreadError> {
    let Some(loaded) = deps.store.load(thread_id).await? else { return Ok((0, Vec::new())) };
    if let Some(damage) = loaded.damage {
        return Err(damage.into());
    }
    let mut state = loaded.state;
    let found = deps.processes.found_of(thread_id);
    let mut kept = Kept::default();
    let mut going_on = Vec::new();
    for found in found {
        let call = state.open.tool_calls.contains_key(&found.tool_call_id);
        let process = state.open.processes.contains_key(&found.process_id);
        if !call && !process {
            continue;
        }
        going_on.push(found.process_id);
        kept.processes.insert(found.process_id);
        kept.calls.extend(call.then_some(found.tool_call_id));
        // One that is gone may have had its end recorded; then it must not begin again.
        if !process && !found.gone {
            kept.unrecorded.push(found);
        }
    }
    if goes_on(&state, &kept) {
        restore_gate(deps, &state);
        keep_untouched(deps, &state, &mut kept).await?;
        deps.going_on.add(thread_id);
    }
    reap(deps, &state, &kept).await;
    let events = events(&state, &kept);
    if events.is_empty() {
        return Ok((0, going_on));
    }
    let items = u32::try_from(events.len() - kept.unrecorded.len()).unwrap_or(u32::MAX);
    append(deps, &mut state, events).await?;
    Ok((items, going_on))
}

/// Whether the run is gone on with: it waits for a command that was found, or for an answer, or was just given one.
fn goes_on(state: &ThreadState, kept: &Kept) -> bool {
    if parked(state) {
        return true;
    }
    let open = &state.open;
    let asked = !(open.approvals.is_empty() && open.questions.is_empty() && open.replies.is_empty())
        || open.settled.keys().any(|call| !open.begun.contains(call));
    let can_be = state.active_run().is_some_and(|run| run.options.kept.is_some());
    open.turn.is_some() && (!kept.calls.is_empty() || (asked && can_be))
}

/// Whether the run waits for its provider's quota, and the daemon can ask that by itself: the step that was not begun yet
/// is begun anew.
fn parked(state: &ThreadState) -> bool {
    let own_access = |run: &RunRecord| run.options.kept.as_ref().is_some_and(|kept| kept.own_access);
    state.is_parked() && state.active_run().is_some_and(own_access)
}

/// Closes the gate of the model that a parked run waits for: all that wait for one limit go on waiting as one, and nobody
/// asks before its end.
fn restore_gate(deps: &Deps, state: &ThreadState) {
    let Some(run) = state.active_run().filter(|_| parked(state)) else { return };
    let (Some(parked), Some(kept)) = (&run.parked, &run.options.kept) else { return };
    let env = crate::resuming::own_env(deps, &kept.env);
    match deps.models.resolve(&parked.model, &env) {
        Ok(model) => {
            let until = Timestamp::from_millis(parked.until_ms);
            deps.gates.restore(&deps.gates.gate(&model), until, parked.whole_account);
        }
        // The run says so itself.
        Err(error) => tracing::info!(%error, "the model of a parked run can not be asked"),
    }
}

/// Keeps the calls of which nothing was run yet: what somebody was asked about and has not begun, what asks the user, and
/// what comes after that and was not decided yet, for a decision is on record before its effect.
async fn keep_untouched(deps: &Deps, state: &ThreadState, kept: &mut Kept) -> Result<(), ThreadError> {
    let open = &state.open;
    let calls: BTreeSet<ToolCallId> =
        open.tool_calls.keys().filter(|call| !kept.calls.contains(call)).copied().collect();
    let asks = |call: &ToolCallId| {
        open.replies.contains_key(call) || open.questions.values().any(|question| question.tool_call_id == *call)
    };
    let allowed = deps.store.allowed_calls(state.thread_id, calls.clone()).await?;
    let untouched = |call: &ToolCallId| asks(call) || !(allowed.contains(call) || open.begun.contains(call));
    kept.calls.extend(calls.into_iter().filter(untouched));
    Ok(())
}

/// Ends what is left of commands whose host was not found.
async fn reap(deps: &Deps, state: &ThreadState, kept: &Kept) {
    let lost =
        || state.open.processes.iter().filter(|(id, _)| !kept.processes.contains(id)).map(|(_, process)| process);
    for process in lost() {
        (deps.reap_orphan)(process.pid, process.started_ticks).await;
    }
    // Also what was started but not recorded yet, and what outlived the process that is recorded.
    let calls = state.open.tool_calls.keys().copied().chain(lost().map(|process| process.tool_call_id));
    (deps.reap_marked)(calls.filter(|call| !kept.calls.contains(call)).collect()).await;
}

/// What is to be recorded: the starts that were missed, the ends of all that does not go on.
fn events(state: &ThreadState, kept: &Kept) -> Vec<NewEvent> {
    let (run_id, turn_id) = (state.open.run, state.open.turn);
    let mut events: Vec<NewEvent> = Vec::new();
    for found in &kept.unrecorded {
        let identity = found.identity();
        let body = EventBody::ProcessStarted {
            process_id: found.process_id,
            tool_call_id: found.tool_call_id,
            pid: identity.pid,
            started_ticks: identity.started_ticks,
            command: found.command.clone(),
            background: found.background,
        };
        events.push(NewEvent { run_id, turn_id, body });
    }
    let mut closing = state.clone();
    closing.open.tool_calls.retain(|id, _| !kept.calls.contains(id));
    closing.open.processes.retain(|id, _| !kept.processes.contains(id));
    closing.open.approvals.retain(|_, request| !kept.calls.contains(&request.tool_call_id));
    closing.open.questions.retain(|_, question| !kept.calls.contains(&question.tool_call_id));
    closing.plans.retain(|mark| !kept.calls.contains(&mark.plan.tool_call_id));
    let still_waits = closing.open.approvals.len() + closing.open.questions.len()
        < state.open.approvals.len() + state.open.questions.len();
    let parked = parked(state);
    let goes_on = !kept.calls.is_empty() || parked;
    let stays = |body: &EventBody| match body {
        EventBody::StepFinished { .. } => goes_on && !parked,
        EventBody::TurnFinished { .. } => goes_on,
        _ => false,
    };
    let ends = closing_events(&closing, RunStatus::Interrupted, REASON, true);
    events.extend(ends.into_iter().filter(|new| !stays(&new.body)));
    match run_id {
        Some(run_id) if !goes_on => {
            let body = EventBody::RunFinished {
                status: RunStatus::Interrupted,
                error: Some(crate::run::interrupted(REASON)),
                usage: state.run(run_id).map(|run| run.usage).unwrap_or_default(),
                structured: None,
            };
            events.push(NewEvent::of_run(run_id, turn_id, body));
        }
        // One that is parked waits on: it is at work when its turn at the provider has come.
        Some(run_id)
            if !parked && !still_waits && state.active_run().is_some_and(|run| run.status == RunStatus::Waiting) =>
        {
            // What it waited for was closed.
            let body = EventBody::status(RunStatus::Running);
            events.push(NewEvent::of_run(run_id, turn_id, body));
        }
        _ => {}
    }
    events
}

async fn append(deps: &Deps, state: &mut ThreadState, events: Vec<NewEvent>) -> Result<(), ThreadError> {
    let (thread_id, run_id) = (state.thread_id, state.open.run);
    // What waited for an answer is closed with the rest, and on record.
    let withdrawn = events.iter().filter_map(|new| match &new.body {
        EventBody::ApprovalResolved { approval_id, .. } => {
            let (request, of) = (state.open.approvals.get(approval_id)?, (thread_id, run_id));
            Some(crate::audit::answered(request, ApprovalOutcome::Withdrawn, "mcoded", REASON, of))
        }
        _ => None,
    });
    let withdrawn: Vec<_> = withdrawn.collect();
    let (expected, at_ms) = (state.last_seq, deps.clock.now().millis().max(state.updated_at_ms));
    let runs = crate::actor::fold_new(state, &events, at_ms);
    let Some(row) = ThreadRow::of(state) else { return Ok(()) };
    deps.store.append(Append { thread_id, expected, events, at_ms, row, runs, request: None }).await?;
    if !withdrawn.is_empty() {
        deps.store.audit(withdrawn).await?;
    }
    Ok(())
}
