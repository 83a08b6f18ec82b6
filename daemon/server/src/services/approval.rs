//! `ApprovalService`.

use mcode_proto::v1;
use mcode_threads::Resolution;
use tonic::{Request, Response, Status};

use crate::convert::row;
use crate::request;
use crate::services::Services;
use crate::status::{bad_field, of_thread};

#[tonic::async_trait]
impl v1::approval_service_server::ApprovalService for Services {
    async fn list_pending_approvals(
        &self,
        request: Request<v1::ListPendingApprovalsRequest>,
    ) -> Result<Response<v1::ListPendingApprovalsResponse>, Status> {
        let only = request.into_inner().thread_id;
        let only: Option<mcode_ids::ThreadId> =
            if only.is_empty() { None } else { Some(request::known_id("thread", &only)?) };
        let mut response = v1::ListPendingApprovalsResponse::default();
        for state in self.deps.threads.waiting().await.map_err(of_thread)? {
            let (mut approvals, mut questions) = row::pending(&state);
            if let Some(only) = only.filter(|only| *only != state.thread_id) {
                // What a thread below asks is asked here too.
                let only = only.to_string();
                approvals.retain(|approval| is_asked_at(approval, &only));
                questions.clear();
            }
            response.approvals.extend(approvals);
            response.questions.extend(questions);
        }
        response.approvals.sort_by(|a, b| a.approval_id.cmp(&b.approval_id));
        response.questions.sort_by(|a, b| a.question_id.cmp(&b.question_id));
        Ok(Response::new(response))
    }

    async fn resolve_approval(
        &self,
        request: Request<v1::ResolveApprovalRequest>,
    ) -> Result<Response<v1::ResolveApprovalResponse>, Status> {
        self.for_people(&request, "answering an approval").await?;
        let request = request.into_inner();
        let (scope, until_ms) = request::scope(request.scope, request.until.as_ref())?;
        let (allow, always) = match v1::Decision::try_from(request.decision) {
            Ok(v1::Decision::Allow) => (true, false),
            Ok(v1::Decision::AllowAlways) => (true, true),
            Ok(v1::Decision::Deny) => (false, false),
            Ok(v1::Decision::Unspecified) | Err(_) => {
                return Err(bad_field("decision", "has to be allow, allow always or deny"));
            }
        };
        let resolution = Resolution {
            approval_id: request::known_id("approval", &request.approval_id)?,
            allow,
            always,
            scope,
            until_ms,
            reason: request.reason,
            by: request::by(request.by),
        };
        let answered = self.deps.threads.resolve(resolution).await.map_err(of_thread)?;
        let rule = answered.rule.unwrap_or_default();
        Ok(Response::new(v1::ResolveApprovalResponse { seq: answered.seq.get(), rule }))
    }

    async fn answer_question(
        &self,
        request: Request<v1::AnswerQuestionRequest>,
    ) -> Result<Response<v1::AnswerQuestionResponse>, Status> {
        self.for_people(&request, "answering a question").await?;
        let request = request.into_inner();
        let question_id = request::known_id("question", &request.question_id)?;
        let answered = self.deps.threads.answer(question_id, request.answer).await.map_err(of_thread)?;
        Ok(Response::new(v1::AnswerQuestionResponse { seq: answered.seq.get() }))
    }
}

/// Whether the people at this thread are asked: it is the one that asks, or one above it.
fn is_asked_at(approval: &v1::Approval, thread_id: &str) -> bool {
    approval.thread_id == thread_id || approval.owner_thread_ids.iter().any(|owner| owner == thread_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_below_asks_is_asked_above() {
        let approval = v1::Approval {
            thread_id: "thr_c".to_owned(),
            owner_thread_ids: vec!["thr_b".to_owned(), "thr_a".to_owned()],
            ..v1::Approval::default()
        };
        let asked: Vec<bool> = ["thr_a", "thr_b", "thr_c", "thr_d"].map(|id| is_asked_at(&approval, id)).to_vec();
        assert_eq!(asked, [true, true, true, false]);
    }
}
