//! Which project a folder belongs to: the nearest folder above it with a `.git`, else the folder itself.

use std::path::{Path, PathBuf};

use mcode_ids::ProjectId;
use mcode_store::ProjectRow;

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

/// The project that `cwd` belongs to; made when it is new.
pub(crate) async fn resolve(deps: &Deps, cwd: String) -> Result<ProjectRow, ThreadError> {
    let root = root(cwd).await?;
    let candidate = ProjectRow {
        project_id: ProjectId::from_uuid(deps.ids.next()),
        name: name_of(&root),
        root: root.to_string_lossy().into_owned(),
        created_at_ms: deps.clock.now().millis(),
    };
    Ok(deps.store.resolve_project(candidate).await?)
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
