//! Where other agents keep their histories.

use std::path::{Path, PathBuf};

/// The folders of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Of Claude Code: it has `projects`.
    pub claude_code: PathBuf,
    /// Of Codex: it has `sessions`.
    pub codex: PathBuf,
    /// Of opencode: it has `opencode.db` or `storage`.
    pub opencode: PathBuf,
    /// Of Mastra Code: the database.
    pub mastra_code: PathBuf,
}

impl Places {
    /// Those of the user with this home, as `variable` (of the user's own environment) says where they are elsewhere.
    #[must_use]
    pub fn of(home: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let given = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data = given("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local").join("share"));
        let mastra_data = given("MASTRA_APP_DATA_DIR").unwrap_or_else(|| {
            if cfg!(target_os = "macos") {
                home.join("Library").join("Application Support").join("mastracode")
            } else if cfg!(windows) {
                given("APPDATA").unwrap_or_else(|| home.join("AppData").join("Roaming")).join("mastracode")
            } else {
                data.join("mastracode")
            }
        });
        Self {
            claude_code: given("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.join(".claude")),
            codex: given("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            opencode: data.join("opencode"),
            mastra_code: given("MASTRA_DB_PATH").unwrap_or_else(|| mastra_data.join("mastra.db")),
        }
    }
}

/// Files below a folder whose names `wanted` takes, at most so many folders deep and at most `most` of them. Links to
/// folders are not followed. What can not be looked at is told.
pub(crate) fn files_below(
    root: &Path,
    depth: usize,
    most: usize,
    wanted: &dyn Fn(&str) -> bool,
    problems: &mut Vec<String>,
) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![(root.to_path_buf(), 0)];
    while let Some((folder, level)) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                problems.push(format!("{} could not be looked at: {error}", folder.display()));
                continue;
            }
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && level < depth {
                folders.push((entry.path(), level + 1));
            } else if kind.is_file() && entry.file_name().to_str().is_some_and(wanted) {
                files.push(entry.path());
                if files.len() >= most {
                    problems.push(format!("{}: more than {most} files, the rest is not looked at", root.display()));
                    return files;
                }
            }
        }
    }
    files
}

/// When a file was changed, milliseconds since 1970 UTC.
pub(crate) fn changed_ms(path: &Path) -> i64 {
    let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_user_count_when_they_name_a_folder() {
        let home = std::env::temp_dir();
        let elsewhere = home.join("elsewhere").to_string_lossy().into_owned();
        let variable = |name: &str| match name {
            "CODEX_HOME" | "MASTRA_APP_DATA_DIR" => Some(elsewhere.clone()),
            "CLAUDE_CONFIG_DIR" => Some("relative".to_owned()),
            _ => None,
        };
        let places = Places::of(&home, variable);
        assert_eq!(places.codex, home.join("elsewhere"));
        assert_eq!(places.mastra_code, home.join("elsewhere/mastra.db"));
        assert_eq!(places.claude_code, home.join(".claude"));
        assert_eq!(places.opencode, home.join(".local/share/opencode"));
    }

    #[test]
    fn only_so_many_files_are_looked_at_and_that_is_told() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..5 {
            std::fs::write(dir.path().join(format!("{number}.json")), "").unwrap();
        }
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/deep.json"), "").unwrap();
        let mut problems = Vec::new();
        assert_eq!(files_below(dir.path(), 1, 10, &|_| true, &mut problems).len(), 5);
        assert_eq!(files_below(dir.path(), 2, 10, &|_| true, &mut problems).len(), 6);
        assert_eq!(files_below(&dir.path().join("none"), 2, 10, &|_| true, &mut problems).len(), 0);
        assert!(problems.is_empty());
        assert_eq!(files_below(dir.path(), 1, 3, &|_| true, &mut problems).len(), 3);
        assert!(problems[0].contains("more than 3 files"), "{problems:?}");
    }
}
