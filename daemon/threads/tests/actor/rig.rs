//! A registry of threads with real storage, a scripted model and a few tools.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use mcode_config::Effective;
use mcode_env::{Clock, IdGen, ManualClock, SystemIds};
use mcode_events::run::{ApprovalPolicy, Delivery, RunLimits};
use mcode_events::{Event, Origin, Part, ThreadState, Usage};
use mcode_ids::{ProcessId, RunId, Seq, ThreadId, ToolCallId};
use mcode_models::packs::wished;
use mcode_models::retry::RetryPolicy;
use mcode_models::{
    Access as ModelAccess, Assigned, GiveKey, GivenKey, KeySource, ListedModel, ModelError, ModelErrorKind, ModelInfo,
    ModelProvider, ModelRef, ModelRegistry, ModelRequest, ModelStream, Pricing, ResolvedModel, Response, Role, Secret,
    StopReason, StreamEvent, Wire, Wishes,
};
use mcode_permissions::access::{Access, Category};
use mcode_store::Store;
use mcode_threads::deps::Current;
use mcode_threads::spending::spent;
use mcode_threads::{Deps, Gates, NewInput, NewRun, RuleBook, RunSurroundings, Threads, Treasury};
use mcode_tools::bounds::Settings;
use mcode_tools::port::StartedProcess;
use mcode_tools::{Bounds, CallContext, CallPlan, OwnPlaces, Tool, ToolFailure, ToolOutput, ToolSet, ToolSpec};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// How long anything may take that is waited for.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// One answer of the model.
#[derive(Debug, Clone)]
pub enum Step {
    /// Says this and stops.
    Say(&'static str),
    /// Calls these tools.
    Call(Vec<(&'static str, Value)>),
    /// Says the beginning, then waits until the rig lets it go on.
    Hold(&'static str),
    /// The provider's code panics.
    Panic,
}

/// A model that answers from a script; the last line is said again and again.
#[derive(Debug)]
pub struct Script {
    steps: Mutex<VecDeque<Step>>,
    pub asked: watch::Sender<usize>,
    pub requests: Mutex<Vec<ModelRequest>>,
    pub go: Semaphore,
    usage: Usage,
}

/// The scripted model as a provider.
#[derive(Debug)]
struct Speaker(Arc<Script>);

impl ModelProvider for Speaker {
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let step = {
            let mut steps = self.0.steps.lock().unwrap();
            if steps.len() > 1 { steps.pop_front().unwrap() } else { steps.front().cloned().unwrap() }
        };
        self.0.requests.lock().unwrap().push(request);
        self.0.asked.send_modify(|asked| *asked += 1);
        let script = Arc::clone(&self.0);
        match step {
            Step::Panic => panic!("the provider is broken, as the test wants it"),
            Step::Say(text) => done(script.response(vec![Part::text(text)], StopReason::Stop)),
            Step::Call(calls) => {
                let parts = calls.into_iter().map(|(name, arguments)| {
                    let tool_call_id = ToolCallId::from_uuid(SystemIds.next());
                    let provider_call_id = format!("call_{tool_call_id}");
                    Part::ToolCall { tool_call_id, provider_call_id, name: name.into(), arguments, opaque: None }
                });
                done(script.response(parts.collect(), StopReason::ToolUse))
            }
            Step::Hold(text) => {
                let begin = futures::stream::iter([Ok(StreamEvent::TextDelta(text.into()))]);
                let end = futures::stream::once(async move {
                    tokio::select! {
                        permit = script.go.acquire() => permit.unwrap().forget(),
                        () = cancel.cancelled() => std::future::pending().await,
                    }
                    let response = script.response(vec![Part::text(text)], StopReason::Stop);
                    Ok(StreamEvent::Finished(Box::new(response)))
                });
                Box::pin(begin.chain(end))
            }
        }
    }
}

fn done(response: Response) -> ModelStream {
    Box::pin(futures::stream::iter([Ok(StreamEvent::Finished(Box::new(response)))]))
}

impl Script {
    fn response(&self, parts: Vec<Part>, stop: StopReason) -> Response {
        Response {
            parts,
            origin: Origin { provider: "fake".into(), wire: "openai-chat".into(), model: "one".into() },
            model: "one".into(),
            response_id: "r".into(),
            stop,
            stop_raw: stop.as_str().into(),
            usage: Some(self.usage),
        }
    }
}

/// The variable of a client's own key; without it there is the daemon's stored one.
pub const KEY: &str = "FAKE_KEY";

/// The scripted model asks nobody for its key.
struct NoKey;

impl GiveKey for NoKey {
    fn give<'a>(&'a self, _refused: Option<&'a Secret>) -> BoxFuture<'a, Result<GivenKey, ModelError>> {
        Box::pin(async { Err(ModelError::new(ModelErrorKind::Auth, "nobody asks for it")) })
    }
}

#[derive(Debug)]
struct Models(Arc<Script>);

impl ModelRegistry for Models {
    fn resolve(&self, model: &str, env: &BTreeMap<String, String>) -> Result<ResolvedModel, ModelError> {
        let model: ModelRef = model.parse().unwrap();
        let mut info = ModelInfo::unknown(&model);
        info.pricing = Some(Pricing { input: 1.0, output: 0.0, cache_read: 0.0, cache_write: 0.0, long: None });
        let access = ModelAccess {
            provider: model.provider.clone(),
            wire: Wire::OpenaiChat,
            base_url: "http://127.0.0.1:1".into(),
            key: env.get(KEY).map(Secret::new),
            key_source: (!env.contains_key(KEY)).then(|| KeySource::new("stored key of fake", Arc::new(NoKey))),
            key_place: mcode_models::KeyPlace::Usual,
            headers: BTreeMap::new(),
            network_env: BTreeMap::new(),
            identity_env: BTreeMap::new(),
            key_word: "none".into(),
            withheld: None,
            idle_timeout_ms: 1000,
        };
        Ok(ResolvedModel { info, access, provider: Arc::new(Speaker(Arc::clone(&self.0))) })
    }

    fn list(&self, _env: &BTreeMap<String, String>) -> Vec<ListedModel> {
        Vec::new()
    }

    fn for_role(
        &self,
        role: Role,
        wishes: &Wishes<'_>,
        _env: &BTreeMap<String, String>,
    ) -> Result<Option<Assigned>, ModelError> {
        Ok(wished(role, wishes, &Default::default(), Some("fake/one")).into_iter().next())
    }
}

/// What a tool of these tests does when it runs.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Says the same each time.
    Same,
    /// Panics.
    Panic,
    /// Waits until it is cancelled.
    Wait,
    /// Begins a command in the background, which ends when the test says so.
    Background,
}

#[derive(Debug)]
struct Small {
    name: &'static str,
    category: Category,
    act: Act,
    runs: Arc<watch::Sender<u32>>,
    ends: Arc<Semaphore>,
}

impl Tool for Small {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        ToolSpec { name: self.name, description: "A tool of a test".into(), schema, category: self.category }
    }

    fn plan(&self, _arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let access = match self.category {
            Category::Execute => Access::Command { command: self.name.into(), cwd: context.cwd.clone() },
            _ => Access::Internal,
        };
        Ok(CallPlan { access: vec![access], preview: self.name.into(), parallel: false })
    }

    fn run(&self, _arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        self.runs.send_modify(|runs| *runs += 1);
        let (act, ends) = (self.act, Arc::clone(&self.ends));
        Box::pin(async move {
            match act {
                Act::Same => Ok(ToolOutput::text("the same", "same")),
                Act::Panic => panic!("the tool is broken, as the test wants it"),
                Act::Wait => {
                    context.cancel.cancelled().await;
                    Err(ToolFailure::Cancelled)
                }
                Act::Background => {
                    let process_id = ProcessId::from_uuid(SystemIds.next());
                    let command = "in the background".to_owned();
                    let (pid, started_ticks) = (0, 0);
                    let process = StartedProcess { process_id, pid, started_ticks, command, background: true };
                    context.port.process_started(process).await;
                    let port = Arc::clone(&context.port);
                    tokio::spawn(async move {
                        ends.acquire().await.unwrap().forget();
                        let notice = Some("a command has ended".to_owned());
                        port.process_exited(process_id, Some(0), "exit code 0".to_owned(), notice).await;
                    });
                    Ok(ToolOutput::text("it runs", "it runs"))
                }
            }
        })
    }
}

/// Keeps the runtime's time where it is: it does not run ahead when all tasks wait for the store, which is a thread of its
/// own. A test that hangs gets its time back after a while, and fails.
pub struct Frozen {
    _held: std::sync::mpsc::Sender<()>,
}

impl Frozen {
    pub fn new() -> Self {
        tokio::time::pause();
        let (held, holds) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || holds.recv_timeout(WAIT_MAX).is_ok());
        Self { _held: held }
    }

