//! `PermissionService`.

use mcode_events::run::ApprovalPolicy;
use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use mcode_threads::{Access, Described, Effect, Explain, Explanation, ListedRule, Mode, PermissionTest, RuleChange};
use tonic::{Code, Request, Response, Status};

use crate::convert::value;
use crate::request;
use crate::services::Services;
use crate::status::{bad_field, of_thread, refuse};

/// Most bytes of what a call to be explained is described with.
const CALL_BYTES_MAX: usize = 1024 * 1024;

#[tonic::async_trait]
impl v1::permission_service_server::PermissionService for Services {
    async fn list_rules(&self, _: Request<v1::ListRulesRequest>) -> Result<Response<v1::ListRulesResponse>, Status> {
        let config = (self.deps.threads.deps().config)();
        Ok(Response::new(v1::ListRulesResponse {
            rules: self.deps.threads.permission_rules().iter().map(rule).collect(),
            examples: config.permission_tests.iter().map(example).collect(),
            next_page_token: String::new(),
        }))
    }

    async fn create_rule(
        &self,
        request: Request<v1::CreateRuleRequest>,
    ) -> Result<Response<v1::CreateRuleResponse>, Status> {
        let request = request.into_inner();
        let change = RuleChange { effect: effect(request.effect)?, rule: request.rule.trim().to_owned(), add: true };
        let created = self.deps.threads.change_rule(change.clone()).await.map_err(of_thread)?;
        let rules = self.deps.threads.permission_rules();
        let rule = rules.iter().find(|rule| rule.effect == change.effect && rule.written.text == change.rule).map(rule);
        Ok(Response::new(v1::CreateRuleResponse { rule, created }))
    }

    async fn delete_rule(
        &self,
        request: Request<v1::DeleteRuleRequest>,
    ) -> Result<Response<v1::DeleteRuleResponse>, Status> {
        let request = request.into_inner();
        let change = RuleChange { effect: effect(request.effect)?, rule: request.rule.trim().to_owned(), add: false };
        let rules = self.deps.threads.permission_rules();
        let file = rules
            .iter()
            .find(|rule| rule.effect == change.effect && rule.written.text == change.rule)
            .map(|rule| rule.written.file.clone());
        let removed = self.deps.threads.change_rule(change.clone()).await.map_err(of_thread)?;
        match file.filter(|_| removed) {
            Some(file) => Ok(Response::new(v1::DeleteRuleResponse { file })),
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
        let mode = request::mode(&request.mode)?.as_deref().and_then(Mode::parse).unwrap_or_default();
        let call = match request.arguments {
            Some(arguments) => Described::Arguments(value::from_struct(arguments)),
            None => Described::Subject(request.subject),
        };
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
            env: request::surroundings(context.env, context.umask)?.tool_env,
        };
        let explanation = self.deps.threads.explain(explain).await.map_err(of_thread)?;
        Ok(Response::new(explained(explanation, mode)))
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
    v1::Rule {
        effect: rule.effect.as_str().to_owned(),
        rule: rule.written.text.clone(),
        file: rule.written.file.clone(),
        line: line(rule.written.line),
        problem: rule.problem.clone().unwrap_or_default(),
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
        Access::Host(host) => ("network", host.clone()),
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
    }
}
