//! `PermissionService`.

use mcode_events::run::ApprovalPolicy;
use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use mcode_threads::{
    Access, AuditRow, Described, Effect, Explain, Explanation, GrantPlace, GrantScope, ListedRule, Mode,
    PermissionTest, RuleChange, RuleSource,
};
use tonic::{Code, Request, Response, Status};

use crate::convert::value;
use crate::services::Services;
use crate::status::{bad_field, of_thread, refuse};
use crate::{paging, request};

/// Most bytes of what a call to be explained is described with.
const CALL_BYTES_MAX: usize = 1024 * 1024;

#[tonic::async_trait]
impl v1::permission_service_server::PermissionService for Services {
    async fn list_rules(
        &self,
        request: Request<v1::ListRulesRequest>,
    ) -> Result<Response<v1::ListRulesResponse>, Status> {
        let cwd = request.into_inner().cwd;
        let cwd = if cwd.is_empty() { None } else { Some(request::absolute("cwd", &cwd)?) };
        let config = (self.deps.threads.deps().config)();
        let rules = self.deps.threads.permission_rules(cwd).await.map_err(of_thread)?;
        Ok(Response::new(v1::ListRulesResponse {
            rules: rules.iter().map(rule).collect(),
            examples: config.permission_tests.iter().map(example).collect(),
            next_page_token: String::new(),
        }))
    }

    async fn create_rule(
        &self,
        request: Request<v1::CreateRuleRequest>,
    ) -> Result<Response<v1::CreateRuleResponse>, Status> {
        self.for_people(&request, "adding a permission rule").await?;
        let request = request.into_inner();
        let (text, by) = (request.rule.trim().to_owned(), request::by(request.by));
        let effect = effect(request.effect)?;
        let (scope, until_ms) = request::scope(request.scope, request.until.as_ref())?;
        let threads = &self.deps.threads;
        let created = if scope == GrantScope::User && until_ms.is_none() {
            let change = RuleChange { effect, rule: text.clone(), add: true };
            threads.change_rule(change, &by).await.map_err(of_thread)?
        } else if effect != Effect::Allow {
            let message = "only a rule that allows something can be for one place or for a while";
            return Err(bad_field("effect", message));
        } else {
            let place = GrantPlace {
                thread_id: match scope {
                    GrantScope::Thread => Some(request::known_id("thread", &request.thread_id)?),
                    GrantScope::User | GrantScope::Project => None,
                },
                root: match scope {
                    GrantScope::Project => Some(request::absolute("cwd", &request.cwd)?),
                    GrantScope::User | GrantScope::Thread => None,
                },
                until_ms,
            };
            threads.give(&text, place, &by).await.map_err(of_thread)?;
            true
        };
        let rules = threads.permission_rules(None).await.map_err(of_thread)?;
        let added = rules.iter().rev().find(|rule| rule.effect == effect && rule.written.text == text).map(rule);
        Ok(Response::new(v1::CreateRuleResponse { rule: added, created }))
    }

    async fn delete_rule(
        &self,
        request: Request<v1::DeleteRuleRequest>,
    ) -> Result<Response<v1::DeleteRuleResponse>, Status> {
        self.for_people(&request, "removing a permission rule").await?;
        let request = request.into_inner();
        let (threads, by) = (&self.deps.threads, request::by(request.by));
        if !request.grant_id.is_empty() {
            let grant_id = request::known_id("grant", &request.grant_id)?;
            let gone = threads.take_back(grant_id, &by).await.map_err(of_thread)?;
            return Ok(Response::new(v1::DeleteRuleResponse { file: String::new(), rule: gone.rule }));
        }
        let change = RuleChange { effect: effect(request.effect)?, rule: request.rule.trim().to_owned(), add: false };
        let rules = threads.permission_rules(None).await.map_err(of_thread)?;
        let users = |rule: &&ListedRule| rule.effect == change.effect && rule.written.text == change.rule;
        let found = rules.iter().filter(users).find(|rule| rule.written.source == RuleSource::User);
        let file = found.map(|rule| rule.written.file.clone());
        let removed = threads.change_rule(change.clone(), &by).await.map_err(of_thread)?;
        match file.filter(|_| removed) {
            Some(file) => Ok(Response::new(v1::DeleteRuleResponse { file, rule: change.rule })),
            None => {
                let rule: String = change.rule.chars().take(200).collect();
                let text = format!("there is no {} rule '{rule}' in your file", change.effect.as_str());
                Err(refuse(Code::NotFound, Reason::RuleNotFound, text, None))
            }
        }
    }

