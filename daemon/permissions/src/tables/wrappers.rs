//! Which programs run their words as a command? Data only; `unwrap` reads it.

/// A program that runs its arguments as a command.
pub(crate) struct Wrapper {
    pub(crate) name: &'static str,
    /// Options that take the next word as their value.
    pub(crate) valued: &'static [&'static str],
    /// Words of its own before the command (`timeout 5`).
    pub(crate) leading: usize,
    /// A rule that allows what is run allows it in this wrapper too.
    pub(crate) transparent: bool,
}

pub(crate) const fn wrapper(
    name: &'static str,
    valued: &'static [&'static str],
    leading: usize,
    transparent: bool,
) -> Wrapper {
    Wrapper { name, valued, leading, transparent }
}

/// Those that are known; no such list is complete.
pub(crate) const WRAPPERS: &[Wrapper] = &[
    wrapper("env", &["-u", "--unset", "-C", "--chdir"], 0, true),
    wrapper("nice", &["-n", "--adjustment"], 0, true),
    wrapper("timeout", &["-s", "--signal", "-k", "--kill-after"], 1, true),
    wrapper("gtimeout", &["-s", "--signal", "-k", "--kill-after"], 1, true),
    wrapper("nohup", &[], 0, true),
    wrapper("time", &["-f", "--format", "-o", "--output"], 0, true),
    wrapper("command", &[], 0, true),
    wrapper("builtin", &[], 0, true),
    wrapper("exec", &["-a"], 0, true),
    wrapper("stdbuf", &["-i", "-o", "-e"], 0, true),
    wrapper("ionice", &["-c", "-n", "-p", "--class", "--classdata"], 0, true),
    wrapper("caffeinate", &["-t", "-w"], 0, true),
    wrapper("setsid", &[], 0, false),
    wrapper("coproc", &[], 0, false),
    wrapper("sudo", &["-u", "-g", "-U", "-h", "-p", "-C", "-T", "-r", "-t", "-D", "-R", "--user", "--group"], 0, false),
    wrapper("doas", &["-u", "-C"], 0, false),
    wrapper("pkexec", &["--user"], 0, false),
    wrapper("setpriv", &["--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set"], 0, false),
    wrapper("chroot", &[], 1, false),
    wrapper(
        "xargs",
        &["-n", "-I", "-P", "-L", "-d", "-E", "-s", "-a", "--max-args", "--max-procs", "--delimiter"],
        0,
        false,
    ),
    wrapper("chrt", &["-T", "-P", "-D", "--sched-runtime", "--sched-period", "--sched-deadline"], 1, false),
    wrapper("taskset", &[], 1, false),
    wrapper("numactl", &["-i", "-N", "-m", "-C", "-l", "-p"], 0, false),
    wrapper("prlimit", &[], 0, false),
    wrapper("cpulimit", &["-l", "-e", "-p"], 0, false),
    wrapper("setarch", &[], 0, false),
    wrapper("linux32", &[], 0, false),
    wrapper("linux64", &[], 0, false),
    wrapper("strace", &["-e", "-o", "-p", "-s", "-u", "-E", "-P", "-a", "-S", "-I"], 0, false),
    wrapper("ltrace", &["-e", "-o", "-p", "-s", "-u", "-n", "-l", "-x"], 0, false),
    wrapper("valgrind", &[], 0, false),
    wrapper("unshare", &["-S", "-G", "-R", "-w"], 0, false),
    wrapper("nsenter", &["-t", "--target", "-S", "-G"], 0, false),
    wrapper("fakeroot", &["-l", "-s", "-i", "-b"], 0, false),
    wrapper("proot", &["-r", "-b", "-w", "-q"], 0, false),
    wrapper("systemd-run", &["-u", "-p", "-t", "-M", "-H", "--unit", "--property"], 0, false),
    wrapper("systemd-inhibit", &[], 0, false),
    wrapper("dbus-run-session", &[], 0, false),
    wrapper("ssh-agent", &["-a", "-t", "-P"], 0, false),
    wrapper("xvfb-run", &["-n", "-s", "-e", "-f", "-p", "-w"], 0, false),
    wrapper("flock", &["-w", "--timeout", "-E"], 1, false),
    wrapper("entr", &[], 0, false),
    wrapper("unbuffer", &[], 0, false),
    wrapper("rlwrap", &[], 0, false),
    wrapper("setuidgid", &[], 1, false),
    wrapper("busybox", &[], 0, false),
    wrapper("toybox", &[], 0, false),
    wrapper("npx", &["-p", "--package", "-c", "--call"], 0, false),
    wrapper("bunx", &[], 0, false),
];

/// Programs that begin so load the program that they are given.
pub(crate) const LOADERS: [&str; 3] = ["ld-linux", "ld-musl", "ld.so"];

/// Programs that run scripts for a shell.
pub(crate) const SHELLS: [&str; 16] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish", "csh", "tcsh", "yash", "oksh", "posh", "xonsh",
    "nu",
];
/// Wrappers that run a shell when they are given no command: it takes what it is fed.
pub(crate) const BARE: [&str; 8] =
    ["chroot", "unshare", "nsenter", "fakeroot", "proot", "setarch", "linux32", "linux64"];
/// Options of `sudo` and `doas` that do the same.
pub(crate) const BARE_OPTIONS: [&str; 4] = ["-s", "-i", "--shell", "--login"];
/// Commands of the shell that run a file in it.
pub(crate) const SOURCING: [&str; 2] = ["source", "."];
/// Expressions of `find` that run something.
pub(crate) const FIND_RUNS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
