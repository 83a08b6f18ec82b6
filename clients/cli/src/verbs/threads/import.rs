//! Threads made of files, and of what other agents have left: `mcode threads import`.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mcode_client::json::message_json;
use mcode_client::{Client, ClientError, ErrorKind, v1};
use mcode_text::sanitize_line;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::Form;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{json_line, json_pretty, stderr_line, stderr_text, stdout_line};
use crate::times::local;
use crate::verbs::{Outcome, Page, listing, sentence, show_message};

/// Bytes of a piece.
const CHUNK_BYTES: usize = 256 * 1024;

/// Pieces on their way from the reader.
const CHUNKS_AHEAD: usize = 4;

/// How often it is told how far it is.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// Places that could not be read and are told.
const DAMAGED_TOLD: usize = 5;

/// What is imported.
#[derive(Debug, Args)]
pub(crate) struct What {
    /// The file that mcode threads export has written, or - for standard input; with --from, conversations by their ids
    #[arg(value_name = "FILE|ID")]
    names: Vec<String>,
    /// What another coding agent has left on this machine
    #[arg(long, value_enum, value_name = "AGENT")]
    from: Option<Agent>,
    /// Show what there is
    #[arg(long, requires = "from", conflicts_with_all = ["names", "all", "again"])]
    list: bool,
    /// Everything there is
    #[arg(long, requires = "from", conflicts_with = "names")]
    all: bool,
    /// Make another thread even of what was imported before
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    page: Page,
}

/// Another coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Agent {
    /// Claude Code
    ClaudeCode,
    /// Codex
    Codex,
    /// opencode
    Opencode,
    /// Mastra Code
    MastraCode,
}

impl Agent {
    const fn word(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::MastraCode => "mastra-code",
        }
    }

    const fn wire(self) -> v1::HistoryMaker {
        match self {
            Self::ClaudeCode => v1::HistoryMaker::ClaudeCode,
            Self::Codex => v1::HistoryMaker::Codex,
            Self::Opencode => v1::HistoryMaker::Opencode,
            Self::MastraCode => v1::HistoryMaker::MastraCode,
        }
    }
}

pub(super) async fn import(context: &Context, what: What) -> Outcome {
    match (what.from, &what.names[..]) {
        (Some(agent), _) if what.list => list(context, agent, what.page).await,
        (Some(agent), []) if !what.all => {
            let (message, word) = ("it is not said which conversations are to be imported", agent.word());
            let hint = format!(
                "see what there is with: mcode threads import --from {word} --list; then name some, or give --all"
            );
            Err(ClientError::usage(message).hint(hint).into())
        }
        (Some(agent), _) => histories(context, agent, what).await,
        (None, [name]) => file(context, name, what.again).await,
        (None, names) => {
            let message = if names.is_empty() { "no file was given" } else { "one file is imported at a time" };
            let hint = "give a file that mcode threads export has written, - for standard input, or --from AGENT";
            Err(ClientError::usage(message).hint(hint).into())
        }
    }
}

async fn file(context: &Context, name: &str, again: bool) -> Outcome {
    let source: Box<dyn Read + Send> = match name {
        "-" if io::stdin().is_terminal() => {
            let hint = "pipe a file into it, or name one: mcode threads import FILE";
            return Err(ClientError::usage("nothing is piped in").hint(hint).into());
        }
        "-" => Box::new(io::stdin()),
        name => Box::new(open(Path::new(name))?),
    };
    let client = context.connect().await?;
    let (sender, pieces) = mpsc::channel(CHUNKS_AHEAD);
    let live = context.stderr.live;
    let read = tokio::task::spawn_blocking(move || send(source, again, live, &sender));
    let response = client.import_thread(pieces).await;
    if live {
        stderr_text("\r\u{1b}[K");
    }
    // What the daemon says of a file that could not be read to its end is the smaller half. A reader that waits for its
    // standard input ends with us.
    if name == "-" && response.is_err() && !read.is_finished() {
        response?;
        return Ok(0);
    }
    if let Ok(Err(error)) = read.await {
        let name = if name == "-" { "standard input" } else { name };
        return Err(unreadable(Path::new(name), &error));
    }
    let response = response?;
    let imported = response.imported.clone().unwrap_or_default();
    tell("", &imported);
    show_message(context.form, "ImportThreadResponse", &response, None, || told(&imported))?;
    Ok(0)
}

