//! Which programs run the text of an option, of their operands, or what they are fed, and which variables and settings
//! have programs run something? Data only; `texts` reads it.
//!
//! What is run so is judged as a command of its own, and a rule that allows the program has to name the option.

/// What the value of an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A line for a shell, or a program.
    Script,
    /// `KEY=VALUE`, where the value is run when the key holds one of these (lower case).
    Keyed(&'static [&'static str]),
    /// A program and its arguments with commas between them.
    Commas,
    /// A file of commands, as a script is: it is named, and what is in it is not known.
    File,
    /// Something that is run in a way of its own.
    Other,
}

/// Options of a program that make it run something.
pub(crate) struct Running {
    pub(crate) programs: &'static [&'static str],
    /// The subcommands that have them; with none, all.
    pub(crate) subcommands: &'static [&'static str],
    pub(crate) options: &'static [&'static str],
    pub(crate) takes: Takes,
}

const fn running(
    programs: &'static [&'static str],
    subcommands: &'static [&'static str],
    options: &'static [&'static str],
    takes: Takes,
) -> Running {
    Running { programs, subcommands, options, takes }
}

const TAR: &[&str] = &["tar", "gtar", "bsdtar"];
const SSH: &[&str] = &["ssh", "scp", "sftp"];
const COMPILERS: &[&str] = &["gcc", "g++", "cc", "c++", "clang", "clang++", "gfortran"];

pub(crate) const RUNNING: &[Running] = &[
    running(&["split"], &[], &["--filter"], Takes::Script),
    running(TAR, &[], &["--checkpoint-action"], Takes::Keyed(&["exec"])),
    running(
        TAR,
        &[],
        &[
            "-I",
            "-F",
            "--use-compress-program",
            "--to-command",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
        ],
        Takes::Script,
    ),
    running(COMPILERS, &[], &["-wrapper"], Takes::Commas),
    running(COMPILERS, &[], &["-specs", "-fplugin", "-B"], Takes::File),
    running(&["su", "runuser"], &[], &["-c", "--command", "--session-command"], Takes::Script),
    running(&["su", "runuser"], &[], &["-s", "--shell"], Takes::Script),
    running(&["script"], &[], &["-c", "--command"], Takes::Script),
    running(&["capsh"], &[], &["-c"], Takes::Script),
    running(&["flock"], &[], &["-c", "--command"], Takes::Script),
    running(&["sg"], &[], &["-c"], Takes::Script),
    running(&["man"], &[], &["-P", "--pager", "-H", "--html"], Takes::Script),
    running(&["rsync"], &[], &["-e", "--rsh", "--rsync-path"], Takes::Script),
    running(&["scp", "sftp"], &[], &["-S"], Takes::Script),
    running(
        SSH,
        &[],
        &["-o"],
        Takes::Keyed(&["proxycommand", "localcommand", "knownhostscommand", "remotecommand", "pkcs11provider"]),
    ),
    running(SSH, &[], &["-F"], Takes::File),
    running(&["git"], &["rebase"], &["-x", "--exec"], Takes::Script),
    running(&["git"], &["difftool"], &["-x", "--extcmd"], Takes::Script),
    running(&["git"], &["clone"], &["-u", "--upload-pack"], Takes::Script),
    running(&["git"], &["fetch", "pull", "ls-remote", "fetch-pack"], &["--upload-pack", "--exec"], Takes::Script),
    running(&["git"], &["push", "send-pack"], &["--receive-pack", "--exec"], Takes::Script),
    running(&["git"], &["archive"], &["--exec"], Takes::Script),
    running(
        &["git"],
        &["filter-branch"],
        &[
            "--tree-filter",
            "--index-filter",
            "--msg-filter",
            "--env-filter",
            "--parent-filter",
            "--commit-filter",
            "--tag-name-filter",
            "--setup",
        ],
        Takes::Script,
    ),
    running(&["git"], &["send-email"], &["--to-cmd", "--cc-cmd", "--header-cmd", "--sendmail-cmd"], Takes::Script),
    running(&["git"], &["interpret-trailers"], &["--trailer"], Takes::Other),
    running(&["git"], &["init", "clone"], &["--template"], Takes::File),
    running(&["go"], &[], &["-exec", "-toolexec", "-vettool"], Takes::Script),
    running(
        &["cargo"],
        &[],
        &["--config"],
        Takes::Keyed(&["runner", "linker", "rustc", "wrapper", "rustdoc", "alias", "credential", "include", "env."]),
    ),
    running(&["sort"], &[], &["--compress-program"], Takes::Script),
    running(&["rg"], &[], &["--pre", "--hostname-bin"], Takes::Script),
    running(&["ag", "less", "bat"], &[], &["--pager"], Takes::Script),
    running(&["zip"], &[], &["-TT", "--unzip-command"], Takes::Script),
    running(&["wget"], &[], &["--use-askpass"], Takes::Script),
    running(&["wget"], &[], &["--config", "-e", "--execute"], Takes::File),
    running(&["curl"], &[], &["-K", "--config"], Takes::File),
    running(
        &["apt", "apt-get", "aptitude"],
        &[],
        &["-o", "--option"],
        Takes::Keyed(&["invoke", "auto-detect", "install-pkgs", "bin::", "::sudo", "dir::"]),
    ),
    running(&["npm", "npx", "pnpm", "bunx"], &[], &["-c", "--call"], Takes::Script),
    running(&["npm", "npx", "pnpm", "yarn"], &[], &["--script-shell", "--node-options"], Takes::File),
    running(&["nodemon"], &[], &["-x", "--exec"], Takes::Script),
    running(&["hyperfine"], &[], &["-p", "-s", "-c", "--prepare", "--setup", "--cleanup", "--conclude"], Takes::Script),
    running(&["fzf"], &[], &["--preview", "--bind", "--become"], Takes::Script),
    running(&["xterm", "gnome-terminal", "konsole"], &[], &["-e"], Takes::Script),
    running(&["gdb"], &[], &["-x", "--command"], Takes::File),
    running(&["vim", "vi", "nvim", "ex", "view"], &[], &["-S", "-u"], Takes::File),
    running(&["mapfile", "readarray"], &[], &["-C"], Takes::Script),
    running(&["compgen", "complete"], &[], &["-C"], Takes::Script),
    running(&["compgen", "complete"], &[], &["-F"], Takes::Other),
    running(&["hash"], &[], &["-p"], Takes::Other),
    running(&["enable"], &[], &["-f"], Takes::Other),
    running(&["bind"], &[], &["-x", "-f"], Takes::Other),
    running(&["fc"], &[], &["-e"], Takes::Script),
    running(&["fc"], &[], &["-s"], Takes::Other),
    running(&["make", "gmake"], &[], &["--eval", "-E"], Takes::Other),
    running(&["make", "gmake"], &[], &["-f", "--file", "--makefile"], Takes::File),
    running(&["strace"], &[], &["-o"], Takes::File),
    running(&["entr"], &[], &["-s"], Takes::Script),
    running(&["busybox", "toybox"], &[], &["--install"], Takes::Other),
];

