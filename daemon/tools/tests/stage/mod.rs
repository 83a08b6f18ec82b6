//! A thread for tools to run in: a folder, blobs in memory, and a port that writes down what it is told.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_env::{SystemClock, SystemIds};
use mcode_events::blob::{BlobError, BlobRef, Blobs};
use mcode_events::tool::{ResultPart, TaskItem};
use mcode_ids::{ProcessId, ThreadId, ToolCallId};
use mcode_sandbox::Hosts;
use mcode_tools::bounds::Settings;
use mcode_tools::port::{StartedProcess, Warning};
use mcode_tools::shell::{ProcessTable, shell_tools};
use mcode_tools::{
    AskOutcome, Bounds, CallBounds, CallContext, FileLedger, OwnPlaces, Reach, Tool, ToolFailure, ToolPort,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An end that was recorded.
#[derive(Debug, Clone)]
pub struct Exited {
    pub process_id: ProcessId,
    pub code: Option<i32>,
    pub reason: String,
    pub notice: Option<String>,
}

/// Writes down what tools report.
#[derive(Debug, Default)]
pub struct Notes {
    started: Mutex<Vec<StartedProcess>>,
    exited: Mutex<Vec<Exited>>,
    output: Mutex<String>,
    pub warned: Mutex<Vec<Warning>>,
    pub tasks: Mutex<Vec<TaskItem>>,
    pub answer: Mutex<Option<AskOutcome>>,
}

impl Notes {
    pub fn started(&self) -> Vec<StartedProcess> {
        self.started.lock().unwrap().clone()
    }

    pub fn exited(&self) -> Vec<Exited> {
        self.exited.lock().unwrap().clone()
    }

    pub fn output_text(&self) -> String {
        self.output.lock().unwrap().clone()
    }
}

impl ToolPort for Notes {
    fn warn(&self, warning: Warning) -> BoxFuture<'_, ()> {
        self.warned.lock().unwrap().push(warning);
        Box::pin(async {})
    }

    fn may_read(&self, _path: &std::path::Path) -> bool {
        true
    }

    fn ask(&self, _question: String, _options: Vec<String>, _multiple: bool) -> BoxFuture<'_, AskOutcome> {
        let answer = self.answer.lock().unwrap().clone().unwrap_or(AskOutcome::NobodyThere);
        Box::pin(async move { answer })
    }

    fn set_tasks(&self, items: Vec<TaskItem>) -> BoxFuture<'_, ()> {
        *self.tasks.lock().unwrap() = items;
        Box::pin(async {})
    }

    fn process_started(&self, process: StartedProcess) -> BoxFuture<'_, ()> {
        self.started.lock().unwrap().push(process);
        Box::pin(async {})
    }

    fn process_exited(
        &self,
        process_id: ProcessId,
        code: Option<i32>,
        reason: String,
        notice: Option<String>,
    ) -> BoxFuture<'_, ()> {
        self.exited.lock().unwrap().push(Exited { process_id, code, reason, notice });
        Box::pin(async {})
    }

    fn output(&self, text: &str) {
        self.output.lock().unwrap().push_str(text);
    }
}

/// Bodies in memory.
#[derive(Debug, Default)]
pub struct Kept(Mutex<BTreeMap<String, Vec<u8>>>);

impl Kept {
    pub fn contents(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().values().cloned().collect()
    }
}

impl Blobs for Kept {
    fn put(&self, content: &[u8], media_type: &str) -> Result<BlobRef, BlobError> {
        let hash = blake3::hash(content).to_hex().to_string();
        self.0.lock().unwrap().insert(hash.clone(), content.to_vec());
        Ok(BlobRef { hash, size_bytes: content.len() as u64, media_type: media_type.to_owned() })
    }

    fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError> {
        self.0.lock().unwrap().get(hash).cloned().ok_or_else(|| BlobError::Missing(hash.to_owned()))
    }
}

/// What a call gave.
#[derive(Debug)]
pub struct Out {
    pub text: String,
    pub preview: String,
    pub code: Option<i32>,
    pub failed: bool,
}

