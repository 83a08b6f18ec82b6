//! The task that sees a command through: reads its output, keeps its time limit, ends its group, records its end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mcode_sandbox::{Child, KILL_GRACE, OutputPipe};
use tokio::time::{Instant, sleep, timeout};

use super::clean::clean;
use super::table::{End, Process, Stage};
use crate::port::ToolPort;

/// How long output is still read after the command has ended, while something else holds the pipe.
const DRAIN: Duration = Duration::from_millis(200);
/// How often people who watch get more output.
const LIVE_EVERY: Duration = Duration::from_millis(100);
/// Most bytes that they get at once; what is beyond is not shown live.
const LIVE_BYTES_MAX: usize = 8 * 1024;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How often it is looked whether what a command left behind still runs.
const LINGER_LOOK: Duration = Duration::from_millis(500);
/// How long to wait for the system to say how a killed command ended.
const REAP_WAIT: Duration = Duration::from_secs(3);
/// Most characters of the last output in a notice.
const NOTICE_CHARS_MAX: usize = 2000;

/// Sees a command through. The process is [`Stage::Gone`] when this returns, and its end is recorded.
pub(super) async fn supervise(
    mut child: Child,
    process: Arc<Process>,
    port: Arc<dyn ToolPort>,
    limit: Option<Duration>,
) {
    let deadline = limit.map(|limit| process.began + limit);
    let output = child.take_output();
    let pump = pump(output, Arc::clone(&process), Arc::clone(&port));
    tokio::pin!(pump);
    let mut pumped = false;
    let mut end = loop {
        tokio::select! {
            () = &mut pump, if !pumped => pumped = true,
            exit = child.wait() => break match exit {
                Ok(state) => End::Exited(state),
                Err(error) => End::Lost(error.to_string()),
            },
            () = passed(deadline) => break End::TimedOut(limit.unwrap_or_default()),
            () = process.kill.cancelled() => break End::Killed(process.kill_reason()),
        }
    };
    if !matches!(end, End::Exited(_)) {
        // Reading goes on meanwhile: a command that writes its last words must not be stuck.
        let ending = async { tokio::join!(process.group.kill(KILL_GRACE), timeout(REAP_WAIT, child.wait())).0 };
        beside(&mut pump, &mut pumped, ending).await;
    }
    if !pumped {
        pumped = timeout(DRAIN, &mut pump).await.is_ok();
    }
    if !process.group.members().is_empty() {
        process.advance(Stage::Lingering, end.clone());
        end = linger(&process, deadline, limit, end, &mut pump, &mut pumped).await;
    }
    process.stdin.lock().await.take();
    let notice = notice(&process, &end);
    port.process_exited(process.process_id, end.code(), end.words(), notice).await;
    process.advance(Stage::Gone, end);
}

/// Waits for the end of what the command left behind.
async fn linger(
    process: &Process,
    deadline: Option<Instant>,
    limit: Option<Duration>,
    end: End,
    pump: &mut (impl Future<Output = ()> + Unpin),
    pumped: &mut bool,
) -> End {
    // A foreground command has met its limit by ending; what it left behind lives as long as its thread.
    let deadline = deadline.filter(|_| process.background);
    loop {
        let was_pumped = *pumped;
        let new_end = tokio::select! {
            () = &mut *pump, if !was_pumped => {
                *pumped = true;
                None
            }
            () = sleep(LINGER_LOOK) => None,
            () = passed(deadline) => Some(End::TimedOut(limit.unwrap_or_default())),
            () = process.kill.cancelled() => Some(End::Killed(process.kill_reason())),
        };
        if let Some(new_end) = new_end {
            beside(pump, pumped, process.group.kill(KILL_GRACE)).await;
            return new_end;
        }
        if process.group.members().is_empty() {
            return end;
        }
    }
}

/// Polls the pump until `main` is done.
async fn beside<T>(pump: &mut (impl Future<Output = ()> + Unpin), pumped: &mut bool, main: impl Future<Output = T>) {
    tokio::pin!(main);
    loop {
        tokio::select! {
            biased;
            () = &mut *pump, if !*pumped => *pumped = true,
            _ = &mut main => return,
        }
        if *pumped {
            main.await;
            return;
        }
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Reads the output until every writer is gone.
async fn pump(output: Option<OutputPipe>, process: Arc<Process>, port: Arc<dyn ToolPort>) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut waiting: Vec<u8> = Vec::new();
    let mut shown = Instant::now();
    loop {
        let read = if waiting.is_empty() {
            Some(output.read(&mut buffer).await)
        } else {
            timeout(LIVE_EVERY, output.read(&mut buffer)).await.ok()
        };
        let count = match read {
            Some(Ok(count)) => count,
            Some(Err(_)) => 0,
            None => {
                show(&mut waiting, &mut shown, &*port);
                continue;
            }
        };
        if count == 0 {
            show(&mut waiting, &mut shown, &*port);
            return;
        }
        process.push(&buffer[..count]);
        if !process.background && process.stage() == Stage::Running {
            let room = LIVE_BYTES_MAX.saturating_sub(waiting.len());
            waiting.extend_from_slice(&buffer[..count.min(room)]);
        }
        if shown.elapsed() >= LIVE_EVERY {
            show(&mut waiting, &mut shown, &*port);
        }
    }
}

fn show(waiting: &mut Vec<u8>, shown: &mut Instant, port: &dyn ToolPort) {
    *shown = Instant::now();
    if waiting.is_empty() {
        return;
    }
    // A character that the chunk cuts in two waits for its other half.
    let whole = match std::str::from_utf8(waiting) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => waiting.len(),
    };
    let whole = if whole == 0 { waiting.len() } else { whole };
    port.output(&clean(&waiting[..whole]));
    waiting.drain(..whole);
}

/// What the model is told when a background command ended by itself or by its limit.
fn notice(process: &Process, end: &End) -> Option<String> {
    if !process.background || matches!(end, End::Killed(_)) {
        return None;
    }
    let (bytes, _) = {
        let state = process.state();
        state.spool.since(0, 4 * NOTICE_CHARS_MAX)
    };
    let text = clean(&bytes);
    let skip = text.chars().count().saturating_sub(NOTICE_CHARS_MAX);
    let last: String = text.chars().skip(skip).collect();
    let output =
        if last.trim().is_empty() { "It printed nothing.".into() } else { format!("Its last output:\n{last}") };
    let seconds = process.began.elapsed().as_secs_f64();
    Some(format!(
        "The background process {} (`{}`) has ended: {} ({seconds:.1} s after its start). {output}",
        process.process_id,
        process.command,
        end.words()
    ))
}
