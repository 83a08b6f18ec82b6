//! The `process` tool: looking after what `shell` left running.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_permissions::access::{Access, Category};
use mcode_sandbox::InputError;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::clean::clean;
use super::mentioned::judged;
use super::process::{Process, Stage};
use super::row::usage_words;
use super::table::ProcessTable;
use super::tool::{heading, shortened};
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Most seconds that `poll` waits.
const WAIT_S_MAX: u64 = 60;
/// Most bytes of output that one `poll` gives.
const POLL_BYTES_MAX: usize = 30 * 1024;
/// Most bytes that one `write` takes.
const INPUT_BYTES_MAX: usize = 64 * 1024;
/// How long `write` waits for a process that does not read.
const WRITE_WAIT: Duration = Duration::from_secs(5);
/// At the end of the input: close it, as Ctrl-D does on a terminal.
const END_OF_INPUT: char = '\u{4}';

/// Lists, reads, feeds and ends the processes of a thread.
#[derive(Debug)]
pub struct ProcessTool {
    table: Arc<ProcessTable>,
}

impl ProcessTool {
    /// A tool over this table.
    #[must_use]
    pub fn new(table: Arc<ProcessTable>) -> Self {
        Self { table }
    }
}

#[derive(Debug)]
enum Action {
    List,
    Poll(Arc<Process>, Duration),
    Write(Arc<Process>, String),
    Kill(Arc<Process>),
}

impl Action {
    fn parse(table: &ProcessTable, arguments: &Value, context: &CallContext) -> Result<Self, ToolFailure> {
        let bad = |text: String| Err(ToolFailure::BadArguments(text));
        let named = || find(table, arguments["id"].as_str().unwrap_or_default(), context);
        match arguments["action"].as_str().unwrap_or_default() {
            "list" => Ok(Self::List),
            "poll" => {
                let seconds = arguments["wait_s"].as_f64().unwrap_or(0.0);
                if !(0.0..=WAIT_S_MAX as f64).contains(&seconds) {
                    return bad(format!("wait_s: {seconds} is not between 0 and {WAIT_S_MAX} seconds"));
                }
                Ok(Self::Poll(named()?, Duration::from_secs_f64(seconds)))
            }
            "write" => match arguments["input"].as_str() {
                None | Some("") => bad("input: give the text to write".into()),
                Some(input) if input.len() > INPUT_BYTES_MAX => bad(format!(
                    "input: it has {} bytes, at most {INPUT_BYTES_MAX} are possible; write it in parts",
                    input.len()
                )),
                Some(input) => Ok(Self::Write(named()?, input.to_owned())),
            },
            "kill" => Ok(Self::Kill(named()?)),
            other => bad(format!("action: '{}' is not list, poll, write or kill", shortened(other, 40))),
        }
    }
}

fn find(table: &ProcessTable, id: &str, context: &CallContext) -> Result<Arc<Process>, ToolFailure> {
    let found = id.parse().ok().and_then(|id| table.get(context.thread_id, id));
    found.ok_or_else(|| {
        let known: Vec<String> =
            table.list(context.thread_id).iter().rev().take(8).map(|process| process.process_id.to_string()).collect();
        let known = if known.is_empty() { "there is none".into() } else { format!("there are {}", known.join(", ")) };
        ToolFailure::BadArguments(format!("id: no process '{}' in this thread; {known}", shortened(id, 60)))
    })
}

impl Tool for ProcessTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "process",
            description: format!(
                "Looks after processes that the shell tool left running. list: all of this thread. poll: output of `id` \
                 since the last poll, waiting up to wait_s seconds (at most {WAIT_S_MAX}) for new output or the end. \
                 write: sends `input` to the standard input of a background process, exactly as given (end lines with a \
                 newline; a last character U+0004 closes the input). kill: ends it with everything it started."
            ),
            schema: json!({
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["list", "poll", "write", "kill"]},
                    "id": {"type": "string", "description": "Process id (prc_…), for all actions but list"},
                    "input": {"type": "string", "description": "For write"},
                    "wait_s": {"type": "number", "minimum": 0, "maximum": WAIT_S_MAX, "description": "For poll"}
                },
                "required": ["action"],
                "additionalProperties": false
            }),
            category: Category::Execute,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let action = Action::parse(&self.table, arguments, context)?;
        let internal = |preview: String| CallPlan { access: vec![Access::Internal], preview, parallel: true };
        Ok(match action {
            Action::List => internal("list processes".into()),
            Action::Poll(process, _) => internal(format!("read the output of `{}`", process.command)),
            Action::Kill(process) => internal(format!("end `{}`", process.command)),
            // What is written may be run: a background shell takes commands. So it is judged as one.
            Action::Write(process, input) => {
                let beyond = context.bounds.wished(process.given).map_err(ToolFailure::Failed)?;
                let preview = format!("write to `{}`:\n{input}", process.command);
                let preview = beyond.as_ref().map_or_else(String::new, |access| heading(access).to_owned()) + &preview;
                let judged = judged(input, &context.cwd, context);
                CallPlan { preview, access: beyond.into_iter().chain(judged).collect(), parallel: false }
            }
        })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let table = Arc::clone(&self.table);
        Box::pin(async move {
            let action = Action::parse(&table, &arguments, &context)?;
            let cancelled = context.cancel.clone();
            tokio::select! {
                result = act(action, &table, &context) => result,
                () = cancelled.cancelled() => Err(ToolFailure::Cancelled),
            }
        })
    }
}

