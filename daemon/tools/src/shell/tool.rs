//! The `shell` tool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_ids::ProcessId;
use mcode_permissions::access::{Access, Category, Unconfined};
use mcode_sandbox::{CommandSpec, LocalRunner, Shell, ShellCommand, SpawnError, TOOL_CALL_VARIABLE};
use mcode_text::truncate_bytes;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::environment::command_env;
use super::held::Held;
use super::mentioned::judged;
use super::render::render;
use super::supervise::supervise;
use super::table::{End, LIVE_MAX, Process, ProcessTable, Stage};
use crate::bounds::Wish;
use crate::port::StartedProcess;
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Seconds that a foreground command may take when the model does not say.
pub const DEFAULT_TIMEOUT_S: u64 = 120;
/// Most seconds that the model may give a command.
pub const MAX_TIMEOUT_S: u64 = 3600;
/// Longest command in bytes.
const COMMAND_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes of a command in the table and the log.
const NAMED_BYTES_MAX: usize = 200;
/// Most members of a group that are listed.
const LISTED_MAX: usize = 8;

/// Runs a command in a shell.
#[derive(Debug)]
pub struct ShellTool {
    runner: LocalRunner,
    shell: Shell,
    table: Arc<ProcessTable>,
}

impl ShellTool {
    /// A tool that runs commands in `shell` and notes them in `table`.
    #[must_use]
    pub fn new(runner: LocalRunner, shell: Shell, table: Arc<ProcessTable>) -> Self {
        Self { runner, shell, table }
    }
}

/// The arguments of a call, checked.
#[derive(Debug)]
struct Wanted {
    command: String,
    cwd: PathBuf,
    limit: Option<Duration>,
    background: bool,
    wish: Wish,
}

impl Wanted {
    fn parse(arguments: &Value, context: &CallContext) -> Result<Self, ToolFailure> {
        let bad = |text: String| Err(ToolFailure::BadArguments(text));
        let command = arguments["command"].as_str().unwrap_or_default();
        if command.trim().is_empty() {
            return bad("command: give the command to run".into());
        }
        if command.len() > COMMAND_BYTES_MAX {
            let size = command.len();
            return bad(format!(
                "command: it has {size} bytes, at most {COMMAND_BYTES_MAX} are possible; write the data to a file with the write tool first"
            ));
        }
        if command.contains('\0') {
            return bad("command: it holds a NUL byte, which no shell takes; remove it".into());
        }
        let background = arguments["background"].as_bool().unwrap_or(false);
        let limit = match arguments["timeout_s"].as_f64() {
            Some(seconds) if seconds > 0.0 && seconds <= MAX_TIMEOUT_S as f64 => Some(Duration::from_secs_f64(seconds)),
            Some(seconds) => return bad(format!("timeout_s: {seconds} is not between 1 and {MAX_TIMEOUT_S} seconds")),
            None if background => None,
            None => Some(Duration::from_secs(DEFAULT_TIMEOUT_S)),
        };
        let cwd = arguments["cwd"].as_str().map_or_else(|| context.cwd.clone(), |cwd| context.cwd.join(cwd));
        if !cwd.is_dir() {
            return bad(format!("cwd: the folder {} does not exist", cwd.display()));
        }
        let wish = match arguments["sandbox"].as_str() {
            Some("network") => Wish::Network,
            Some("off") => Wish::Outside,
            _ => Wish::Nothing,
        };
        Ok(Self { command: command.to_owned(), cwd, limit, background, wish })
    }
}

