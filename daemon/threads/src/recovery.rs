//! What is done at start about a daemon that died: everything that was started gets its one terminal event.
//!
//! Nothing is run again by itself. Processes of the dead daemon are ended if their pid and start time still match.

use mcode_events::closing_events;
use mcode_events::event::{ApprovalOutcome, Event, EventBody, NewEvent};
use mcode_events::run::RunStatus;
use mcode_ids::ThreadId;
use mcode_store::{Append, RunRow, ThreadRow};

use crate::deps::Deps;
use crate::error::ThreadError;

/// What was found and mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Threads that had something unfinished.
    pub threads: u32,
    /// Items that were given their terminal event.
    pub items: u32,
    /// Threads that could not be read to their end; they stay read-only.
    pub damaged: u32,
}

/// Closes everything that a dead daemon left open. Call before any thread is loaded.
pub async fn recover(deps: &Deps) -> Result<Recovered, ThreadError> {
    let mut recovered = Recovered::default();
    for thread_id in deps.store.unfinished_threads().await? {
        match recover_thread(deps, thread_id).await {
            Ok(items) => {
                recovered.threads += 1;
                recovered.items += items;
            }
            Err(ThreadError::Damaged(damage)) => {
                tracing::error!(%damage, "a thread with unfinished work is damaged and stays read-only");
                recovered.damaged += 1;
            }
            // Without space the daemon can still show what there is; the actor records the end when there is space.
            Err(ThreadError::DiskFull) => {
                tracing::error!(%thread_id, "the disk is full: unfinished work could not be closed yet");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(recovered)
}

async fn recover_thread(deps: &Deps, thread_id: ThreadId) -> Result<u32, ThreadError> {
    const REASON: &str = "the daemon ended while it ran";
    let Some(loaded) = deps.store.load(thread_id).await? else { return Ok(0) };
    if let Some(damage) = loaded.damage {
        return Err(damage.into());
    }
    let mut state = loaded.state;
    for process in state.open.processes.values() {
        (deps.reap_orphan)(process.pid, process.started_ticks).await;
    }
    // Also what was started but not recorded yet, and what outlived the process that is recorded.
    let calls = state.open.processes.values().map(|process| process.tool_call_id);
    (deps.reap_marked)(state.open.tool_calls.keys().copied().chain(calls).collect()).await;
    let withdrawn = state.open.approvals.values().map(|request| {
        let place = (thread_id, state.open.run);
        crate::audit::answered(request, ApprovalOutcome::Withdrawn, "mcoded", REASON, place)
    });
    let withdrawn: Vec<_> = withdrawn.collect();
    let mut events = closing_events(&state, RunStatus::Interrupted, REASON, true);
    if let Some(run_id) = state.open.run {
        let body = EventBody::RunFinished {
            status: RunStatus::Interrupted,
            error: Some(crate::run::interrupted(REASON)),
            usage: state.run(run_id).map(|run| run.usage).unwrap_or_default(),
            structured: None,
        };
        events.push(NewEvent::of_run(run_id, state.open.turn, body));
    }
    if events.is_empty() {
        return Ok(0);
    }
    let items = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let (expected, at_ms) = (state.last_seq, deps.clock.now().millis().max(state.updated_at_ms));
    let run_id = state.open.run;
    let mut seq = expected;
    for new in &events {
        seq = seq.next();
        state.apply(&Event { thread_id, seq, at_ms, run_id: new.run_id, turn_id: new.turn_id, body: new.body.clone() });
    }
    let runs = run_id
        .and_then(|run_id| state.run(run_id))
        .map(|record| RunRow { thread_id, record: record.clone() })
        .into_iter()
        .collect();
    let Some(row) = ThreadRow::of(&state) else { return Ok(0) };
    deps.store.append(Append { thread_id, expected, events, at_ms, row, runs, request: None }).await?;
    if !withdrawn.is_empty() {
        deps.store.audit(withdrawn).await?;
    }
    Ok(items)
}
