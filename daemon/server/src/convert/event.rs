//! Events.

use mcode_events::checkpoint::{Checkpoint, CheckpointMark};
use mcode_events::depth;
use mcode_events::event::{Event, EventBody};
use mcode_events::message::{Part, Role};
use mcode_events::run::{Delivery, RunErrorKind, RunStatus};
use mcode_events::tool::ToolResult;
use mcode_ids::{Seq, ThreadId};
use mcode_proto::v1::event::Body;
use mcode_proto::{VALUE_DEPTH_MAX, v1};

use crate::convert::row;
use crate::convert::value::{time, to_value};

/// The longest text of a tool result that an event carries to clients, in bytes; the log has all of it.
const RESULT_TEXT_BYTES_MAX: usize = 64 * 1024;

/// An event as clients see it.
pub(crate) fn event(event: &Event) -> v1::Event {
    v1::Event {
        thread_id: event.thread_id.to_string(),
        seq: event.seq.get(),
        at: Some(time(event.at_ms)),
        run_id: event.run_id.map(|id| id.to_string()).unwrap_or_default(),
        turn_id: event.turn_id.map(|id| id.to_string()).unwrap_or_default(),
        body: Some(body(event)),
    }
}

fn body(event: &Event) -> Body {
    match &event.body {
        EventBody::ThreadCreated { project_id, cwd, title, model, mode, .. } => {
            Body::ThreadCreated(v1::ThreadCreated {
                project_id: project_id.to_string(),
                cwd: cwd.clone(),
                title: title.clone(),
                model: model.clone(),
                mode: mode.clone(),
            })
        }
        EventBody::TitleChanged { title } => Body::TitleChanged(v1::TitleChanged { title: title.clone() }),
        EventBody::ModeChanged { mode } => Body::ModeChanged(v1::ModeChanged { mode: mode.clone() }),
        EventBody::ModelChanged { model } => Body::ModelChanged(v1::ModelChanged { model: model.clone() }),
        EventBody::ArchivedChanged { archived } => Body::ArchivedChanged(v1::ArchivedChanged { archived: *archived }),
        EventBody::PinnedChanged { pinned } => Body::PinnedChanged(v1::PinnedChanged { pinned: *pinned }),
        EventBody::TagsChanged { tags } => Body::TagsChanged(v1::TagsChanged { tags: tags.clone() }),
        EventBody::ThreadForked { parent_id, parent_seq, title } => forked_body(*parent_id, *parent_seq, title),
        EventBody::CheckpointTaken { checkpoint } => checkpoint_body(event, checkpoint),
        EventBody::PlanSubmitted { .. } | EventBody::PlanSettled { .. } => plan_body(event),
        EventBody::FilesRestored { files, left, .. } => {
            Body::FilesRestored(v1::FilesRestored { files: files.clone(), left: *left })
        }
        EventBody::Rewound { to_seq, .. } => Body::Rewound(v1::Rewound { to_seq: to_seq.get() }),
        EventBody::TasksChanged { items } => {
            Body::TasksChanged(v1::TasksChanged { items: items.iter().map(row::task).collect() })
        }
        EventBody::UsageRecorded { model, usage, purpose, priced, goal_id } => Body::UsageRecorded(v1::UsageRecorded {
            model: model.clone(),
            usage: Some(row::usage(usage)),
            purpose: purpose.as_str().to_owned(),
            priced: *priced || usage.cost_usd > 0.0,
            goal_id: goal_id.map(|id| id.to_string()).unwrap_or_default(),
        }),
        EventBody::Notice { level, text } => Body::Notice(v1::Notice { level: level.clone(), text: text.clone() }),
        // Its notice says it to people.
        EventBody::HistoryEased { .. } => Body::Opaque(opaque(&event.body)),
        EventBody::Opaque { .. } => Body::Opaque(opaque(&event.body)),
        EventBody::InputQueued { .. }
        | EventBody::InputTaken { .. }
        | EventBody::RunStarted { .. }
        | EventBody::RunStatusChanged { .. }
        | EventBody::RunFinished { .. }
        | EventBody::RunResumed {}
        | EventBody::TurnStarted { .. }
        | EventBody::TurnFinished { .. }
        | EventBody::StepStarted { .. }
        | EventBody::StepFinished { .. } => run_body(event),
        EventBody::MessageStarted { .. }
        | EventBody::MessageCheckpointed { .. }
        | EventBody::MessageFinished { .. }
        | EventBody::MessageDiscarded { .. }
        | EventBody::ToolCallStarted { .. }
        | EventBody::ToolCallBegun { .. }
        | EventBody::ToolCallFinished { .. }
        | EventBody::ApprovalRequested { .. }
        | EventBody::ApprovalResolved { .. }
        | EventBody::QuestionAsked { .. }
        | EventBody::QuestionAnswered { .. }
        | EventBody::ProcessStarted { .. }
        | EventBody::ProcessExited { .. } => item_body(event),
    }
}

