//! `mcode permissions`: the rules about tool calls, and what they decide.

use clap::{Subcommand, ValueEnum};
use mcode_client::json::{json_struct, message_json};
use mcode_client::{Client, ClientError, v1};
use mcode_text::sanitize_line;
use serde_json::{Value, json};

use crate::args::Form;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{json_line, json_pretty, stdout_line};
use crate::table::table;
use crate::times::local;
use crate::verbs::approvals::RulePlace;
use crate::verbs::{Outcome, Page, listing, show_message};

/// Most characters of what a record is about in a row.
const ABOUT_CHARS_MAX: usize = 60;

/// What to do with permission rules.
#[derive(Debug, Subcommand)]
pub(crate) enum PermissionsVerb {
    /// List the rules in force and where they stand; broken ones with what is wrong with them
    List,
    /// Add a rule to your configuration file, or give one for a while or for one place
    Add {
        /// What it does
        effect: Effect,
        /// Such as 'shell(cargo test *)', 'edit(src/**)' or 'network'
        rule: String,
        #[command(flatten)]
        place: RulePlace,
        /// The thread of --for thread
        #[arg(long, value_name = "ID", default_value = "")]
        thread: String,
    },
    /// Remove a rule from your configuration file, or take back one that was given
    Remove {
        /// Which of the lists it is in
        #[arg(required_unless_present = "grant")]
        effect: Option<Effect>,
        /// The rule as written
        #[arg(required_unless_present = "grant")]
        rule: Option<String>,
        /// A rule that was given, by its id (see `permissions list`)
        #[arg(long, value_name = "ID", conflicts_with_all = ["effect", "rule"])]
        grant: Option<String>,
    },
    /// Say what would be decided about a tool call and why, without running it
    Explain {
        /// The tool, or read, edit, execute or network for any tool of the kind
        tool: String,
        /// The command, the path or the host; or the tool's arguments as a JSON object
        #[arg(required = true, value_name = "ARGS")]
        call: Vec<String>,
        #[command(flatten)]
        setting: Setting,
    },
    /// Show what was decided about tool calls, by which rule, and who answered
    Log(LogArgs),
    /// Check the examples of [[permissions.test]]; the exit status is 1 when one does not hold
    Test,
}

/// What the decision depends on beside the rules.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Setting {
    /// The mode of the run
    #[arg(long, value_name = "MODE", value_parser = ["build", "plan", "explore"])]
    mode: Option<String>,
    /// What the run does about calls that would be asked; as configured without it
    #[arg(long, value_name = "POLICY", value_enum)]
    approve: Option<Policy>,
    /// A further folder of the run; may be repeated
    #[arg(long, value_name = "DIR")]
    add_dir: Vec<std::path::PathBuf>,
    /// A thread whose given rules count too
    #[arg(long, short, value_name = "ID", default_value = "")]
    thread: String,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effect {
    /// It runs without asking.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It does not run.
    Deny,
}

impl From<Effect> for v1::RuleEffect {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Allow => Self::Allow,
            Effect::Ask => Self::Ask,
            Effect::Deny => Self::Deny,
        }
    }
}

/// What is done about calls that would be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Somebody is asked.
    Ask,
    /// They do not run.
    Deny,
    /// They run.
    All,
}

impl From<Policy> for v1::ApprovalPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Ask => Self::Ask,
            Policy::Deny => Self::Deny,
            Policy::All => Self::All,
        }
    }
}

/// Which records.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Only of this thread
    #[arg(long, short, value_name = "ID", default_value = "")]
    thread: String,
    #[command(flatten)]
    page: Page,
    /// Look through the whole record for what was changed or removed; the exit status is 1 if anything was
    #[arg(long)]
    verify: bool,
}

/// Who changes rules, for the record.
const BY: &str = "mcode permissions";