    /// Lets so much of it pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
    }
}

/// Everything of a test.
pub struct Rig {
    /// Gone when the test ends.
    _dir: tempfile::TempDir,
    pub root: PathBuf,
    pub clock: Arc<ManualClock>,
    pub script: Arc<Script>,
    pub threads: Threads,
    pub runs: Arc<watch::Sender<u32>>,
    pub reaped: Arc<Mutex<Vec<String>>>,
    /// Lets commands in the background end.
    pub ends: Arc<Semaphore>,
}

impl Rig {
    pub fn new(steps: Vec<Step>) -> Self {
        Self::with(tempfile::tempdir().unwrap(), steps, Effective::default())
    }

    pub fn with(dir: tempfile::TempDir, steps: Vec<Step>, config: Effective) -> Self {
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(root.join("work")).unwrap();
        let clock = Arc::new(ManualClock::default());
        let usage = Usage { input_tokens: 1_000_000, output_tokens: 10, ..Usage::default() };
        let script = Arc::new(Script {
            steps: Mutex::new(steps.into()),
            asked: watch::Sender::new(0),
            requests: Mutex::default(),
            go: Semaphore::new(0),
            usage,
        });
        let (runs, ends) = (Arc::new(watch::Sender::new(0)), Arc::new(Semaphore::new(0)));
        let tool = |name, category, act| {
            Arc::new(Small { name, category, act, runs: Arc::clone(&runs), ends: Arc::clone(&ends) }) as Arc<dyn Tool>
        };
        let tools = vec![
            tool("same", Category::Internal, Act::Same),
            tool("broken", Category::Internal, Act::Panic),
            tool("wait", Category::Internal, Act::Wait),
            tool("background", Category::Internal, Act::Background),
            tool("command", Category::Execute, Act::Same),
        ];
        let reaped: Arc<Mutex<Vec<String>>> = Arc::default();
        let (orphans, marked) = (Arc::clone(&reaped), Arc::clone(&reaped));
        let config = Arc::new(config);
        let current: Current<Effective> = Arc::new(move || Arc::clone(&config));
        let store = open(&root, &clock);
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let deps = Deps {
            rules: RuleBook::new(Arc::clone(&current), store.clone(), time, Default::default(), Vec::new()),
            models: Arc::new(Models(Arc::clone(&script))),
            tools: Arc::new(ToolSet::new(tools)),
            places: Vec::new(),
            bounds: Bounds::new(Arc::new(Settings::default), OwnPlaces::default()),
            plans: mcode_threads::PlanShelf::new(root.join("plans")),
            depots: mcode_threads::Depots::new(root.join("data"), None, None, Arc::clone(&clock) as Arc<dyn Clock>),
            spool: root.clone(),
            elsewhere: mcode_threads::Places::of(&root, |_| None),
            config: current,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ids: Arc::new(SystemIds),
            titles: false,
            retry: RetryPolicy::default(),
            gates: Arc::new(Gates::new(Arc::clone(&clock) as Arc<dyn Clock>)),
            treasury: Arc::new(Treasury::new(spent(store.clone(), Arc::clone(&clock) as Arc<dyn Clock>))),
            reap_orphan: Arc::new(move |pid, ticks| {
                orphans.lock().unwrap().push(format!("pid {pid} of {ticks}"));
                Box::pin(async {})
            }),
            reap_marked: Arc::new(move |ids| {
                marked.lock().unwrap().extend(ids.iter().map(ToString::to_string));
                Box::pin(async {})
            }),
            processes: mcode_tools::shell::ProcessTable::new(),
            going_on: Arc::default(),
            own_env: Arc::default(),
            change_rule: Arc::new(|_| Ok(true)),
            store,
        };
        Self { _dir: dir, root, clock, script, threads: Threads::new(deps), runs, reaped, ends }
    }

