//! `mcode approvals`: what runs wait for, and settling it from anywhere.

use clap::Subcommand;
use mcode_client::json::value_json;
use mcode_client::v1;

use crate::activity::telling;
use crate::context::Context;
use crate::times::local;
use crate::verbs::{Outcome, listing, show_message};

/// What to do with approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsVerb {
    /// List the tool calls and questions that wait
    List {
        /// Only of this thread
        #[arg(long, short, value_name = "ID", default_value = "", hide_default_value = true)]
        thread: String,
    },
    /// Let a tool call run
    Allow {
        /// The approval: its id, the beginning of it, or latest when only one waits
        id: String,
        /// Also keep the proposed rule, so that the like is not asked again
        #[arg(long)]
        always: bool,
    },
    /// Refuse a tool call
    Deny {
        /// The approval: its id, the beginning of it, or latest when only one waits
        id: String,
        /// What the model is told
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Answer a question
    Answer {
        /// The question: its id, the beginning of it, or latest when only one waits
        id: String,
        /// The answer
        #[arg(required = true, value_name = "TEXT")]
        text: Vec<String>,
    },
}

pub(crate) async fn run(context: &Context, verb: ApprovalsVerb) -> Outcome {
    let client = context.connect().await?;
    match verb {
        ApprovalsVerb::List { thread } => {
            let thread_id = if thread.is_empty() { thread } else { client.thread_id(&thread).await? };
            let request = v1::ListPendingApprovalsRequest { thread_id };
            let response = client.list_pending_approvals(request).await?;
            show_message(context.form, "ListPendingApprovalsResponse", &response, Some("approvals"), || {
                let mut rows: Vec<Vec<String>> = response.approvals.iter().map(approval_row).collect();
                rows.extend(response.questions.iter().map(question_row));
                listing(&["ID", "THREAD", "ASKED", "WHAT", "ABOUT"], &rows, "nothing waits", "")
            })?;
            Ok(0)
        }
        ApprovalsVerb::Allow { id, always } => {
            let decision = if always { v1::Decision::AllowAlways } else { v1::Decision::Allow };
            let id = client.approval_id(&id).await?;
            resolve(context, &client, id, decision, String::new()).await
        }
        ApprovalsVerb::Deny { id, reason } => {
            let id = client.approval_id(&id).await?;
            resolve(context, &client, id, v1::Decision::Deny, reason).await
        }
        ApprovalsVerb::Answer { id, text } => {
            let question_id = client.question_id(&id).await?;
            let request = v1::AnswerQuestionRequest { question_id, answer: text.join(" ") };
            let response = client.answer_question(request).await?;
            show_message(context.form, "AnswerQuestionResponse", &response, None, || "answered".to_owned())?;
            Ok(0)
        }
    }
}

async fn resolve(
    context: &Context,
    client: &mcode_client::Client,
    approval_id: String,
    decision: v1::Decision,
    reason: String,
) -> Outcome {
    let by = "mcode approvals".to_owned();
    let request = v1::ResolveApprovalRequest { approval_id, decision: decision.into(), reason, by };
    let response = client.resolve_approval(request).await?;
    show_message(context.form, "ResolveApprovalResponse", &response, None, || {
        let done = if decision == v1::Decision::Deny { "denied" } else { "allowed" };
        match response.rule.as_str() {
            "" => done.to_owned(),
            rule => format!("{done}, from now on too: {rule}"),
        }
    })?;
    Ok(0)
}

fn approval_row(approval: &v1::Approval) -> Vec<String> {
    let about = approval.arguments.as_ref().map(value_json).map(|value| telling(&value)).unwrap_or_default();
    vec![
        approval.approval_id.clone(),
        approval.thread_id.clone(),
        local(approval.asked_at.as_ref()),
        approval.tool.clone(),
        if about.is_empty() { approval.preview.clone() } else { about },
    ]
}

fn question_row(question: &v1::Question) -> Vec<String> {
    vec![
        question.question_id.clone(),
        question.thread_id.clone(),
        local(question.asked_at.as_ref()),
        "question".to_owned(),
        question.question.clone(),
    ]
}
