//! The task that sees a command through: shows its output, passes on that it has to end, records its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::clean::clean;
use super::process::{End, Process, Stage};
use super::watched::{Watched, warning};
use crate::port::ToolPort;

/// How often people who watch get more output.
const LIVE_EVERY: Duration = Duration::from_millis(100);
/// Most bytes that they get at once; what is beyond is not shown live.
const LIVE_BYTES_MAX: usize = 8 * 1024;
/// How long after a command's end nothing is taken to be left of it before that is looked at.
const GONE_SOON: Duration = Duration::from_millis(20);
/// Most characters of the last output in a notice.
const NOTICE_CHARS_MAX: usize = 2000;
/// Said of a command that nothing is heard of any more.
const LOST: &str = "its end was not seen";

/// Sees a command through. The process is [`Stage::Gone`] when this returns, and its end is recorded. What it planted is
/// dealt with when the command ends, and again when nothing of it runs any more.
pub(super) async fn supervise(process: Arc<Process>, port: Arc<dyn ToolPort>, watched: Option<Arc<Watched>>) {
    let mut progress = process.hosted.progress();
    let mut live = Live { shown: process.shown_from(), next: Instant::now() };
    let mut asked = false;
    let end = loop {
        let now = progress.borrow_and_update().clone();
        if now.gone {
            break process.end_of(&now);
        }
        if let Some(end) = process.end_of(&now) {
            live.show(&process, &*port);
            if process.stage() < Stage::Lingering && watched.is_some() {
                // As a rule all of it is gone at once, and one look is enough.
                if matches!(timeout(GONE_SOON, progress.wait_for(|now| now.gone)).await, Ok(Ok(_))) {
                    continue;
                }
                settle(&process, &*port, watched.as_ref()).await;
            }
            process.advance(Stage::Lingering, end, Duration::from_millis(now.took_ms));
        } else {
            process.changed();
        }
        let more = !process.is_background() && process.stage() == Stage::Running && now.output_bytes > live.shown;
        tokio::select! {
            changed = progress.changed() => if changed.is_err() {
                break None;
            },
            () = sleep_until(live.next), if more => live.show(&process, &*port),
            () = process.kill.cancelled(), if !asked => {
                asked = true;
                process.hosted.end(&process.kill_reason()).await;
            }
        }
    };
    live.show(&process, &*port);
    let end = end.unwrap_or_else(|| End::Lost(LOST.to_owned()));
    let took = Duration::from_millis(progress.borrow().took_ms);
    process.note_end(end.clone(), took);
    settle(&process, &*port, watched.as_ref()).await;
    watched.iter().for_each(|watched| watched.ended());
    let notice = notice(&process, &end, watched.as_deref());
    port.process_exited(process.process_id, end.code(), end.words(), notice).await;
    process.advance(Stage::Gone, end, took);
}

/// Moves aside what the command has planted so far, and tells people.
async fn settle(process: &Process, port: &dyn ToolPort, watched: Option<&Arc<Watched>>) {
    let Some(watched) = watched.map(Arc::clone) else { return };
    if let Some(found) = tokio::task::spawn_blocking(move || watched.settle()).await.unwrap_or_default() {
        port.warn(warning(&process.command, &found)).await;
    }
}

/// What people who watch have seen.
struct Live {
    shown: u64,
    next: Instant,
}

impl Live {
    fn show(&mut self, process: &Process, port: &dyn ToolPort) {
        self.next = Instant::now() + LIVE_EVERY;
        let output = process.hosted.output();
        let (bytes, left_out) = output.since(self.shown, LIVE_BYTES_MAX);
        if bytes.is_empty() || process.is_background() || process.stage() > Stage::Running {
            return;
        }
        // A character that the piece cuts in two waits for its other half.
        let whole = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
            _ => bytes.len(),
        };
        port.output(&clean(&bytes[..whole]));
        self.shown += left_out + whole as u64;
    }
}

/// What the model is told when a background command ended by itself or by its limit.
fn notice(process: &Process, end: &End, watched: Option<&Watched>) -> Option<String> {
    if !process.is_background() || matches!(end, End::Killed(_)) {
        return None;
    }
    let (bytes, _) = process.hosted.output().since(0, 4 * NOTICE_CHARS_MAX);
    let text = clean(&bytes);
    let skip = text.chars().count().saturating_sub(NOTICE_CHARS_MAX);
    let last: String = text.chars().skip(skip).collect();
    let fault = process.hosted.output().fault().map(|fault| format!("What it printed is lost: {fault}."));
    let output = if let Some(fault) = fault {
        fault
    } else if last.trim().is_empty() {
        "It printed nothing.".into()
    } else {
        format!("Its last output:\n{last}")
    };
    let seconds = process.took().as_secs_f64();
    let found = watched.and_then(Watched::found);
    let planted = found.map_or_else(String::new, |found| format!("\n{}", warning(&process.command, &found).text));
    Some(format!(
        "The background process {} (`{}`) has ended: {} ({seconds:.1} s after its start). {output}{planted}",
        process.process_id,
        process.command,
        end.words()
    ))
}