pub(crate) async fn run(context: &Context, verb: PermissionsVerb) -> Outcome {
    let client = context.connect().await?;
    match verb {
        PermissionsVerb::List => {
            let cwd = context.cwd()?.to_string_lossy().into_owned();
            let response = client.list_rules(v1::ListRulesRequest { cwd }).await?;
            show_message(context.form, "ListRulesResponse", &response, Some("rules"), || {
                let rows: Vec<Vec<String>> = response.rules.iter().map(row).collect();
                listing(&["EFFECT", "RULE", "WHERE"], &rows, "no rules: what the defaults do not allow is asked", "")
            })?;
        }
        PermissionsVerb::Add { effect, rule, place, thread } => {
            let effect = v1::RuleEffect::from(effect).into();
            let (scope, until) = place.wire()?;
            let cwd = context.cwd()?.to_string_lossy().into_owned();
            let request =
                v1::CreateRuleRequest { effect, rule, by: BY.to_owned(), scope, thread_id: thread, cwd, until };
            let response = client.create_rule(request).await?;
            show_message(context.form, "CreateRuleResponse", &response, None, || {
                let done = if response.created { "added" } else { "it was there already" };
                response.rule.as_ref().map_or(done.to_owned(), |rule| format!("{done}: {}", sanitize_line(&told(rule))))
            })?;
        }
        PermissionsVerb::Remove { effect, rule, grant } => {
            let effect = effect.map_or(v1::RuleEffect::Unspecified, v1::RuleEffect::from).into();
            let (rule, grant_id) = (rule.unwrap_or_default(), grant.unwrap_or_default());
            let request = v1::DeleteRuleRequest { effect, rule, by: BY.to_owned(), grant_id };
            let response = client.delete_rule(request).await?;
            show_message(context.form, "DeleteRuleResponse", &response, None, || match response.file.as_str() {
                "" => format!("taken back: {}", sanitize_line(&response.rule)),
                file => format!("removed from {}", sanitize_line(file)),
            })?;
        }
        PermissionsVerb::Log(args) if args.verify => return verify(context, &client).await,
        PermissionsVerb::Log(args) => {
            let request = v1::ListDecisionsRequest {
                page_size: args.page.limit,
                page_token: args.page.page_token,
                thread_id: args.thread,
            };
            let response = client.list_decisions(request).await?;
            show_message(context.form, "ListDecisionsResponse", &response, Some("decisions"), || {
                let rows: Vec<Vec<String>> = response.decisions.iter().map(record).collect();
                let heading = ["N", "WHEN", "WHAT", "VERDICT", "TOOL", "ABOUT", "WHY", "BY", "THREAD"];
                listing(&heading, &rows, "nothing was decided yet", &response.next_page_token)
            })?;
        }
        PermissionsVerb::Explain { tool, call, setting } => {
            let request = request(context, &tool, &call.join(" "), &setting)?;
            let response = client.explain_decision(request).await?;
            show_message(context.form, "ExplainDecisionResponse", &response, None, || explanation(&response))?;
        }
        PermissionsVerb::Test => return test(context, &client).await,
    }
    Ok(0)
}

fn place(file: &str, line: u32) -> String {
    if line == 0 { file.to_owned() } else { format!("{file}:{line}") }
}

fn told(rule: &v1::Rule) -> String {
    format!("{} {} ({})", rule.effect, rule.rule, place(&rule.file, rule.line))
}

fn row(rule: &v1::Rule) -> Vec<String> {
    let mut notes = vec![place(&rule.file, rule.line)];
    match rule.source.as_str() {
        "managed" => notes.push("of the machine".to_owned()),
        "project" => notes.push("of the project".to_owned()),
        _ => {}
    }
    if !rule.thread_id.is_empty() {
        notes.push(format!("in thread {}", rule.thread_id));
    }
    if !rule.project_root.is_empty() {
        notes.push(format!("in project {}", rule.project_root));
    }
    if rule.expires_at.is_some() {
        notes.push(format!("until {}", local(rule.expires_at.as_ref())));
    }
    match (rule.problem.as_str(), rule.problem.ends_with("it has no effect")) {
        ("", _) => {}
        (problem, true) => notes.push(problem.to_owned()),
        (problem, false) => notes.push(format!("broken: {problem}")),
    }
    vec![rule.effect.clone(), rule.rule.clone(), notes.join(", ")]
}

fn record(record: &v1::DecisionRecord) -> Vec<String> {
    let about: String = record.subject.chars().take(ABOUT_CHARS_MAX).collect();
    vec![
        record.number.to_string(),
        local(record.at.as_ref()),
        record.kind.clone(),
        record.verdict.clone(),
        record.tool.clone(),
        about,
        record.why.clone(),
        record.answerer.clone(),
        record.thread_id.clone(),
    ]
}

async fn verify(context: &Context, client: &Client) -> Outcome {
    let response = client.check_decisions(v1::CheckDecisionsRequest {}).await?;
    show_message(context.form, "CheckDecisionsResponse", &response, None, || match response.fault.as_str() {
        "" => format!(
            "the record holds: {} records from number {}, the last one is {}",
            response.records, response.first, response.head
        ),
        fault => format!("the record was tampered with or damaged: {fault}"),
    })?;
    Ok(u8::from(!response.fault.is_empty()))
}

