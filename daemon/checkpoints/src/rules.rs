//! Which files are ignored, as git has it: `.gitignore` from the deepest folder up to the repository's root,
//! `.git/info/exclude`, the user's own list; what git tracks is not ignored. `.ignore` is above these lists and knows no
//! repositories.
//!
//! A repository within the project begins anew: lists of git further up do not count in it. What the lists say is known by
//! a fingerprint, so that a verdict need not be found again while they stay the same; a list is only compiled for a verdict.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::node::Reader;
use crate::path::{as_os, joined};
use crate::scan::Tracked;

/// Bytes of one list that are read.
pub(crate) const LIST_BYTES_MAX: u64 = 1024 * 1024;
/// Lines of one list that count.
const LINES_MAX: usize = 10_000;

/// The hash of all lists that count in a folder.
pub(crate) type Print = [u8; 32];

/// One list of patterns.
#[derive(Debug)]
struct List {
    text: Box<[u8]>,
    compiled: OnceLock<Gitignore>,
}

impl List {
    fn new(text: Vec<u8>) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    /// Whether it ignores a path, or says that it is not to be.
    fn verdict(&self, path: &Path, is_folder: bool) -> Option<bool> {
        match self.compiled.get_or_init(|| compile(&self.text)).matched(path, is_folder) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

fn compile(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n').take(LINES_MAX) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A line that is no pattern counts for nothing, as with git.
        if let Ok(line) = std::str::from_utf8(line) {
            builder.add_line(None, line).ok();
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// The lists that come with one folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// A repository begins here.
    pub(crate) repository: bool,
    /// `.ignore`
    pub(crate) plain: Option<Vec<u8>>,
    /// `.gitignore`
    pub(crate) git: Option<Vec<u8>>,
    /// `.git/info/exclude`
    pub(crate) exclude: Option<Vec<u8>>,
    /// The user's own, at the root of a repository.
    pub(crate) own: Option<Vec<u8>>,
    /// What the repository tracks.
    pub(crate) tracked: Option<Arc<Tracked>>,
}

impl Lists {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What is ignored in a folder and below, until a folder has lists of its own.
#[derive(Debug)]
pub(crate) struct Rules {
    parent: Option<Arc<Rules>>,
    /// Bytes of a path from the project's root that lead to this folder, with the slash.
    strip: usize,
    /// For a folder above the project's root: the way from it to the root, with a slash.
    above: Box<[u8]>,
    print: Print,
    repository: bool,
    plain: Option<List>,
    git: Option<List>,
    exclude: Option<List>,
    own: Option<List>,
    tracked: Option<Arc<Tracked>>,
    /// The folder itself is ignored: so is everything in it but what is tracked.
    all: bool,
}

impl Rules {
    /// Nothing is ignored.
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self::none_of(None))
    }

    fn none_of(parent: Option<Arc<Rules>>) -> Self {
        Self {
            parent,
            strip: 0,
            above: Box::default(),
            print: [0; 32],
            repository: false,
            plain: None,
            git: None,
            exclude: None,
            own: None,
            tracked: None,
            all: false,
        }
    }

    /// The rules in the folder at `path`, which has these lists.
    pub(crate) fn within(self: &Arc<Self>, path: &[u8], lists: Lists) -> Arc<Self> {
        let strip = if path.is_empty() { 0 } else { path.len() + 1 };
        self.with(path, &[], strip, lists)
    }

    /// The rules in a folder above the project's root, which is at `way` from it.
    pub(crate) fn above(self: &Arc<Self>, way: &[u8], lists: Lists) -> Arc<Self> {
        self.with(b"", &joined(way, b""), 0, lists)
    }

    fn with(self: &Arc<Self>, path: &[u8], above: &[u8], strip: usize, lists: Lists) -> Arc<Self> {
        if lists.is_empty() {
            return self.clone();
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.print).update(&[u8::from(lists.repository)]);
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        part(path);
        part(above);
        for list in [&lists.plain, &lists.git, &lists.exclude, &lists.own] {
            // A list that is empty says as much as none.
            part(list.as_deref().unwrap_or_default());
        }
        let list = |text: Option<Vec<u8>>| text.filter(|text| !text.is_empty()).map(List::new);
        Arc::new(Self {
            parent: Some(self.clone()),
            strip,
            above: above.into(),
            print: *hasher.finalize().as_bytes(),
            repository: lists.repository,
            plain: list(lists.plain),
            git: list(lists.git),
            exclude: list(lists.exclude),
            own: list(lists.own),
            tracked: lists.tracked,
            all: false,
        })
    }

    /// The rules in a folder that is ignored itself.
    pub(crate) fn all_ignored(self: &Arc<Self>) -> Arc<Self> {
        if self.all {
            return self.clone();
        }
        let mut rules = Self::none_of(Some(self.clone()));
        rules.all = true;
        rules.print = *blake3::Hasher::new().update(&self.print).update(b"all").finalize().as_bytes();
        Arc::new(rules)
    }

    /// Whether all that is not tracked is ignored here.
    pub(crate) fn ignores_all(&self) -> bool {
        self.all
    }

    /// Whether git tracks a file, or something in a folder, so that it is not ignored whatever the lists say.
    pub(crate) fn tracks(&self, path: &[u8], is_folder: bool) -> bool {
        let mut at = Some(self);
        while let Some(rules) = at {
            if let Some(tracked) = &rules.tracked {
                return tracked.holds(&rules.way(path), is_folder);
            }
            if rules.repository {
                return false;
            }
            at = rules.parent.as_deref();
        }
        false
    }

    /// A path from the folder that these rules came with.
    fn way<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        if self.above.is_empty() {
            return Cow::Borrowed(path.get(self.strip..).unwrap_or_default());
        }
        Cow::Owned([&self.above, path].concat())
    }

    pub(crate) fn print(&self) -> Print {
        self.print
    }

    /// Whether what is at `path`, in the folder of these rules, is ignored.
    pub(crate) fn ignores(&self, path: &[u8], is_folder: bool) -> bool {
        if self.all {
            return true;
        }
        let (mut plain, mut git, mut exclude, mut own) = (None, None, None, None);
        let mut same_repository = true;
        let mut at = Some(self);
        while let Some(rules) = at {
            let way = rules.way(path);
            let Some(way) = as_os(&way) else { return false };
            let verdict = |list: &Option<List>| list.as_ref().and_then(|list| list.verdict(way, is_folder));
            plain = plain.or_else(|| verdict(&rules.plain));
            if same_repository {
                git = git.or_else(|| verdict(&rules.git));
                exclude = exclude.or_else(|| verdict(&rules.exclude));
                own = own.or_else(|| verdict(&rules.own));
            }
            same_repository &= !rules.repository;
            at = rules.parent.as_deref();
        }
        plain.or(git).or(exclude).or(own).unwrap_or(false)
    }
}

/// Lists that a snapshot does not hold as files: kept with it, so that what was ignored then can be told later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Folders above the root, from the top down, by the way from them to the root.
    pub(crate) above: Vec<(Vec<u8>, Lists)>,
    /// Repositories within, by their path; without what their files say.
    pub(crate) within: Vec<(Vec<u8>, Lists)>,
}