/// What an operand of a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operands {
    /// All from here on are one line for a shell.
    Joined,
    /// Each of them is a line for a shell.
    Each,
    /// The first of them is a line for a shell.
    First,
    /// They are a command and its arguments.
    Command,
}

/// A program that runs its operands in a way of its own.
pub(crate) struct Telling {
    pub(crate) program: &'static str,
    /// Words that must begin the operands, such as `submodule foreach`.
    pub(crate) after: &'static [&'static str],
    /// Operands of its own before what it runs.
    pub(crate) leading: usize,
    pub(crate) operands: Operands,
    /// Options that take the next word.
    pub(crate) valued: &'static [&'static str],
}

const fn telling(
    program: &'static str,
    after: &'static [&'static str],
    leading: usize,
    operands: Operands,
    valued: &'static [&'static str],
) -> Telling {
    Telling { program, after, leading, operands, valued }
}

const SSH_VALUED: &[&str] = &[
    "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-p", "-Q", "-R", "-S", "-W",
    "-w",
];
const TMUX_VALUED: &[&str] = &["-c", "-e", "-F", "-f", "-L", "-n", "-S", "-s", "-t", "-x", "-y"];

pub(crate) const TELLING: &[Telling] = &[
    telling("watch", &[], 0, Operands::Joined, &["-n", "--interval", "-q", "--equexit"]),
    telling("ssh", &[], 1, Operands::Joined, SSH_VALUED),
    telling("sg", &[], 1, Operands::Joined, &[]),
    telling("parallel", &[], 0, Operands::Joined, &["-j", "--jobs", "-a", "--arg-file", "-S", "--sshlogin"]),
    telling("git", &["submodule", "foreach"], 0, Operands::Joined, &[]),
    telling("git", &["bisect", "run"], 0, Operands::Command, &[]),
    telling("trap", &[], 0, Operands::First, &[]),
    telling("hyperfine", &[], 0, Operands::Each, &["-w", "-r", "-m", "-M", "-n", "-L", "-P", "-D", "--export-json"]),
    telling("concurrently", &[], 0, Operands::Each, &["-n", "-c", "-p"]),
    telling("tmux", &[], 1, Operands::Each, TMUX_VALUED),
    telling("nodemon", &[], 0, Operands::Command, &["-w", "--watch", "-e", "--ext", "-i", "--ignore"]),
];

