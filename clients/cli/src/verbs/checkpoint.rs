//! `mcode checkpoint`.

use clap::Subcommand;
use mcode_client::{Client, ClientError, v1};
use mcode_text::{sanitize, sanitize_line};

use crate::context::Context;
use crate::output::stderr_line;
use crate::style::Style;
use crate::times::local;
use crate::verbs::{Outcome, Page, listing, show_message};

/// States that are asked for at once to find one by the beginning of its id.
const FOUND_IN: u32 = 500;

/// What to do with the states of files.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointVerb {
    /// List the states of your files that were kept around what the agent did, newest first
    List {
        /// The thread: its id, the beginning of it, or latest; the latest of this folder without
        #[arg(long, short, value_name = "ID")]
        thread: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Show what the agent has changed since a state; since before its last turn without one
    Diff {
        /// The state: its id, or the beginning of it
        checkpoint: Option<String>,
        /// Only these files, by their paths within the project
        #[arg(long = "file", short, value_name = "PATH")]
        files: Vec<String>,
        /// The thread: its id, the beginning of it, or latest; the latest of this folder without
        #[arg(long, short, value_name = "ID")]
        thread: Option<String>,
    },
    /// Undo what the agent has changed since a state; since before its last turn without one
    #[command(
        after_help = "What you have changed since is left alone, and git's index, branches and stash are not touched.\n\
                      \nExamples:\n  mcode checkpoint restore\n  mcode checkpoint restore --file src/a.rs --hunk 2\n  \
                      mcode checkpoint restore chk_01a2 --dry-run"
    )]
    Restore {
        /// The state: its id, or the beginning of it
        checkpoint: Option<String>,
        /// Only these files or folders, by their paths within the project
        #[arg(long = "file", short, value_name = "PATH")]
        files: Vec<String>,
        /// Only these hunks of the one file, as diff counts them
        #[arg(long = "hunk", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        hunks: Vec<u32>,
        /// Also what you have changed since
        #[arg(long)]
        force: bool,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// The thread: its id, the beginning of it, or latest; the latest of this folder without
        #[arg(long, short, value_name = "ID")]
        thread: Option<String>,
    },
}

pub(crate) async fn run(context: &Context, verb: CheckpointVerb) -> Outcome {
    match verb {
        CheckpointVerb::List { thread, page } => list(context, thread, page).await,
        CheckpointVerb::Diff { checkpoint, files, thread } => diff(context, checkpoint, files, thread).await,
        CheckpointVerb::Restore { checkpoint, files, hunks, force, dry_run, thread } => {
            if !hunks.is_empty() && files.len() != 1 {
                return Err(ClientError::usage("--hunk is about one file: name it with --file").into());
            }
            let picks = files.into_iter().map(|path| v1::RestorePick { path, hunks: hunks.clone() }).collect();
            restore(context, (checkpoint, thread), picks, force, dry_run).await
        }
    }
}

async fn list(context: &Context, thread: Option<String>, page: Page) -> Outcome {
    let client = context.connect().await?;
    let thread_id = meant(context, &client, thread.as_deref()).await?;
    let request = v1::ListCheckpointsRequest { thread_id, page_size: page.limit, page_token: page.page_token };
    let response = client.list_checkpoints(request).await?;
    show_message(context.form, "ListCheckpointsResponse", &response, Some("checkpoints"), || {
        let rows: Vec<Vec<String>> = response.checkpoints.iter().map(row).collect();
        let nothing = match response.off.as_str() {
            "" => "no tool call has changed a file yet".to_owned(),
            why => format!("nothing is kept of this project: {}", sanitize_line(why)),
        };
        listing(&["CHECKPOINT", "KEPT", "BY", "FILES"], &rows, &nothing, &response.next_page_token)
    })?;
    Ok(0)
}

fn row(checkpoint: &v1::Checkpoint) -> Vec<String> {
    let count = checkpoint.added + checkpoint.modified + checkpoint.deleted;
    let mut files: Vec<String> =
        checkpoint.files.iter().take(3).map(|file| format!("{} {}", file.change, file.path)).collect();
    if count as usize > files.len() {
        files.push(format!("{} more", count as usize - files.len()));
    }
    let by = if !checkpoint.tool_call_id.is_empty() {
        "the agent"
    } else if count == 0 {
        "first look"
    } else {
        "somebody else"
    };
    vec![checkpoint.checkpoint_id.clone(), local(checkpoint.created_at.as_ref()), by.to_owned(), files.join(", ")]
}

