//! Programs that run other programs: what do they run?

use crate::command::{Inner, Parsed, Redirect, Simple, parse_at};
use crate::evaluated::{Evaluated, Text};
use crate::readonly::bundled;
use crate::runners::runs_nothing;
use crate::tables::wrappers::{BARE, BARE_OPTIONS, FIND_RUNS, LOADERS, SHELLS, SOURCING, WRAPPERS, Wrapper, wrapper};
use crate::texts::{Told, is_input, of_variable, told};
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
    /// What is evaluated as an expression.
    pub(crate) evaluated: Evaluated,
}

impl Runs {
    /// Adds what something else runs.
    pub(crate) fn absorb(&mut self, runs: Unwrapped) {
        match runs {
            Unwrapped::Plain => {}
            Unwrapped::Sourced => self.opaque = true,
            Unwrapped::Unknown => (self.opaque, self.unseen) = (true, true),
            Unwrapped::Runs(runs) => {
                self.commands.extend(runs.commands);
                self.redirects.extend(runs.redirects);
                self.assigned.extend(runs.assigned);
                self.opaque |= runs.opaque;
                self.unseen |= runs.unseen;
                self.evaluated.merge(runs.evaluated);
            }
        }
    }
}

/// The last part of a program's path.
pub(crate) fn base_name(program: &str) -> &str {
    program.rsplit(['/', '\\']).next().unwrap_or(program)
}

/// The program that a command of these words calls, without its folder; empty when there is none.
pub(crate) fn program_of(words: &[Word]) -> &str {
    words.first().map_or("", |word| base_name(&word.text))
}

/// What a command of these words runs in turn.
pub(crate) fn inner(words: &[Word], depth: usize) -> Unwrapped {
    let Some(first) = words.first() else { return Unwrapped::Plain };
    let Some(program) = first.known() else { return Unwrapped::Unknown };
    let name = base_name(program);
    let texts = told(words);
    let own = run_by(name, words, depth, &texts);
    if texts.is_empty() {
        return own;
    }
    let mut all = Runs::default();
    all.absorb(own);
    texts.into_iter().for_each(|text| all.absorb(text_runs(text, depth)));
    Unwrapped::Runs(all)
}

/// What a program runs by what it is, beside the texts that it is given.
fn run_by(name: &str, words: &[Word], depth: usize, texts: &[Told]) -> Unwrapped {
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        // `flock FILE -c TEXT` runs no words.
        let text_only = name == "flock" && !texts.is_empty();
        return if text_only { Unwrapped::Plain } else { wrapped(wrapper, &words[1..], depth) };
    }
    if LOADERS.iter().any(|loader| name.starts_with(loader)) {
        return wrapped(
            &wrapper("ld.so", &["--library-path", "--preload", "--audit", "--argv0"], 0, false),
            &words[1..],
            depth,
        );
    }
    if SHELLS.contains(&name) {
        return shell(&words[1..], depth);
    }
    if SOURCING.contains(&name) {
        let seen = |word: &Word| word.known().is_some_and(|file| !is_input(file));
        return if words.iter().all(seen) { Unwrapped::Sourced } else { Unwrapped::Unknown };
    }
    if name == "eval" {
        return match joined(&words[1..]) {
            Some(script) => script_runs(&script, depth, true),
            None => Unwrapped::Unknown,
        };
    }
    if name == "find" {
        return find(&words[1..], depth);
    }
    if runs_nothing(words) { Unwrapped::Plain } else { within(words, depth) }
}

/// A program that is not known may run its arguments: no list of wrappers is complete. Where a shell or a wrapper is
/// named among them and given something to run, that is looked at.
fn within(words: &[Word], depth: usize) -> Unwrapped {
    let runs = |word: &Word| {
        let name = word.known().map_or("", base_name);
        SHELLS.contains(&name) || name == "eval" || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
    };
    let Some(at) = words.iter().skip(1).position(runs).map(|at| at + 1) else { return Unwrapped::Plain };
    if words.len() == at + 1 {
        return Unwrapped::Plain;
    }
    match runs_words(&words[at..], depth, false, Vec::new()) {
        Unwrapped::Runs(runs) if runs.unseen || runs.commands.iter().any(|simple| simple.inner.is_some()) => {
            Unwrapped::Runs(runs)
        }
        Unwrapped::Unknown => Unwrapped::Unknown,
        _ => Unwrapped::Plain,
    }
}

/// What a text runs that a command is given for that.
pub(crate) fn text_runs(text: Told, depth: usize) -> Unwrapped {
    match text {
        Told::Script(word) => word.known().map_or(Unwrapped::Unknown, |script| script_runs(script, depth, false)),
        Told::Words(words) => runs_words(&words, depth, false, Vec::new()),
        Told::Unknown => Unwrapped::Unknown,
    }
}

fn joined(words: &[Word]) -> Option<String> {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    Some(known?.join(" "))
}

fn script_runs(script: &str, depth: usize, transparent: bool) -> Unwrapped {
    match parse_at(script, depth + 1) {
        Some(parsed) => {
            let Parsed { commands, redirects, opaque, unseen, evaluated, .. } = parsed;
            Unwrapped::Runs(Runs { commands, redirects, transparent, assigned: Vec::new(), opaque, unseen, evaluated })
        }
        None => Unwrapped::Unknown,
    }
}