fn plan_body(event: &Event) -> Body {
    match &event.body {
        EventBody::PlanSubmitted { plan } => Body::PlanSubmitted(v1::PlanSubmitted {
            plan_id: plan.tool_call_id.to_string(),
            path: plan.path.clone(),
            title: plan.title.clone(),
            size_bytes: plan.content.size_bytes,
        }),
        EventBody::PlanSettled { tool_call_id, outcome, comment } => Body::PlanSettled(v1::PlanSettled {
            plan_id: tool_call_id.to_string(),
            status: outcome.as_str().to_owned(),
            comment: comment.clone(),
        }),
        other => Body::Opaque(opaque(other)),
    }
}

fn forked_body(parent_id: ThreadId, parent_seq: Seq, title: &str) -> Body {
    Body::ThreadForked(v1::ThreadForked {
        parent_thread_id: parent_id.to_string(),
        parent_seq: parent_seq.get(),
        title: title.to_owned(),
    })
}

fn checkpoint_body(event: &Event, checkpoint: &Checkpoint) -> Body {
    let (checkpoint, turn_id) = (checkpoint.clone(), event.turn_id);
    let mark = CheckpointMark { checkpoint, seq: event.seq, at_ms: event.at_ms, turn_id };
    Body::CheckpointTaken(v1::CheckpointTaken { checkpoint: Some(row::checkpoint(event.thread_id, &mark)) })
}

fn run_body(event: &Event) -> Body {
    match &event.body {
        EventBody::InputQueued { input_id, delivery, parts } => Body::InputQueued(v1::InputQueued {
            input_id: input_id.to_string(),
            delivery: match delivery {
                Delivery::Steer => "steer".to_owned(),
                Delivery::Queue => "queue".to_owned(),
            },
            text: text_of(parts),
        }),
        EventBody::InputTaken { input_id, delivered } => {
            Body::InputTaken(v1::InputTaken { input_id: input_id.to_string(), delivered: *delivered })
        }
        EventBody::RunStarted { options } => Body::RunStarted(v1::RunStarted {
            model: options.model.clone(),
            mode: options.mode.clone(),
            cwd: options.cwd.clone(),
            approve: match options.approval {
                mcode_events::run::ApprovalPolicy::Ask => "ask".to_owned(),
                mcode_events::run::ApprovalPolicy::Deny => "deny".to_owned(),
                mcode_events::run::ApprovalPolicy::All => "all".to_owned(),
            },
            trigger: options.trigger.as_str().to_owned(),
            key_source: options.key_source.clone(),
        }),
        EventBody::RunStatusChanged { status, parked } => Body::RunStatusChanged(v1::RunStatusChanged {
            status: status.as_str().to_owned(),
            waits_until: parked.as_ref().map(|parked| time(parked.until_ms)),
        }),
        EventBody::RunResumed {} => Body::RunResumed(v1::RunResumed {}),
        EventBody::RunFinished { status, error, usage, structured } => Body::RunFinished(v1::RunFinished {
            status: status.as_str().to_owned(),
            error: error.as_ref().map(row::run_error),
            usage: Some(row::usage(usage)),
            structured: structured.as_ref().map(to_value),
            structured_json: structured
                .as_ref()
                .filter(|value| !depth::within(value, VALUE_DEPTH_MAX))
                .map(ToString::to_string)
                .unwrap_or_default(),
            exit_code: exit_code(*status, error.as_ref().map(|error| error.kind)),
        }),
        EventBody::TurnFinished { status, .. } => {
            Body::TurnFinished(v1::TurnFinished { status: status.as_str().to_owned() })
        }
        EventBody::StepStarted { step_id, model } => {
            Body::StepStarted(v1::StepStarted { step_id: step_id.to_string(), model: model.clone() })
        }
        EventBody::StepFinished { step_id, status, stop_reason } => Body::StepFinished(v1::StepFinished {
            step_id: step_id.to_string(),
            status: status.as_str().to_owned(),
            stop_reason: stop_reason.clone(),
        }),
        // `body` gives this function no other kind.
        _ => Body::TurnStarted(v1::TurnStarted {}),
    }
}

/// As `RunRecord::exit_code`, from the event alone.
fn exit_code(status: RunStatus, error: Option<RunErrorKind>) -> i32 {
    match (status, error) {
        (_, Some(kind)) => kind.exit_code(),
        (RunStatus::Cancelled | RunStatus::Interrupted, None) => RunErrorKind::Interrupted.exit_code(),
        (RunStatus::Failed, None) => RunErrorKind::Run.exit_code(),
        (RunStatus::Done | RunStatus::Running | RunStatus::Waiting, None) => 0,
    }
}