    async fn explain_decision(
        &self,
        request: Request<v1::ExplainDecisionRequest>,
    ) -> Result<Response<v1::ExplainDecisionResponse>, Status> {
        let request = request.into_inner();
        if prost::Message::encoded_len(&request) > CALL_BYTES_MAX {
            return Err(bad_field("arguments", format!("the request has more than {CALL_BYTES_MAX} bytes")));
        }
        let context = request.context.ok_or_else(|| bad_field("context", "is missing"))?;
        let mode = request::mode(&request.mode)?.unwrap_or_default();
        let call = match request.arguments {
            Some(arguments) => Described::Arguments(value::from_struct(arguments)),
            None => Described::Subject(request.subject),
        };
        let passed = (self.deps.threads.deps().config)().passed_env.clone();
        let surroundings = request::surroundings(context.env, context.umask, &passed)?;
        let explain = Explain {
            tool: request.tool,
            call,
            mode,
            approval: request::approval(request.approve)?,
            cwd: request::absolute("context.cwd", &context.cwd)?,
            add_dirs: request
                .add_dirs
                .iter()
                .map(|dir| request::absolute("add_dirs", dir))
                .collect::<Result<_, _>>()?,
            thread_id: match request.thread_id.as_str() {
                "" => None,
                id => Some(request::known_id("thread", id)?),
            },
            env: std::sync::Arc::clone(&surroundings.tool_env),
        };
        let explanation = self.deps.threads.explain(explain).await.map_err(of_thread)?;
        let (all, kept) = (&surroundings.client_env, &surroundings.tool_env);
        let withheld = all.keys().filter(|name| !kept.contains_key(*name)).cloned().collect();
        Ok(Response::new(v1::ExplainDecisionResponse { withheld, ..explained(explanation, mode) }))
    }

