//! Which shell runs a command, and how a command of any length gets there unchanged.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::runner::find_program;

/// Longest command that is passed as an argument, in bytes. Linux takes 128 KiB in one argument, Windows 32 767
/// characters in all; longer ones go through a file.
pub const ARGUMENT_BYTES_MAX: usize = if cfg!(windows) { 8 * 1024 } else { 100 * 1024 };

/// Searched when the given `PATH` has no shell.
const USUAL_FOLDERS: &str = if cfg!(windows) { "C:\\Windows\\System32" } else { "/usr/bin:/bin:/usr/local/bin" };

/// Kinds of shells, by the language they speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellKind {
    /// bash, without start-up files.
    Bash,
    /// The system's POSIX shell.
    Posix,
    /// The Windows command interpreter.
    Cmd,
}

/// The shell that commands are written for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// Its language.
    pub kind: ShellKind,
    /// Its program: a path, so that it does not depend on the `PATH` of a run.
    pub program: String,
}

/// The shell of this machine: bash when `path` (the value of a `PATH`) or the usual folders have it, else the system's
/// own.
#[must_use]
pub fn shell_for(path: &str) -> Shell {
    let found = |name: &str| {
        let root = Path::new(if cfg!(windows) { "C:\\" } else { "/" });
        find_program(name, root, path).or_else(|| find_program(name, root, USUAL_FOLDERS))
    };
    let shell = |kind, name: &str| Some(Shell { kind, program: found(name)?.to_string_lossy().into_owned() });
    let last = if cfg!(windows) { (ShellKind::Cmd, "cmd") } else { (ShellKind::Posix, "sh") };
    shell(ShellKind::Bash, "bash")
        .or_else(|| shell(last.0, last.1))
        .unwrap_or_else(|| Shell { kind: last.0, program: last.1.to_owned() })
}

/// A command ready to be run; keep it until the command has ended, it may hold the script's file.
#[derive(Debug)]
pub struct ShellCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    script: Option<NamedTempFile>,
}

impl ShellCommand {
    /// The file that holds the command, when it was too long for an argument.
    #[must_use]
    pub fn script(&self) -> Option<&Path> {
        self.script.as_ref().map(NamedTempFile::path)
    }
}

impl Shell {
    /// What it is called when it is told to a model.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind {
            ShellKind::Bash => "bash",
            ShellKind::Posix => "sh",
            ShellKind::Cmd => "cmd",
        }
    }

    /// The command line that runs `command`, byte for byte as it is written.
    ///
    /// # Errors
    /// When the file of a long command could not be written.
    pub fn command(&self, command: &str) -> io::Result<ShellCommand> {
        let options: &[&str] = match self.kind {
            ShellKind::Bash => &["--noprofile", "--norc"],
            ShellKind::Posix => &[],
            ShellKind::Cmd => &["/D", "/S"],
        };
        let mut argv = vec![self.program.clone()];
        argv.extend(options.iter().map(|&word| word.to_owned()));
        if command.len() <= ARGUMENT_BYTES_MAX {
            argv.push(if self.kind == ShellKind::Cmd { "/C" } else { "-c" }.to_owned());
            argv.push(command.to_owned());
            return Ok(ShellCommand { argv, script: None });
        }
        let ending = if self.kind == ShellKind::Cmd { ".cmd" } else { ".sh" };
        let mut script = tempfile::Builder::new().prefix("mcode-command-").suffix(ending).tempfile()?;
        script.write_all(command.as_bytes())?;
        script.flush()?;
        if self.kind == ShellKind::Cmd {
            argv.push("/C".to_owned());
        }
        argv.push(script.path().to_string_lossy().into_owned());
        Ok(ShellCommand { argv, script: Some(script) })
    }
}
