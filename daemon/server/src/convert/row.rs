//! Threads, runs, projects, approvals and the like.

use mcode_events::checkpoint::{ChangedFile, CheckpointMark};
use mcode_events::event::{ApprovalRequest, Question};
use mcode_events::plan::PlanOutcome;
use mcode_events::run::{RunError, RunRecord};
use mcode_events::state::ThreadState;
use mcode_events::tool::{TaskItem, TaskStatus};
use mcode_events::usage::Usage;
use mcode_ids::{RunId, ThreadId};
use mcode_proto::v1;
use mcode_threads::{PlanRow, ProcessRow, ProjectRow, RunRow, Said, Stage, ThreadRow};

use crate::convert::value::{time, to_value};

pub(crate) fn usage(usage: &Usage) -> v1::Usage {
    v1::Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        reasoning_tokens: usage.reasoning_tokens,
        cost_usd: usage.cost_usd,
    }
}

pub(crate) fn thread(row: &ThreadRow, damaged: bool) -> v1::Thread {
    v1::Thread {
        thread_id: row.thread_id.to_string(),
        title: row.title.clone(),
        project_id: row.project_id.to_string(),
        cwd: row.cwd.clone(),
        model: row.model.clone(),
        mode: row.mode.clone(),
        state: if damaged { "damaged".to_owned() } else { row.activity.clone() },
        archived: row.archived,
        pinned: row.pinned,
        tags: row.tags.clone(),
        created_at: Some(time(row.created_at_ms)),
        updated_at: Some(time(row.updated_at_ms)),
        last_seq: row.last_seq.get(),
        usage: Some(usage(&row.usage)),
        active_run_id: row.active_run.map(|id| id.to_string()).unwrap_or_default(),
        preview: row.preview.clone(),
        parent_thread_id: row.forked.map(|point| point.parent_id.to_string()).unwrap_or_default(),
        parent_seq: row.forked.map_or(0, |point| point.seq.get()),
    }
}

/// What was found, with the threads that hold it.
pub(crate) fn hit(said: Said, thread: v1::Thread) -> v1::SearchHit {
    v1::SearchHit {
        thread: Some(thread),
        seq: said.seq.get(),
        at: Some(time(said.at_ms)),
        role: said.role,
        snippet: said.snippet.text,
        matches: said.snippet.matches.into_iter().map(|(start, end)| v1::TextRange { start, end }).collect(),
        score: said.score,
    }
}

pub(crate) fn checkpoint(thread_id: ThreadId, mark: &CheckpointMark) -> v1::Checkpoint {
    let (checkpoint, changes) = (&mark.checkpoint, &mark.checkpoint.changes);
    let file = |file: &ChangedFile| v1::ChangedFile { path: file.path.clone(), change: file.change.clone() };
    v1::Checkpoint {
        checkpoint_id: checkpoint.checkpoint_id.to_string(),
        thread_id: thread_id.to_string(),
        seq: mark.seq.get(),
        created_at: Some(time(mark.at_ms)),
        files: changes.files.iter().map(file).collect(),
        added: changes.added,
        modified: changes.modified,
        deleted: changes.deleted,
        tool_call_id: checkpoint.tool_call_id.map(|id| id.to_string()).unwrap_or_default(),
        turn_id: mark.turn_id.map(|id| id.to_string()).unwrap_or_default(),
    }
}

pub(crate) fn plan(row: &PlanRow) -> v1::Plan {
    v1::Plan {
        plan_id: row.plan.tool_call_id.to_string(),
        thread_id: row.thread_id.to_string(),
        seq: row.seq.get(),
        project_id: row.project_id.to_string(),
        submitted_at: Some(time(row.at_ms)),
        path: row.plan.path.clone(),
        title: row.plan.title.clone(),
        status: row.outcome.map_or("waiting", PlanOutcome::as_str).to_owned(),
        comment: row.comment.clone(),
        size_bytes: row.plan.content.size_bytes,
    }
}

pub(crate) fn process(thread_id: ThreadId, row: &ProcessRow) -> v1::Process {
    v1::Process {
        process_id: row.process_id.to_string(),
        thread_id: thread_id.to_string(),
        pid: row.pid,
        command: row.command.clone(),
        state: if row.stage == Stage::Running { "running" } else { "lingering" }.to_owned(),
        exit_code: row.exit_code,
        rss_bytes: row.usage.rss_bytes,
        cpu_seconds: row.usage.cpu_ms as f64 / 1000.0,
        age_seconds: row.age.as_secs_f64(),
        background: row.background,
        tool_call_id: row.tool_call_id.to_string(),
    }
}

