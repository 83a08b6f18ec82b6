//! What deny rules on paths mean on this disk: the files and folders that their patterns stand for.
//!
//! The kernel knows no patterns, so they are replaced by what is there when a command begins, within bounds; what git
//! ignores counts too. A file that has further names (hard links) is looked for by all names that the project has of it,
//! and one that was moved away since the last look by its number. [`Denied::left_out`] says what could not be found out.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use tokio::time::Instant;

use crate::names::{self, Judged, Names};
use crate::policy::{Policy, within};
use crate::remembered::{Files, Identity, Wanted, last, remember};

/// Most folders that are looked through for one command.
const FOLDERS_MAX: usize = 20_000;
/// Longest time that this may take.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Most files and folders that the patterns may stand for.
const FOUND_MAX: usize = 1000;
/// Up to so many files of denied folders are asked one by one whether they have further names.
const ASKED_MAX: usize = 256;
/// Most sets of patterns whose preparation is remembered.
const REMEMBERED_MAX: usize = 64;

/// What deny rules stand for.
#[derive(Debug, Clone, Default)]
pub struct Denied {
    /// Files and folders that may not be read, resolved.
    pub hidden: Vec<PathBuf>,
    /// Files and folders that may not be written, likewise.
    pub fixed: Vec<PathBuf>,
    /// Of `hidden`: those that another rule's words would not fit any more if a folder above them were moved.
    pub pinned: Vec<PathBuf>,
    /// What may not be made and is not there.
    pub absent: Vec<PathBuf>,
    /// The files with further names, by device and number, each with the name that a rule is about.
    pub linked: BTreeMap<(u64, u64), PathBuf>,
    /// Why a policy with all this does not hold everything that the rules are about; empty when it does.
    pub left_out: Vec<String>,
    /// Whether a rule reaches further than the folders that were looked through.
    pub elsewhere: bool,
}

impl Denied {
    /// What patterns stand for. `view` and `edit` are globs for absolute paths, in which `*` stays within a folder;
    /// whatever fits is meant with all below it, and what may not be viewed may not be changed. A pattern that begins
    /// with `/**/` is looked for in `roots`, the folders that are worked in. With `movable`, where commands can move what
    /// they can not read, a file that was moved stays hidden as long as this process lives. Looks at the disk.
    #[must_use]
    pub fn of(view: &[String], edit: &[String], roots: &[PathBuf], movable: bool) -> Self {
        let mut search = Search::new(roots);
        for (globs, reading) in [(view, true), (edit, false)] {
            for glob in globs.iter().filter(|glob| reading || !view.contains(glob)) {
                search.add(glob, reading);
            }
        }
        for (base, patterns) in std::mem::take(&mut search.patterns) {
            search.walk(&base, &patterns);
        }
        search.further_names(movable.then(|| (view.to_vec(), edit.to_vec(), roots.to_vec())));
        search.done()
    }

    /// The name that a rule is about, of a file that may not be touched under other names either.
    #[must_use]
    pub fn original(&self, path: &Path) -> Option<&Path> {
        let id = identity(&path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?)?;
        self.linked.get(&(id.0, id.1)).map(PathBuf::as_path).filter(|original| *original != path)
    }
}

impl Policy {
    /// Adds what deny rules stand for. A folder that may be written loses that as a whole when a rule is about all of it.
    #[must_use]
    pub fn with_denied(mut self, denied: &Denied) -> Self {
        let shut = |root: &PathBuf| within(root, &denied.hidden) || within(root, &denied.fixed);
        let temp = self.temp.clone();
        self.write.retain(|root| *root == temp || !shut(root));
        self.projects.retain(|root| !shut(root));
        self.shown.retain(|path| !within(path, &denied.hidden));
        self.hidden.extend(denied.hidden.iter().cloned());
        self.pinned.extend(denied.pinned.iter().cloned());
        let write = self.write.clone();
        self.fixed.extend(denied.fixed.iter().filter(|path| within(path, &write)).cloned());
        self.absent.extend(denied.absent.iter().filter(|path| within(path, &write)).cloned());
        for paths in [&mut self.hidden, &mut self.fixed, &mut self.pinned] {
            paths.sort();
            paths.dedup();
        }
        self
    }
}

