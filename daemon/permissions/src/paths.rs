//! Patterns for paths, and which places matter.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use globset::{Candidate, GlobBuilder, GlobMatcher};

use crate::words::Word;

/// The folders that patterns and defaults are relative to. All absolute and resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) project_root: &'a Path,
    pub(crate) extra_dirs: &'a [PathBuf],
    pub(crate) home: Option<&'a Path>,
}

impl Places<'_> {
    /// Whether a path is in the project or a folder that the run was given.
    pub(crate) fn inside(&self, path: &Path) -> bool {
        path.starts_with(self.project_root) || self.extra_dirs.iter().any(|folder| path.starts_with(folder))
    }
}

/// What a pattern is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Project,
    Home,
    Absolute,
}

/// A glob for paths; `*` stays within one folder, `**` does not.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern {
    base: Base,
    glob: String,
    /// What everything that fits begins with; most paths are told apart by that alone. Empty where case does not matter.
    head: String,
    exact: GlobMatcher,
    below: GlobMatcher,
    /// Of `x/**` and `x/`: `x` itself.
    folder: Option<GlobMatcher>,
    anywhere: bool,
}

/// A path as it is called in a folder; `None` when it lies elsewhere. Both are absolute and resolved, so that texts can be
/// compared, which takes a small part of the time that going through the parts does.
fn beneath<'a>(path: &'a Path, folder: &Path) -> Option<Cow<'a, str>> {
    let texts = path.to_str().zip(folder.to_str()).filter(|_| cfg!(unix));
    let Some((text, folder)) = texts else { return path.strip_prefix(folder).ok().map(Path::to_string_lossy) };
    let rest = text.strip_prefix(folder.trim_end_matches('/'))?;
    let inside = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
    Some(Cow::Borrowed(inside.trim_end_matches('/')))
}

/// The plain beginning of a glob, without a slash at its end: `src` of `src/**`.
fn head_of(glob: &str) -> &str {
    let end = glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len());
    glob[..end].trim_end_matches('/')
}