    /// The time, milliseconds since 1970 UTC.
    pub fn clock_ms(&self) -> i64 {
        self.clock.now().millis()
    }

    pub fn store(&self) -> &Store {
        &self.threads.deps().store
    }

    pub fn prompt(&self, thread_id: Option<ThreadId>, text: &str) -> NewRun {
        NewRun {
            thread_id,
            parts: vec![Part::text(text)],
            model: None,
            mode: None,
            thinking: None,
            approval: Some(ApprovalPolicy::Ask),
            asker: mcode_threads::Asker::Person,
            interactive: true,
            detached: false,
            limits: RunLimits::default(),
            cwd: self.root.join("work").to_string_lossy().into_owned(),
            add_dirs: Vec::new(),
            title: String::new(),
            answer_schema: None,
            ephemeral: false,
            resend: None,
            surroundings: RunSurroundings { client_env: Arc::default(), tool_env: Arc::default(), umask: 0o022 },
            request: None,
        }
    }

    /// Starts a run in a new thread.
    pub async fn start(&self, text: &str) -> (ThreadId, RunId) {
        let started = self.threads.start_run(self.prompt(None, text)).await.unwrap();
        (started.thread_id, started.run_id)
    }

    /// Waits until the model was asked so often.
    pub async fn asked(&self, times: usize) {
        let mut asked = self.script.asked.subscribe();
        let reached = tokio::time::timeout(WAIT_MAX, asked.wait_for(|asked| *asked >= times)).await;
        assert!(reached.is_ok(), "the model was not asked {times} times");
    }