    async fn list_decisions(
        &self,
        request: Request<v1::ListDecisionsRequest>,
    ) -> Result<Response<v1::ListDecisionsResponse>, Status> {
        let request = request.into_inner();
        let thread_id =
            if request.thread_id.is_empty() { None } else { Some(request::known_id("thread", &request.thread_id)?) };
        let (size, token) = (paging::size(request.page_size), paging::token(request.page_token));
        let page = self.deps.threads.decisions(thread_id, size, token).await.map_err(of_thread)?;
        Ok(Response::new(v1::ListDecisionsResponse {
            decisions: page.rows.into_iter().map(record).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn check_decisions(
        &self,
        _: Request<v1::CheckDecisionsRequest>,
    ) -> Result<Response<v1::CheckDecisionsResponse>, Status> {
        let check = self.deps.threads.check_decisions().await.map_err(of_thread)?;
        Ok(Response::new(v1::CheckDecisionsResponse {
            records: check.records,
            first: check.first,
            head: check.head,
            fault: check.fault.unwrap_or_default(),
        }))
    }
}

fn effect(effect: i32) -> Result<Effect, Status> {
    match v1::RuleEffect::try_from(effect) {
        Ok(v1::RuleEffect::Allow) => Ok(Effect::Allow),
        Ok(v1::RuleEffect::Ask) => Ok(Effect::Ask),
        Ok(v1::RuleEffect::Deny) => Ok(Effect::Deny),
        Ok(v1::RuleEffect::Unspecified) | Err(_) => Err(bad_field("effect", "has to be allow, ask or deny")),
    }
}

fn line(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

fn rule(rule: &ListedRule) -> v1::Rule {
    let grant = rule.grant.as_ref();
    v1::Rule {
        effect: rule.effect.as_str().to_owned(),
        rule: rule.written.text.clone(),
        file: rule.written.file.clone(),
        line: line(rule.written.line),
        problem: rule.problem.clone().unwrap_or_default(),
        source: rule.written.source.as_str().to_owned(),
        grant_id: grant.map(|grant| grant.grant_id.to_string()).unwrap_or_default(),
        thread_id: grant.and_then(|grant| grant.thread_id).map(|id| id.to_string()).unwrap_or_default(),
        project_root: grant.and_then(|grant| grant.root.clone()).unwrap_or_default(),
        expires_at: grant.and_then(|grant| grant.expires_at_ms).map(value::time),
        given_by: grant.map(|grant| grant.given_by.clone()).unwrap_or_default(),
    }
}

fn record(row: AuditRow) -> v1::DecisionRecord {
    let AuditRow { number, at_ms, entry, previous, hash } = row;
    v1::DecisionRecord {
        number,
        at: Some(value::time(at_ms)),
        kind: entry.kind.as_str().to_owned(),
        verdict: entry.verdict,
        tool: entry.tool,
        subject: entry.subject,
        why: entry.why,
        rule: entry.rule.unwrap_or_default(),
        place: entry.place.unwrap_or_default(),
        asker: entry.asker,
        answerer: entry.answerer,
        thread_id: entry.thread_id.map(|id| id.to_string()).unwrap_or_default(),
        run_id: entry.run_id.map(|id| id.to_string()).unwrap_or_default(),
        tool_call_id: entry.tool_call_id.map(|id| id.to_string()).unwrap_or_default(),
        approval_id: entry.approval_id.map(|id| id.to_string()).unwrap_or_default(),
        previous,
        hash,
    }
}

fn example(test: &PermissionTest) -> v1::RuleExample {
    v1::RuleExample {
        call: test.call.clone(),
        expect: test.expect.clone(),
        mode: test.mode.clone().unwrap_or_default(),
        file: test.file.clone(),
        line: line(test.line),
    }
}

fn touched(access: &Access) -> v1::Touched {
    let (kind, what) = match access {
        Access::ReadPath(path) => ("read", path.to_string_lossy().into_owned()),
        Access::EditPath(path) => ("edit", path.to_string_lossy().into_owned()),
        Access::Command { command, .. } => ("execute", command.clone()),
        Access::Mentioned { path, .. } => ("names", path.to_string_lossy().into_owned()),
        Access::Host(host) => ("network", host.clone()),
        Access::Unconfined(what) => ("unconfined", what.words().to_owned()),
        Access::Internal => ("internal", String::new()),
    };
    v1::Touched { kind: kind.to_owned(), what }
}

fn explained(explanation: Explanation, mode: Mode) -> v1::ExplainDecisionResponse {
    let decision = explanation.decision;
    let approve = match explanation.approval {
        ApprovalPolicy::Ask => "ask",
        ApprovalPolicy::Deny => "deny",
        ApprovalPolicy::All => "all",
    };
    v1::ExplainDecisionResponse {
        verdict: decision.verdict.as_str().to_owned(),
        why: decision.why,
        rule: decision.rule.unwrap_or_default(),
        file: decision.file.unwrap_or_default(),
        line: line(decision.line),
        touches: explanation.accesses.iter().map(touched).collect(),
        commands: explanation.commands,
        opaque: explanation.opaque,
        proposed_rule: explanation.proposed_rule.unwrap_or_default(),
        mode: mode.as_str().to_owned(),
        approve: approve.to_owned(),
        project_root: explanation.project_root.to_string_lossy().into_owned(),
        source: decision.source.map(|source| source.as_str().to_owned()).unwrap_or_default(),
        withheld: Vec::new(),
    }
}
