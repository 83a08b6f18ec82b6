//! Tells what was touched in a project since the last look, so that most looks need not be taken.
//!
//! The system tells of changes in the order in which they were made, but a moment later. So before its word counts, a file
//! is made in a folder of the depot that is watched too, and waited for: what was done before that is known then. Folders
//! are watched one by one, those that git ignores not at all. What the watch is not sure of (too much at once, a folder that
//! was moved, a folder that is not watched yet) it says is unknown, and everything is looked at.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::path::{TreePath, as_os, from_os};

/// Folders of one project that are watched at most; a larger project is looked at each time.
pub const WATCHED_MAX: usize = 16_384;
/// Paths that are looked at by themselves; after more of them everything is.
pub const TOUCHED_MAX: usize = 256;
/// How long the system's word is waited for.
const WORD_MAX: Duration = Duration::from_millis(250);

/// What may differ from the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Nothing.
    Nothing,
    /// These, and what is in them.
    Only(Vec<TreePath>),
    /// Anything.
    Unknown,
}

/// Watches of this process, which tell their files apart.
static WATCHES: AtomicU64 = AtomicU64::new(0);

/// A watch over the folders of one project.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    watcher: Mutex<RecommendedWatcher>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    /// Where files are made to be waited for, and how their names begin.
    marks: PathBuf,
    mark: String,
    told: Mutex<Told>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    touched: BTreeSet<TreePath>,
    /// Folders that came since, and are not watched: what is in them may change unseen.
    unwatched: BTreeSet<TreePath>,
    /// Folders that are watched.
    watched: HashSet<PathBuf>,
    /// More was touched than is told, until everything is looked at.
    all: bool,
    /// It speaks of folders by names that they had: another one is needed.
    outdated: bool,
    /// The project is too large for it, or the system has no more watches.
    refused: bool,
    /// The last file that was waited for and seen, and the last one made.
    seen: u64,
    made: u64,
}

impl Watch {
    /// A watch that knows nothing yet; `None` where the system has none to give. `depot` is the depot's folder.
    pub(crate) fn new(root: &Path, depot: &Path) -> Option<Self> {
        // Elsewhere the order of what the system tells was never tried.
        if !cfg!(target_os = "linux") {
            return None;
        }
        let shared = Arc::new(Shared {
            root: root.to_path_buf(),
            // What is left there by a crash is removed by whoever changes the depot next.
            marks: depot.join("new").canonicalize().ok()?,
            mark: format!("mark-{}-{}-", std::process::id(), WATCHES.fetch_add(1, Ordering::Relaxed)),
            told: Mutex::new(Told { all: true, ..Told::default() }),
            news: Condvar::new(),
        });
        let hears = Arc::clone(&shared);
        let mut watcher = notify::recommended_watcher(move |event| hears.hear(event)).ok()?;
        watcher.watch(&shared.marks, RecursiveMode::NonRecursive).ok()?;
        Some(Self { shared, watcher: Mutex::new(watcher) })
    }

    /// Whether it has to be made anew to know anything again.
    pub(crate) fn is_outdated(&self) -> bool {
        self.shared.told().outdated
    }

    /// Whether this project can not be watched.
    pub(crate) fn is_refused(&self) -> bool {
        self.shared.told().refused
    }