    /// Waits until tools ran so often.
    pub async fn ran(&self, times: u32) {
        let mut runs = self.runs.subscribe();
        let reached = tokio::time::timeout(WAIT_MAX, runs.wait_for(|runs| *runs >= times)).await;
        assert!(reached.is_ok(), "tools did not run {times} times");
    }

    /// Waits until the state of a thread is so.
    pub async fn until(
        &self,
        thread_id: ThreadId,
        what: &str,
        holds: impl Fn(&ThreadState) -> bool,
    ) -> Arc<ThreadState> {
        let wait = async {
            loop {
                let mut head = self.threads.subscribe(thread_id).await.unwrap().head;
                head.mark_unchanged();
                let state = self.threads.state(thread_id).await.unwrap();
                if holds(&state) {
                    return state;
                }
                // An actor that ended takes the head with it; the thread is loaded anew.
                let _ = head.changed().await.is_ok();
            }
        };
        match tokio::time::timeout(WAIT_MAX, wait).await {
            Ok(state) => state,
            Err(_) => panic!("waited for {what}: {:#?}", self.threads.state(thread_id).await),
        }
    }

    pub async fn idle(&self, thread_id: ThreadId) -> Arc<ThreadState> {
        self.until(thread_id, "the thread to be idle", |state| state.open.run.is_none()).await
    }

    pub async fn input(&self, thread_id: ThreadId, delivery: Delivery, text: &str) {
        let parts = vec![Part::text(text)];
        let input = NewInput { delivery, parts, run_id: None, request: None };
        self.threads.input(thread_id, input).await.unwrap();
    }

    pub async fn events(&self, thread_id: ThreadId) -> Vec<Event> {
        self.store().read(thread_id, Seq::ZERO, 10_000, usize::MAX / 2).await.unwrap()
    }

    /// The kinds of a thread's events, in order.
    pub async fn kinds(&self, thread_id: ThreadId) -> Vec<String> {
        self.events(thread_id).await.iter().map(|event| event.body.kind().to_owned()).collect()
    }
}

pub fn open(root: &Path, clock: &Arc<ManualClock>) -> Store {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Store::open(root.join("data/mcode.db"), root.join("data/blobs"), clock).unwrap()
}

/// What the user and the model said, in order.
pub fn said(state: &ThreadState) -> Vec<String> {
    state
        .history
        .iter()
        .filter_map(|entry| match entry.as_ref() {
            mcode_events::state::Entry::Message { message, .. } => Some(message.text()),
            mcode_events::state::Entry::ToolResult { .. } => None,
        })
        .filter(|text| !text.is_empty())
        .collect()
}
