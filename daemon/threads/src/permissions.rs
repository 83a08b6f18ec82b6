//! The permission rules through the daemon: which there are, changing them, and what they would decide.
//!
//! [`Threads::explain`] asks a tool what a call would touch, as a run does, and judges that; nothing is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_config::{ProjectConfig, RuleSource, WrittenRule};
use mcode_events::audit::{AuditEntry, AuditKind};
use mcode_events::run::ApprovalPolicy;
use mcode_events::tool::TaskItem;
use mcode_ids::{GrantId, ProcessId, ThreadId, ToolCallId};
use mcode_permissions::command::{self, Simple};
use mcode_permissions::{Access, Category, DecideInput, Decision, DeniedPaths, Effect, Mode, check_rule};
use mcode_store::GrantRow;
use mcode_tools::port::{StartedProcess, Warning};
use mcode_tools::{AskOutcome, CallBounds, CallContext, FileLedger, Reach, ToolFailure, ToolPort, ToolSpec};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::deps::{Deps, RuleChange};
use crate::error::ThreadError;
use crate::registry::Threads;
use crate::rules::Place;
use crate::trust::TrustState;

/// Most simple commands that an explanation lists.
const COMMANDS_MAX: usize = 256;

/// A rule as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRule {
    /// What it does.
    pub effect: Effect,
    /// The rule, and where it stands.
    pub written: WrittenRule,
    /// Why it can not be read, or has no effect.
    pub problem: Option<String>,
    /// What was given, when it is from no file.
    pub grant: Option<GrantRow>,
}

/// How a call is described that is to be explained.
#[derive(Debug, Clone, PartialEq)]
pub enum Described {
    /// The command, the path or the host.
    Subject(String),
    /// The arguments as a model would give them.
    Arguments(Value),
}

/// A call that is to be explained.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// The tool, or a category of rules for any tool of the kind.
    pub tool: String,
    /// What it is called with.
    pub call: Described,
    /// The run's mode.
    pub mode: Mode,
    /// What is done about calls that would be asked; `None` is as configured.
    pub approval: Option<ApprovalPolicy>,
    /// Where the run would stand: absolute.
    pub cwd: String,
    /// Its further folders, absolute.
    pub add_dirs: Vec<String>,
    /// A thread whose grants count too.
    pub thread_id: Option<ThreadId>,
    /// Its environment; only `HOME` matters.
    pub env: Arc<BTreeMap<String, String>>,
}

/// What would be decided about a call, and what that rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The decision.
    pub decision: Decision,
    /// Everything the call would touch.
    pub accesses: Vec<Access>,
    /// The simple commands of its command, wherever they stand in it.
    pub commands: Vec<String>,
    /// Part of its command can not be known before it runs.
    pub opaque: bool,
    /// The rule that would allow it for good.
    pub proposed_rule: Option<String>,
    /// What was done about calls that would be asked.
    pub approval: ApprovalPolicy,
    /// The root of the project.
    pub project_root: PathBuf,
}

/// Where and how long a grant counts; nothing of it means everywhere and for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantPlace {
    /// In this thread.
    pub thread_id: Option<ThreadId>,
    /// In the project with this root.
    pub root: Option<String>,
    /// Until then, milliseconds since 1970 UTC.
    pub until_ms: Option<i64>,
}

/// Keeps a rule that allows something: for good in the user's file, else as a grant.
pub(crate) async fn keep_rule(deps: &Deps, rule: &str, place: GrantPlace, by: &str) -> Result<(), ThreadError> {
    let invalid = |message: String| ThreadError::InvalidArgument { field: "rule", message };
    check_rule(rule).map_err(|reason| invalid(format!("the rule '{}' can not be read: {reason}", shown(rule))))?;
    if place == GrantPlace::default() {
        let (write, change) =
            (Arc::clone(&deps.change_rule), RuleChange { effect: Effect::Allow, rule: rule.to_owned(), add: true });
        // It writes a file.
        tokio::task::spawn_blocking(move || write(&change))
            .await
            .map_err(|error| ThreadError::Store(Box::new(error)))?
            .map_err(invalid)?;
        return audit_rule(deps, AuditKind::RuleAdded, Effect::Allow, rule, "the user's file", by).await;
    }
    let now = deps.clock.now().millis();
    if place.until_ms.is_some_and(|until| until <= now) {
        return Err(ThreadError::InvalidArgument { field: "until", message: "is in the past".to_owned() });
    }
    let grant = GrantRow {
        grant_id: GrantId::from_uuid(deps.ids.next()),
        rule: rule.to_owned(),
        thread_id: place.thread_id,
        root: place.root,
        expires_at_ms: place.until_ms,
        created_at_ms: now,
        given_by: crate::audit::brief(by),
    };
    let id = format!("grant {}", grant.grant_id);
    deps.rules.add(grant).await?;
    audit_rule(deps, AuditKind::RuleAdded, Effect::Allow, rule, &id, by).await
}

