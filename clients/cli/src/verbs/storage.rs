//! What `mcode doctor` does about what is kept: `--db`, `--mend`, `--retention`, `--backup`, `--restore`.

mod retention;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Args;
use mcode_client::{ClientError, ErrorKind, v1};
use mcode_text::{sanitize, sanitize_line};
use serde_json::Value;

use crate::args::Form;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{json_line, json_pretty, stderr_line, stderr_text, stdout_line};
use crate::terminal;
use crate::verbs::{Outcome, daemon, show_message};

/// Faults that are printed of one kind; more are counted.
const PRINTED_MAX: usize = 20;

/// Projects whose use of space is printed.
const PROJECTS_PRINTED_MAX: usize = 10;

/// The exit status when something of what is kept is damaged, as of a thread that cannot be gone on with.
const DAMAGED: u8 = 70;

/// What is kept on the disk.
#[derive(Debug, Args)]
pub(crate) struct StorageArgs {
    /// Look through everything that is kept: what is damaged, what still works, what takes space
    #[arg(long)]
    pub(crate) db: bool,
    /// With --db: set aside what is damaged, so that its threads can be gone on with
    #[arg(long, requires = "db")]
    pub(crate) mend: bool,
    /// With --db: show which threads the policy of [threads] lets go, why, when, and how many bytes go with them
    #[arg(long, requires = "db", conflicts_with = "mend")]
    pub(crate) retention: bool,
    /// With --mend: give up stored bodies even where their folder looks as if it were not mounted
    #[arg(long, requires = "mend")]
    pub(crate) force: bool,
    /// Write a copy of everything into a new file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["db", "restore"])]
    pub(crate) backup: Option<PathBuf>,
    /// Bring a copy back; what is there now is kept beside it
    #[arg(long, value_name = "FILE", conflicts_with = "db")]
    pub(crate) restore: Option<PathBuf>,
    /// Do not ask before changing anything
    #[arg(long)]
    pub(crate) yes: bool,
}

impl StorageArgs {
    /// What was asked for; `None` when it is not about what is kept.
    pub(crate) async fn run(&self, context: &Context) -> Option<Outcome> {
        if let Some(path) = &self.backup {
            return Some(back_up(context, path).await);
        }
        if let Some(path) = &self.restore {
            return Some(restore(context, path, self.yes).await);
        }
        if self.retention {
            return Some(retention::show(context).await);
        }
        match (self.db, self.mend) {
            (true, true) => Some(mend(context, self.yes, self.force).await),
            (true, false) => Some(check(context).await),
            (false, _) => None,
        }
    }
}

async fn check(context: &Context) -> Outcome {
    let client = context.connect().await?;
    let found = client.check_storage(v1::CheckStorageRequest {}).await?;
    let leaving = client.show_retention(v1::ShowRetentionRequest {}).await?;
    show_message(context.form, "CheckStorageResponse", &found, Some("faults"), || {
        let leaving = retention::brief(&leaving).map(|line| format!("{line}\n")).unwrap_or_default();
        format!("{leaving}{}", report(&found))
    })?;
    Ok(if found.faults.is_empty() { 0 } else { DAMAGED })
}

async fn mend(context: &Context, yes: bool, bodies_are_lost: bool) -> Outcome {
    let client = context.connect().await?;
    let found = client.check_storage(v1::CheckStorageRequest {}).await?;
    if found.faults.is_empty() && found.orphans == 0 {
        show_message(context.form, "MendStorageResponse", &v1::MendStorageResponse::default(), None, || {
            "nothing is damaged: nothing was changed".to_owned()
        })?;
        return Ok(0);
    }
    if !yes {
        stderr_line(&report(&found));
        let what = "What cannot be read would be set aside (nothing is thrown away), and its threads go on without it";
        if !confirmed(what, "Mend it?").await? {
            stderr_line("nothing was changed");
            return Ok(1);
        }
    }
    let mended = client.mend_storage(v1::MendStorageRequest { bodies_are_lost }).await?;
    let left = client.check_storage(v1::CheckStorageRequest {}).await?;
    show_message(context.form, "MendStorageResponse", &mended, None, || mended_text(&mended, &left))?;
    Ok(if left.faults.is_empty() { 0 } else { DAMAGED })
}

async fn back_up(context: &Context, path: &Path) -> Outcome {
    let path = absolute(context, path)?;
    let client = context.connect().await?;
    let request = v1::BackUpRequest { path: path.to_string_lossy().into_owned() };
    let copy = client.back_up(request).await?;
    show_message(context.form, "BackUpResponse", &copy, None, || {
        let missing = match copy.missing_bodies {
            0 => String::new(),
            missing => format!("; {} were not there and are not in it", many(missing, "body", "bodies")),
        };
        let (threads, bodies) = (many(copy.threads, "thread", "threads"), many(copy.bodies, "body", "bodies"));
        sanitize(&format!("{} holds {threads} and {bodies}, {}{missing}", path.display(), size(copy.bytes)))
            .into_owned()
    })?;
    Ok(0)
}

