//! Programs that run other programs: what do they run?

use crate::command::{Parsed, Redirect, Simple, parse_at};
use crate::words::Word;

/// What a command runs in turn.
pub(crate) enum Unwrapped {
    /// Nothing that is known to be run.
    Plain,
    /// These commands.
    Runs(Runs),
    /// A file of commands that it names.
    Sourced,
    /// Something that can not be known.
    Unknown,
}

/// The commands that another command runs.
#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) commands: Vec<Simple>,
    pub(crate) redirects: Vec<Redirect>,
    pub(crate) transparent: bool,
    pub(crate) assigned: Vec<String>,
    /// Further commands may be run that can not be known.
    pub(crate) opaque: bool,
    /// Some of them are text that is known only when it runs.
    pub(crate) unseen: bool,
    /// Text may be evaluated as an expression.
    pub(crate) evaluates: bool,
}

/// A program that runs its arguments as a command.
struct Wrapper {
    name: &'static str,
    /// Options that take the next word as their value.
    valued: &'static [&'static str],
    /// Words of its own before the command (`timeout 5`).
    leading: usize,
    transparent: bool,
}

const fn wrapper(name: &'static str, valued: &'static [&'static str], leading: usize, transparent: bool) -> Wrapper {
    Wrapper { name, valued, leading, transparent }
}

const WRAPPERS: [Wrapper; 24] = [
    wrapper("env", &["-u", "--unset", "-C", "--chdir"], 0, true),
    wrapper("nice", &["-n", "--adjustment"], 0, true),
    wrapper("timeout", &["-s", "--signal", "-k", "--kill-after"], 1, true),
    wrapper("nohup", &[], 0, true),
    wrapper("time", &["-f", "--format", "-o", "--output"], 0, true),
    wrapper("command", &[], 0, true),
    wrapper("builtin", &[], 0, true),
    wrapper("exec", &["-a"], 0, true),
    wrapper("stdbuf", &["-i", "-o", "-e"], 0, true),
    wrapper("ionice", &["-c", "-n", "--class", "--classdata"], 0, true),
    wrapper("setsid", &[], 0, false),
    wrapper("sudo", &["-u", "-g", "-U", "-h", "-p", "-C", "-T", "-r", "-t", "-D", "-R", "--user", "--group"], 0, false),
    wrapper("doas", &["-u", "-C"], 0, false),
    wrapper("pkexec", &["--user"], 0, false),
    wrapper("chroot", &[], 1, false),
    wrapper(
        "xargs",
        &["-n", "-I", "-P", "-L", "-d", "-E", "-s", "-a", "--max-args", "--max-procs", "--delimiter"],
        0,
        false,
    ),
    wrapper("parallel", &["-j", "--jobs"], 0, false),
    wrapper("watch", &["-n", "--interval"], 0, false),
    wrapper("strace", &["-e", "-o", "-p", "-s"], 0, false),
    wrapper("unshare", &[], 0, false),
    wrapper("flock", &["-w", "--timeout"], 1, false),
    wrapper("busybox", &[], 0, false),
    wrapper("toybox", &[], 0, false),
    wrapper("caffeinate", &["-t", "-w"], 0, true),
];

const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"];
const SOURCING: [&str; 2] = ["source", "."];
const FIND_RUNS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// The last part of a program's path.
pub(crate) fn base_name(program: &str) -> &str {
    program.rsplit(['/', '\\']).next().unwrap_or(program)
}

/// What a command of these words runs in turn.
pub(crate) fn inner(words: &[Word], depth: usize) -> Unwrapped {
    let Some(first) = words.first() else { return Unwrapped::Plain };
    let Some(program) = first.known() else { return Unwrapped::Unknown };
    let name = base_name(program);
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        return wrapped(wrapper, &words[1..], depth);
    }
    if SHELLS.contains(&name) {
        return shell(&words[1..], depth);
    }
    if SOURCING.contains(&name) {
        return if words.iter().all(|word| word.known().is_some()) { Unwrapped::Sourced } else { Unwrapped::Unknown };
    }
    if name == "eval" {
        return match joined(&words[1..]) {
            Some(script) => script_runs(&script, depth, true),
            None => Unwrapped::Unknown,
        };
    }
    if name == "find" { find(&words[1..], depth) } else { Unwrapped::Plain }
}

fn joined(words: &[Word]) -> Option<String> {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    Some(known?.join(" "))
}

fn script_runs(script: &str, depth: usize, transparent: bool) -> Unwrapped {
    match parse_at(script, depth + 1) {
        Some(parsed) => {
            let Parsed { commands, redirects, opaque, unseen, evaluates } = parsed;
            Unwrapped::Runs(Runs { commands, redirects, transparent, assigned: Vec::new(), opaque, unseen, evaluates })
        }
        None => Unwrapped::Unknown,
    }
}