impl PathPattern {
    /// Reads a pattern: relative to the project, absolute, or beginning with `~/`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.split(['/', '\\']).any(|part| part == "..") {
            return Err("a path pattern must not hold '..'; write the absolute path".into());
        }
        if text.contains('$') {
            return Err("a path pattern knows no variables; write the path itself, or begin it with '~/'".into());
        }
        // Nothing but plain names: a rule that silently fits nothing would hold nothing.
        let plain: Vec<&str> = text
            .split('/')
            .enumerate()
            .filter(|(at, part)| *part != "." && (*at == 0 || !part.is_empty()))
            .map(|(_, part)| part)
            .collect();
        // The slash at the end says that a folder is meant; alone it is the root.
        let text = plain.join("/") + if text.ends_with('/') { "/" } else { "" };
        let text = text.as_str();
        let (base, rest) = match text.strip_prefix("~/") {
            Some(rest) => (Base::Home, rest),
            None if text == "~" => (Base::Home, "**"),
            None if text.starts_with('/') || Path::new(text).is_absolute() => (Base::Absolute, text),
            None => (Base::Project, text),
        };
        let folder = rest.len() > 1 && rest.ends_with('/');
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let rest = if matches!(rest, "" | ".") { "**" } else { rest };
        let glob = |text: &str| {
            GlobBuilder::new(text)
                .literal_separator(true)
                .backslash_escape(true)
                .case_insensitive(cfg!(any(windows, target_os = "macos")))
                .build()
                .map(|glob| glob.compile_matcher())
                .map_err(|error| error.kind().to_string())
        };
        let below = glob(&format!("{rest}/**"))?;
        let exact = if folder { below.clone() } else { glob(rest)? };
        let anywhere = base == Base::Project && rest.starts_with("**/");
        let named = if folder { Some(rest) } else { rest.strip_suffix("/**").filter(|folder| !folder.is_empty()) };
        let folder = named.map(glob).transpose()?;
        let head = if cfg!(any(windows, target_os = "macos")) { "" } else { head_of(rest) };
        Ok(Self { base, glob: rest.to_owned(), head: head.to_owned(), exact, below, folder, anywhere })
    }

    /// The pattern as a glob for absolute paths; `None` when the folder that it is relative to is not known.
    pub(crate) fn absolute_glob(&self, places: &Places<'_>) -> Option<String> {
        let folder = match self.base {
            _ if self.anywhere => return Some(format!("/{}", self.glob)),
            Base::Absolute => return Some(self.glob.clone()),
            Base::Project => places.project_root,
            Base::Home => places.home?,
        };
        let folder = globset::escape(folder.to_string_lossy().trim_end_matches('/'));
        Some(format!("{folder}/{}", self.glob))
    }

    /// Whether it fits in any folder, as `**/x` does.
    pub(crate) const fn is_anywhere(&self) -> bool {
        self.anywhere
    }

    /// Whether something in this folder, however deep, may fit, as far as can be told without looking.
    pub(crate) fn may_fit_below(&self, folder: &Path, places: &Places<'_>) -> bool {
        let root = match self.base {
            _ if self.anywhere => return true,
            Base::Absolute => Path::new("/"),
            Base::Project => places.project_root,
            Base::Home => match places.home {
                Some(home) => home,
                None => return false,
            },
        };
        let glob = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
        let literal: PathBuf = self.glob.split('/').take_while(glob).filter(|part| !part.is_empty()).collect();
        let literal = root.join(literal);
        literal.starts_with(folder) || folder.starts_with(&literal)
    }

    /// Whether the path fits. `wide` is for rules that restrict: what is below a named folder fits too, so does the folder
    /// of `x/**`, and `**/x` fits outside the project.
    pub(crate) fn matches(&self, path: &Path, places: &Places<'_>, wide: bool) -> bool {
        let relative = match self.base {
            Base::Project => beneath(path, places.project_root),
            Base::Home => places.home.and_then(|home| beneath(path, home)),
            Base::Absolute => Some(path.to_string_lossy()),
        };
        let fits = |text: Cow<'_, str>| {
            // Patterns are written with '/', whatever the system's separator.
            if !text.starts_with(&self.head) {
                return false;
            }
            let text = if cfg!(windows) { Cow::Owned(text.replace('\\', "/")) } else { text };
            let candidate = Candidate::new(text.as_ref());
            let itself = || self.folder.as_ref().is_some_and(|folder| folder.is_match_candidate(&candidate));
            self.exact.is_match_candidate(&candidate)
                || (wide && (self.below.is_match_candidate(&candidate) || itself()))
        };
        relative.is_some_and(fits) || (wide && self.anywhere && fits(path.to_string_lossy()))
    }
}

/// `path` from `cwd`, without `.` and `..`; symlinks are not followed.
pub(crate) fn absolute(cwd: &Path, path: &str, home: Option<&Path>) -> PathBuf {
    let joined = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ if path == "~" => home.unwrap_or(cwd).to_path_buf(),
        _ => cwd.join(path),
    };
    let mut out = PathBuf::new();
    for part in joined.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// The paths that a word of a command may name: itself, what follows `=` or `@`, and the value stuck to a short option.
pub(crate) fn named_paths(word: &Word, cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut texts = vec![word.text.as_str()];
    texts.extend(word.text.split(['=', '@', ',', ':']).skip(1));
    if word.text.starts_with('-') && !word.text.starts_with("--") {
        texts.extend(word.text.get(2..));
    }
    if word.dynamic {
        // ${x:-secret}
        texts.extend(word.text.split(['$', '{', '}', ':', '-', '+', '=', '?', '"']).skip(1));
    }
    let named = |text: &&str| !text.is_empty() && !text.contains('\0');
    let mut paths: Vec<PathBuf> =
        texts.iter().filter(|text| named(text)).map(|text| absolute(cwd, text, home)).collect();
    // The variables whose values are known well enough.
    for (spelled, folder) in [("$HOME/", home), ("${HOME}/", home), ("$PWD/", Some(cwd)), ("${PWD}/", Some(cwd))] {
        if let (true, Some(folder), Some(rest)) = (word.dynamic, folder, word.text.strip_prefix(spelled)) {
            paths.push(absolute(folder, rest, None));
        }
    }
    paths
}