async fn audit_rule(
    deps: &Deps,
    kind: AuditKind,
    effect: Effect,
    rule: &str,
    place: &str,
    by: &str,
) -> Result<(), ThreadError> {
    let entry = AuditEntry {
        subject: crate::audit::brief(rule),
        rule: Some(crate::audit::brief(rule)),
        place: Some(place.to_owned()),
        asker: crate::audit::brief(by),
        answerer: crate::audit::brief(by),
        ..AuditEntry::new(kind, effect.as_str())
    };
    Ok(deps.store.audit(vec![entry]).await?)
}

impl Threads {
    /// Every rule: deny, ask, allow, and last what was given with answers. Broken ones are listed with what is wrong
    /// with them, those without effect with the reason. With a folder, the rules of its project too.
    ///
    /// # Errors
    /// [`ThreadError::InvalidArgument`] when the folder can not be used.
    pub async fn permission_rules(&self, cwd: Option<String>) -> Result<Vec<ListedRule>, ThreadError> {
        let mut rules = self.deps().rules.of_files();
        let mut trusted = true;
        if let Some(cwd) = cwd {
            let trust = self.trust(cwd).await?;
            trusted = trust.state == TrustState::Trusted;
            let root = trust.root;
            let scan = tokio::task::spawn_blocking(move || crate::trust::scan(&root))
                .await
                .map_err(|error| ThreadError::Store(Box::new(error)))?;
            let config = scan.config.and_then(|(file, text)| ProjectConfig::parse(&file, &text).ok());
            rules.extend(config.unwrap_or_default().permissions);
        }
        let problem = |effect: Effect, written: &WrittenRule| match written.source {
            RuleSource::Project if !trusted => Some("the project is not trusted: it has no effect".to_owned()),
            RuleSource::Project if effect == Effect::Allow => {
                Some("a project may only tighten: it has no effect".to_owned())
            }
            _ => check_rule(&written.text).err(),
        };
        let lists = [(Effect::Deny, &rules.deny), (Effect::Ask, &rules.ask), (Effect::Allow, &rules.allow)];
        let listed = |effect: Effect, written: &WrittenRule| ListedRule {
            effect,
            written: written.clone(),
            problem: problem(effect, written),
            grant: None,
        };
        let mut all: Vec<ListedRule> =
            lists.iter().flat_map(|(effect, list)| list.iter().map(|rule| listed(*effect, rule))).collect();
        let grants = self.deps().rules.grants();
        all.extend(grants.into_iter().map(|grant| ListedRule {
            effect: Effect::Allow,
            written: crate::rules::written(&grant),
            problem: None,
            grant: Some(grant),
        }));
        Ok(all)
    }

    /// Adds a rule to the user's file, or removes it; `false` when nothing had to be done.
    ///
    /// # Errors
    /// [`ThreadError::InvalidArgument`] for a rule that can not be read, and when the file can not be changed.
    pub async fn change_rule(&self, change: RuleChange, by: &str) -> Result<bool, ThreadError> {
        let invalid = |message: String| ThreadError::InvalidArgument { field: "rule", message };
        if change.add {
            check_rule(&change.rule)
                .map_err(|reason| invalid(format!("the rule '{}' can not be read: {reason}", shown(&change.rule))))?;
        }
        let (write, wanted) = (Arc::clone(&self.deps().change_rule), change.clone());
        let done = tokio::task::spawn_blocking(move || write(&wanted))
            .await
            .map_err(|error| ThreadError::Store(Box::new(error)))?
            .map_err(invalid)?;
        if done {
            let kind = if change.add { AuditKind::RuleAdded } else { AuditKind::RuleRemoved };
            audit_rule(self.deps(), kind, change.effect, &change.rule, "the user's file", by).await?;
        }
        Ok(done)
    }