/// Sends what is read in pieces, until it ends or nobody takes any more.
fn send(
    mut source: impl Read,
    again: bool,
    live: bool,
    sender: &mpsc::Sender<v1::ImportThreadRequest>,
) -> io::Result<()> {
    let (mut sent, mut last) = (0u64, Instant::now());
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        source.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
        let read = chunk.len();
        if sender.blocking_send(v1::ImportThreadRequest { chunk, again }).is_err() || read < CHUNK_BYTES {
            return Ok(());
        }
        sent += read as u64;
        if live && last.elapsed() >= TOLD_EVERY {
            last = Instant::now();
            stderr_text(&format!("\r\u{1b}[K{} MiB are read", sent / (1024 * 1024)));
        }
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    match file.metadata() {
        Ok(meta) if meta.is_dir() => Err(unreadable(path, &io::ErrorKind::IsADirectory.into())),
        _ => Ok(file),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let message = format!("{} can not be read: {error}", path.display());
    ClientError::new(ErrorKind::User, "FILE_UNUSABLE", message)
        .hint("give a file that mcode threads export has written")
        .into()
}

/// What is printed of one that is done.
fn told(imported: &v1::ImportedThread) -> String {
    let thread = imported.thread.clone().unwrap_or_default();
    let id = &thread.thread_id;
    if imported.outcome != "imported" {
        return format!("{id} is there already");
    }
    let what = sentence(&format!("imported {id} \"{}\" ({} events)", thread.title, thread.last_seq));
    format!("{what}\ngo on in it with: mcode ask --thread {id} PROMPT")
}

/// Says on stderr what people should know of one that is done.
fn tell(before: &str, imported: &v1::ImportedThread) {
    for remark in remarks(imported) {
        stderr_line(&sentence(&format!("{before}{remark}")));
    }
}

fn remarks(imported: &v1::ImportedThread) -> Vec<String> {
    let thread = imported.thread.clone().unwrap_or_default();
    let again = "nothing was changed (make another thread of it with --again)";
    match imported.outcome.as_str() {
        "known" => return vec![format!("it was imported before, as {}: {again}", thread.thread_id)],
        "changed" => {
            return vec![format!("it was imported before, as {}, and has changed since: {again}", thread.thread_id)];
        }
        _ => {}
    }
    let mut remarks = Vec::new();
    if !imported.folder_is_here {
        let folder = if thread.cwd.is_empty() {
            "folder is not known".to_owned()
        } else {
            format!("folder {} is not here", thread.cwd)
        };
        let name = &imported.project;
        remarks.push(format!(
            "its {folder}: it is in the project \"{name}\" (a folder joins that with: mcode projects resource {name})"
        ));
    }
    if imported.was_at_work {
        remarks.push("something in it was at work and had no end: it is marked as interrupted".to_owned());
    }
    if imported.missing_bodies > 0 {
        let count = imported.missing_bodies;
        remarks.push(format!("{count} of its pictures and outputs were missing already where it comes from"));
    }
    if !imported.left_out.is_empty() {
        let kinds: Vec<String> = imported.left_out.iter().map(|it| format!("{} ({})", it.what, it.count)).collect();
        remarks.push(format!("left out: {}", kinds.join(", ")));
    }
    for damaged in imported.damaged.iter().take(DAMAGED_TOLD) {
        remarks.push(format!("could not be read: {damaged}"));
    }
    let more = (imported.damaged.len().saturating_sub(DAMAGED_TOLD)) as u64 + imported.more_damaged;
    if more > 0 {
        remarks.push(format!("could not be read: {more} more places"));
    }
    if !imported.earlier_thread_id.is_empty() {
        remarks.push(format!("{} was imported from it before, and stays", imported.earlier_thread_id));
    }
    remarks
}

async fn list(context: &Context, agent: Agent, page: Page) -> Outcome {
    let request =
        v1::ListHistoriesRequest { maker: agent.wire().into(), page_size: page.limit, page_token: page.page_token };
    let response = context.connect().await?.list_histories(request).await?;
    for problem in &response.problems {
        stderr_line(&sentence(problem));
    }
    show_message(context.form, "ListHistoriesResponse", &response, Some("histories"), || {
        let rows: Vec<Vec<String>> = response.histories.iter().map(row).collect();
        let heading = ["ID", "CHANGED", "MESSAGES", "IMPORTED AS", "FOLDER", "TITLE"];
        let none = format!("no conversations of {} were found on this machine", agent.word());
        listing(&heading, &rows, &none, &response.next_page_token)
    })?;
    Ok(0)
}

fn row(history: &v1::History) -> Vec<String> {
    let changed = if history.changed { " (changed since)" } else { "" };
    let messages = if history.messages == 0 { String::new() } else { history.messages.to_string() };
    vec![
        history.id.clone(),
        local(history.updated_at.as_ref()),
        messages,
        format!("{}{changed}", history.thread_id),
        history.cwd.clone(),
        history.title.clone(),
    ]
}

async fn histories(context: &Context, agent: Agent, what: What) -> Outcome {
    let client = context.connect().await?;
    let request =
        v1::ImportHistoryRequest { maker: agent.wire().into(), ids: what.names, all: what.all, again: what.again };
    let (all, failed) = each(context, &client, request).await?;
    if context.form == Form::Json {
        json_pretty(&json!({ "imports": all }))?;
    }
    Ok(u8::from(failed))
}

/// What was done with each, and whether anything failed.
async fn each(
    context: &Context,
    client: &Client,
    request: v1::ImportHistoryRequest,
) -> Result<(Vec<serde_json::Value>, bool), Failure> {
    let mut stream = client.import_history(request).await?;
    let (mut all, mut failed, mut made, mut there) = (Vec::new(), 0u64, 0u64, 0u64);
    while let Some(done) = stream.message().await.map_err(ClientError::from)? {
        let name = sanitize_line(if done.title.is_empty() { &done.id } else { &done.title }).into_owned();
        let before = format!("[{}/{}] {name}: ", done.number, done.total);
        match &done.imported {
            Some(imported) => {
                let is_new = imported.outcome == "imported";
                (made, there) = (made + u64::from(is_new), there + u64::from(!is_new));
                let thread = imported.thread.clone().unwrap_or_default();
                if is_new {
                    stderr_line(&format!("{before}imported"));
                }
                tell(&before, imported);
                if context.form == Form::Text && is_new {
                    stdout_line(&thread.thread_id)?;
                }
            }
            None => {
                failed += 1;
                stderr_line(&sentence(&format!("{before}not imported: {}", done.problem)));
            }
        }
        match context.form {
            Form::Text => {}
            Form::Json => all.push(message_json("ImportHistoryResponse", &done)?),
            Form::Jsonl => json_line(&message_json("ImportHistoryResponse", &done)?)?,
        }
    }
    let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    stderr_line(&format!("{made} imported, {there} there already{failures}"));
    Ok((all, failed > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_sent_whole_and_in_pieces() {
        for length in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let content: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
            let (sender, mut pieces) = mpsc::channel(16);
            send(&content[..], true, false, &sender).unwrap();
            drop(sender);
            let mut all = Vec::new();
            while let Ok(piece) = pieces.try_recv() {
                assert!(piece.again && piece.chunk.len() <= CHUNK_BYTES);
                all.extend(piece.chunk);
            }
            assert_eq!(all, content, "{length}");
        }
    }

    #[test]
    fn what_was_left_out_is_told_in_words() {
        let mut imported =
            v1::ImportedThread { outcome: "imported".into(), folder_is_here: true, ..Default::default() };
        assert!(remarks(&imported).is_empty());
        imported.folder_is_here = false;
        imported.was_at_work = true;
        imported.missing_bodies = 2;
        imported.left_out = vec![v1::LeftOut { what: "signatures".into(), count: 3 }];
        imported.damaged = (0..7).map(|line| format!("line {line}")).collect();
        imported.more_damaged = 4;
        let text = remarks(&imported).join("\n");
        for words in
            ["not known", "interrupted", "2 of its pictures", "left out: signatures (3)", "line 4", "6 more places"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("line 5"));
    }
}