pub(crate) fn run_error(error: &RunError) -> v1::RunError {
    v1::RunError {
        kind: error.kind.as_str().to_owned(),
        reason: error.reason.clone(),
        message: error.message.clone(),
        hint: error.hint.clone(),
    }
}

pub(crate) fn run(row: &RunRow) -> v1::Run {
    record(row.thread_id, &row.record)
}

pub(crate) fn record(thread_id: ThreadId, record: &RunRecord) -> v1::Run {
    v1::Run {
        run_id: record.run_id.to_string(),
        thread_id: thread_id.to_string(),
        status: record.status.as_str().to_owned(),
        started_at: Some(time(record.started_at_ms)),
        ended_at: record.ended_at_ms.map(time),
        exit_code: record.exit_code().unwrap_or(0),
        error: record.error.as_ref().map(run_error),
        model: record.options.model.clone(),
        mode: record.options.mode.clone(),
        steps: record.steps,
        trigger: record.options.trigger.as_str().to_owned(),
        key_source: record.options.key_source.clone(),
        usage: Some(usage(&record.usage)),
    }
}

pub(crate) fn project(row: &ProjectRow) -> v1::Project {
    v1::Project {
        project_id: row.project_id.to_string(),
        root: row.root.clone(),
        name: row.name.clone(),
        created_at: Some(time(row.created_at_ms)),
        identities: row.identities.clone(),
    }
}

pub(crate) fn approval(
    thread_id: ThreadId,
    run_id: Option<RunId>,
    request: &ApprovalRequest,
    asked_ms: i64,
) -> v1::Approval {
    v1::Approval {
        approval_id: request.approval_id.to_string(),
        thread_id: thread_id.to_string(),
        run_id: run_id.map(|id| id.to_string()).unwrap_or_default(),
        tool: request.tool.clone(),
        arguments: Some(to_value(&request.arguments)),
        preview: request.preview.clone(),
        asked_at: Some(time(asked_ms)),
        deadline: request.deadline_ms.map(time),
        proposed_rule: request.proposed_rule.clone().unwrap_or_default(),
        tool_call_id: request.tool_call_id.to_string(),
        why: request.why.clone(),
        owner_thread_ids: request.owners.iter().map(ToString::to_string).collect(),
    }
}

pub(crate) fn question(thread_id: ThreadId, run_id: Option<RunId>, question: &Question, asked_ms: i64) -> v1::Question {
    v1::Question {
        question_id: question.question_id.to_string(),
        thread_id: thread_id.to_string(),
        run_id: run_id.map(|id| id.to_string()).unwrap_or_default(),
        question: question.question.clone(),
        options: question.options.clone(),
        multiple: question.multiple,
        asked_at: Some(time(asked_ms)),
    }
}

/// Approvals and questions that a thread waits for. An id is a UUIDv7, so it tells when it was asked.
pub(crate) fn pending(state: &ThreadState) -> (Vec<v1::Approval>, Vec<v1::Question>) {
    let (thread_id, run_id) = (state.thread_id, state.open.run);
    let approvals = state
        .open
        .approvals
        .values()
        .map(|request| approval(thread_id, run_id, request, made_at(request.approval_id.uuid())));
    let questions = state
        .open
        .questions
        .values()
        .map(|asked| question(thread_id, run_id, asked, made_at(asked.question_id.uuid())));
    (approvals.collect(), questions.collect())
}

/// The first 48 bits of a UUIDv7 are milliseconds since 1970 UTC (RFC 9562, section 5.7).
fn made_at(id: uuid::Uuid) -> i64 {
    i64::try_from(id.as_u128() >> 80).unwrap_or(0)
}

pub(crate) fn task(item: &TaskItem) -> v1::Task {
    let status = match item.status {
        TaskStatus::Pending => "pending",
        TaskStatus::InProgress => "in_progress",
        TaskStatus::Completed => "completed",
        TaskStatus::Cancelled => "cancelled",
    };
    v1::Task {
        id: item.id.clone(),
        content: item.content.clone(),
        status: status.to_owned(),
        active_form: item.active_form.clone().unwrap_or_default(),
    }
}