fn wrapped(wrapper: &Wrapper, words: &[Word], depth: usize) -> Unwrapped {
    let (mut at, mut assigned, mut leading) = (0, Vec::new(), wrapper.leading);
    let mut beside = Runs::default();
    while let Some(word) = words.get(at) {
        // `xargs -I{}`: no list of braces.
        let mark = matches!(wrapper.name, "xargs" | "parallel") && matches!(word.text.as_str(), "-I{}" | "-i{}");
        if let Some((name, value)) = assignment(wrapper, word) {
            assigned.push(name.to_owned());
            beside.evaluated.give(name, Text::of_word(&value));
            if let Some(text) = of_variable(name, Some(&value)) {
                beside.absorb(text_runs(text, depth));
            }
            at += 1;
            continue;
        }
        let Some(text) = word.known().or_else(|| mark.then_some(word.text.as_str())) else {
            // xargs {}, env "$X": what stands where the program should be is not known.
            return Unwrapped::Unknown;
        };
        if text == "--" {
            at += 1;
            break;
        }
        if wrapper.name == "env" && (text.starts_with("--s") || !text.starts_with("--") && bundled(text, 'S')) {
            return Unwrapped::Unknown;
        }
        // `command -v x` only says where x is.
        if wrapper.name == "command" && matches!(text, "-v" | "-V") {
            return Unwrapped::Plain;
        }
        if text.len() > 1 && text.starts_with('-') {
            at += if wrapper.valued.contains(&text) { 2 } else { 1 };
        } else if leading > 0 {
            leading -= 1;
            at += 1;
        } else {
            break;
        }
    }
    let mut rest = words.get(at..).unwrap_or_default().to_vec();
    if rest.is_empty() {
        let shell = words.iter().any(|word| BARE_OPTIONS.contains(&word.text.as_str()));
        let fed = BARE.contains(&wrapper.name) || matches!(wrapper.name, "sudo" | "doas") && shell;
        return if fed { Unwrapped::Unknown } else { Unwrapped::Plain };
    }
    if matches!(wrapper.name, "xargs" | "parallel") {
        // What they read becomes further arguments.
        mark_replaced(words, &mut rest);
        rest.push(Word { text: "{}".into(), dynamic: true, glob: false });
    }
    let mut runs = runs_words(&rest, depth, wrapper.transparent, assigned);
    if let Unwrapped::Runs(runs) = &mut runs {
        runs.absorb(Unwrapped::Runs(beside));
    }
    runs
}

/// Marks the words that hold what `-I` says is to be replaced by what is read.
fn mark_replaced(words: &[Word], rest: &mut [Word]) {
    let apart = words.windows(2).filter(|pair| pair[0].text == "-I").map(|pair| pair[1].text.as_str());
    let stuck = words.iter().filter_map(|word| {
        let text = word.text.as_str();
        text.strip_prefix("-I").or(text.strip_prefix("-i")).or(text.strip_prefix("--replace="))
    });
    for mark in apart.chain(stuck).filter(|mark| !mark.is_empty()) {
        rest.iter_mut().filter(|word| word.text.contains(mark)).for_each(|word| word.dynamic = true);
    }
}

/// `env NAME=value program`.
fn assignment<'a>(wrapper: &Wrapper, word: &'a Word) -> Option<(&'a str, Word)> {
    let (name, value) = word.text.split_once('=').filter(|_| matches!(wrapper.name, "env" | "sudo" | "doas"))?;
    // A list of braces is more words than one, and so may be what a variable holds.
    let plain = !name.starts_with('-') && word.known().is_some();
    plain.then(|| (name, Word { text: value.to_owned(), ..word.clone() }))
}

/// The words are themselves a command.
fn runs_words(words: &[Word], depth: usize, transparent: bool, assigned: Vec<String>) -> Unwrapped {
    if depth >= crate::command::DEPTH_MAX {
        return Unwrapped::Unknown;
    }
    let mut simple = Simple { words: words.to_vec(), ..Simple::default() };
    let mut outer = Runs { transparent, assigned, ..Runs::default() };
    outer.evaluated.builtin(words);
    match inner(words, depth + 1) {
        Unwrapped::Runs(mut runs) => {
            simple.assigned = std::mem::take(&mut runs.assigned);
            let (commands, transparent) = (std::mem::take(&mut runs.commands), runs.transparent);
            simple.inner = Some(Box::new(Inner { commands, transparent }));
            outer.absorb(Unwrapped::Runs(runs));
        }
        other => outer.absorb(other),
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
            return if text.starts_with('+') || is_input(text) { Unwrapped::Unknown } else { Unwrapped::Plain };
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
                Some(Some(script)) => {
                    let mut runs = script_runs(script, depth, plain);
                    if let Unwrapped::Runs(runs) = &mut runs {
                        words[at + 1..].iter().for_each(|word| runs.evaluated.positional(word));
                    }
                    runs
                }
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
            runs @ Unwrapped::Runs(_) => all.absorb(runs),
            Unwrapped::Plain | Unwrapped::Sourced | Unwrapped::Unknown => return Unwrapped::Unknown,
        }
    }
    if all.commands.is_empty() { Unwrapped::Plain } else { Unwrapped::Runs(all) }
}
