//! Which shell runs a command, and how a command of any length gets there unchanged.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::runner::find_program;

/// Longest command that is passed as an argument, in bytes. Linux takes 128 KiB in one argument, Windows 32 767
/// characters in all; longer ones go through a file.
pub const ARGUMENT_BYTES_MAX: usize = if cfg!(windows) { 8 * 1024 } else { 100 * 1024 };

/// The shell that commands are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash, without start-up files.
    Bash,
    /// The system's POSIX shell.
    Posix,
    /// The Windows command interpreter.
    Cmd,
}

/// The shell that runs commands with this environment: bash when its `PATH` has it, else the system's own.
#[must_use]
pub fn shell_for(env: &BTreeMap<String, String>, cwd: &Path) -> Shell {
    let path = env.get("PATH").map_or("", String::as_str);
    if find_program("bash", cwd, path).is_some() {
        Shell::Bash
    } else if cfg!(windows) {
        Shell::Cmd
    } else {
        Shell::Posix
    }
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Posix => "sh",
            Self::Cmd => "cmd",
        }
    }

    /// The command line that runs `command`, byte for byte as it is written.
    ///
    /// # Errors
    /// When the file of a long command could not be written.
    pub fn command(self, command: &str) -> io::Result<ShellCommand> {
        let words: &[&str] = match self {
            Self::Bash => &["bash", "--noprofile", "--norc"],
            Self::Posix => &["sh"],
            Self::Cmd => &["cmd", "/D", "/S"],
        };
        let mut argv: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        if command.len() <= ARGUMENT_BYTES_MAX {
            argv.push(if self == Self::Cmd { "/C" } else { "-c" }.to_owned());
            argv.push(command.to_owned());
            return Ok(ShellCommand { argv, script: None });
        }
        let ending = if self == Self::Cmd { ".cmd" } else { ".sh" };
        let mut script = tempfile::Builder::new().prefix("mcode-command-").suffix(ending).tempfile()?;
        script.write_all(command.as_bytes())?;
        script.flush()?;
        if self == Self::Cmd {
            argv.push("/C".to_owned());
        }
        argv.push(script.path().to_string_lossy().into_owned());
        Ok(ShellCommand { argv, script: Some(script) })
    }
}