/// Texts that many options are given and that run nothing further.
pub(crate) const HARMLESS_TEXTS: &[&str] =
    &["ssh", "cat", "less", "less -R", "true", ":", "gzip", "pigz", "xz", "zstd", "bzip2", "zstdmt", "lz4"];

/// Programs that take their commands from what they are fed, with the options that say they do something else.
pub(crate) const FED: &[(&str, &[&str])] = &[
    ("at", &["-l", "-r", "-d", "-c", "-f", "-V"]),
    ("batch", &["-f", "-V"]),
    ("crontab", &["-l", "-r", "-V"]),
    ("su", &["-c", "--c", "--session", "-V", "-h", "--help"]),
    ("runuser", &["-c", "--c", "--session", "-u", "-V", "-h", "--help"]),
    ("script", &["-c", "--c", "-V", "-h", "--help"]),
    ("newgrp", &["-h", "--help"]),
];

/// What a variable does when it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sets {
    /// Its value is run as a line for a shell.
    Script,
    /// Its value is expanded as text in double quotes is.
    Expanded,
    /// Programs load or obey what it names, which is not known.
    Other,
}

/// Variables that make programs run something. A `*` at the end stands for anything. `PATH`, `LD_LIBRARY_PATH`,
/// `NODE_OPTIONS` and the like are not here: whoever leads a program to other code runs a file as a script is run, and
/// no rule about commands knows what is in a script. Nor is `IFS`: a word that the shell splits counts as unknown
/// anyway. (No rule that allows covers them either: see `harmless_variable`.)
pub(crate) const VARIABLES: &[(&str, Sets)] = &[
    ("GIT_EXTERNAL_DIFF", Sets::Script),
    ("GIT_PAGER", Sets::Script),
    ("GIT_EDITOR", Sets::Script),
    ("GIT_SEQUENCE_EDITOR", Sets::Script),
    ("GIT_SSH_COMMAND", Sets::Script),
    ("GIT_SSH", Sets::Script),
    ("GIT_PROXY_COMMAND", Sets::Script),
    ("GIT_ASKPASS", Sets::Script),
    ("SSH_ASKPASS", Sets::Script),
    ("SUDO_ASKPASS", Sets::Script),
    ("GIT_CONFIG_*", Sets::Other),
    ("GIT_CONFIG", Sets::Other),
    ("GIT_EXEC_PATH", Sets::Other),
    ("GIT_TEMPLATE_DIR", Sets::Other),
    ("PAGER", Sets::Script),
    ("MANPAGER", Sets::Script),
    ("LESSOPEN", Sets::Script),
    ("LESSCLOSE", Sets::Script),
    ("EDITOR", Sets::Script),
    ("VISUAL", Sets::Script),
    ("BROWSER", Sets::Script),
    ("PROMPT_COMMAND", Sets::Script),
    ("RSYNC_RSH", Sets::Script),
    ("CVS_RSH", Sets::Script),
    ("SVN_SSH", Sets::Script),
    ("RUSTC_WRAPPER", Sets::Script),
    ("RUSTC_WORKSPACE_WRAPPER", Sets::Script),
    ("CARGO_TARGET_*_RUNNER", Sets::Script),
    ("FZF_DEFAULT_COMMAND", Sets::Script),
    ("TAR_OPTIONS", Sets::Other),
    ("RIPGREP_CONFIG_PATH", Sets::Other),
    ("MAKEFLAGS", Sets::Other),
    ("GNUMAKEFLAGS", Sets::Other),
    ("MAKEFILES", Sets::Other),
    ("PERL5OPT", Sets::Other),
    ("PERL5DB", Sets::Other),
    ("RUBYOPT", Sets::Other),
    ("PYTHONSTARTUP", Sets::Other),
    ("LD_PRELOAD", Sets::Other),
    ("LD_AUDIT", Sets::Other),
    ("DYLD_INSERT_LIBRARIES", Sets::Other),
    ("BASH_ENV", Sets::Other),
    ("SHELLOPTS", Sets::Other),
    ("BASHOPTS", Sets::Other),
    ("BASH_FUNC_*", Sets::Other),
    ("BASH_ALIASES", Sets::Other),
    ("BASH_CMDS", Sets::Other),
    ("PS4", Sets::Expanded),
    ("PS1", Sets::Expanded),
    ("PS0", Sets::Expanded),
    ("ENV", Sets::Expanded),
];
