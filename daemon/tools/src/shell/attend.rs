//! Waiting for a foreground command, and what its call gives.

use std::sync::Arc;
use std::time::Duration;

use mcode_events::blob::Blobs;
use mcode_ids::ThreadId;
use tokio_util::sync::CancellationToken;

use super::process::{End, Process, Stage};
use super::render::render;
use super::table::ProcessTable;
use crate::tool::{ToolFailure, ToolOutput};

/// Most members of a command that are listed.
const LISTED_MAX: usize = 8;

/// For whom a command is attended.
#[derive(Debug, Clone)]
pub struct Attending {
    /// Its thread.
    pub thread_id: ThreadId,
    /// Where long output goes.
    pub blobs: Arc<dyn Blobs>,
    /// Ends the call, and the command with it.
    pub cancel: CancellationToken,
    /// When it goes on in the background, counted from its start; `None` for never.
    pub background_after: Option<Duration>,
}

/// Lines that follow a command's output: whether it failed, and the output, make them. May block.
pub(super) type Remarks = Box<dyn FnOnce(bool, &str) -> String + Send>;

/// Kills a command whose call is dropped before it is known to live on.
#[derive(Debug)]
pub(super) struct KillOnDrop(Option<Arc<Process>>);

impl KillOnDrop {
    pub(super) fn new(process: &Arc<Process>) -> Self {
        Self(Some(Arc::clone(process)))
    }

    fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = self.0.take() {
            process.request_kill("its call was cancelled");
        }
    }
}

/// Waits for a command and gives what its call has to give: at once for one in the background.
///
/// # Errors
/// When the call is cancelled, which ends the command, or its output can not be read.
pub async fn attend(
    process: &Arc<Process>,
    table: &ProcessTable,
    attending: &Attending,
) -> Result<ToolOutput, ToolFailure> {
    attend_guarded(KillOnDrop::new(process), table, attending, Box::new(|_, _| String::new())).await
}

/// [`attend`] for a command that is guarded already.
pub(super) async fn attend_guarded(
    mut guard: KillOnDrop,
    table: &ProcessTable,
    attending: &Attending,
    remarks: Remarks,
) -> Result<ToolOutput, ToolFailure> {
    let Some(process) = &guard.0.clone() else {
        return Err(ToolFailure::Failed("the command is not tended any more".into()));
    };
    if process.is_background() {
        guard.release();
        return Ok(started(process, &blocking(move || remarks(false, "")).await?));
    }
    let long = attending.background_after.and_then(|after| process.began().checked_add(after));
    tokio::select! {
        () = process.reached(Stage::Lingering) => {}
        () = passed(long) => {
            guard.release();
            process.to_background().await;
            let (text, remarks) = output(process, attending, remarks).await?;
            return Ok(moved(process, text, &remarks));
        }
        () = attending.cancel.cancelled() => {
            process.request_kill("its call was cancelled");
            process.reached(Stage::Gone).await;
            table.forget(attending.thread_id, process);
            return Err(ToolFailure::Cancelled);
        }
    }
    guard.release();
    let (text, remarks) = output(process, attending, remarks).await?;
    let members = process.members();
    if members.is_empty() {
        process.reached(Stage::Gone).await;
        table.forget(attending.thread_id, process);
    }
    Ok(finished(process, text, &members, &remarks))
}

async fn passed(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The output as text, and what is to be said after it.
async fn output(
    process: &Arc<Process>,
    attending: &Attending,
    remarks: Remarks,
) -> Result<(String, String), ToolFailure> {
    let (process, blobs) = (Arc::clone(process), Arc::clone(&attending.blobs));
    blocking(move || {
        let text = match process.hosted.output().fault() {
            Some(fault) => format!("[what it printed is lost: {fault}]"),
            None => render(&blobs, process.hosted.output()),
        };
        let failed = process.end().is_some_and(|end| end.code() != Some(0));
        let remarks = remarks(failed, &text);
        (text, remarks)
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ToolFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolFailure::Failed(format!("the output could not be read: {error}")))
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
    // An end without the output is no success: nothing is known of what it said.
    let failed = end.code() != Some(0) || process.hosted.output().fault().is_some();
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

/// A command that took too long to be waited for.
fn moved(process: &Process, mut text: String, remarks: &str) -> ToolOutput {
    let (id, pid, seconds) = (process.process_id, process.identity().pid, process.took().as_secs());
    if text.is_empty() {
        text.push_str("(no output yet)");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!(
        "[it still runs after {seconds} s and goes on in the background as {id} (pid {pid}); you are told when it ends; \
         read its further output with the process tool. It has no terminal and no input: if it waits for a person, as an \
         editor, a pager or a prompt does, it never ends, so kill it there]{remarks}"
    ));
    ToolOutput::text(text, format!("still running after {seconds} s, in the background"))
}
