//! A folder with files, and the file tools as a run has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use mcode_env::{IdGen, ManualClock, SeededIds};
use mcode_events::blob::{BlobError, BlobRef, Blobs};
use mcode_events::tool::{ResultPart, TaskItem};
use mcode_ids::{ProcessId, ThreadId, ToolCallId};
use mcode_permissions::access::Access;
use mcode_tools::bounds::Settings;
use mcode_tools::port::{StartedProcess, Warning};
use mcode_tools::{
    AskOutcome, Bounds, CallBounds, CallContext, FileLedger, OwnPlaces, Reach, ToolFailure, ToolOutput, ToolPort,
    ToolSet, file_tools,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Bodies in memory.
#[derive(Debug, Default)]
pub struct MemoryBlobs(Mutex<BTreeMap<String, Vec<u8>>>);

impl Blobs for MemoryBlobs {
    fn put(&self, content: &[u8], media_type: &str) -> Result<BlobRef, BlobError> {
        let hash = blake3::hash(content).to_hex().to_string();
        self.0.lock().unwrap().insert(hash.clone(), content.to_vec());
        Ok(BlobRef { hash, size_bytes: content.len() as u64, media_type: media_type.to_owned() })
    }

    fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError> {
        self.0.lock().unwrap().get(hash).cloned().ok_or_else(|| BlobError::Missing(hash.to_owned()))
    }
}

/// A run that file tools have no use for.
#[derive(Debug)]
struct QuietPort;

impl ToolPort for QuietPort {
    /// A file named `withheld` stands for one that a rule forbids.
    fn warn(&self, _: Warning) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn may_read(&self, path: &std::path::Path) -> bool {
        path.file_name().is_none_or(|name| name != "withheld")
    }

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
    fn output(&self, _: &str) {}
}

/// A temporary folder and the tools in it.
pub struct Rig {
    _dir: TempDir,
    pub root: PathBuf,
    pub context: CallContext,
    pub tools: ToolSet,
}

impl Rig {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let env = Arc::new(BTreeMap::from([("HOME".to_owned(), root.join("home").display().to_string())]));
        let thread_id = ThreadId::from_uuid(SeededIds::new(1).next());
        let bounds =
            Bounds::new(Arc::new(Settings::default), OwnPlaces { temp: root.join("temp"), ..OwnPlaces::default() });
        let reach = Reach { project_root: root.clone(), ..Reach::default() };
        let context = CallContext {
            bounds: CallBounds::new(bounds, thread_id, reach, Arc::clone(&env)),
            shielded: false,
            granted: None,
            thread_id,
            tool_call_id: ToolCallId::from_uuid(SeededIds::new(2).next()),
            cwd: root.clone(),
            project_root: root.clone(),
            env,
            umask: 0o022,
            ledger: Arc::new(FileLedger::default()),
            blobs: Arc::new(MemoryBlobs::default()),
            port: Arc::new(QuietPort),
            tasks: Vec::new(),
            cancel: CancellationToken::new(),
            clock: Arc::new(ManualClock::default()),
            ids: Arc::new(SeededIds::new(3)),
        };
        Self { _dir: dir, root, context, tools: ToolSet::new(file_tools()) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Puts a file, with its folders.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    /// Names in a folder, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[cfg(unix)]
    pub fn mode(&self, name: &str) -> u32 {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }

    #[cfg(unix)]
    pub fn chmod(&self, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A call as a run makes it: arguments checked, planned, run.
    pub async fn call(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolFailure> {
        let arguments = self.tools.check_arguments(name, &arguments)?;
        let tool = self.tools.get(name).unwrap();
        tool.plan(&arguments, &self.context)?;
        tool.run(arguments, self.context.clone()).await
    }

    /// The text of a call that has to work.
    pub async fn ok(&self, name: &str, arguments: Value) -> String {
        let output = self.call(name, arguments).await.unwrap();
        text_of(&output)
    }

    /// The message of a call that has to fail.
    pub async fn fails(&self, name: &str, arguments: Value) -> String {
        self.call(name, arguments).await.unwrap_err().to_string()
    }

    /// What a call would touch.
    pub fn access(&self, name: &str, arguments: Value) -> Vec<Access> {
        let arguments = self.tools.check_arguments(name, &arguments).unwrap();
        self.tools.get(name).unwrap().plan(&arguments, &self.context).unwrap().access
    }

    /// What people would be shown.
    pub fn preview(&self, name: &str, arguments: Value) -> String {
        let arguments = self.tools.check_arguments(name, &arguments).unwrap();
        self.tools.get(name).unwrap().plan(&arguments, &self.context).unwrap().preview
    }
}

pub fn text_of(output: &ToolOutput) -> String {
    let texts = output.content.iter().filter_map(|part| match part {
        ResultPart::Text { text } => Some(text.as_str()),
        ResultPart::Media { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) {
    std::os::unix::fs::symlink(target, link).unwrap();
}