/// A thread with its tools.
pub struct Stage {
    pub folder: TempDir,
    pub port: Arc<Notes>,
    pub blobs: Arc<Kept>,
    pub table: Arc<ProcessTable>,
    pub context: CallContext,
    pub hosts: Hosts,
    hosts_folder: TempDir,
    tools: Vec<Arc<dyn Tool>>,
    pub bounds: Arc<Bounds>,
    /// `[sandbox]`.
    pub settings: Arc<Mutex<Settings>>,
    /// Holds the temporary files of commands.
    pub temp: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let cwd = folder.path().canonicalize().unwrap();
        let (port, blobs) = (Arc::new(Notes::default()), Arc::new(Kept::default()));
        let env = Arc::new(BTreeMap::from([("PATH".to_owned(), mcode_env::process::var("PATH").unwrap())]));
        let thread_id = ThreadId::from_uuid(mcode_env::IdGen::next(&SystemIds));
        let (settings, temp) = (Arc::new(Mutex::new(Settings::default())), TempDir::new().unwrap());
        let current = Arc::clone(&settings);
        let places = OwnPlaces { temp: temp.path().join("t"), ..OwnPlaces::default() };
        let bounds = Bounds::new(Arc::new(move || current.lock().unwrap().clone()), places);
        let reach = Reach { project_root: cwd.clone(), ..Reach::default() };
        let context = CallContext {
            bounds: CallBounds::new(Arc::clone(&bounds), thread_id, reach, Arc::clone(&env)),
            shielded: false,
            granted: None,
            thread_id,
            tool_call_id: ToolCallId::from_uuid(mcode_env::IdGen::next(&SystemIds)),
            cwd: cwd.clone(),
            project_root: cwd,
            env,
            umask: 0o022,
            ledger: Arc::new(FileLedger::default()),
            blobs: Arc::clone(&blobs) as Arc<dyn Blobs>,
            port: Arc::clone(&port) as Arc<dyn ToolPort>,
            tasks: Vec::new(),
            cancel: CancellationToken::new(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
        };
        let table = ProcessTable::new();
        let hosts_folder = TempDir::new().unwrap();
        let hosts = Hosts::new(mcode_testkit::program("mcode-toolhost"), hosts_folder.path().join("toolhosts"));
        let tools = shell_tools(hosts.clone(), &table);
        Self { folder, port, blobs, table, context, hosts, hosts_folder, tools, bounds, settings, temp }
    }

    /// Another reach, for the calls from here on.
    pub fn reach(&mut self, reach: Reach) {
        let reach = Reach { project_root: self.context.project_root.clone(), ..reach };
        let env = Arc::clone(&self.context.env);
        self.context.bounds = CallBounds::new(Arc::clone(&self.bounds), self.context.thread_id, reach, env);
    }

    pub fn set_env(&mut self, name: &str, value: &str) {
        Arc::make_mut(&mut self.context.env).insert(name.to_owned(), value.to_owned());
    }

    pub fn shell_tool(&self) -> &Arc<dyn Tool> {
        &self.tools[0]
    }

    pub fn process_tool(&self) -> &Arc<dyn Tool> {
        &self.tools[1]
    }

    pub async fn call(&self, tool: &dyn Tool, arguments: Value) -> Result<Out, ToolFailure> {
        tool.plan(&arguments, &self.context)?;
        let output = tool.run(arguments, self.context.clone()).await?;
        let text = match output.content.as_slice() {
            [ResultPart::Text { text }] => text.clone(),
            other => panic!("not one text: {other:?}"),
        };
        Ok(Out { text, preview: output.preview, code: output.exit_code, failed: output.failed })
    }

    pub async fn try_shell(&self, arguments: Value) -> Result<Out, ToolFailure> {
        self.call(&**self.shell_tool(), arguments).await
    }

    pub async fn shell(&self, arguments: Value) -> Out {
        self.try_shell(arguments).await.unwrap()
    }

    pub async fn try_process(&self, arguments: Value) -> Result<Out, ToolFailure> {
        self.call(&**self.process_tool(), arguments).await
    }

    pub async fn process(&self, arguments: Value) -> Out {
        self.try_process(arguments).await.unwrap()
    }
}

/// Waits until the condition holds; fails after ten seconds.
pub async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