async fn restore(context: &Context, path: &Path, yes: bool) -> Outcome {
    let path = absolute(context, path)?;
    // Nothing is asked and nothing ended for a name that is mistyped.
    if !path.is_file() {
        return Err(failed(format!("there is no file {}; nothing was changed", path.display())));
    }
    let what = format!(
        "All threads would be replaced by those of {}; what is there now is put into a folder beside, and commands that run \
         in the background end",
        sanitize_line(&path.display().to_string())
    );
    if !yes && !confirmed(&what, "Bring the copy back?").await? {
        stderr_line("nothing was changed");
        return Ok(1);
    }
    // The daemon holds the data; it refuses while runs are at work.
    let stopped = daemon::stop(context, v1::ShutdownRequest { force: false, keep_processes: false }).await;
    stopped.map_err(|error| match error.reason.as_str() {
        "RUNS_ACTIVE" => {
            error.hint("wait for it, or end it first with: mcode runs cancel RUN (mcode runs list names it)")
        }
        _ => error,
    })?;
    let program = mcode_endpoint::find_program()
        .map_err(|error| ClientError::new(ErrorKind::Daemon, "DAEMON_UNREACHABLE", error.to_string()))?;
    let output = run(program, path).await.map_err(|error| failed(format!("mcoded cannot be run: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.trim().trim_start_matches("mcoded: ");
        if why.is_empty() {
            let ended = format!("the copy could not be brought back: mcoded ended early ({})", output.status);
            return Err(ClientError::new(ErrorKind::Daemon, "NOT_RESTORED", ended)
                .hint("what was begun is finished or taken back by the next start: look with mcode doctor --db")
                .into());
        }
        return Err(failed(why.to_owned()));
    }
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match context.form {
        Form::Text => stdout_line(&restored_text(&told))?,
        Form::Json => json_pretty(&told)?,
        Form::Jsonl => json_line(&told)?,
    }
    Ok(0)
}

fn failed(message: String) -> Failure {
    ClientError::new(ErrorKind::User, "NOT_RESTORED", message)
        .hint("give a file that mcode doctor --backup has written")
        .into()
}

#[allow(clippy::disallowed_methods, reason = "the daemon has ended, and its program alone may touch its data")]
async fn run(program: PathBuf, archive: PathBuf) -> std::io::Result<std::process::Output> {
    let run = move || std::process::Command::new(program).arg("--restore").arg(archive).stdin(Stdio::null()).output();
    tokio::task::spawn_blocking(run).await.map_err(std::io::Error::other)?
}

fn absolute(context: &Context, path: &Path) -> Result<PathBuf, Failure> {
    Ok(if path.is_absolute() { path.to_path_buf() } else { Path::new(&context.cwd()?).join(path) })
}

/// Asks the person at the terminal; where there is none, nothing is done without `--yes`.
async fn confirmed(what: &str, question: &str) -> Result<bool, Failure> {
    if !terminal::is_there() {
        return Err(ClientError::new(ErrorKind::User, "NOT_CONFIRMED", what).hint("say so with --yes").into());
    }
    stderr_text(&format!("{what}.\n{question} y: yes, anything else: no > "));
    let line = tokio::task::spawn_blocking(terminal::line).await.unwrap_or_default();
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn many(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1000),
        10_000_000..=9_999_999_999 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

fn report(found: &v1::CheckStorageResponse) -> String {
    let looked = format!(
        "looked through {}, {} and {}",
        many(found.threads, "thread", "threads"),
        many(found.events, "event", "events"),
        many(found.bodies, "body", "bodies"),
    );
    let mut lines = vec![looked];
    for kind in ["database", "event", "body", "list", "index"] {
        let faults: Vec<&v1::StorageFault> = found.faults.iter().filter(|fault| fault.kind == kind).collect();
        lines.extend(faults.iter().take(PRINTED_MAX).map(|fault| format!("damaged  {}", fault_text(fault))));
        if faults.len() > PRINTED_MAX {
            lines.push(format!("         and {} more of that kind", faults.len() - PRINTED_MAX));
        }
    }
    if found.more_faults > 0 {
        lines.push(format!("         and {} more", found.more_faults));
    }
    lines.extend(space_lines(found));
    lines.extend(conclusion(found));
    sanitize(&lines.join("\n")).into_owned()
}

fn fault_text(fault: &v1::StorageFault) -> String {
    let of = if fault.thread_id.is_empty() { String::new() } else { format!(" of {}", fault.thread_id) };
    match fault.kind.as_str() {
        "event" => format!("event {}{of}: {}", fault.seq, fault.what),
        "body" if of.is_empty() => fault.what.clone(),
        "body" => format!("{} (named by events{of})", fault.what),
        "list" => format!("the lists' row{of}: {}", fault.what),
        "index" => fault.what.clone(),
        _ => format!("the file itself: {}", fault.what),
    }
}

fn space_lines(found: &v1::CheckStorageResponse) -> Vec<String> {
    let mut lines = vec![format!(
        "space    database {}, of it free {}, index of what was said {}",
        size(found.database_bytes),
        size(found.free_bytes),
        size(found.index_bytes)
    )];
    for place in &found.places {
        let least = if place.more { "at least " } else { "" };
        lines.push(format!("         {} {least}{}: {}", place.what, size(place.bytes), place.path));
    }
    for row in found.r#use.iter().take(PROJECTS_PRINTED_MAX) {
        let root = if row.root.is_empty() { &row.project_id } else { &row.root };
        let threads = many(row.threads, "thread", "threads");
        let mut parts = vec![("events", row.log_bytes), ("bodies", row.body_bytes)];
        let others = [("checkpoints", row.checkpoint_bytes), ("temporary files", row.temporary_bytes)];
        parts.extend(others.into_iter().filter(|(_, bytes)| *bytes > 0));
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let parts: Vec<String> = parts.into_iter().map(|(what, bytes)| format!("{what} {}", size(bytes))).collect();
        lines.push(format!("         {root}: {threads}, {}", parts.join(", ")));
    }
    if found.orphans > 0 {
        lines.push(format!(
            "         {} that nobody names, {}",
            many(found.orphans, "body", "bodies"),
            size(found.orphan_bytes)
        ));
    }
    if found.set_aside > 0 {
        lines.push(format!("aside    {} set aside by earlier mending", many(found.set_aside, "event", "events")));
    }
    lines
}

fn conclusion(found: &v1::CheckStorageResponse) -> Vec<String> {
    let is = |kind: &str| found.faults.iter().any(|fault| fault.kind == kind);
    if found.faults.is_empty() {
        return vec!["all of it is whole".to_owned()];
    }
    let mut lines = Vec::new();
    if is("event") {
        lines.push(
            "All other events can be read; a thread with a damaged one takes no new ones until it is mended.".into(),
        );
    }
    if is("database") {
        lines.push(
            "The file has lost parts that cannot be mended: bring a copy back with: mcode doctor --restore FILE".into(),
        );
    } else {
        lines.push("mend it: mcode doctor --db --mend (a copy first: mcode doctor --backup FILE)".into());
    }
    lines
}

fn mended_text(mended: &v1::MendStorageResponse, left: &v1::CheckStorageResponse) -> String {
    let mut lines = Vec::new();
    let mut tell = |count: u64, line: String| {
        if count > 0 {
            lines.push(line);
        }
    };
    tell(mended.set_aside, format!("set aside {} that could not be read", many(mended.set_aside, "event", "events")));
    tell(mended.lost_bodies, format!("{} lost", many(mended.lost_bodies, "body is", "bodies are")));
    let threads = mended.thread_ids.len() as u64;
    tell(threads, format!("made the lists' rows anew of {}", many(threads, "thread", "threads")));
    let orphans = many(mended.orphans, "body", "bodies");
    tell(mended.orphans, format!("removed {orphans} that nobody named, {}", size(mended.orphan_bytes)));
    tell(u64::from(mended.index_rebuilt), "what was said is being indexed anew".to_owned());
    if left.faults.is_empty() {
        lines.push("all of it is whole".to_owned());
    } else {
        lines.push("what is left:".to_owned());
        lines.push(report(left));
    }
    lines.join("\n")
}

fn restored_text(told: &Value) -> String {
    let number = |key: &str| told[key].as_u64().unwrap_or(0);
    let mut text = format!(
        "brought back {} and {}",
        many(number("threads"), "thread", "threads"),
        many(number("bodies"), "body", "bodies")
    );
    if let Some(former) = told["former"].as_str() {
        text.push_str(&format!("; what was there before is in {former}"));
    }
    sanitize(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: &str, seq: u64, what: &str) -> v1::StorageFault {
        v1::StorageFault { kind: kind.into(), thread_id: "thr_1".into(), seq, what: what.into() }
    }

    #[test]
    fn a_report_says_what_is_wrong_what_works_and_what_to_do() {
        let mut found = v1::CheckStorageResponse { threads: 1, events: 2, ..Default::default() };
        assert!(report(&found).ends_with("all of it is whole"));
        found.faults = (1..=30).map(|seq| fault("event", seq, "its content\u{1b} does not match")).collect();
        let text = report(&found);
        assert!(text.contains("damaged  event 1 of thr_1: its content"), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("and 10 more of that kind"), "{text}");
        assert!(text.contains("All other events can be read") && text.contains("--mend"), "{text}");
        found.faults.push(fault("database", 0, "page 3 is torn"));
        assert!(report(&found).contains("--restore FILE"));
    }
}
