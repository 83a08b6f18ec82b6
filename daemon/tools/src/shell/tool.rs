//! The `shell` tool.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_ids::ProcessId;
use mcode_permissions::access::{Access, Category, Unconfined};
use mcode_sandbox::hosted::Terminal;
use mcode_sandbox::{About, CommandSpec, HostedSpec, Hosts, Shell, ShellCommand, SpawnError, TOOL_CALL_VARIABLE};
use mcode_text::{chain, truncate_bytes};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::attend::{Attending, KillOnDrop, attend_guarded};
use super::environment::command_env;
use super::held::Held;
use super::mentioned::judged;
use super::process::Process;
use super::supervise::supervise;
use super::table::{LIVE_MAX, ProcessTable};
use crate::bounds::Wish;
use crate::port::StartedProcess;
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Seconds after which a foreground command without a limit of its own goes on in the background: long enough for most
/// builds and tests, short enough that a server started by mistake does not hold up the run.
pub const BACKGROUND_AFTER_S: u64 = 120;
/// Most seconds that the model may give a command.
pub const MAX_TIMEOUT_S: u64 = 3600;
/// Longest command in bytes.
const COMMAND_BYTES_MAX: usize = 1024 * 1024;
/// The terminal of a command that wants one: no line of ordinary output is broken.
const TERMINAL: Terminal = Terminal { columns: 200, rows: 50 };
/// Most bytes of a command in the table and the log.
const NAMED_BYTES_MAX: usize = 200;

/// Runs a command in a shell.
#[derive(Debug)]
pub struct ShellTool {
    hosts: Hosts,
    shell: Shell,
    table: Arc<ProcessTable>,
    background_after: Duration,
}

impl ShellTool {
    /// A tool that runs commands in `shell` and notes them in `table`.
    #[must_use]
    pub fn new(hosts: Hosts, shell: Shell, table: Arc<ProcessTable>) -> Self {
        Self { hosts, shell, table, background_after: Duration::from_secs(BACKGROUND_AFTER_S) }
    }

    /// Another time after which a foreground command without a limit goes on in the background.
    #[must_use]
    pub fn background_after(self, time: Duration) -> Self {
        Self { background_after: time, ..self }
    }
}

/// The arguments of a call, checked.
#[derive(Debug)]
struct Wanted {
    command: String,
    cwd: PathBuf,
    limit: Option<Duration>,
    background: bool,
    terminal: bool,
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
        let terminal = arguments["terminal"].as_bool().unwrap_or(false);
        if terminal && !background {
            return bad("terminal: a command with a terminal waits for input; give background: true as well".into());
        }
        if terminal && cfg!(windows) {
            return bad("terminal: there are none on this system; run it without".into());
        }
        let limit = match arguments["timeout_s"].as_f64() {
            Some(seconds) if seconds > 0.0 && seconds <= MAX_TIMEOUT_S as f64 => Some(Duration::from_secs_f64(seconds)),
            Some(seconds) => return bad(format!("timeout_s: {seconds} is not between 1 and {MAX_TIMEOUT_S} seconds")),
            None => None,
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
        Ok(Self { command: command.to_owned(), cwd, limit, background, terminal, wish })
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
                 terminal and no input by default: editors, pagers and password prompts fail at once. With timeout_s (at most \
                 {MAX_TIMEOUT_S}) the command and everything it started is killed after so many seconds. Without it, a \
                 command that still runs after {} s goes on in the background. Of long output the beginning and the \
                 end are returned. With background: true the call returns at once with a process id for the `process` \
                 tool; use it for servers and watchers, and with terminal: true for programs that only talk to a \
                 terminal (`process` writes what would be typed). You are told when a command in the background ends. Background \
                 processes end with the thread. Where there is a sandbox, commands write only in the project and below \
                 $TMPDIR (not in /tmp), and have no network unless the user gives it: ask with `sandbox` only for \
                 commands that need it.",
                self.background_after.as_secs()
            ),
            schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": format!("The {name} command, run exactly as written")},
                    "cwd": {"type": "string", "description": "Folder to run in, relative to the working folder"},
                    "timeout_s": {"type": "number", "minimum": 1, "maximum": MAX_TIMEOUT_S, "description": "Time limit in seconds"},
                    "background": {"type": "boolean", "description": "Return at once and let it run"},
                    "terminal": {"type": "boolean", "description": "With background: give it a terminal"},
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
        let preview = access.first().map_or_else(String::new, |access| heading(access).to_owned()) + &preview;
        access.extend(judged(wanted.command, &cwd, context));
        access.extend(context.bounds.unfound());
        Ok(CallPlan { access, preview, parallel: false })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let (hosts, shell, table) = (self.hosts.clone(), self.shell.clone(), Arc::clone(&self.table));
        let background_after = self.background_after;
        Box::pin(async move {
            let wanted = Wanted::parse(&arguments, &context)?;
            let held = Held::begin(&context, wanted.wish, &wanted.cwd).await?;
            let process = start(&hosts, &shell, &table, &wanted, &context, &held).await?;
            let attending = Attending {
                thread_id: context.thread_id,
                blobs: Arc::clone(&context.blobs),
                cancel: context.cancel.clone(),
                background_after: wanted.limit.is_none().then_some(background_after),
            };
            let remarks = move |failed: bool, output: &str| held.remarks(&context, failed, output);
            attend_guarded(process, &table, &attending, Box::new(remarks)).await
        })
    }
}