    /// Gives a rule for a while or for a place.
    ///
    /// # Errors
    /// [`ThreadError::InvalidArgument`] for a rule that can not be read, a folder that can not be used, or a time that
    /// has passed.
    pub async fn give(&self, rule: &str, place: GrantPlace, by: &str) -> Result<(), ThreadError> {
        if let Some(thread_id) = place.thread_id {
            self.known(thread_id).await?;
        }
        let root = match place.root {
            Some(cwd) => Some(crate::project::root(cwd).await?.to_string_lossy().into_owned()),
            None => None,
        };
        keep_rule(self.deps(), rule, GrantPlace { root, ..place }, by).await
    }

    /// Takes back what was given with an answer.
    ///
    /// # Errors
    /// [`ThreadError::NotFound`] when there is no such grant.
    pub async fn take_back(&self, grant_id: GrantId, by: &str) -> Result<GrantRow, ThreadError> {
        let removed = self.deps().rules.remove(grant_id).await?;
        let removed = removed.ok_or_else(|| ThreadError::NotFound { what: "grant", id: grant_id.to_string() })?;
        let place = format!("grant {grant_id}");
        audit_rule(self.deps(), AuditKind::RuleRemoved, Effect::Allow, &removed.rule, &place, by).await?;
        Ok(removed)
    }

    /// What would be decided about a call. Nothing is run, and nobody is asked.
    ///
    /// # Errors
    /// [`ThreadError::InvalidArgument`] when there is no such tool, folder, or call of that tool.
    pub async fn explain(&self, explain: Explain) -> Result<Explanation, ThreadError> {
        let root = crate::project::root(explain.cwd.clone()).await?;
        let project = crate::trust::project_config(self.deps(), &root).await?;
        let place = Place { thread_id: explain.thread_id, root, project };
        let threads = self.clone();
        // Tools look at the disk to say what they would touch.
        tokio::task::spawn_blocking(move || explained(threads.deps(), explain, place))
            .await
            .map_err(|error| ThreadError::Store(Box::new(error)))?
    }
}

fn explained(deps: &Deps, explain: Explain, place: Place) -> Result<Explanation, ThreadError> {
    let cwd = std::fs::canonicalize(&explain.cwd).map_err(|error| ThreadError::InvalidArgument {
        field: "cwd",
        message: format!("'{}': {error}", explain.cwd),
    })?;
    let project_root = place.root.clone();
    let (tool, spec) = named_tool(deps, &explain.tool)?;
    let extra_dirs: Vec<PathBuf> = explain.add_dirs.iter().map(PathBuf::from).collect();
    let home = explain.env.get("HOME").map(Path::new);
    let rules = deps.rules.live(place.clone()).now();
    let denied = rules.denied_paths(&project_root, &extra_dirs, home);
    let context = call_context(deps, cwd, project_root.clone(), &explain, denied);
    let mut accesses = match &explain.call {
        Described::Arguments(arguments) => planned(deps, spec.name, arguments, &context)?,
        Described::Subject(subject) => touched(deps, &spec, subject, &context)?,
    };
    accesses.splice(..0, context.bounds.beyond(&accesses));
    let mut config = (deps.config)();
    if let Some(project) = &place.project {
        config = Arc::new(config.with_project(project));
    }
    let approval = explain.approval.or_else(|| crate::starting::configured_approval(config.approve.as_deref()));
    let most = crate::starting::configured_approval(config.approve_at_most.as_deref());
    let approval = crate::starting::stricter(approval.unwrap_or_default(), most);
    let input = DecideInput {
        tool: spec.name,
        category: spec.category,
        accesses: &accesses,
        mode: explain.mode,
        policy: approval,
        project_root: &project_root,
        extra_dirs: &extra_dirs,
        home,
        shielded: context.bounds.shields(spec.name, &accesses),
    };
    let decision = rules.decide(&input);
    let proposed_rule = rules.proposal(&DecideInput { tool, ..input });
    let (commands, opaque) = commands_of(&accesses);
    Ok(Explanation { decision, accesses, commands, opaque, proposed_rule, approval, project_root })
}

/// The tool of this name, or the one that stands for a category of rules.
fn named_tool<'a>(deps: &Deps, name: &'a str) -> Result<(&'a str, ToolSpec), ThreadError> {
    let tool = match name {
        "read" => "view",
        "execute" => "shell",
        other => other,
    };
    if let Some(spec) = deps.tools.spec(tool) {
        return Ok((tool, spec.clone()));
    }
    if name == "network" {
        let (description, schema) = (String::new(), json!({"type": "object"}));
        return Ok((name, ToolSpec { name: "network", description, schema, category: Category::Network }));
    }
    let known: Vec<&str> = deps.tools.names().collect();
    let message = format!("there is no tool named '{}'; the tools are: {}", shown(name), known.join(", "));
    Err(ThreadError::InvalidArgument { field: "tool", message })
}