impl Tool for ShellTool {
    fn spec(&self) -> ToolSpec {
        let name = self.shell.name();
        ToolSpec {
            name: "shell",
            description: format!(
                "Runs a command in {name} and returns its output (standard output and error together) and exit code. \
                 Each call starts a new {name} in the working folder, or in `cwd`: `cd`, `export`, aliases and other \
                 shell state do not persist to the next call; join commands with && to use them together. There is no \
                 terminal and no input: editors, pagers and password prompts fail at once. The command and everything \
                 it started is killed after timeout_s seconds (default {DEFAULT_TIMEOUT_S}, at most {MAX_TIMEOUT_S}). \
                 Of long output the beginning and the end are returned. With background: true the call returns at once \
                 with a process id for the `process` tool, you are told when the command ends, and there is no time \
                 limit unless timeout_s is given; use it for servers and watchers. Background processes end with the \
                 thread. Where there is a sandbox, commands write only in the project and below $TMPDIR (not in /tmp), \
                 and have no network unless the user gives it: ask with `sandbox` only for commands that need it."
            ),
            schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": format!("The {name} command, run exactly as written")},
                    "cwd": {"type": "string", "description": "Folder to run in, relative to the working folder"},
                    "timeout_s": {"type": "number", "minimum": 1, "maximum": MAX_TIMEOUT_S, "description": "Time limit in seconds"},
                    "background": {"type": "boolean", "description": "Return at once and let it run"},
                    "description": {"type": "string", "description": "What the command does, in a few words, for the user"},
                    "sandbox": {"type": "string", "enum": ["network", "off"], "description": "What the command needs beyond the sandbox, of which the user is asked: the network, or to run outside it (off)"}
                },
                "required": ["command"],
                "additionalProperties": false
            }),
            category: Category::Execute,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let wanted = Wanted::parse(arguments, context)?;
        let cwd = wanted.cwd.canonicalize().unwrap_or(wanted.cwd);
        // Whole: who shows it to somebody cuts it, and says so.
        let preview = match arguments.get("cwd").and_then(Value::as_str) {
            Some(_) => format!("in {}:\n{}", cwd.display(), wanted.command),
            None => wanted.command.clone(),
        };
        // First, so that it is the reason that people are told.
        let mut access: Vec<Access> =
            context.bounds.wished(wanted.wish).map_err(ToolFailure::Failed)?.into_iter().collect();
        let preview = match access.first() {
            Some(Access::Unconfined(Unconfined::Network)) => format!("with the network:\n{preview}"),
            Some(_) => format!("OUTSIDE THE SANDBOX:\n{preview}"),
            None => preview,
        };
        access.extend(judged(wanted.command, &cwd, context));
        Ok(CallPlan { access, preview, parallel: false })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let (runner, shell, table) = (self.runner, self.shell.clone(), Arc::clone(&self.table));
        Box::pin(async move {
            let wanted = Wanted::parse(&arguments, &context)?;
            let held = Held::begin(&context, wanted.wish).await?;
            let process = start(runner, &shell, &table, &wanted, &context, &held).await?;
            if wanted.background {
                return Ok(started(&process, &held.remarks(&context, false, "")));
            }
            attend(&process, &table, &context, held).await
        })
    }
}

/// Kills a foreground command whose call is dropped.
struct KillOnDrop(Option<Arc<Process>>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = self.0.take() {
            process.request_kill("its call was cancelled");
        }
    }
}