/// Starts the command, has it recorded, and leaves it to its supervisor.
async fn start(
    hosts: &Hosts,
    shell: &Shell,
    table: &Arc<ProcessTable>,
    wanted: &Wanted,
    context: &CallContext,
    held: &Held,
) -> Result<KillOnDrop, ToolFailure> {
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
    let process_id = ProcessId::from_uuid(context.ids.next());
    let spec = spec(shell, &script, process_id, wanted, context, held);
    let watched = held.watched();
    if let Some(watched) = &watched {
        let (watched, bounds) = (Arc::clone(watched), context.bounds.clone());
        // Before it begins: whichever daemon sees its end knows how things were.
        tokio::task::spawn_blocking(move || watched.put_down(bounds.of_all(), process_id)).await.ok();
    }
    let (hosts, port, given) = (hosts.clone(), Arc::clone(&context.port), wanted.wish);
    let (thread_id, tool_call_id, noting) = (context.thread_id, context.tool_call_id, Arc::clone(table));
    let (tell, started) = oneshot::channel();
    // Its own task from here on: a call that is dropped still has its process ended and its end recorded.
    drop(table.tasks.spawn(async move {
        let command = spec.about.command.clone();
        let hosted = match hosts.start(spec).await {
            Ok(hosted) => hosted,
            // Nobody listens when the call was dropped.
            Err(error) => {
                watched.iter().for_each(|watched| watched.ended());
                return drop(tell.send(Err(spawn_failure(&error))));
            }
        };
        let process = Arc::new(Process::new(process_id, tool_call_id, command, given, hosted, false));
        noting.insert(thread_id, Arc::clone(&process));
        let identity = process.identity();
        let record = StartedProcess {
            process_id,
            pid: identity.pid,
            started_ticks: identity.started_ticks,
            command: process.command.clone(),
            background: process.is_background(),
        };
        port.process_started(record).await;
        // Dropped where nobody takes it, which ends the command.
        drop(tell.send(Ok(KillOnDrop::new(&process))));
        supervise(process, port, watched).await;
        drop::<ShellCommand>(script);
    }));
    started.await.map_err(|_| ToolFailure::Failed("the command's start could not be recorded".into()))?
}

fn spec(
    shell: &Shell,
    script: &ShellCommand,
    process_id: ProcessId,
    wanted: &Wanted,
    context: &CallContext,
    held: &Held,
) -> HostedSpec {
    let mut env = command_env(&context.env, &wanted.cwd, shell.kind);
    // By it what is left of a command is found when neither its host nor its start in the log is there.
    env.insert(TOOL_CALL_VARIABLE.to_owned(), context.tool_call_id.to_string());
    let policy = held.policy();
    if let Some(policy) = &policy {
        env.insert("TMPDIR".to_owned(), policy.temp.to_string_lossy().into_owned());
        env.extend(policy.proxy_env().into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    HostedSpec {
        command: CommandSpec {
            argv: script.argv.clone(),
            cwd: wanted.cwd.clone(),
            env,
            stdin: wanted.background,
            umask: Some(context.umask),
            policy,
        },
        about: About {
            process_id: process_id.to_string(),
            thread_id: context.thread_id.to_string(),
            tool_call_id: context.tool_call_id.to_string(),
            command: shortened(&wanted.command, NAMED_BYTES_MAX),
            given: wanted.wish.word().to_owned(),
        },
        limit: wanted.limit,
        background: wanted.background,
        experience: None,
        terminal: wanted.terminal.then_some(TERMINAL),
    }
}

/// The first line of what people are shown of a command that goes beyond the sandbox.
pub(super) const fn heading(beyond: &Access) -> &'static str {
    match beyond {
        Access::Unconfined(Unconfined::Network) => "with the network:\n",
        _ => "OUTSIDE THE SANDBOX:\n",
    }
}

fn spawn_failure(error: &SpawnError) -> ToolFailure {
    ToolFailure::Failed(chain(error))
}

/// The text, or its beginning with how much was left out.
pub(super) fn shortened(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let start = truncate_bytes(text, max);
    format!("{start}… ({} bytes in all)", text.len())
}
