//! What runs ask of people: answered, expired, and put on record.

use mcode_agent::ApprovalAnswer;
use mcode_events::event::{ApprovalOutcome, ApprovalRequest, EventBody, NewEvent};
use mcode_events::plan::{MODE_OF_APPROVED, PlanOutcome};
use mcode_events::run::RunStatus;
use mcode_ids::{QuestionId, RunId};

use crate::actor::Actor;
use crate::command::{Answered, GrantScope, Resolution};
use crate::error::ThreadError;
use crate::permissions::GrantPlace;

impl Actor {
    /// Settles an approval as somebody decided.
    pub(crate) async fn resolve(&mut self, resolution: Resolution) -> Result<Answered, ThreadError> {
        let Some(request) = self.state.open.approvals.get(&resolution.approval_id).cloned() else {
            return Err(ThreadError::AlreadyResolved(format!("approval {}", resolution.approval_id)));
        };
        let mut outcome = if resolution.allow { ApprovalOutcome::Allowed } else { ApprovalOutcome::Denied };
        let mut kept = None;
        if let (true, true, Some(rule)) = (resolution.allow, resolution.always, &request.proposed_rule) {
            self.keep(rule, &resolution).await?;
            outcome = ApprovalOutcome::AllowedAlways;
            kept = Some(rule.clone());
        }
        let body = EventBody::ApprovalResolved {
            approval_id: resolution.approval_id,
            outcome,
            by: resolution.by.clone(),
            reason: resolution.reason.clone(),
        };
        let seq = self.state.last_seq.next();
        self.append(self.settled(body), None).await?;
        let said = (resolution.by.as_str(), resolution.reason.as_str());
        self.record_answer(&request, outcome, said, self.state.open.run).await;
        self.pending.settle_approval(resolution.approval_id, ApprovalAnswer { outcome, reason: resolution.reason });
        Ok(Answered { seq, rule: kept })
    }

    /// Keeps the rule that was proposed: for good in the user's file, else as a grant.
    async fn keep(&self, rule: &str, resolution: &Resolution) -> Result<(), ThreadError> {
        let root = match self.state.active_run() {
            Some(run) => self.project_root(&run.options.cwd.clone()).await,
            None => self.project_root(&self.state.cwd.clone()).await,
        };
        let scope = resolution.scope;
        crate::permissions::keep_rule(
            &self.deps,
            rule,
            GrantPlace {
                thread_id: (scope == GrantScope::Thread).then_some(self.thread_id),
                root: (scope == GrantScope::Project).then(|| root.to_string_lossy().into_owned()),
                until_ms: resolution.until_ms,
            },
            &resolution.by,
        )
        .await
    }

    /// Gives an answer to a question.
    pub(crate) async fn answer(&mut self, question_id: QuestionId, answer: String) -> Result<Answered, ThreadError> {
        if !self.state.open.questions.contains_key(&question_id) {
            return Err(ThreadError::AlreadyResolved(format!("question {question_id}")));
        }
        let body = EventBody::QuestionAnswered { question_id, answer: Some(answer.clone()) };
        let seq = self.state.last_seq.next();
        self.append(self.settled(body), None).await?;
        self.pending.settle_question(question_id, Some(answer));
        Ok(Answered { seq, rule: None })
    }

    /// Silence past the deadline is a refusal.
    pub(crate) async fn expire_approvals(&mut self) {
        let now = self.deps.clock.now().millis();
        for approval_id in self.pending.expired(now) {
            let (outcome, by, reason) = (ApprovalOutcome::Expired, "mcoded", "nobody answered in time");
            let request = self.state.open.approvals.get(&approval_id).cloned();
            let body =
                EventBody::ApprovalResolved { approval_id, outcome, by: by.to_owned(), reason: reason.to_owned() };
            if self.append(self.settled(body), None).await.is_err() {
                self.pending.clear();
                return;
            }
            if let Some(request) = request {
                self.record_answer(&request, outcome, (by, reason), self.state.open.run).await;
            }
            let answer = ApprovalAnswer { outcome: ApprovalOutcome::Expired, reason: String::new() };
            self.pending.settle_approval(approval_id, answer);
        }
    }

    /// Puts the end of an approval into the record of permissions.
    pub(crate) async fn record_answer(
        &self,
        request: &ApprovalRequest,
        outcome: ApprovalOutcome,
        (by, reason): (&str, &str),
        run_id: Option<RunId>,
    ) {
        let entry = crate::audit::answered(request, outcome, by, reason, (self.thread_id, run_id));
        if let Err(error) = self.deps.store.audit(vec![entry]).await {
            tracing::warn!(thread_id = %self.thread_id, %error, "the end of an approval is missing in the record");
        }
    }

    /// What the answer about a plan leads to, in the same commit: whoever goes on from here finds the plan approved and the
    /// mode that goes with it, or neither.
    fn settled_plan(&self, body: &EventBody) -> Vec<EventBody> {
        let EventBody::ApprovalResolved { approval_id, outcome, reason, .. } = body else { return Vec::new() };
        let request = self.state.open.approvals.get(approval_id);
        let Some(mark) = request.and_then(|request| self.state.plan_of(request.tool_call_id)) else {
            return Vec::new();
        };
        let (tool_call_id, outcome) = (mark.plan.tool_call_id, PlanOutcome::of_answer(*outcome, reason));
        let mut settled = vec![EventBody::PlanSettled { tool_call_id, outcome, comment: reason.trim().to_owned() }];
        if outcome == PlanOutcome::Approved && self.state.mode != MODE_OF_APPROVED {
            settled.push(EventBody::ModeChanged { mode: MODE_OF_APPROVED.to_owned() });
        }
        settled
    }

    /// The event of a settled approval or question, and, if nothing else is waited for, that the run goes on.
    pub(crate) fn settled(&self, body: EventBody) -> Vec<NewEvent> {
        let (run_id, turn_id) = (self.state.open.run, self.state.open.turn);
        let settled = self.settled_plan(&body);
        let mut events = vec![NewEvent { run_id, turn_id, body }];
        events.extend(settled.into_iter().map(|body| NewEvent { run_id, turn_id, body }));
        if self.state.open.approvals.len() + self.state.open.questions.len() <= 1 {
            events.push(NewEvent { run_id, turn_id, body: EventBody::status(RunStatus::Running) });
        }
        events
    }
}
