//! Threads written to files: `mcode threads export`.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use mcode_client::{ClientError, ErrorKind, v1};
use serde_json::json;

use crate::args::Form;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{json_line, json_pretty, stdout_line};
use crate::verbs::{Outcome, sentence};

/// Reason of a failure to write the file.
const FILE_UNUSABLE: &str = "FILE_UNUSABLE";

/// How a thread is written.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// In which form: everything (thread), to read (markdown), or messages for scripts (json)
    #[arg(long, value_enum, default_value_t = Format::Thread)]
    format: Format,
    /// Take out what looks like a key, a token or a password; not with the form thread, which holds everything
    #[arg(long)]
    redact: bool,
    /// The file to write; standard output without
    // `--output` is the form of what a verb prints.
    #[arg(short = 'o', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long, requires = "file")]
    force: bool,
}

/// In which form a thread is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// mcode's own, lossless
    Thread,
    /// For people to read
    Markdown,
    /// Messages as one JSON document
    Json,
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Markdown => "markdown",
            Self::Json => "json",
        }
    }

    const fn wire(self) -> v1::ExportFormat {
        match self {
            Self::Thread => v1::ExportFormat::Thread,
            Self::Markdown => v1::ExportFormat::Markdown,
            Self::Json => v1::ExportFormat::Messages,
        }
    }
}

pub(super) async fn export(context: &Context, id: &str, how: How) -> Outcome {
    check(&how)?;
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    let request =
        v1::ExportThreadRequest { thread_id: thread_id.clone(), format: how.format.wire().into(), redact: how.redact };
    let mut pieces = client.export_thread(request).await?;
    let Some(path) = &how.file else {
        while let Some(piece) = pieces.message().await.map_err(ClientError::from)? {
            io::stdout().lock().write_all(&piece.chunk)?;
        }
        io::stdout().lock().flush()?;
        return Ok(0);
    };
    let mut file =
        tempfile::Builder::new().prefix(".mcode-").tempfile_in(folder(path)).map_err(|error| unusable(path, &error))?;
    let mut bytes = 0u64;
    while let Some(piece) = pieces.message().await.map_err(ClientError::from)? {
        file.write_all(&piece.chunk).map_err(|error| unusable(path, &error))?;
        bytes += piece.chunk.len() as u64;
    }
    file.as_file().sync_all().map_err(|error| unusable(path, &error))?;
    let kept = if how.force { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map_err(|error| taken(path, &error.error))?;
    // The name has to survive a power loss as the content does; where folders can not be opened, nothing is to be done.
    drop(File::open(folder(path)).and_then(|folder| folder.sync_all()));
    told(context.form, &thread_id, path, how.format, bytes)?;
    Ok(0)
}

/// Refuses what can be seen to fail before anybody is asked.
fn check(how: &How) -> Result<(), Failure> {
    let own = how.format == Format::Thread;
    if own && how.redact {
        return Err(ClientError::usage("the form thread holds everything, so nothing can be taken out of it")
            .hint("use --redact with --format markdown or --format json")
            .into());
    }
    match &how.file {
        None if own && io::stdout().is_terminal() => {
            Err(ClientError::usage("a thread in mcode's own form is not for a terminal")
                .hint("write it to a file with -o FILE, or read it with --format markdown")
                .into())
        }
        Some(path) if !how.force && path.symlink_metadata().is_ok() => {
            Err(taken(path, &io::ErrorKind::AlreadyExists.into()))
        }
        Some(path) if path.is_dir() => Err(unusable(path, &io::ErrorKind::IsADirectory.into())),
        _ => Ok(()),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn taken(path: &Path, error: &io::Error) -> Failure {
    if error.kind() != io::ErrorKind::AlreadyExists {
        return unusable(path, error);
    }
    ClientError::new(ErrorKind::User, FILE_UNUSABLE, format!("{} is there already", path.display()))
        .hint("choose another name, or write over it with --force")
        .into()
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    ClientError::new(ErrorKind::User, FILE_UNUSABLE, format!("{} can not be written: {error}", path.display()))
        .hint("give a file in a folder that you can write to, on a disk with space left")
        .into()
}

fn told(form: Form, thread_id: &str, path: &Path, format: Format, bytes: u64) -> Result<(), Failure> {
    let path = path.display().to_string();
    let value = json!({"thread_id": thread_id, "file": path, "format": format.name(), "size_bytes": bytes});
    match form {
        Form::Text => stdout_line(&sentence(&format!("{thread_id} is in {path} ({bytes} bytes)"))),
        Form::Json => json_pretty(&value),
        Form::Jsonl => json_line(&value),
    }
}