fn bad_call(failure: &ToolFailure) -> ThreadError {
    ThreadError::InvalidArgument { field: "arguments", message: failure.to_string() }
}

/// What the tool itself says that it would touch.
fn planned(deps: &Deps, name: &str, arguments: &Value, context: &CallContext) -> Result<Vec<Access>, ThreadError> {
    let arguments = deps.tools.check_arguments(name, arguments).map_err(|failure| bad_call(&failure))?;
    let tool = deps.tools.get(name).ok_or_else(|| bad_call(&ToolFailure::Failed("there is no such tool".into())))?;
    Ok(tool.plan(&arguments, context).map_err(|failure| bad_call(&failure))?.access)
}

/// What a call touches that is given by its subject alone.
fn touched(deps: &Deps, spec: &ToolSpec, subject: &str, context: &CallContext) -> Result<Vec<Access>, ThreadError> {
    let path = || mcode_tools::fs::path::resolve(context, subject).map_err(|failure| bad_call(&failure));
    match spec.category {
        Category::Execute if spec.name == "shell" => planned(deps, spec.name, &json!({"command": subject}), context),
        Category::Read => Ok(vec![Access::ReadPath(path()?)]),
        Category::Edit => Ok(vec![Access::EditPath(path()?)]),
        Category::Network => Ok(vec![Access::Host(subject.to_lowercase())]),
        Category::Internal => Ok(vec![Access::Internal]),
        Category::Execute => {
            let message =
                format!("a call of {} is not known by one word: give its arguments as a JSON object", spec.name);
            Err(ThreadError::InvalidArgument { field: "arguments", message })
        }
    }
}

fn commands_of(accesses: &[Access]) -> (Vec<String>, bool) {
    let (mut commands, mut opaque) = (Vec::new(), false);
    for access in accesses {
        let Access::Command { command, .. } = access else { continue };
        match command::parse(command) {
            None => opaque = true,
            Some(parsed) => {
                opaque |= parsed.opaque || parsed.evaluates;
                commands.extend(parsed.all().map(line).filter(|line| !line.is_empty()));
            }
        }
    }
    commands.truncate(COMMANDS_MAX);
    (commands, opaque)
}

fn line(simple: &Simple) -> String {
    simple.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// The beginning of a text that somebody sent, for a message.
fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}

fn call_context(
    deps: &Deps,
    cwd: PathBuf,
    project_root: PathBuf,
    explain: &Explain,
    denied: DeniedPaths,
) -> CallContext {
    let (env, thread_id) = (Arc::clone(&explain.env), ThreadId::from_uuid(deps.ids.next()));
    let reach = Reach {
        project_root: project_root.clone(),
        add_dirs: explain.add_dirs.iter().map(PathBuf::from).collect(),
        looking_only: explain.mode != Mode::Build,
        network: false,
        denied,
    };
    CallContext {
        thread_id,
        bounds: CallBounds::new(Arc::clone(&deps.bounds), thread_id, reach, Arc::clone(&env)),
        shielded: false,
        granted: None,
        tool_call_id: ToolCallId::from_uuid(deps.ids.next()),
        cwd,
        project_root,
        env,
        umask: 0o077,
        ledger: Arc::new(FileLedger::default()),
        blobs: deps.store.blobs(),
        port: Arc::new(NoRun),
        tasks: Vec::new(),
        cancel: CancellationToken::new(),
        clock: Arc::clone(&deps.clock),
        ids: Arc::clone(&deps.ids),
    }
}

/// The line of a call that is only looked at.
#[derive(Debug)]
struct NoRun;

impl ToolPort for NoRun {
    fn ask(&self, _: String, _: Vec<String>, _: bool) -> BoxFuture<'_, AskOutcome> {
        Box::pin(async { AskOutcome::NobodyThere })
    }

    fn set_tasks(&self, _: Vec<TaskItem>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn process_started(&self, _: StartedProcess) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn process_exited(&self, _: ProcessId, _: Option<i32>, _: String, _: Option<String>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn warn(&self, _: Warning) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn may_read(&self, _: &Path) -> bool {
        false
    }

    fn output(&self, _: &str) {}
}
