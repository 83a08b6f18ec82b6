//! Watching a command for as long as anything of it runs, whichever daemon sees its end.
//!
//! What it planted is moved aside into a folder of its thread, and people are told. What is needed for that is on the
//! disk from before the command's start, so that a daemon that takes the command over goes on watching.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mcode_ids::{ProcessId, ThreadId};
use mcode_sandbox::Watch;
use mcode_sandbox::aside::{Settled, Settlement};

use crate::bounds::{Bounds, TempUse};
use crate::port::Warning;

/// Longest record of a watch that is read, in bytes.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Most files of a kind that are named.
const NAMED_MAX: usize = 20;

/// The watch over one command.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Watch,
    /// Where what was planted goes.
    aside: PathBuf,
    record: Mutex<Option<PathBuf>>,
    found: Mutex<Settlement>,
    /// The thread's temporary files are in use.
    temp: Option<TempUse>,
    /// Nothing of the command runs any more, or it was not begun.
    ended: AtomicBool,
}

impl Watched {
    pub(super) fn new(watch: Watch, aside: PathBuf, temp: TempUse) -> Self {
        Self::over(watch, aside, Some(temp))
    }

    fn over(watch: Watch, aside: PathBuf, temp: Option<TempUse>) -> Self {
        let ended = AtomicBool::new(false);
        Self { watch, aside, record: Mutex::default(), found: Mutex::default(), temp, ended }
    }

    /// There is nothing to watch any more, for any daemon.
    pub(super) fn ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Goes on watching a command of an earlier daemon, if that did. Blocking.
    ///
    /// # Errors
    /// When that daemon's record can not be read; it is gone then.
    pub(super) fn taken_up(
        bounds: &Arc<Bounds>,
        thread: ThreadId,
        process: ProcessId,
    ) -> io::Result<Option<Arc<Self>>> {
        let record = bounds.watches().join(process.to_string());
        let watch = match read(&record) {
            Ok(watch) => watch,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                std::fs::remove_file(&record).ok();
                return Err(error);
            }
        };
        let temp = TempUse::begin(bounds, thread)
            .inspect_err(|error| tracing::warn!(%error, "the temporary files of a command are not held for it"));
        let watched = Self::over(watch, bounds.aside(thread), temp.ok());
        *watched.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
        Ok(Some(Arc::new(watched)))
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

    /// Looks for what changed since the last look, and moves aside what was planted; nothing when there is nothing new.
    /// Blocking.
    pub(super) fn settle(&self) -> Option<Settlement> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = self.watch.settle(&self.aside, &found.settled);
        found.settled.extend(news.settled.iter().cloned());
        // Said once.
        news.cut &= !found.cut;
        found.cut |= news.cut;
        Some(news).filter(worth_telling)
    }

    /// Everything that was found, if anything was.
    pub(super) fn found(&self) -> Option<Settlement> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(found).filter(worth_telling)
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

/// What an earlier daemon has put down.
fn read(record: &Path) -> io::Result<Watch> {
    let file = std::fs::File::open(record)?;
    if file.metadata()?.len() > RECORD_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_reader(io::BufReader::new(file))?)
}

/// What people are told of a command that an earlier daemon watched and this one can not.
pub(super) fn unwatched(command: &str, error: &io::Error) -> Warning {
    Warning {
        text: format!(
            "`{}` was started by an earlier daemon, and what that noted of the files that are run or obeyed outside the \
             sandbox can not be read ({error}). What the command changes of them is not told: look at them before you use \
             git there.",
            command.replace('\n', " ")
        ),
        subject: String::new(),
        moved: false,
    }
}

fn worth_telling(found: &Settlement) -> bool {
    found.cut || !found.settled.is_empty()
}

/// What people are told of changes; `command` was running.
pub(super) fn warning(command: &str, found: &Settlement) -> Warning {
    Warning {
        text: format!(
            "While `{}` ran, {}",
            command.replace('\n', " "),
            words(found, |path| path.display().to_string())
        ),
        subject: listed(found.settled.iter(), &|path| path.display().to_string()),
        moved: found.settled.iter().any(|it| it.moved_to.is_some()),
    }
}

/// The changes in words, as the rest of a sentence and what follows.
pub(super) fn words(found: &Settlement, shown: impl Fn(&Path) -> String) -> String {
    let list =
        |moved: bool| listed(found.settled.iter().filter(|it| it.moved_to.is_some() == moved), &|path| shown(path));
    let (moved, left) = (list(true), list(false));
    let mut text = String::new();
    if !found.settled.is_empty() {
        text.push_str("files changed that are run or obeyed outside the sandbox, or that a deny rule is about.");
    }
    if let Some(folder) = found.settled.iter().find_map(|it| it.moved_to.as_deref()?.parent()) {
        text.push_str(&format!(" New, and moved aside to {}: {moved}.", folder.display()));
    }
    if !left.is_empty() {
        text.push_str(&format!(" Left as they are: {left}."));
    }
    if found.cut {
        let start = if text.is_empty() { "so" } else { " So" };
        text.push_str(start);
        text.push_str(
            " much was made that not all of it could be looked at for what is run or obeyed outside the sandbox.",
        );
    }
    text.push_str(if found.cut {
        " Look at it before you use git there."
    } else {
        " Look at them before you use git there."
    });
    text
}

/// The first of them by name, and how many there are beside.
fn listed<'a>(mut found: impl Iterator<Item = &'a Settled>, shown: &dyn Fn(&Path) -> String) -> String {
    let names: Vec<String> = found.by_ref().take(NAMED_MAX).map(|it| shown(&it.path)).collect();
    match found.count() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