/// Files and folders of the home folder in which well-known programs keep secrets. The sandbox hides them all, and more.
pub const SECRET_PLACES: [&str; 14] = [
    ".ssh",
    ".gnupg",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".config/gcloud",
    ".password-store",
    ".aws/credentials",
    ".npmrc",
    ".pypirc",
    ".docker/config.json",
    ".kube/config",
    ".config/gh/hosts.yml",
    ".cargo/credentials.toml",
];

/// Whether a path is one that well-known programs keep secrets in.
pub(crate) fn is_secret(path: &Path, home: Option<&Path>) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let sample = ["example", "sample", "template", "dist"].iter().any(|end| name.ends_with(end));
    if (name == ".env" || name.starts_with(".env.")) && !sample {
        return true;
    }
    if matches!(
        name.as_str(),
        "id_rsa" | "id_dsa" | "id_ecdsa" | "id_ed25519" | ".netrc" | ".pgpass" | ".git-credentials"
    ) {
        return true;
    }
    let Some(below) = home.and_then(|home| path.strip_prefix(home).ok()) else { return false };
    SECRET_PLACES.iter().any(|place| below.starts_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_relative_to_their_place() {
        let extra = [];
        let places = Places { project_root: Path::new("/p"), extra_dirs: &extra, home: Some(Path::new("/home/me")) };
        for (pattern, path, narrow, wide) in [
            ("src/**", "/p/src/a/b.rs", true, true),
            ("src/**", "/q/src/a.rs", false, false),
            ("src/*.rs", "/p/src/a.rs", true, true),
            ("src/*.rs", "/p/src/x/a.rs", false, false),
            ("src", "/p/src/a.rs", false, true),
            ("src/", "/p/src/a.rs", true, true),
            ("src/**", "/p/src", false, true),
            ("./src/a", "/p/src/a", true, true),
            (".//src//./a", "/p/src/a", true, true),
            ("/etc//./x", "/etc/x", true, true),
            ("secret/", "/p/secret", false, true),
            ("**/secret/", "/p/a/secret", false, true),
            ("/", "/x", true, true),
            ("**", "/p/.hidden/x", true, true),
            ("**", "/q/x", false, false),
            ("**/.env", "/p/a/.env", true, true),
            ("**/.env", "/p/.env", true, true),
            ("**/.env", "/q/.env", false, true),
            ("/etc/**", "/etc/passwd", true, true),
            ("~/x", "/home/me/x", true, true),
            ("~/x", "/home/me/x/y", false, true),
            ("a\\*b", "/p/a*b", true, true),
            ("a\\*b", "/p/axb", false, false),
            ("{a,b}.txt", "/p/b.txt", true, true),
        ] {
            let compiled = PathPattern::parse(pattern).unwrap();
            assert_eq!(compiled.matches(Path::new(path), &places, false), narrow, "{pattern} {path}");
            assert_eq!(compiled.matches(Path::new(path), &places, true), wide, "{pattern} {path} wide");
        }
        assert!(PathPattern::parse("../x").is_err());
        assert!(PathPattern::parse("[").is_err());
        assert!(PathPattern::parse("$PWD/secret").is_err());
    }

    #[test]
    fn well_known_secrets_are_known() {
        let home = Some(Path::new("/h"));
        for path in ["/p/.env", "/p/a/.env.local", "/h/.ssh/config", "/h/.aws/credentials", "/x/id_rsa", "/h/.netrc"] {
            assert!(is_secret(Path::new(path), home), "{path}");
        }
        for path in ["/p/.env.example", "/p/env", "/p/.ssh/x", "/h/.aws/cli", "/p/environment"] {
            assert!(!is_secret(Path::new(path), home), "{path}");
        }
    }
}