/// Whether this file has further names (hard links).
#[must_use]
pub fn has_further_names(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file() && links(&meta) > 1)
}

/// Patterns below one folder, relative to it.
#[derive(Debug, Default)]
struct Patterns {
    view: Vec<String>,
    edit: Vec<String>,
}

/// The same, ready.
#[derive(Debug)]
struct Matcher {
    view: GlobSet,
    edit: GlobSet,
    /// How many folders deep something may fit.
    depth: usize,
}

static MATCHERS: LazyLock<Mutex<HashMap<u64, Arc<Matcher>>>> = LazyLock::new(Mutex::default);

struct Search<'a> {
    roots: &'a [PathBuf],
    patterns: BTreeMap<PathBuf, Patterns>,
    found: Denied,
    until: Instant,
    folders_left: usize,
    cut: bool,
    many: bool,
}

impl<'a> Search<'a> {
    fn new(roots: &'a [PathBuf]) -> Self {
        Self {
            roots,
            patterns: BTreeMap::new(),
            found: Denied::default(),
            until: Instant::now() + TIME_MAX,
            folders_left: FOLDERS_MAX,
            cut: false,
            many: false,
        }
    }

    fn add(&mut self, glob: &str, reading: bool) {
        let (base, rest) = split(glob);
        let Some(rest) = rest else { return self.literal(&base, reading) };
        // New files that fit could be made anywhere below.
        self.found.elsewhere |= !reading;
        let anywhere = base == Path::new("/") && rest.starts_with("**/");
        self.found.elsewhere |= anywhere;
        let bases = if anywhere { self.roots.to_vec() } else { base.canonicalize().into_iter().collect() };
        for base in bases {
            let patterns = self.patterns.entry(base).or_default();
            let list = if reading { &mut patterns.view } else { &mut patterns.edit };
            list.push(rest.clone());
        }
    }

    /// A pattern that stands for one path.
    fn literal(&mut self, path: &Path, reading: bool) {
        match path.canonicalize() {
            Ok(resolved) => self.hit(resolved, reading, true),
            Err(_) if !reading => {
                self.found.elsewhere = true;
                self.found.absent.push(path.to_path_buf());
            }
            Err(_) => {}
        }
    }

    fn hit(&mut self, path: PathBuf, reading: bool, pinned: bool) {
        if self.found.hidden.len() + self.found.fixed.len() >= FOUND_MAX {
            self.many = true;
        } else if reading {
            self.found.pinned.extend(pinned.then(|| path.clone()));
            self.found.hidden.push(path);
        } else {
            self.found.fixed.push(path);
        }
    }

    /// A link has no content of its own: a file that it leads to in the project is meant.
    fn link(&mut self, link: &Path, reading: bool) {
        let target = link.canonicalize().ok().filter(|target| target.is_file() && within(target, self.roots));
        if let Some(target) = target {
            self.hit(target, reading, true);
        }
    }

    fn next(&mut self) -> bool {
        if self.folders_left == 0 || Instant::now() >= self.until {
            self.cut = true;
            return false;
        }
        self.folders_left -= 1;
        true
    }

    fn walk(&mut self, base: &Path, patterns: &Patterns) {
        let mut hasher = DefaultHasher::new();
        (base, &patterns.view, &patterns.edit).hash(&mut hasher);
        let key = hasher.finish();
        let Some(matcher) = matcher(key, patterns) else { return self.cut = true };
        // Only a name alone (`**/x`) fits wherever it is moved to; of any other the folders above count too.
        let alone = |pattern: &String| pattern.strip_prefix("**/").is_some_and(|name| !name.contains('/'));
        let moved = !patterns.view.iter().all(alone);
        let mut waiting = vec![(base.to_path_buf(), 1)];
        while let Some((folder, depth)) = waiting.pop() {
            if !self.next() {
                return;
            }
            let Some(names) = names::of(&folder) else { continue };
            self.cut |= !names.complete;
            let judged = names.judged(key, |names| judge(names, &matcher, folder.strip_prefix(base).unwrap_or(base)));
            for (list, reading) in [(&judged.view, true), (&judged.edit, false)] {
                for name in list {
                    let path = folder.join(name);
                    if names.links.contains(name) {
                        self.link(&path, reading);
                    } else {
                        self.hit(path, reading, moved);
                    }
                }
            }
            if depth < matcher.depth {
                waiting.extend(judged.below.iter().map(|name| (folder.join(name), depth + 1)));
            }
        }
    }