fn item_body(event: &Event) -> Body {
    match &event.body {
        EventBody::MessageStarted { item_id, role } => {
            Body::MessageStarted(v1::MessageStarted { item_id: item_id.to_string(), role: role_name(*role) })
        }
        EventBody::MessageCheckpointed { item_id, text, thinking } => {
            Body::MessageCheckpointed(v1::MessageCheckpointed {
                item_id: item_id.to_string(),
                text: text.clone(),
                thinking: thinking.clone(),
            })
        }
        EventBody::MessageFinished { message } => Body::MessageFinished(v1::MessageFinished {
            item_id: message.item_id.to_string(),
            role: role_name(message.role),
            text: message.text(),
            thinking: message.thinking(),
            media: message
                .parts
                .iter()
                .filter_map(|part| if let Part::Media { name, .. } = part { Some(name.clone()) } else { None })
                .collect(),
        }),
        EventBody::MessageDiscarded { item_id, status, text, reason } => Body::MessageDiscarded(v1::MessageDiscarded {
            item_id: item_id.to_string(),
            status: status.as_str().to_owned(),
            text: text.clone(),
            reason: reason.clone(),
        }),
        EventBody::ToolCallStarted { call, item_id } => Body::ToolCallStarted(v1::ToolCallStarted {
            tool_call_id: call.tool_call_id.to_string(),
            name: call.name.clone(),
            arguments: Some(to_value(&call.arguments)),
            item_id: item_id.to_string(),
        }),
        EventBody::ToolCallBegun { tool_call_id } => {
            Body::ToolCallBegun(v1::ToolCallBegun { tool_call_id: tool_call_id.to_string() })
        }
        EventBody::ToolCallFinished { name, result } => Body::ToolCallFinished(tool_call_finished(name, result)),
        EventBody::ProcessStarted { process_id, tool_call_id, pid, command, background, .. } => {
            Body::ProcessStarted(v1::ProcessStarted {
                process_id: process_id.to_string(),
                tool_call_id: tool_call_id.to_string(),
                pid: *pid,
                command: command.clone(),
                background: *background,
            })
        }
        EventBody::ProcessExited { process_id, exit_code, reason } => Body::ProcessExited(v1::ProcessExited {
            process_id: process_id.to_string(),
            exit_code: *exit_code,
            reason: reason.clone(),
        }),
        _ => waiting_body(event),
    }
}

fn waiting_body(event: &Event) -> Body {
    match &event.body {
        EventBody::ApprovalRequested { request } => Body::ApprovalRequested(v1::ApprovalRequested {
            approval: Some(row::approval(event.thread_id, event.run_id, request, event.at_ms)),
        }),
        EventBody::ApprovalResolved { approval_id, outcome, by, reason } => {
            Body::ApprovalResolved(v1::ApprovalResolved {
                approval_id: approval_id.to_string(),
                outcome: outcome.as_str().to_owned(),
                by: by.clone(),
                reason: reason.clone(),
            })
        }
        EventBody::QuestionAsked { question } => Body::QuestionAsked(v1::QuestionAsked {
            question: Some(row::question(event.thread_id, event.run_id, question, event.at_ms)),
        }),
        EventBody::QuestionAnswered { question_id, answer } => Body::QuestionAnswered(v1::QuestionAnswered {
            question_id: question_id.to_string(),
            answered: answer.is_some(),
            answer: answer.clone().unwrap_or_default(),
        }),
        other => Body::Opaque(opaque(other)),
    }
}

fn opaque(body: &EventBody) -> v1::OpaqueEvent {
    v1::OpaqueEvent { kind: body.kind().to_owned(), damage: body.damage().unwrap_or_default() }
}

fn tool_call_finished(name: &str, result: &ToolResult) -> v1::ToolCallFinished {
    let text = result.joined_text();
    v1::ToolCallFinished {
        tool_call_id: result.tool_call_id.to_string(),
        name: name.to_owned(),
        status: result.status.as_str().to_owned(),
        result_preview: result.preview.clone(),
        text: cut(text),
        diff: result.diff.clone().unwrap_or_default(),
        exit_code: result.exit_code,
    }
}

fn cut(mut text: String) -> String {
    if text.len() > RESULT_TEXT_BYTES_MAX {
        let mut end = RESULT_TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

fn text_of(parts: &[Part]) -> String {
    parts
        .iter()
        .filter_map(|part| if let Part::Text { text, .. } = part { Some(text.as_str()) } else { None })
        .collect()
}

fn role_name(role: Role) -> String {
    match role {
        Role::User => "user".to_owned(),
        Role::Assistant => "assistant".to_owned(),
    }
}
