//! Which project a folder belongs to: the nearest folder above it with a `.git`, else the folder itself.

use std::path::{Path, PathBuf};

/// The root of the project that `cwd` is in. Blocking; symlinks are resolved.
pub fn root_of(cwd: &Path) -> std::io::Result<PathBuf> {
    let cwd = std::fs::canonicalize(cwd)?;
    if !cwd.is_dir() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotADirectory, "not a folder"));
    }
    Ok(cwd.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(&cwd).to_path_buf())
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