    /// Looks for further names of what was found, and with `wanted` for what was found last time and was moved.
    fn further_names(&mut self, wanted: Option<Wanted>) {
        let (mut sought, mut known) = (Sought::default(), Vec::new());
        let lists = [(self.found.hidden.clone(), true), (self.found.fixed.clone(), false)];
        for (paths, reading) in lists {
            for path in paths {
                let Ok(meta) = path.symlink_metadata() else { continue };
                if meta.is_dir() {
                    // Nothing has a name both in a folder that can not be written and in a project, or all of the project
                    // is denied.
                    let all = self.roots.iter().all(|root| root.starts_with(&path));
                    if !all && (reading || within(&path, self.roots)) {
                        self.ask_below(&path, reading, &mut sought);
                    }
                } else if let Some(id) = identity(&meta) {
                    known.extend(reading.then(|| (path.clone(), id)));
                    if links(&meta) > 1 {
                        sought.numbers.insert(id.1, (path, reading));
                    }
                }
            }
        }
        let seen = wanted.as_ref().map(last).unwrap_or_default();
        for (path, id) in seen.iter().cloned() {
            if path.symlink_metadata().ok().and_then(|meta| identity(&meta)) != Some(id) {
                sought.moved.insert(id.1, id);
                sought.numbers.insert(id.1, (path, true));
            } else if !self.found.hidden.contains(&path) {
                known.push((path.clone(), id));
                self.hit(path, true, true);
            }
        }
        if !sought.numbers.is_empty() {
            self.seek(&sought, &mut known);
        }
        if let Some(wanted) = wanted {
            remember(wanted, &seen, known, self.cut);
        }
    }

    /// Which files of a denied folder have further names.
    fn ask_below(&mut self, folder: &Path, reading: bool, sought: &mut Sought) {
        let (mut waiting, mut files) = (vec![folder.to_path_buf()], Vec::new());
        while let Some(folder) = waiting.pop() {
            if !self.next() {
                return;
            }
            let Some(names) = names::of(&folder) else { continue };
            files.extend(names.files.iter().map(|(name, number)| (folder.join(name), *number)));
            waiting.extend(names.folders.iter().map(|name| folder.join(name)));
        }
        if files.len() <= ASKED_MAX {
            files.retain(|(path, _)| path.symlink_metadata().is_ok_and(|meta| meta.is_file() && links(&meta) > 1));
        }
        sought.numbers.extend(files.into_iter().map(|(path, number)| (number, (path, reading))));
    }

    fn seek(&mut self, sought: &Sought, known: &mut Files) {
        let mut waiting: Vec<PathBuf> = self.roots.to_vec();
        let denied: HashSet<PathBuf> = self.found.hidden.iter().chain(&self.found.fixed).cloned().collect();
        while let Some(folder) = waiting.pop() {
            if !self.next() {
                return;
            }
            let Some(names) = names::of(&folder) else { continue };
            self.cut |= !names.complete;
            for (name, number) in &names.files {
                if let Some((original, reading)) = sought.numbers.get(number) {
                    let path = folder.join(name);
                    if !denied.contains(&path) {
                        self.another(path, original, *reading, sought, known);
                    }
                }
            }
            let open = |path: &PathBuf| !denied.contains(path);
            waiting.extend(names.folders.iter().map(|name| folder.join(name)).filter(open));
        }
        for (original, _) in sought.numbers.values() {
            if let Some(id) =
                original.symlink_metadata().ok().filter(|meta| links(meta) > 1).as_ref().and_then(identity)
            {
                self.found.linked.entry((id.0, id.1)).or_insert_with(|| original.clone());
            }
        }
    }

    /// A file whose number is sought: another name of a denied file, or that file moved.
    fn another(&mut self, path: PathBuf, original: &Path, reading: bool, sought: &Sought, known: &mut Files) {
        let Some(id) = path.symlink_metadata().ok().as_ref().and_then(identity) else { return };
        let same = original.symlink_metadata().ok().as_ref().and_then(identity) == Some(id);
        if same || sought.moved.get(&id.1) == Some(&id) {
            self.found.linked.insert((id.0, id.1), original.to_path_buf());
            known.extend(reading.then(|| (path.clone(), id)));
            self.hit(path, reading, true);
        }
    }