fn wrapped(wrapper: &Wrapper, words: &[Word], depth: usize) -> Unwrapped {
    let (mut at, mut assigned, mut leading) = (0, Vec::new(), wrapper.leading);
    while let Some(word) = words.get(at) {
        let Some(text) = word.known() else {
            // xargs {}, env "$X": what stands where the program should be is not known.
            return Unwrapped::Unknown;
        };
        if text == "--" {
            at += 1;
            break;
        }
        if wrapper.name == "env" && (text == "-S" || text.starts_with("--split-string") || text.starts_with("-S")) {
            return Unwrapped::Unknown;
        }
        // `command -v x` only says where x is.
        if wrapper.name == "command" && matches!(text, "-v" | "-V") {
            return Unwrapped::Plain;
        }
        if text.len() > 1 && text.starts_with('-') {
            at += if wrapper.valued.contains(&text) { 2 } else { 1 };
        } else if matches!(wrapper.name, "env" | "sudo" | "doas") && text.contains('=') {
            assigned.push(text.split('=').next().unwrap_or_default().to_owned());
            at += 1;
        } else if leading > 0 {
            leading -= 1;
            at += 1;
        } else {
            break;
        }
    }
    let mut rest = words.get(at..).unwrap_or_default().to_vec();
    if rest.is_empty() {
        return Unwrapped::Plain;
    }
    if matches!(wrapper.name, "xargs" | "parallel") {
        // What they read becomes further arguments.
        rest.push(Word { text: "{}".into(), dynamic: true, glob: false });
    }
    runs_words(&rest, depth, wrapper.transparent, assigned)
}

/// The words are themselves a command.
fn runs_words(words: &[Word], depth: usize, transparent: bool, assigned: Vec<String>) -> Unwrapped {
    if depth >= crate::command::DEPTH_MAX {
        return Unwrapped::Unknown;
    }
    let mut simple = Simple { words: words.to_vec(), ..Simple::default() };
    let mut outer = Runs { transparent, assigned, ..Runs::default() };
    match inner(words, depth + 1) {
        Unwrapped::Plain => {}
        Unwrapped::Sourced => outer.opaque = true,
        Unwrapped::Unknown => (outer.opaque, outer.unseen) = (true, true),
        Unwrapped::Runs(runs) => {
            let Runs { commands, redirects, transparent, assigned, opaque, unseen, evaluates } = runs;
            (outer.redirects, outer.opaque, outer.unseen) = (redirects, opaque, unseen);
            outer.evaluates = evaluates;
            simple.assigned = assigned;
            simple.inner = Some(Box::new(crate::command::Inner { commands, transparent }));
        }
    }
    outer.commands.push(simple);
    Unwrapped::Runs(outer)
}

/// `sh -c SCRIPT`; a shell that reads a file runs what can not be seen, but names it in its words. One that reads its
/// input names nothing.
fn shell(words: &[Word], depth: usize) -> Unwrapped {
    // Start-up files of an interactive shell would run beside the script.
    let mut plain = true;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let Some(text) = word.known() else { return Unwrapped::Unknown };
        plain &= !matches!(text, "--rcfile" | "--init-file") && (text.starts_with("--") || !text.contains('i'));
        if matches!(text, "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file") {
            at += 2;
            continue;
        }
        let Some(flags) = text.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            return if text == "-" || text.starts_with('+') { Unwrapped::Unknown } else { Unwrapped::Plain };
        };
        if flags == "-version" || flags == "-help" {
            return Unwrapped::Plain;
        }
        if !flags.starts_with('-') && flags.contains('s') {
            return Unwrapped::Unknown;
        }
        at += 1;
        if !flags.starts_with('-') && flags.contains('c') {
            // More options may stand between -c and the script.
            while words.get(at).and_then(Word::known).is_some_and(|text| text.starts_with(['-', '+'])) {
                at += 1;
            }
            return match words.get(at).map(Word::known) {
                Some(Some(script)) => script_runs(script, depth, plain),
                Some(None) => Unwrapped::Unknown,
                None => Unwrapped::Plain,
            };
        }
    }
    Unwrapped::Unknown
}

fn find(words: &[Word], depth: usize) -> Unwrapped {
    let mut all = Runs::default();
    let mut at = 0;
    while at < words.len() {
        let word = &words[at];
        at += 1;
        if !FIND_RUNS.contains(&word.text.as_str()) {
            continue;
        }
        let rest = &words[at..];
        let end = rest.iter().position(|word| matches!(word.text.as_str(), ";" | "+")).unwrap_or(rest.len());
        at += end;
        // `{}` is not a brace list here.
        let run: Vec<Word> =
            rest[..end].iter().map(|word| if word.text == "{}" { Word::literal("{}") } else { word.clone() }).collect();
        match runs_words(&run, depth, false, Vec::new()) {
            Unwrapped::Runs(runs) => {
                all.commands.extend(runs.commands);
                all.redirects.extend(runs.redirects);
                all.opaque |= runs.opaque;
                all.unseen |= runs.unseen;
                all.evaluates |= runs.evaluates;
            }
            Unwrapped::Plain | Unwrapped::Sourced | Unwrapped::Unknown => return Unwrapped::Unknown,
        }
    }
    if all.commands.is_empty() { Unwrapped::Plain } else { Unwrapped::Runs(all) }
}
