//! Which programs only look, and which at least run nothing? Data only; `readonly` and `runners` read it.

/// Programs that only look, whatever their arguments.
pub(crate) const HARMLESS: [&str; 33] = [
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "grep",
    "egrep",
    "fgrep",
    "pwd",
    "echo",
    "which",
    "stat",
    "du",
    "df",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "cut",
    "tr",
    "diff",
    "cmp",
    "true",
    "false",
    "test",
    "[",
    "id",
    "uname",
    "nl",
    "tac",
    "type",
    "sha256sum",
    "md5sum",
];

/// Variables that may be set before a command without changing what it does to the system.
pub(crate) const HARMLESS_VARIABLES: [&str; 12] = [
    "LANG",
    "LANGUAGE",
    "TZ",
    "NO_COLOR",
    "FORCE_COLOR",
    "CI",
    "TERM",
    "COLUMNS",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "CARGO_TERM_COLOR",
    "NODE_ENV",
];

/// Programs that never run their arguments. The arguments of every other program may be a command: no list of
/// wrappers is ever complete.
pub(crate) const RUNS_NOTHING: [&str; 37] = [
    "cp", "mv", "rm", "mkdir", "touch", "ln", "chmod", "chown", "rmdir", "tee", "git", "man", "export", "declare",
    "local", "readonly", "unset", "typeset", "cd", "pushd", "kill", "pkill", "killall", "apt", "apt-get", "brew",
    "pip", "pip3", "[[", "sleep", "printf", "sort", "find", "rg", "tree", "uniq", "date",
];
