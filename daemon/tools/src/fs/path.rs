//! From what the model wrote to the real path: relative to the run's folder, `~` known, links followed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use mcode_permissions::access::{Access, Below};

use crate::tool::{CallContext, ToolFailure};

/// The most links that are followed for one path; Linux has the same limit.
const MAX_LINKS: usize = 40;
/// The longest path that is taken, in bytes; Linux has the same limit.
const MAX_PATH_BYTES: usize = 4096;

/// The absolute path of `given`, its links followed as far as it exists and the rest appended. `..` is taken after
/// the links before it were followed, as the system does. Nothing needs to exist.
///
/// # Errors
/// [`ToolFailure::BadArguments`] when `given` can not be a path; [`ToolFailure::Failed`] for a circle of links.
pub fn resolve(context: &CallContext, given: &str) -> Result<PathBuf, ToolFailure> {
    checked(context, given, &mut Vec::new())
}

/// What reading `given` is: of the file that it leads to and, for rules that restrict, under every name that leads there:
/// a rule about `.env` holds also where that is a link.
///
/// # Errors
/// As [`resolve`].
pub fn reading(context: &CallContext, given: &str) -> Result<Vec<Access>, ToolFailure> {
    accesses(context, given, false)
}

/// [`reading`] for what changes the file.
///
/// # Errors
/// As [`resolve`].
pub fn editing(context: &CallContext, given: &str) -> Result<Vec<Access>, ToolFailure> {
    accesses(context, given, true)
}

fn accesses(context: &CallContext, given: &str, changes: bool) -> Result<Vec<Access>, ToolFailure> {
    let mut names = Vec::new();
    let path = checked(context, given, &mut names)?;
    let mut accesses = vec![if changes { Access::EditPath(path) } else { Access::ReadPath(path) }];
    accesses.extend(names.into_iter().map(|path| Access::Mentioned { path, below: Below::Nothing, changes }));
    Ok(accesses)
}

/// [`resolve`]; the paths that led there by a link are put into `names`.
fn checked(context: &CallContext, given: &str, names: &mut Vec<PathBuf>) -> Result<PathBuf, ToolFailure> {
    if given.trim().is_empty() {
        return Err(ToolFailure::BadArguments("the field 'path' is empty; give the path of a file or folder".into()));
    }
    if given.contains('\0') || given.len() > MAX_PATH_BYTES {
        return Err(ToolFailure::BadArguments(format!(
            "the field 'path' can not be a path: it has {} bytes or holds a NUL character (limit {MAX_PATH_BYTES} bytes)",
            given.len()
        )));
    }
    follow(&context.cwd.join(expand_home(context, given)), given, names)
}

/// [`resolve`], and in a call that is being run the path must be one that permission was given for: a link may have
/// changed since it was asked.
///
/// # Errors
/// As [`resolve`], and [`ToolFailure::Failed`] when the path leads elsewhere now.
pub fn resolve_granted(context: &CallContext, given: &str) -> Result<PathBuf, ToolFailure> {
    let path = resolve(context, given)?;
    let covers = |access: &Access| match access {
        Access::ReadPath(granted) | Access::EditPath(granted) => path.starts_with(granted),
        _ => false,
    };
    if context.granted.as_ref().is_none_or(|granted| granted.iter().any(covers)) {
        return Ok(path);
    }
    Err(ToolFailure::Failed(format!(
        "{given}: it led elsewhere when permission was given for it; nothing was done, call again"
    )))
}

/// `~` and `~/…` with the client's home folder in its place.
fn expand_home(context: &CallContext, given: &str) -> PathBuf {
    let rest = if given == "~" { Some("") } else { given.strip_prefix("~/") };
    match (rest, context.env.get("HOME")) {
        (Some(rest), Some(home)) if !home.is_empty() => Path::new(home).join(rest),
        _ => PathBuf::from(given),
    }
}

/// Whether `given` itself is a link, wherever it leads.
#[must_use]
pub fn is_link(context: &CallContext, given: &str) -> bool {
    let path = context.cwd.join(expand_home(context, given));
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

fn follow(absolute: &Path, given: &str, names: &mut Vec<PathBuf>) -> Result<PathBuf, ToolFailure> {
    let mut todo: VecDeque<OsString> = parts(absolute).collect();
    let mut done = PathBuf::new();
    let mut links = 0;
    while let Some(part) = todo.pop_front() {
        match Path::new(&part).components().next() {
            None | Some(Component::CurDir) => continue,
            Some(Component::ParentDir) => {
                done.pop();
                continue;
            }
            Some(Component::RootDir | Component::Prefix(_)) => {
                done.push(&part);
                continue;
            }
            Some(Component::Normal(_)) => {}
        }
        let next = done.join(&part);
        match std::fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                names.push(todo.iter().fold(next, |name, part| name.join(part)));
                if links > MAX_LINKS {
                    return Err(ToolFailure::Failed(format!("{given}: more than {MAX_LINKS} links, or a circle")));
                }
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    todo.push_front(part);
                }
            }
            Err(_) => done = next,
        }
    }
    Ok(done)
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().map(|part| part.as_os_str().to_owned())
}

/// A path as it is told to the model: relative to the run's folder when it is in it.
#[must_use]
pub fn shown(context: &CallContext, path: &Path) -> String {
    match path.strip_prefix(&context.cwd) {
        Ok(inner) if inner.as_os_str().is_empty() => ".".to_owned(),
        Ok(inner) => inner.to_string_lossy().into_owned(),
        Err(_) => path.to_string_lossy().into_owned(),
    }
}