    fn done(mut self) -> Denied {
        if self.cut {
            self.found.left_out.push(format!(
                "there is more than can be looked through ({FOLDERS_MAX} folders, {} s)",
                TIME_MAX.as_secs()
            ));
        }
        if self.many {
            self.found.left_out.push(format!("they stand for more than {FOUND_MAX} files"));
        }
        let found = &mut self.found;
        for paths in [&mut found.hidden, &mut found.fixed, &mut found.absent] {
            let all: BTreeSet<PathBuf> = paths.drain(..).collect();
            // What lies below another is held with it.
            let below = |path: &Path| path.ancestors().skip(1).any(|folder| all.contains(folder));
            paths.extend(all.iter().filter(|path| !below(path)).cloned());
        }
        self.found
    }
}

/// Numbers of files that are looked for.
#[derive(Debug, Default)]
struct Sought {
    /// With the name that a rule is about, and whether that one may not be read.
    numbers: HashMap<u64, (PathBuf, bool)>,
    /// Those that are not where they were.
    moved: HashMap<u64, Identity>,
}

/// The folder before the first wildcard, and what follows; nothing where the pattern is one path, also with all below.
fn split(glob: &str) -> (PathBuf, Option<String>) {
    let wild = |part: &str| part.contains(['*', '?', '[', '{', '\\']);
    let parts: Vec<&str> = glob.split('/').collect();
    let at = parts.iter().position(|part| wild(part)).unwrap_or(parts.len());
    let base = parts[..at].join("/");
    let base = PathBuf::from(if base.is_empty() { "/" } else { base.as_str() });
    let rest = parts[at..].join("/");
    (base, Some(rest).filter(|rest| !rest.is_empty() && rest != "**"))
}

fn matcher(key: u64, patterns: &Patterns) -> Option<Arc<Matcher>> {
    let mut known = MATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(matcher) = known.get(&key) {
        return Some(Arc::clone(matcher));
    }
    let set = |globs: &[String]| {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            // Of `x/**`, `x` itself is meant too.
            for text in [Some(glob.as_str()), glob.strip_suffix("/**")].into_iter().flatten() {
                let insensitive = cfg!(any(windows, target_os = "macos"));
                let mut glob = GlobBuilder::new(text);
                glob.literal_separator(true).backslash_escape(true).case_insensitive(insensitive);
                set.add(glob.build().ok()?);
            }
        }
        set.build().ok()
    };
    let all = || patterns.view.iter().chain(&patterns.edit);
    let deep = all().any(|glob| glob.contains("**"));
    let depth = if deep { usize::MAX } else { all().map(|glob| glob.split('/').count()).max().unwrap_or(1) };
    let matcher = Arc::new(Matcher { view: set(&patterns.view)?, edit: set(&patterns.edit)?, depth });
    if known.len() >= REMEMBERED_MAX {
        known.clear();
    }
    known.insert(key, Arc::clone(&matcher));
    Some(matcher)
}

fn judge(names: &Names, matcher: &Matcher, folder: &Path) -> Judged {
    let mut judged = Judged::default();
    let mut look = |name: &OsString, is_folder: bool| {
        let path = folder.join(name);
        if matcher.view.is_match(&path) {
            judged.view.push(name.clone());
            return;
        }
        if matcher.edit.is_match(&path) {
            judged.edit.push(name.clone());
        }
        judged.below.extend(is_folder.then(|| name.clone()));
    };
    names.folders.iter().for_each(|name| look(name, true));
    names.files.iter().for_each(|(name, _)| look(name, false));
    names.links.iter().for_each(|name| look(name, false));
    judged
}

#[cfg(unix)]
fn identity(meta: &std::fs::Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    meta.is_file().then(|| (meta.dev(), meta.ino(), meta.created().ok()))
}

#[cfg(not(unix))]
fn identity(_meta: &std::fs::Metadata) -> Option<Identity> {
    None
}

#[cfg(unix)]
fn links(meta: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(meta)
}

#[cfg(not(unix))]
fn links(_meta: &std::fs::Metadata) -> u64 {
    1
}