/// Starts the command, has it recorded, and leaves it to its supervisor.
async fn start(
    runner: LocalRunner,
    shell: &Shell,
    table: &Arc<ProcessTable>,
    wanted: &Wanted,
    context: &CallContext,
    held: &Held,
) -> Result<Arc<Process>, ToolFailure> {
    if context.cancel.is_cancelled() {
        return Err(ToolFailure::Cancelled);
    }
    if table.live(context.thread_id) >= LIVE_MAX {
        return Err(ToolFailure::Failed(format!(
            "{LIVE_MAX} processes of this thread still run, which is the most; end some with the process tool (action list, then kill)"
        )));
    }
    let script = shell
        .command(&wanted.command)
        .map_err(|error| ToolFailure::Failed(format!("the command could not be written to a file: {error}")))?;
    let mut env = command_env(&context.env, &wanted.cwd, shell.kind);
    // By it the next daemon finds what this one started right before it died, before its start was in the log.
    env.insert(TOOL_CALL_VARIABLE.to_owned(), context.tool_call_id.to_string());
    let policy = held.policy();
    if let Some(policy) = &policy {
        env.insert("TMPDIR".to_owned(), policy.temp.to_string_lossy().into_owned());
        env.extend(policy.proxy_env().into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    let spec = CommandSpec {
        argv: script.argv.clone(),
        cwd: wanted.cwd.clone(),
        env,
        stdin: wanted.background,
        umask: Some(context.umask),
        policy,
    };
    let mut child = runner.spawn(&spec).map_err(|error| spawn_failure(&error))?;
    let process_id = ProcessId::from_uuid(context.ids.next());
    let command = shortened(&wanted.command, NAMED_BYTES_MAX);
    let stdin = child.take_stdin();
    let process = Arc::new(Process::new(process_id, command.clone(), wanted.background, child.group(), stdin));
    table.insert(context.thread_id, Arc::clone(&process));
    let identity = child.identity();
    let mut guard = KillOnDrop(Some(Arc::clone(&process)));
    let (port, limit) = (Arc::clone(&context.port), wanted.limit);
    let (watched, background) = (Arc::clone(&process), wanted.background);
    // Its own task from here on: a call that is dropped still has its process ended and its end recorded.
    let (noted, recorded) = oneshot::channel();
    let supervisor = table.tasks.spawn(async move {
        let record = StartedProcess {
            process_id,
            pid: identity.pid,
            started_ticks: identity.started_ticks,
            command,
            background,
        };
        port.process_started(record).await;
        // Nobody listens when the call was dropped, and nothing depends on it then.
        noted.send(()).ok();
        supervise(child, watched, port, limit).await;
        drop::<ShellCommand>(script);
    });
    drop(supervisor);
    recorded.await.map_err(|_| ToolFailure::Failed("the command's start could not be recorded".into()))?;
    guard.0 = None;
    Ok(process)
}

fn spawn_failure(error: &SpawnError) -> ToolFailure {
    let cause = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    ToolFailure::Failed(format!("{error}{cause}"))
}

/// Waits for a foreground command.
async fn attend(
    process: &Arc<Process>,
    table: &Arc<ProcessTable>,
    context: &CallContext,
    held: Held,
) -> Result<ToolOutput, ToolFailure> {
    let mut guard = KillOnDrop(Some(Arc::clone(process)));
    tokio::select! {
        () = process.reached(Stage::Lingering) => {}
        () = context.cancel.cancelled() => {
            process.request_kill("its call was cancelled");
            process.reached(Stage::Gone).await;
            table.forget(context.thread_id, process.process_id);
            return Err(ToolFailure::Cancelled);
        }
    }
    guard.0 = None;
    let (shown, shown_context) = (Arc::clone(process), context.clone());
    let (text, remarks) = tokio::task::spawn_blocking(move || {
        // The spool leaves the process while it is read, so that nobody waits for the disk behind the lock.
        let text = render(&shown_context, &mut shown.take_spool());
        let failed = shown.end().is_some_and(|end| end.code() != Some(0));
        let remarks = held.remarks(&shown_context, failed, &text);
        (text, remarks)
    })
    .await
    .map_err(|error| ToolFailure::Failed(format!("the output could not be read: {error}")))?;
    let members = process.members();
    if members.is_empty() {
        process.reached(Stage::Gone).await;
        table.forget(context.thread_id, process.process_id);
    }
    Ok(finished(process, text, &members, &remarks))
}

fn finished(process: &Process, mut text: String, members: &[u32], remarks: &str) -> ToolOutput {
    let end = process.end().unwrap_or_else(|| End::Lost("its end was not seen".into()));
    let seconds = process.took().as_secs_f64();
    if text.is_empty() {
        text.push_str("(no output)");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let killed = if matches!(end, End::TimedOut(_)) { "; it was killed with everything it started" } else { "" };
    text.push_str(&format!("[{}{killed}]", end.words()));
    if !members.is_empty() {
        let pids: Vec<String> = members.iter().take(LISTED_MAX).map(u32::to_string).collect();
        text.push_str(&format!(
            "\n[a process it started still runs (pid {}); it ends with the thread, or with the process tool: kill {}]",
            pids.join(", "),
            process.process_id
        ));
    }
    text.push_str(remarks);
    let words = end.words();
    let words = words.strip_prefix("exit code").map_or(words.clone(), |code| format!("exit{code}"));
    let preview = format!("{words} in {seconds:.1} s");
    let failed = end.code() != Some(0);
    ToolOutput { exit_code: end.code(), failed, ..ToolOutput::text(text, preview) }
}

fn started(process: &Process, remarks: &str) -> ToolOutput {
    let (id, pid) = (process.process_id, process.identity().pid);
    ToolOutput::text(
        format!(
            "Started in the background as {id} (pid {pid}). You are told when it ends; read its output with the process tool.{remarks}"
        ),
        format!("background, pid {pid}"),
    )
}

/// The text, or its beginning with how much was left out.
pub(super) fn shortened(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let start = truncate_bytes(text, max);
    format!("{start}… ({} bytes in all)", text.len())
}
