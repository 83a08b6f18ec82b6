//! `mcode approvals`: what runs wait for, and settling it from anywhere.

use clap::Subcommand;
use mcode_client::json::value_json;
use mcode_client::v1;

use crate::activity::telling;
use crate::context::Context;
use crate::times::{local, moment};
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
        #[command(flatten)]
        place: RulePlace,
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

/// Where and how long a rule counts that is kept.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RulePlace {
    /// Keep it for this thread, this project, or everywhere (in config.toml)
    #[arg(long = "for", value_name = "PLACE", value_enum)]
    pub(crate) scope: Option<Scope>,
    /// Keep it for this long, such as 2h, or until this moment, such as 2030-01-31T18:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}

/// Where a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scope {
    /// In one thread.
    Thread,
    /// In one project.
    Project,
    /// In every project of the user.
    Everywhere,
}

impl RulePlace {
    /// The place and the end as the wire has them.
    pub(crate) fn wire(&self) -> Result<(i32, Option<prost_types::Timestamp>), mcode_client::ClientError> {
        let scope = match self.scope {
            None | Some(Scope::Everywhere) => v1::RuleScope::Unspecified,
            Some(Scope::Thread) => v1::RuleScope::Thread,
            Some(Scope::Project) => v1::RuleScope::Project,
        };
        let until = self.until.as_deref().map(moment).transpose().map_err(|problem| {
            mcode_client::ClientError::usage(problem)
                .hint("give a time such as 90m, 2h or 7d, or a moment with its zone")
        })?;
        Ok((scope.into(), until))
    }
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
        ApprovalsVerb::Allow { id, always, place } => {
            let keeps = always || place.scope.is_some() || place.until.is_some();
            let decision = if keeps { v1::Decision::AllowAlways } else { v1::Decision::Allow };
            // A yes means what was seen: in another project the same words may do something else.
            let place = RulePlace { scope: place.scope.or(Some(Scope::Project)), ..place };
            let (scope, until) = place.wire()?;
            let answer = v1::ResolveApprovalRequest {
                approval_id: client.approval_id(&id).await?,
                decision: decision.into(),
                scope,
                until,
                ..Default::default()
            };
            resolve(context, &client, answer).await
        }
        ApprovalsVerb::Deny { id, reason } => {
            let (approval_id, decision) = (client.approval_id(&id).await?, v1::Decision::Deny.into());
            let answer = v1::ResolveApprovalRequest { approval_id, decision, reason, ..Default::default() };
            resolve(context, &client, answer).await
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

async fn resolve(context: &Context, client: &mcode_client::Client, answer: v1::ResolveApprovalRequest) -> Outcome {
    let decision = answer.decision();
    let request = v1::ResolveApprovalRequest { by: "mcode approvals".to_owned(), ..answer };
    let response = client.resolve_approval(request).await?;
    show_message(context.form, "ResolveApprovalResponse", &response, None, || {
        let done = if decision == v1::Decision::Deny { "denied" } else { "allowed" };
        match response.rule.as_str() {
            "" if decision == v1::Decision::AllowAlways => "allowed once: no single rule would allow it".to_owned(),
            "" => done.to_owned(),
            rule => format!("{done}, and kept: {rule}"),
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