    /// Whether it knows nothing of use until everything was looked at.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.told().is_lost()
    }

    /// Everything is looked at now: what was told until here is of no use.
    pub(crate) fn begin_anew(&self) {
        let mut told = self.shared.told();
        told.touched.clear();
        told.all = false;
    }

    /// Which of the folders that a look found are not watched yet. While there are any, everything has to be looked at.
    pub(crate) fn uncovered(&self, folders: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut told = self.shared.told();
        let Told { watched, unwatched, refused, all, .. } = &mut *told;
        {
            let there: HashSet<&PathBuf> = folders.iter().collect();
            watched.retain(|folder| there.contains(folder));
        }
        let is_watched =
            |folder: &TreePath| as_os(folder.as_bytes()).is_some_and(|at| watched.contains(&self.shared.root.join(at)));
        unwatched.retain(|folder| !is_watched(folder));
        *refused |= folders.len() > WATCHED_MAX;
        let new: Vec<PathBuf> = folders.into_iter().filter(|folder| !watched.contains(folder)).collect();
        *all |= !new.is_empty();
        new
    }

    /// Watches these folders of the project too. What was done in them until then is found by the next look, which is a
    /// whole one.
    pub(crate) fn cover(&self, new: Vec<PathBuf>) {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let mut covered = Vec::with_capacity(new.len());
        let mut refused = false;
        for folder in new {
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => covered.push(folder),
                // It is gone already, and its own folder has told so.
                Err(_) if !folder.exists() => {}
                Err(_) => {
                    refused = true;
                    break;
                }
            }
        }
        drop(watcher);
        let mut told = self.shared.told();
        told.watched.extend(covered);
        told.all = true;
        told.refused |= refused;
    }

    /// What may have been touched since the last call, or since the watch began.
    pub(crate) fn touched(&self) -> Touched {
        let heard = !self.shared.told().is_lost() && self.wait_for_word();
        let mut told = self.shared.told();
        if !heard || told.is_lost() {
            told.touched.clear();
            return Touched::Unknown;
        }
        let mut touched = std::mem::take(&mut told.touched);
        touched.extend(told.unwatched.iter().cloned());
        if touched.is_empty() { Touched::Nothing } else { Touched::Only(touched.into_iter().collect()) }
    }

    /// The look that was taken on its word did not come to its end.
    pub(crate) fn doubt(&self) {
        self.shared.told().all = true;
    }

    /// Waits until everything that was done before this call is known; whether it is.
    fn wait_for_word(&self) -> bool {
        let number = {
            let mut told = self.shared.told();
            told.made += 1;
            told.made
        };
        let mark = self.shared.marks.join(format!("{}{number}", self.shared.mark));
        if fs::File::create(&mark).is_err() {
            return false;
        }
        let told = self.shared.told();
        let waited = self.shared.news.wait_timeout_while(told, WORD_MAX, |told| told.seen < number);
        drop(fs::remove_file(&mark));
        waited.is_ok_and(|(told, _)| told.seen >= number)
    }
}

impl Told {
    /// Whether it knows nothing that is of use.
    const fn is_lost(&self) -> bool {
        self.all || self.outdated || self.refused
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the system tells.
    fn hear(&self, event: notify::Result<notify::Event>) {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // It lost count.
            _ => {
                self.told().all = true;
                return;
            }
        };
        if matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write)) {
            return;
        }
        let mut told = self.told();
        for path in &event.paths {
            if let Ok(name) = path.strip_prefix(&self.marks) {
                let number = name.to_str().and_then(|name| name.strip_prefix(&self.mark)?.parse().ok());
                told.seen = told.seen.max(number.unwrap_or_default());
                self.news.notify_all();
            } else {
                self.note(&mut told, path, event.kind);
            }
        }
    }

    fn note(&self, told: &mut Told, path: &Path, kind: EventKind) {
        let below = path.strip_prefix(&self.root).ok().and_then(from_os);
        let Some(tree_path) = below.and_then(|below| TreePath::from_bytes(&below).ok()) else {
            // The root itself, or a name that no snapshot holds.
            told.all |= path == self.root;
            return;
        };
        match kind {
            // From now on it would speak of it by its former name.
            EventKind::Modify(ModifyKind::Name(_)) if told.watched.contains(path) => told.outdated = true,
            EventKind::Remove(_) => {
                told.watched.remove(path);
                told.unwatched.remove(&tree_path);
            }
            EventKind::Create(CreateKind::File) => {}
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_)) if is_folder(path) => {
                told.outdated |= told.unwatched.len() >= TOUCHED_MAX;
                told.unwatched.insert(tree_path.clone());
            }
            _ => {}
        }
        if told.touched.len() >= TOUCHED_MAX {
            told.all = true;
            told.touched.clear();
        }
        told.touched.insert(tree_path);
    }
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}