async fn act(action: Action, table: &ProcessTable, context: &CallContext) -> Result<ToolOutput, ToolFailure> {
    match action {
        Action::List => {
            let known = table.list(context.thread_id);
            tokio::task::spawn_blocking(move || list(&known))
                .await
                .map_err(|error| ToolFailure::Failed(format!("the processes could not be listed: {error}")))
        }
        Action::Poll(process, wait) => {
            // When the time is up, what is there is given.
            timeout(wait, process.news()).await.ok();
            Ok(poll(&process))
        }
        Action::Write(process, input) => write(&process, &input).await,
        Action::Kill(process) => {
            let ran = process.stage() < Stage::Gone;
            process.request_kill("by the process tool");
            process.reached(Stage::Gone).await;
            let what = if ran { "Ended" } else { "It had already ended:" };
            Ok(ToolOutput::text(format!("{what} {}. {}", process.process_id, state(&process)), "ended"))
        }
    }
}

/// Where it stands, in words.
fn state(process: &Process) -> String {
    let seconds = process.took().as_secs_f64();
    match (process.stage(), process.end()) {
        (Stage::Running, _) | (_, None) => format!("running for {seconds:.1} s"),
        (Stage::Lingering, Some(end)) => {
            let pids: Vec<String> = process.members().iter().take(8).map(u32::to_string).collect();
            format!("{} after {seconds:.1} s, what it started still runs (pid {})", end.words(), pids.join(", "))
        }
        (Stage::Gone, Some(end)) => format!("{} after {seconds:.1} s", end.words()),
    }
}

fn list(processes: &[Arc<Process>]) -> ToolOutput {
    if processes.is_empty() {
        return ToolOutput::text("No processes in this thread.", "no processes");
    }
    let mut text = String::new();
    for process in processes {
        let (id, pid) = (process.process_id, process.identity().pid);
        // Writing to a String does not fail.
        let (state, used) = (state(process), usage_words(&process.usage()));
        writeln!(text, "{id}  pid {pid}  {state}{used}  {}", process.command.replace('\n', " ")).ok();
    }
    ToolOutput::text(text, format!("{} processes", processes.len()))
}

fn poll(process: &Process) -> ToolOutput {
    let (bytes, left_out) = process.poll(POLL_BYTES_MAX);
    let mut text = String::new();
    if left_out > 0 {
        text = format!("[{left_out} earlier bytes left out]\n");
    }
    text.push_str(&clean(&bytes));
    if bytes.is_empty() {
        text.push_str("(no new output)");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let state = state(process);
    text.push_str(&format!("[{state}]"));
    let exit_code = process.end().and_then(|end| end.code());
    ToolOutput { exit_code, ..ToolOutput::text(text, state) }
}

async fn write(process: &Process, input: &str) -> Result<ToolOutput, ToolFailure> {
    let closing = input.ends_with(END_OF_INPUT);
    let input = input.strip_suffix(END_OF_INPUT).unwrap_or(input);
    let written = timeout(WRITE_WAIT, async {
        process.hosted.write(input.as_bytes()).await?;
        if closing {
            process.hosted.close_input().await;
        }
        Ok(())
    });
    let id = process.process_id;
    match written.await {
        Ok(Ok(())) => {
            let closed = if closing { " and closed its input" } else { "" };
            Ok(ToolOutput::text(
                format!("Wrote {} bytes to {id}{closed}.", input.len()),
                format!("{} bytes", input.len()),
            ))
        }
        Ok(Err(InputError::Closed)) => Err(ToolFailure::Failed(format!(
            "{id} takes no input: it has ended, its input was closed, or it was not started with background: true"
        ))),
        Ok(Err(InputError::Full)) => Err(ToolFailure::Failed(format!("{id} has not read its earlier input yet"))),
        Err(_) => Err(ToolFailure::Failed(format!(
            "{id} did not read its input within {} s; part of it may have been taken",
            WRITE_WAIT.as_secs()
        ))),
    }
}
