//! `mcode daemon`: the daemon itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use clap::Subcommand;
use mcode_client::{Client, ClientError, ErrorKind, v1};
use mcode_text::sanitize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::args::Form;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{foreign_text, json_line, json_pretty, stdout_line};
use crate::times::{count, local};
use crate::verbs::{Outcome, show_message};

/// How long the daemon may take to end.
const STOP_WAIT: Duration = Duration::from_secs(60);

/// How often its end, or more of its log, is looked for.
const POLL: Duration = Duration::from_millis(50);

/// Bytes from the end of the log that are looked at for the last lines.
const LOG_TAIL_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What to do with the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonVerb {
    /// Say whether it runs, and what it does
    Status,
    /// Start it, if it does not run
    Start,
    /// End it, and all commands it has started
    Stop {
        /// Interrupt the runs at work
        #[arg(long)]
        force: bool,
    },
    /// End it and start the one that is installed; commands go on
    Restart {
        /// Interrupt the runs at work
        #[arg(long)]
        force: bool,
    },
    /// Print the last lines of its log
    Logs {
        /// Go on with new lines as they come
        #[arg(short, long)]
        follow: bool,
        /// How many lines
        #[arg(short = 'n', long, value_name = "LINES", default_value_t = 200)]
        lines: usize,
    },
}

pub(crate) async fn run(context: &Context, verb: DaemonVerb) -> Outcome {
    match verb {
        DaemonVerb::Status => {
            let client = context.connect_running().await?;
            show_info(context, &client).await
        }
        DaemonVerb::Start => {
            let client = context.connect_started().await?;
            show_info(context, &client).await
        }
        DaemonVerb::Stop { force } => {
            let stopped = stop(context, v1::ShutdownRequest { force, keep_processes: false }).await?;
            let text = if stopped { "the daemon has ended" } else { "no daemon was running" };
            match context.form {
                Form::Text => stdout_line(text)?,
                Form::Json => json_pretty(&json!({"stopped": stopped}))?,
                Form::Jsonl => json_line(&json!({"stopped": stopped}))?,
            }
            Ok(0)
        }
        DaemonVerb::Restart { force } => {
            stop(context, v1::ShutdownRequest { force, keep_processes: true }).await?;
            let client = context.connect_started().await?;
            show_info(context, &client).await
        }
        DaemonVerb::Logs { follow, lines } => logs(&context.dirs.log_file(), lines, follow).await,
    }
}

async fn show_info(context: &Context, client: &Client) -> Outcome {
    let info = client.handshake().await?;
    show_message(context.form, "GetInfoResponse", &info, None, || {
        let mut lines = vec![
            format!("running  version {}, pid {}, since {}", info.version, info.pid, local(info.started_at.as_ref())),
            format!("work     {}, {} in memory", count(info.active_runs, "run"), count(info.loaded_threads, "thread")),
            format!("program  {}", info.executable),
            format!("socket   {}", client.socket().address().display()),
            format!("data     {}", info.database),
            format!("log      {}", info.log_file),
        ];
        lines.push(format!("sandbox  {}", info.sandbox.as_ref().map_or("being tried out", |found| &found.strength)));
        lines.extend(
            info.sandbox.iter().flat_map(|found| &found.lacks).map(|lack| format!("         not held: {lack}")),
        );
        lines.extend(info.config_errors.iter().map(|fault| format!("config   {fault}")));
        sanitize(&lines.join("\n")).into_owned()
    })?;
    Ok(0)
}

/// Ends the daemon and waits until it is gone; `false` when none was there.
pub(crate) async fn stop(context: &Context, request: v1::ShutdownRequest) -> Result<bool, ClientError> {
    let client = match context.connect_running().await {
        Ok(client) => client,
        Err(error) if is_absent(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    match client.shutdown(request).await {
        Ok(_) => {}
        // It went away before its answer did, or was on its way already.
        Err(error) if error.retryable || is_absent(&error) => {}
        Err(error) => return Err(error),
    }
    let deadline = Instant::now() + STOP_WAIT;
    while Instant::now() < deadline {
        match context.connect_running().await {
            Err(error) if is_absent(&error) => return Ok(true),
            _ => sleep(POLL).await,
        }
    }
    let message = format!("the daemon did not end within {} s", STOP_WAIT.as_secs());
    Err(ClientError::new(ErrorKind::Daemon, "DAEMON_STILL_RUNNING", message).hint("see: mcode daemon logs"))
}

fn is_absent(error: &ClientError) -> bool {
    error.reason == "DAEMON_UNREACHABLE" && error.hint.as_deref() == Some("start it with: mcode daemon start")
}

async fn logs(path: &Path, lines: usize, follow: bool) -> Outcome {
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let (tail, mut place) = last_lines(&mut file, lines).map_err(|error| unreadable(path, &error))?;
    if !tail.is_empty() {
        foreign_text(&tail)?;
    }
    if !follow {
        return Ok(0);
    }
    loop {
        sleep(POLL * 5).await;
        // A log that became shorter, or another file, was rotated: the new one is read from its beginning.
        let length = std::fs::metadata(path).map_or(0, |meta| meta.len());
        if length < place {
            place = 0;
        }
        if length > place {
            place = print_from(path, place)?;
        }
    }
}

/// Prints whole lines from a place on; gives the place after the last of them.
fn print_from(path: &Path, mut place: u64) -> Result<u64, Failure> {
    let fault = |error: io::Error| Failure::from(unreadable(path, &error));
    let mut file = File::open(path).map_err(fault)?;
    file.seek(SeekFrom::Start(place)).map_err(fault)?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(fault)?;
        if line.last() != Some(&b'\n') {
            return Ok(place);
        }
        place += length as u64;
        foreign_text(&String::from_utf8_lossy(&line))?;
    }
}

/// The last lines of a file, and where they end.
fn last_lines(file: &mut File, lines: usize) -> io::Result<(String, u64)> {
    let length = file.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(LOG_TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let end = start + bytes.len() as u64;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok((all[all.len().saturating_sub(lines)..].join("\n"), end))
}

fn unreadable(path: &Path, error: &io::Error) -> ClientError {
    let hint = if error.kind() == io::ErrorKind::NotFound {
        "the daemon has not run here yet: start it with: mcode daemon start"
    } else {
        "see who may read it"
    };
    ClientError::new(
        ErrorKind::Daemon,
        "LOG_UNREADABLE",
        format!("the log {} can not be read: {error}", path.display()),
    )
    .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut file = File::open(&path).unwrap();
        assert_eq!(last_lines(&mut file, 2).unwrap(), ("two\nthree".to_owned(), 14));
        assert_eq!(last_lines(&mut file, 9).unwrap().0, "one\ntwo\nthree");
        assert_eq!(last_lines(&mut file, 0).unwrap().0, "");
    }

    #[test]
    fn an_unfinished_line_waits_for_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "whole\nha").unwrap();
        assert_eq!(print_from(&path, 0).unwrap(), 6);
    }
}
