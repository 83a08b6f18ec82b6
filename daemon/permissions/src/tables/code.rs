//! Which programs run text that they are given, as code of their own language or as commands? Data only; `code` and
//! `runners` read it.

/// Programs that run code which they are given as text. Versions may follow (`python3.12`).
pub(crate) const INTERPRETERS: [&str; 41] = [
    "python",
    "ipython",
    "pypy",
    "perl",
    "raku",
    "ruby",
    "jruby",
    "node",
    "deno",
    "bun",
    "tsx",
    "ts-node",
    "qjs",
    "gjs",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "wish",
    "expect",
    "osascript",
    "pwsh",
    "powershell",
    "R",
    "Rscript",
    "julia",
    "octave",
    "ghci",
    "runghc",
    "scala",
    "groovy",
    "jshell",
    "elixir",
    "iex",
    "erl",
    "guile",
    "racket",
    "sbcl",
    "clisp",
    "clojure",
    "swift",
];
/// Without any of these, code reads no file and runs no program.
pub(crate) const CAPABLE: [&str; 30] = [
    "open", "read", "import", "require", "exec", "eval", "system", "file", "io", "`", "load", "use", "do", "<",
    "process", "fs", "deno", "bun", "function", "global", "qx", "__", "attr", "kernel", "%x", "include", "glob",
    "spawn", "shell", "with",
];

/// A program with a language of its own, in which few words reach a file or a program.
pub(crate) struct Little {
    pub(crate) programs: &'static [&'static str],
    /// These words, in lower case.
    pub(crate) words: &'static [&'static str],
    /// It may be fed the code, so that all of the command is looked at.
    pub(crate) fed: bool,
}

/// Those that are known.
pub(crate) const LITTLE: &[Little] = &[
    Little {
        programs: &["sqlite", "sqlite3", "duckdb"],
        words: &[
            ".shell",
            ".system",
            ".sh ",
            ".sy",
            "readfile",
            "writefile",
            "edit(",
            "load_extension",
            ".load",
            ".read",
            ".import",
            ".im",
            ".output",
            ".once",
            ".open",
            "attach",
            ".excel",
            ".www",
            ".archive",
            ".ar",
            ".restore",
            ".backup",
            ".clone",
            ".save",
            ".log",
            ".cd",
            "read_",
            "copy ",
            "fsdir",
            "zipfile",
        ],
        fed: true,
    },
    Little {
        programs: &["psql"],
        words: &["\\!", "\\copy", "program", "pg_read", "\\i", "\\o", "\\g", "\\w", "\\e", "\\s", "lo_"],
        fed: true,
    },
    Little {
        programs: &["mysql", "mariadb"],
        words: &["system", "\\!", "load", "source", "\\.", "infile", "outfile", "pager", "tee", "edit"],
        fed: true,
    },
    Little {
        programs: &["gdb", "lldb"],
        words: &[
            "shell", "!", "python", "py ", "call", "source", "make", "pipe", "| ", "dump", "restore", "script",
            "platform", "expr", "guile", "system", "print", "p ",
        ],
        fed: true,
    },
    Little { programs: &["ed", "red"], words: &["!", "r ", "e ", "w "], fed: true },
    Little { programs: &["dc"], words: &["!"], fed: true },
    Little { programs: &["m4"], words: &["syscmd", "include", "undivert"], fed: true },
    Little { programs: &["gnuplot"], words: &["system", "`", "!", "|", "load", "call", "<"], fed: true },
    Little { programs: &["mail", "mailx"], words: &["~!", "~|", "~<", "~r", "~d", "~e"], fed: true },
    Little { programs: &["emacs"], words: &["-eval", "--eval", "-f", "--funcall", "-l", "--load"], fed: false },
    Little { programs: &["less", "more"], words: &["+!", "+|", "+:e", "+s"], fed: false },
];

/// Editors that run commands of their own language.
pub(crate) const EDITORS: [&str; 6] = ["vim", "vi", "nvim", "ex", "view", "vimdiff"];
/// The names of `awk`.
pub(crate) const AWKS: [&str; 5] = ["awk", "gawk", "mawk", "nawk", "original-awk"];
/// The names of `sed`.
pub(crate) const SEDS: [&str; 2] = ["sed", "gsed"];

/// Further programs that take commands as text: in an argument, a here-document or from a pipe.
pub(crate) const EVALUATORS: [&str; 17] = [
    "trap",
    "mapfile",
    "readarray",
    "complete",
    "bind",
    "alias",
    "script",
    "ssh",
    "su",
    "runuser",
    "tmux",
    "screen",
    "gdb",
    "ed",
    "watch",
    "parallel",
    "at",
];
