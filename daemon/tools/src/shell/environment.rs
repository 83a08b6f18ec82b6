//! The environment of a command: the client's, with everything that would wait for a person turned off.

use std::collections::BTreeMap;
use std::path::Path;

use mcode_sandbox::ShellKind;

/// An editor that says why there is none and fails; it works with any arguments.
const NO_EDITOR: &str = "sh -c 'echo \"no editor can be opened here; give the text as an argument (git: -m, -F or --no-edit)\" >&2; exit 1' mcode";

/// Start-up files of shells, which `bash -c` and `sh -c` would read.
const STARTUP_FILES: [&str; 2] = ["BASH_ENV", "ENV"];

/// The environment that a command in `cwd` runs with.
#[must_use]
pub fn command_env(client: &BTreeMap<String, String>, cwd: &Path, shell: ShellKind) -> BTreeMap<String, String> {
    let mut env = client.clone();
    for name in STARTUP_FILES {
        env.remove(name);
    }
    let ssh = client.get("GIT_SSH_COMMAND").map_or("ssh", String::as_str);
    let ssh = format!("{ssh} -oBatchMode=yes");
    for (name, value) in [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "false"),
        ("SSH_ASKPASS", "false"),
        ("SSH_ASKPASS_REQUIRE", "never"),
        ("GIT_SSH_COMMAND", &ssh),
        ("EDITOR", NO_EDITOR),
        ("VISUAL", NO_EDITOR),
        ("GIT_EDITOR", NO_EDITOR),
        ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("MANPAGER", "cat"),
        ("TERM", "dumb"),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    if shell != ShellKind::Cmd {
        env.insert("PWD".to_owned(), cwd.to_string_lossy().into_owned());
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_values_stay_where_nobody_would_be_asked() {
        let client = BTreeMap::from(
            [("HOME", "/h"), ("EDITOR", "vi"), ("BASH_ENV", "/rc"), ("GIT_SSH_COMMAND", "ssh -i k")]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let env = command_env(&client, Path::new("/w"), ShellKind::Bash);
        assert_eq!(env["HOME"], "/h");
        assert_eq!(env["GIT_SSH_COMMAND"], "ssh -i k -oBatchMode=yes");
        assert_eq!(env["PWD"], "/w");
        assert_eq!(env["EDITOR"], NO_EDITOR);
        assert!(!env.contains_key("BASH_ENV"));
    }
}