fn request(
    context: &Context,
    tool: &str,
    call: &str,
    setting: &Setting,
) -> Result<v1::ExplainDecisionRequest, ClientError> {
    let cwd = context.cwd()?;
    let surroundings = context.client_context(&cwd, false)?;
    let arguments = match serde_json::from_str::<Value>(call) {
        Ok(Value::Object(fields)) => Some(json_struct(&fields)),
        Err(error) if call.trim_start().starts_with("{\"") => {
            return Err(ClientError::usage(format!("the arguments are not a JSON object: {error}"))
                .hint("give the command, the path or the host, or arguments as the model would"));
        }
        _ => None,
    };
    let add_dirs = setting.add_dir.iter().map(|dir| crate::input::folder(&cwd, dir)).collect::<Result<_, _>>()?;
    Ok(v1::ExplainDecisionRequest {
        context: Some(surroundings),
        tool: tool.to_owned(),
        subject: if arguments.is_some() { String::new() } else { call.to_owned() },
        arguments,
        mode: setting.mode.clone().unwrap_or_default(),
        approve: setting.approve.map_or(v1::ApprovalPolicy::Unspecified, v1::ApprovalPolicy::from).into(),
        add_dirs,
        thread_id: setting.thread.clone(),
    })
}

fn explanation(response: &v1::ExplainDecisionResponse) -> String {
    let mut lines = vec![format!("{}: {}", response.verdict, response.why)];
    let mut add = |name: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!("{name:<9} {text}"));
        }
    };
    if !response.rule.is_empty() {
        add("rule", &format!("{} ({})", response.rule, place(&response.file, response.line)));
    }
    for touched in &response.touches {
        add(&touched.kind, &touched.what);
    }
    for command in &response.commands {
        add("runs", command);
    }
    if response.opaque {
        add("unknown", "part of the command can not be known before it runs, so no allow rule fits it");
    }
    add("setting", &format!("mode {}, approve {}, in {}", response.mode, response.approve, response.project_root));
    if response.verdict != "allow" {
        add("proposed", &response.proposed_rule);
    }
    if response.touches.iter().any(|touched| touched.kind == "execute") {
        add("withheld", &response.withheld.join(", "));
    }
    lines.iter().map(|line| sanitize_line(line).into_owned()).collect::<Vec<_>>().join("\n")
}

/// An example with what came of it.
struct Tried {
    example: v1::RuleExample,
    /// What was decided and why, or why nothing could be.
    outcome: Result<v1::ExplainDecisionResponse, String>,
}

impl Tried {
    fn holds(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|response| response.verdict == self.example.expect)
    }

    fn row(&self) -> Vec<String> {
        let (got, why) = match &self.outcome {
            Ok(response) => (response.verdict.clone(), response.why.clone()),
            Err(problem) => ("error".to_owned(), problem.clone()),
        };
        let place = place(&self.example.file, self.example.line);
        let why = if self.holds() { why } else { format!("{why} ({place})") };
        let word = if self.holds() { "ok" } else { "FAILED" };
        vec![word.to_owned(), self.example.call.clone(), self.example.expect.clone(), got, why]
    }

    fn json(&self) -> Result<Value, Failure> {
        let mut value = json!({"example": message_json("RuleExample", &self.example)?, "holds": self.holds()});
        match &self.outcome {
            Ok(response) => value["decision"] = message_json("ExplainDecisionResponse", response)?,
            Err(problem) => value["problem"] = json!(problem),
        }
        Ok(value)
    }
}

/// Decides every example as `explain` does; a rule's words are split as in a rule.
async fn test(context: &Context, client: &Client) -> Outcome {
    let examples = client.list_rules(v1::ListRulesRequest::default()).await?.examples;
    let mut tried = Vec::with_capacity(examples.len());
    for example in examples {
        let call = example.call.trim();
        let parts = call.split_once('(').and_then(|(tool, rest)| Some((tool.trim(), rest.strip_suffix(')')?)));
        let outcome = match parts {
            None => Err("write the call as tool(what it touches), such as shell(git push origin)".to_owned()),
            Some((tool, subject)) => {
                let mode = Some(example.mode.clone()).filter(|mode| !mode.is_empty());
                // What a run asks about depends on the run; the rules are tried as a run that asks.
                let setting = Setting { mode, approve: Some(Policy::Ask), ..Setting::default() };
                match request(context, tool, subject, &setting) {
                    Ok(request) => client.explain_decision(request).await.map_err(|error| error.message),
                    Err(error) => Err(error.message),
                }
            }
        };
        tried.push(Tried { example, outcome });
    }
    let failed = tried.iter().filter(|tried| !tried.holds()).count();
    let results = tried.iter().map(Tried::json).collect::<Result<Vec<_>, _>>()?;
    match context.form {
        Form::Json => json_pretty(&json!({"tests": results, "failed": failed}))?,
        Form::Jsonl => results.iter().try_for_each(json_line)?,
        Form::Text if tried.is_empty() => {
            stdout_line("no examples: add them as [[permissions.test]] with call = \"…\" and expect = \"…\"")?;
        }
        Form::Text => {
            let rows: Vec<Vec<String>> = tried.iter().map(Tried::row).collect();
            stdout_line(&table(&["", "CALL", "EXPECTED", "DECIDED", "WHY"], &rows))?;
            stdout_line(&format!("{} of {} examples hold", tried.len() - failed, tried.len()))?;
        }
    }
    Ok(u8::from(failed > 0))
}
