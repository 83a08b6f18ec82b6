//! Which project a folder belongs to. Its work tree is the nearest folder above it with a `.git`, else the folder itself;
//! its project is what that is known by ([`crate::identity`]).

use std::path::{Path, PathBuf};

use mcode_ids::ProjectId;
use mcode_store::{Place, ProjectRow};

use crate::deps::Deps;
use crate::error::ThreadError;

/// The root of the project that `cwd` is in. Blocking; symlinks are resolved.
pub fn root_of(cwd: &Path) -> std::io::Result<PathBuf> {
    let cwd = std::fs::canonicalize(cwd)?;
    if !cwd.is_dir() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotADirectory, "not a folder"));
    }
    Ok(cwd.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(&cwd).to_path_buf())
}

/// The root of the project that `cwd` is in.
pub(crate) async fn root(cwd: String) -> Result<PathBuf, ThreadError> {
    let shown = cwd.clone();
    tokio::task::spawn_blocking(move || root_of(cwd.as_ref()))
        .await
        .map_err(|error| ThreadError::Store(Box::new(error)))?
        .map_err(|error| ThreadError::InvalidArgument { field: "cwd", message: format!("'{shown}': {error}") })
}

/// A project, and the work tree of it that a folder is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The project.
    pub project: ProjectRow,
    /// The root of the work tree, absolute and resolved.
    pub root: String,
}

/// The project that `cwd` belongs to; made when it is new.
pub(crate) async fn resolve(deps: &Deps, cwd: String) -> Result<Resolved, ThreadError> {
    let root = root(cwd).await?;
    let place = Place {
        project_id: ProjectId::from_uuid(deps.ids.next()),
        name: name_of(&root),
        root: root.to_string_lossy().into_owned(),
        identity: String::new(),
        folder: String::new(),
        now_ms: deps.clock.now().millis(),
    };
    let looked =
        tokio::task::spawn_blocking(move || (crate::identity::of(&root), crate::identity::folder(&root))).await;
    let (identity, folder) = looked.map_err(|error| ThreadError::Store(Box::new(error)))?;
    let root = place.root.clone();
    Ok(Resolved { project: deps.store.resolve_project(Place { identity, folder, ..place }).await?, root })
}

/// Longest name that a user can give what threads belong to, in bytes.
const RESOURCE_BYTES_MAX: usize = 200;

/// Has the threads of this work tree belong to what the user calls `resource`, with those of all others that do; an empty
/// name has them belong to their project again.
pub(crate) async fn set_resource(deps: &Deps, cwd: String, resource: &str) -> Result<Resolved, ThreadError> {
    let resource = resource.trim();
    if resource.len() > RESOURCE_BYTES_MAX || resource.chars().any(char::is_control) {
        let message = format!("at most {RESOURCE_BYTES_MAX} bytes, in one line");
        return Err(ThreadError::InvalidArgument { field: "resource", message });
    }
    let known = resolve(deps, cwd.clone()).await?;
    deps.store.set_resource(known.root, resource.to_owned()).await?;
    resolve(deps, cwd).await
}

/// The name of a project for people.
#[must_use]
pub fn name_of(root: &Path) -> String {
    root.file_name().map_or_else(|| root.to_string_lossy().into_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_git_folder_is_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let deep = root.join("repo/src/deep");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(root.join("repo/.git")).unwrap();
        assert_eq!(root_of(&deep).unwrap(), root.join("repo"));
        assert_eq!(name_of(&root.join("repo")), "repo");
        let plain = root.join("plain");
        std::fs::create_dir(&plain).unwrap();
        assert_eq!(root_of(&plain).unwrap(), plain);
        assert!(root_of(&root.join("missing")).is_err());
    }
}