async fn diff(context: &Context, checkpoint: Option<String>, paths: Vec<String>, thread: Option<String>) -> Outcome {
    let client = context.connect().await?;
    let thread_id = meant(context, &client, thread.as_deref()).await?;
    let checkpoint_id = found(&client, &thread_id, checkpoint.as_deref()).await?;
    let response = client.diff_checkpoint(v1::DiffCheckpointRequest { thread_id, checkpoint_id, paths }).await?;
    let style = Style::of_stdout(context.global.color);
    show_message(context.form, "DiffCheckpointResponse", &response, Some("files"), || {
        let mut lines: Vec<String> = response.files.iter().map(|file| told(file, style)).collect();
        if lines.is_empty() {
            lines.push("nothing was changed since".to_owned());
        }
        if response.left_out > 0 {
            lines.push(format!("({} more files; name those that you want to see with --file)", response.left_out));
        }
        lines.join("\n")
    })?;
    Ok(0)
}

fn told(file: &v1::FileDiff, style: Style) -> String {
    if file.unified.is_empty() {
        return format!("{}: {}", sanitize_line(&file.path), sanitize_line(&file.note));
    }
    let line = |line: &str| {
        let clean = sanitize(line).into_owned();
        match line.as_bytes().first() {
            Some(b'+') => style.green(&clean),
            Some(b'-') => style.red(&clean),
            Some(b'@') => style.dim(&clean),
            _ => clean,
        }
    };
    file.unified.lines().map(line).collect::<Vec<_>>().join("\n")
}

async fn restore(
    context: &Context,
    (checkpoint, thread): (Option<String>, Option<String>),
    picks: Vec<v1::RestorePick>,
    force: bool,
    dry_run: bool,
) -> Outcome {
    let client = context.connect().await?;
    let thread_id = meant(context, &client, thread.as_deref()).await?;
    let checkpoint_id = found(&client, &thread_id, checkpoint.as_deref()).await?;
    let request = v1::RestoreCheckpointRequest { thread_id, checkpoint_id, picks, force, dry_run };
    let response = client.restore_checkpoint(request).await?;
    for conflict in &response.conflicts {
        let how = if conflict.forceable { " (--force brings it back all the same)" } else { "" };
        stderr_line(&sanitize_line(&format!("left alone: {}: {}{how}", conflict.path, conflict.why)));
    }
    show_message(context.form, "RestoreCheckpointResponse", &response, Some("files"), || {
        let would = if dry_run { "would be " } else { "" };
        let mut lines: Vec<String> = response
            .files
            .iter()
            .map(|file| sanitize_line(&format!("{would}{} {}", file.action, file.path)).into_owned())
            .collect();
        if lines.is_empty() {
            let none = if response.conflicts.is_empty() { "nothing had to be" } else { "nothing was" };
            lines.push(format!("{none} brought back"));
        }
        lines.join("\n")
    })?;
    Ok(u8::from(!response.conflicts.is_empty()))
}

/// The thread that is meant: the named one, else that which was worked in last in this folder.
async fn meant(context: &Context, client: &Client, thread: Option<&str>) -> Result<String, ClientError> {
    if let Some(id) = thread {
        return client.thread_id(id).await;
    }
    let cwd = context.cwd()?.to_string_lossy().into_owned();
    let latest = client.get_latest_thread(v1::GetLatestThreadRequest { cwd: cwd.clone() }).await?;
    let thread = latest.thread.ok_or_else(|| {
        ClientError::usage(format!("there is no thread in {cwd}"))
            .hint("name one with --thread; see: mcode threads list")
    })?;
    Ok(thread.thread_id)
}

/// The id of the state that is meant; empty for none.
async fn found(client: &Client, thread_id: &str, text: Option<&str>) -> Result<String, ClientError> {
    let Some(text) = text else { return Ok(String::new()) };
    let mut page_token = String::new();
    let mut fits = Vec::new();
    loop {
        let request = v1::ListCheckpointsRequest { thread_id: thread_id.to_owned(), page_size: FOUND_IN, page_token };
        let page = client.list_checkpoints(request).await?;
        let ids = page.checkpoints.into_iter().map(|it| it.checkpoint_id);
        fits.extend(ids.filter(|id| id.starts_with(text) || id.trim_start_matches("chk_").starts_with(text)));
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    match fits.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(ClientError::usage(format!("{thread_id} has no checkpoint {text}"))
            .hint("list them with: mcode checkpoint list")),
        [first, second, ..] => {
            let message = format!("several checkpoints begin with {text}, such as {first} and {second}");
            Err(ClientError::usage(message).hint("give more of the id"))
        }
    }
}
