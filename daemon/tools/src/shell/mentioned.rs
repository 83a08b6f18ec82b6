//! The files that a command names, as the disk has them: links followed, wildcards replaced, folders looked into.
//!
//! Rules are about files and not about the words that lead to them. What can not be found out within the limits below is
//! told as unknown, so that the decision can be careful. What the command does to the disk before it gets there (a link
//! that it makes itself) is not seen here; that is for the kernel to hold.

use std::fs;
use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;
use mcode_permissions::access::{Access, Below};
use mcode_permissions::mentions::{Mention, mentions};

use crate::fs::path::resolve;
use crate::tool::CallContext;

/// Most names that are looked at to replace the wildcards of one word.
const NAMES_MAX: usize = 10_000;
/// Most files that the wildcards of one word are replaced by.
const MATCHES_MAX: usize = 1_000;
/// Most files that are listed of a folder that a command reads whole.
const BELOW_MAX: usize = 5_000;
/// Most files that are listed of all folders of a command.
const BELOW_SUM_MAX: usize = 20_000;
/// Most files that are told of one command.
const ACCESSES_MAX: usize = 4_000;

/// What there is to be judged about a command that runs in `cwd`: itself, and what it names. Blocking.
pub(crate) fn judged(command: String, cwd: &Path, context: &CallContext) -> Vec<Access> {
    let mentioned = mentioned(&command, cwd, context);
    let mut access = vec![Access::Command { command, cwd: cwd.to_path_buf() }];
    access.extend(mentioned);
    access
}

/// What a command that runs in `cwd` names.
fn mentioned(command: &str, cwd: &Path, context: &CallContext) -> Vec<Access> {
    let home = context.env.get("HOME").map(Path::new);
    let found = mentions(command, cwd, home);
    let mut accesses: Vec<Access> = Vec::new();
    let (mut cut, mut left) = (found.cut, BELOW_SUM_MAX);
    for mention in &found.paths {
        let mention = &of_the_command(mention, cwd);
        let paths = if mention.glob { expanded(&mention.path) } else { Some(vec![mention.path.clone()]) };
        let Some(paths) = paths else {
            accesses.push(unknown(&literal_part(&mention.path), mention.changes, context));
            continue;
        };
        for path in paths {
            let access = looked_at(&path, mention, context, &mut left);
            accesses.extend(access.filter(|access| !accesses.contains(access)));
        }
        if accesses.len() > ACCESSES_MAX {
            accesses.truncate(ACCESSES_MAX);
            cut = true;
            break;
        }
    }
    if cut {
        accesses.push(unknown(Path::new("/"), true, context));
    }
    accesses
}

/// `/proc/self/cwd` is the command's own folder, not the daemon's.
fn of_the_command(mention: &Mention, cwd: &Path) -> Mention {
    let own = ["/proc/self/cwd", "/proc/thread-self/cwd"];
    let rest = own.iter().find_map(|own| mention.path.strip_prefix(own).ok());
    Mention { path: rest.map_or_else(|| mention.path.clone(), |rest| cwd.join(rest)), ..mention.clone() }
}

fn unknown(folder: &Path, changes: bool, context: &CallContext) -> Access {
    let path = resolve(context, &folder.to_string_lossy()).unwrap_or_else(|_| folder.to_path_buf());
    Access::Mentioned { path, below: Below::Unknown, changes }
}

/// One path as it is on the disk; `None` when it says nothing that the command does not say itself.
fn looked_at(path: &Path, mention: &Mention, context: &CallContext, left: &mut usize) -> Option<Access> {
    let resolved = resolve(context, &path.to_string_lossy()).ok()?;
    let meta = fs::metadata(&resolved).ok();
    if meta.is_none() && resolved == path {
        return None;
    }
    let folder = mention.searched && meta.is_some_and(|meta| meta.is_dir());
    let below = if folder { below(&resolved, context, left) } else { Below::Nothing };
    Some(Access::Mentioned { path: resolved, below, changes: mention.changes })
}

/// Everything below a folder; what links in it lead to counts too. `left` is how many files may still be listed.
fn below(folder: &Path, context: &CallContext, left: &mut usize) -> Below {
    let max = BELOW_MAX.min(*left);
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        // A folder that can not be read is none that a command could read.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            if files.len() >= max {
                *left -= max;
                return Below::Unknown;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_symlink() {
                let Ok(target) = resolve(context, &path.to_string_lossy()) else { continue };
                if target.is_dir() {
                    // It may lead anywhere, also back here.
                    files.push(target.join("*"));
                }
                files.push(target);
            }
            if kind.is_dir() {
                folders.push(path.clone());
            }
            files.push(path);
        }
    }
    *left = left.saturating_sub(files.len());
    Below::Files(files)
}

fn has_wildcard(part: &str) -> bool {
    part.contains(['*', '?', '[', '{', '~'])
}

/// The folder up to the first wildcard.
fn literal_part(pattern: &Path) -> PathBuf {
    pattern.components().take_while(|part| !has_wildcard(&part.as_os_str().to_string_lossy())).collect()
}

/// The files that a pattern stands for, as a shell would replace it; `None` when that can not be told.
fn expanded(pattern: &Path) -> Option<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];
    let mut names = 0;
    for part in pattern.components() {
        let text = part.as_os_str().to_string_lossy();
        if !matches!(part, Component::Normal(_)) || !has_wildcard(&text) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        // A brace list over several folders, or somebody's home folder.
        if text.starts_with('~') || text.matches('{').count() != text.matches('}').count() {
            return None;
        }
        let glob = GlobBuilder::new(&text).literal_separator(true).build().ok()?.compile_matcher();
        let mut next = Vec::new();
        for folder in found {
            // A brace list names files whether or not they are there.
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                names += 1;
                if names > NAMES_MAX || next.len() > MATCHES_MAX {
                    return None;
                }
                let name = entry.file_name();
                let hidden = name.to_string_lossy().starts_with('.') && !text.starts_with(['.', '{', '[']);
                if !hidden && glob.is_match(&name) {
                    next.push(folder.join(name));
                }
            }
        }
        found = next;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_replaced_as_a_shell_does() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["secret", "second", ".hidden", "sub/secret", "sub/x"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let names = |pattern: &str| {
            let mut names: Vec<String> = expanded(&dir.path().join(pattern))?
                .iter()
                .map(|path| path.strip_prefix(dir.path()).unwrap().to_string_lossy().into_owned())
                .collect();
            names.sort();
            Some(names)
        };
        let list = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(names("sec*"), list(&["second", "secret"]));
        assert_eq!(names("*"), list(&["second", "secret", "sub"]));
        assert_eq!(names(".h*"), list(&[".hidden"]));
        assert_eq!(names("s?b/{secret,y}"), list(&["sub/secret"]));
        assert_eq!(names("*/sec[r]et"), list(&["sub/secret"]));
        assert_eq!(names("~root/x"), None);
        assert_eq!(names("{sub/secret,x}"), None);
        assert_eq!(literal_part(Path::new("/a/b/c*/d")), Path::new("/a/b"));
    }
}