impl Outside {
    /// The rules above the project's root.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.above.iter().fold(Rules::none(), |rules, (way, lists)| rules.above(way, lists.clone()))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for part in [&self.above, &self.within] {
            body.extend_from_slice(&(part.len() as u64).to_le_bytes());
            for (path, lists) in part {
                body.push(u8::from(lists.repository));
                let texts = [&lists.plain, &lists.git, &lists.exclude, &lists.own];
                let bytes = texts.map(|text| text.as_deref().unwrap_or_default());
                for field in std::iter::once(path.as_slice()).chain(bytes) {
                    body.extend_from_slice(&(field.len() as u64).to_le_bytes());
                    body.extend_from_slice(field);
                }
            }
        }
        body
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let mut part = || {
            let count = reader.u64()?;
            let mut found = Vec::new();
            for _ in 0..count {
                let repository = reader.u8()? == 1;
                let path = reader.sized()?.to_vec();
                let mut text = || reader.sized().map(|text| (!text.is_empty()).then(|| text.to_vec()));
                let lists =
                    Lists { repository, plain: text()?, git: text()?, exclude: text()?, own: text()?, tracked: None };
                found.push((path, lists));
            }
            Some(found)
        };
        Some(Self { above: part()?, within: part()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(text: &str) -> Lists {
        Lists { git: Some(text.into()), ..Lists::default() }
    }

    #[test]
    fn the_deepest_list_decides_and_ignore_is_above_them_all() {
        let top = Rules::none().within(b"", git("*.log\n/build/\n!keep.log\n"));
        assert!(top.ignores(b"x.log", false) && !top.ignores(b"keep.log", false));
        assert!(top.ignores(b"build", true) && !top.ignores(b"build", false));
        let sub = top.within(b"sub", git("!x.log\r\nbuild\n"));
        assert!(
            !sub.ignores(b"sub/x.log", false) && sub.ignores(b"sub/y.log", false) && sub.ignores(b"sub/build", true)
        );
        let plain = Lists { plain: Some(b"!y.log\n".to_vec()), ..Lists::default() };
        assert!(!sub.within(b"sub/a", plain).ignores(b"sub/a/y.log", false));
    }

    #[test]
    fn a_repository_within_begins_anew() {
        let top = Rules::none().within(b"", git("*.o\n"));
        let lists = Lists { repository: true, exclude: Some(b"own\n".to_vec()), ..Lists::default() };
        let inner = top.within(b"vendor/lib", lists);
        assert!(!inner.ignores(b"vendor/lib/a.o", false) && inner.ignores(b"vendor/lib/own", false));
        let plain = Rules::none().within(b"", Lists { plain: Some(b"*.o\n".to_vec()), ..Lists::default() });
        let inner = plain.within(b"lib", Lists { repository: true, ..Lists::default() });
        assert!(inner.ignores(b"lib/a.o", false), ".ignore knows no repositories");
    }

    #[test]
    fn lists_above_the_root_see_the_whole_way() {
        let above = Rules::none().above(b"packages/app", git("/packages/app/out\n/other\n"));
        assert!(above.ignores(b"out", true) && !above.ignores(b"other", true) && !above.ignores(b"src/out", true));
    }

    #[test]
    fn the_fingerprint_is_that_of_what_is_said() {
        let one = Rules::none().within(b"", git("a\n"));
        assert_eq!(one.print(), Rules::none().within(b"", git("a\n")).print());
        assert_ne!(one.print(), Rules::none().within(b"", git("b\n")).print());
        assert_ne!(
            one.print(),
            Rules::none().within(b"", Lists { plain: Some(b"a\n".to_vec()), ..Lists::default() }).print()
        );
        assert_eq!(one.within(b"x", Lists::default()).print(), one.print());
    }

    #[test]
    fn what_is_outside_is_read_as_it_was_written() {
        let outside = Outside {
            above: vec![(b"sub".to_vec(), git("x\n"))],
            within: vec![(b"".to_vec(), Lists { repository: true, own: Some(b"y".to_vec()), ..Lists::default() })],
        };
        let body = outside.encode();
        assert_eq!(Outside::decode(&body), Some(outside));
        assert!((0..body.len()).all(|end| Outside::decode(&body[..end]).is_none()));
    }

    #[test]
    fn a_list_of_nonsense_ignores_nothing_more() {
        let rules = Rules::none().within(b"", git("[\n\\\n{a,\n**[\n\u{1}\nreal\n"));
        assert!(rules.ignores(b"real", false) && !rules.ignores(b"other", false));
        let long = Rules::none().within(b"", git(&("x\n".repeat(LINES_MAX) + "late\n")));
        assert!(long.ignores(b"x", false) && !long.ignores(b"late", false));
    }
}
