//! Watching a command for as long as anything of it runs, whichever daemon sees its end.
//!
//! What it planted is moved aside into a folder of its thread, and people are told. What is needed for that is on the
//! disk from before the command's start, so that a daemon that takes the command over goes on watching.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mcode_ids::{ProcessId, ThreadId};
use mcode_sandbox::Watch;
use mcode_sandbox::aside::Settled;

use crate::bounds::{Bounds, TempUse};
use crate::port::Warning;

/// Longest record of a watch that is read, in bytes.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// The watch over one command.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Watch,
    /// Where what was planted goes.
    aside: PathBuf,
    record: Mutex<Option<PathBuf>>,
    settled: Mutex<Vec<Settled>>,
    /// The thread's temporary files are in use.
    temp: Option<TempUse>,
    /// Nothing of the command runs any more, or it was not begun.
    ended: AtomicBool,
}

impl Watched {
    pub(super) fn new(watch: Watch, aside: PathBuf, temp: TempUse) -> Self {
        let ended = AtomicBool::new(false);
        Self { watch, aside, record: Mutex::default(), settled: Mutex::default(), temp: Some(temp), ended }
    }

    /// There is nothing to watch any more, for any daemon.
    pub(super) fn ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Goes on watching a command of an earlier daemon, if that did.
    pub(super) fn taken_up(bounds: &Arc<Bounds>, thread: ThreadId, process: ProcessId) -> Option<Arc<Self>> {
        let record = bounds.watches().join(process.to_string());
        let small = record.metadata().is_ok_and(|found| found.is_file() && found.len() <= RECORD_BYTES_MAX);
        let watch: Watch = serde_json::from_slice(&std::fs::read(&record).ok().filter(|_| small)?).ok()?;
        let watched = Self::new(watch, bounds.aside(thread), TempUse::begin(bounds, thread).ok()?);
        *watched.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
        Some(Arc::new(watched))
    }

    /// Puts down how things were, for the next daemon. What can not be put down is watched by this one only. Blocking.
    pub(super) fn put_down(&self, bounds: &Bounds, process: ProcessId) {
        let record = bounds.watches().join(process.to_string());
        // Not synced: it has to survive the daemon, not the machine, whose commands do not survive either.
        let written = mcode_env::files::create_private_dir(&bounds.watches())
            .and_then(|()| std::fs::File::create(&record)?.write_all(&serde_json::to_vec(&self.watch)?));
        if let Err(error) = &written {
            tracing::warn!(%error, "what a command plants is not watched by another daemon");
        }
        *self.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
    }

    /// Looks for what changed since the last look, and moves aside what was planted. Blocking.
    pub(super) fn settle(&self) -> Vec<Settled> {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let news = self.watch.settle(&self.aside, &settled);
        settled.extend(news.iter().cloned());
        news
    }

    /// Everything that was found.
    pub(super) fn found(&self) -> Vec<Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let record = self.record.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match record {
            // The daemon ends and leaves the command, with its folder, to the next.
            Some(_) if !self.ended.load(Ordering::Relaxed) => self.temp.take().into_iter().for_each(std::mem::forget),
            // It is not there when it could not be put down.
            Some(record) => drop(std::fs::remove_file(record)),
            None => {}
        }
    }
}

/// What people are told of changes; `command` was running.
pub(super) fn warning(command: &str, found: &[Settled]) -> Warning {
    let names: Vec<String> = found.iter().map(|it| it.path.display().to_string()).collect();
    Warning {
        text: format!(
            "While `{}` ran, {}",
            command.replace('\n', " "),
            words(found, |path| path.display().to_string())
        ),
        subject: names.join(", "),
        moved: found.iter().any(|it| it.moved_to.is_some()),
    }
}

/// The changes in words, as the rest of a sentence and what follows.
pub(super) fn words(found: &[Settled], shown: impl Fn(&Path) -> String) -> String {
    let list = |moved: bool| {
        let of_kind = found.iter().filter(|it| it.moved_to.is_some() == moved);
        of_kind.map(|it| shown(&it.path)).collect::<Vec<_>>().join(", ")
    };
    let (moved, left) = (list(true), list(false));
    let mut text = "files changed that are run or obeyed outside the sandbox, or that a deny rule is about.".to_owned();
    if let Some(folder) = found.iter().find_map(|it| it.moved_to.as_deref()?.parent()) {
        text.push_str(&format!(" New, and moved aside to {}: {moved}.", folder.display()));
    }
    if !left.is_empty() {
        text.push_str(&format!(" Left as they are: {left}."));
    }
    text.push_str(" Look at them before you use git there.");
    text
}
