//! A throw-away folder to work in, by default a git repository with one commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A folder that is removed when this is dropped.
pub struct Workspace {
    dir: TempDir,
}

impl Workspace {
    /// An empty git repository.
    #[must_use]
    pub fn new() -> Self {
        Self::with_files::<&str, &str>([])
    }

    /// A git repository with these files, committed.
    #[must_use]
    pub fn with_files<P: AsRef<Path>, C: AsRef<[u8]>>(files: impl IntoIterator<Item = (P, C)>) -> Self {
        let workspace = Self::plain();
        workspace.git(&["init", "-q", "-b", "main"]);
        for (path, content) in files {
            workspace.write(path, content);
        }
        workspace.git(&["add", "-A"]);
        workspace.git(&["commit", "-q", "--allow-empty", "-m", "start"]);
        workspace
    }

    /// An empty folder, no repository.
    #[must_use]
    pub fn plain() -> Self {
        let dir = tempfile::Builder::new().prefix("mcode-w-").tempdir().expect("a temporary folder can be made");
        Self { dir }
    }

    /// The folder, without symbolic links in its path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("the workspace exists")
    }

    /// A path below the folder.
    #[must_use]
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    /// Writes a file, with its parents.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("folders of the workspace can be made");
        }
        fs::write(&path, content).expect("files of the workspace can be written");
        path
    }

    /// The text of a file.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// The bytes of a file.
    #[must_use]
    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let path = self.join(path);
        fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// Runs git here, with an author of its own and none of the machine's settings; its stdout.
    pub fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(self.dir.path())
            .output()
            .expect("git can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?} failed: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}
