//! What do programs do with the files that their words name? Data only; `touched` and `uncertain` read it.
//!
//! Whatever is in no list counts as one that reads them.

/// Programs that change the files they name.
pub(crate) const CHANGING: [&str; 16] = [
    "curl", "wget", "rm", "mv", "cp", "tee", "sed", "truncate", "dd", "install", "touch", "chmod", "chown", "ln",
    "patch", "rmdir",
];

/// Programs that read the files they name after a first word that is none: a pattern or a script.
pub(crate) const PATTERN_FIRST: [&str; 16] = [
    "grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "ugrep", "sed", "gsed", "awk", "gawk", "mawk", "nawk", "jq",
    "yq",
];

/// Programs that show nothing of what is in the files they name, or name none. Of `git`, see `git::shows`.
pub(crate) const SHOWING_NOTHING: [&str; 67] = [
    ":", "[", "[[", "((", "basename", "break", "cd", "chmod", "chown", "continue", "date", "declare", "df", "dirname",
    "du", "echo", "exit", "export", "expr", "false", "file", "find", "getopts", "git", "hash", "id", "jobs", "kill",
    "killall", "let", "local", "ls", "mkdir", "pgrep", "pkill", "popd", "printf", "ps", "pushd", "pwd", "read",
    "readlink", "readonly", "realpath", "return", "rm", "rmdir", "seq", "set", "shift", "shopt", "sleep", "stat",
    "tee", "test", "touch", "tree", "true", "type", "typeset", "ulimit", "umask", "uname", "unset", "wait", "wc",
    "which",
];

/// Programs whose operands are names of targets, tests, packages, images and the like.
pub(crate) const BUILDING: [&str; 16] = [
    "apt", "apt-get", "brew", "cargo", "cmake", "docker", "gmake", "go", "make", "ninja", "npm", "pip", "pip3", "pnpm",
    "podman", "yarn",
];
