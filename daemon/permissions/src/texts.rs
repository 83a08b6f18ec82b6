//! The texts that a command has run: values of its options, of its operands and of variables.

use mcode_git::Setting;

use crate::tables::running::{
    FED, HARMLESS_TEXTS, Operands, RUNNING, Running, Sets, TELLING, Takes, Telling, VARIABLES,
};
use crate::unwrap::base_name;
use crate::words::Word;

/// Something that a command has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// A line for a shell.
    Script(Word),
    /// A command.
    Words(Vec<Word>),
    /// It can not be seen.
    Unknown,
}

/// An option that makes a command run something.
struct Found<'a> {
    /// The word that it stands in.
    option: &'a Word,
    /// `None` when it names a file.
    told: Option<Told>,
}

/// Everything that a command of these words has run as text.
pub(crate) fn told(words: &[Word]) -> Vec<Told> {
    let Some(first) = words.first() else { return Vec::new() };
    let name = base_name(&first.text);
    let mut all: Vec<Told> = options(words).into_iter().filter_map(|found| found.told).collect();
    all.extend(TELLING.iter().filter(|telling| telling.program == name).flat_map(|it| operands(it, &words[1..])));
    if let Some((_, others)) = FED.iter().find(|(program, _)| *program == name) {
        let other = words[1..].iter().any(|word| others.iter().any(|option| word.text.starts_with(option)));
        let file = name == "crontab" && words[1..].iter().any(|word| !word.text.starts_with('-'));
        all.extend((!other && !file).then_some(Told::Unknown));
    }
    match name {
        // An alias makes another command of a word.
        "alias" => all.extend(words[1..].iter().any(|word| word.text.contains('=')).then_some(Told::Unknown)),
        "make" | "gmake" => all.extend(words[1..].iter().filter_map(made)),
        "git" => all.extend(git(&words[1..])),
        _ => {}
    }
    all
}

/// The words of a command that make it run something besides what it is called for.
pub(crate) fn telling_words(words: &[Word]) -> Vec<&str> {
    let Some(first) = words.first() else { return Vec::new() };
    let name = base_name(&first.text);
    let mut all: Vec<&str> = options(words).into_iter().map(|found| found.option.text.as_str()).collect();
    let after = TELLING.iter().filter(|it| it.program == name && !it.after.is_empty());
    all.extend(after.filter(|it| !operands(it, &words[1..]).is_empty()).filter_map(|it| it.after.last().copied()));
    match name {
        "make" | "gmake" => {
            all.extend(words[1..].iter().filter(|word| made(word).is_some()).map(|word| word.text.as_str()));
        }
        "git" if !git(&words[1..]).is_empty() => all.push(words[1].text.as_str()),
        _ => {}
    }
    all
}

/// The options of a command that make it run something. Of those that many commands have, none.
fn options(words: &[Word]) -> Vec<Found<'_>> {
    let Some(first) = words.first() else { return Vec::new() };
    let name = base_name(&first.text);
    // `gcc-12`
    let plain = name.trim_end_matches(|char: char| char.is_ascii_digit() || char == '.').trim_end_matches('-');
    let mut found = Vec::new();
    // `tar cIf PROGRAM FILE`
    let old =
        |word: &&Word| !word.text.starts_with('-') && word.text.contains(['I', 'F']) && !word.text.contains(['.', '/']);
    if name.ends_with("tar")
        && let Some(option) = words.get(1).filter(old)
    {
        found.push(Found { option, told: Some(Told::Unknown) });
    }
    for running in RUNNING.iter().filter(|it| it.programs.contains(&name) || it.programs.contains(&plain)) {
        let has = |wanted: &&str| words[1..].iter().any(|word| word.text == **wanted);
        if running.subcommands.is_empty() || running.subcommands.iter().any(has) {
            found.extend(of_running(running, words));
        }
    }
    found
}

fn of_running<'a>(running: &Running, words: &'a [Word]) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        let Some(value) = running.options.iter().find_map(|option| value_of(option, word)) else { continue };
        let value = value.or_else(|| words.get(at + 1).cloned());
        let told = match (running.takes, value) {
            (Takes::File, Some(value)) if value.dynamic || is_input(&value.text) => Some(Told::Unknown),
            (Takes::File, _) => None,
            (Takes::Other, _) | (_, None) => Some(Told::Unknown),
            (Takes::Script, Some(value)) if HARMLESS_TEXTS.contains(&value.text.as_str()) => continue,
            (Takes::Script, Some(value)) => Some(Told::Script(value)),
            (Takes::Commas, Some(value)) => Some(commas(&value)),
            (Takes::Keyed(keys), Some(value)) => match keyed(keys, &value) {
                Some(told) => Some(told),
                None => continue,
            },
        };
        found.push(Found { option: word, told });
    }
    found
}

/// Whether a file is what a command is fed.
pub(crate) fn is_input(file: &str) -> bool {
    file == "-" || ["/dev/stdin", "/dev/fd/", "/proc/"].iter().any(|start| file.starts_with(start))
}

/// Whether a word is this option: `None` when it is not, `Some(None)` when its value is the next word. Long options may
/// be cut as GNU's can, and short ones stand in bundles.
fn value_of(option: &str, word: &Word) -> Option<Option<Word>> {
    const CUT_MIN: usize = 3;
    let text = word.text.as_str();
    let rest = |at: usize| Word { text: text[at..].to_owned(), ..word.clone() };
    if option.starts_with("--") || option.len() > 2 {
        let end = text.find('=').unwrap_or(text.len());
        let name = &text[..end];
        let cut = option.starts_with("--") && name.len() >= CUT_MIN.min(option.len()) && option.starts_with(name);
        return (name == option || cut).then(|| (end < text.len()).then(|| rest(end + 1)));
    }
    let letter = option.chars().nth(1)?;
    let bundle = text.strip_prefix('-').filter(|bundle| !bundle.starts_with('-'))?;
    let at = bundle.find(letter)?;
    let before = bundle[..at].chars().all(|char| char.is_ascii_alphabetic());
    let after = 1 + at + letter.len_utf8();
    before.then(|| (after < text.len()).then(|| rest(after)))
}

fn commas(value: &Word) -> Told {
    match value.known() {
        Some(text) => Told::Words(text.split(',').map(Word::literal).collect()),
        None => Told::Unknown,
    }
}

/// `KEY=VALUE` or `KEY VALUE`, when the key is one of these.
fn keyed(keys: &[&str], value: &Word) -> Option<Told> {
    let end = value.text.find(['=', ' ']).unwrap_or(value.text.len());
    let key = value.text[..end].to_lowercase();
    if key.contains(['$', '`']) {
        return Some(Told::Unknown);
    }
    // `cargo --config target.'cfg(all())'.runner="x"`: the key may hold a sign of equality.
    let whole = value.text.to_lowercase();
    if !keys.iter().any(|wanted| key.contains(wanted) || whole.contains(&format!("{wanted}="))) {
        return None;
    }
    let text = value.text.rsplit_once('=').or_else(|| value.text.split_once(' ')).map_or("", |(_, text)| text);
    let text = text.trim().trim_matches(['"', '\'']);
    let unknown = text.is_empty() || text.contains('[');
    Some(if unknown { Told::Unknown } else { Told::Script(Word { text: text.to_owned(), ..value.clone() }) })
}

fn operands(telling: &Telling, words: &[Word]) -> Vec<Told> {
    let mut after = telling.after.iter();
    let (mut wanted, mut leading, mut at) = (after.next(), telling.leading, 0);
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        if text.starts_with('-') && text.len() > 1 {
            at += if telling.valued.contains(&text) { 2 } else { 1 };
        } else if let Some(next) = wanted {
            if text != *next {
                return Vec::new();
            }
            wanted = after.next();
            at += 1;
        } else if leading > 0 {
            leading -= 1;
            at += 1;
        } else {
            break;
        }
    }
    let rest = words.get(at..).unwrap_or_default();
    if rest.is_empty() || wanted.is_some() || matches!(rest, [only] if only.text.is_empty() || only.text == "-") {
        return Vec::new();
    }
    let joined = || {
        let text = rest.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let dynamic = rest.iter().any(|word| word.dynamic || word.glob);
        Told::Script(Word { text, dynamic, glob: false })
    };
    match telling.operands {
        // A word of a command of words, not of a text.
        Operands::Joined if rest.len() > 1 && rest.iter().skip(1).any(|word| word.dynamic) => {
            vec![Told::Words(rest.to_vec())]
        }
        Operands::Joined => vec![joined()],
        Operands::First => vec![Told::Script(rest[0].clone())],
        Operands::Each => rest.iter().filter(|word| word.text.contains(' ')).cloned().map(Told::Script).collect(),
        Operands::Command => vec![Told::Words(rest.to_vec())],
    }
}

/// `make CC='sh -c x'`: what is given stands in the lines that are run.
fn made(word: &Word) -> Option<Told> {
    let (name, value) = word.text.split_once('=')?;
    if name.starts_with('-') {
        return None;
    }
    let shell = matches!(name.trim_end_matches([':', '+', '?', '!']), "SHELL" | ".SHELLFLAGS" | "MAKEFLAGS");
    if name.ends_with('!') || value.contains("$(shell") || shell && word.dynamic {
        return Some(Told::Unknown);
    }
    let command = shell || value.contains([' ', ';', '|', '&', '$', '`']);
    (command && word.known().is_some()).then(|| Told::Script(Word::literal(value)))
}

fn git(words: &[Word]) -> Vec<Told> {
    let mut all = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = || words.get(at + 1).cloned().unwrap_or_else(|| Word::literal(""));
        match word.text.as_str() {
            "-c" | "--config" | "--config-env" => all.extend(git_setting(&next(), word.text == "--config-env")),
            // `git config KEY VALUE` is for later commands.
            "config" if at == 0 => {
                let rest: Vec<&Word> = words[1..].iter().filter(|word| !word.text.starts_with('-')).collect();
                let set = usize::from(rest.first().is_some_and(|word| word.text == "set"));
                if let [key, value, ..] = &rest[set..] {
                    let (text, dynamic) = (format!("{}={}", key.text, value.text), key.dynamic || value.dynamic);
                    all.extend(git_setting(&Word { text, dynamic, glob: key.glob || value.glob }, false));
                }
            }
            text => {
                if let Some(command) = text.strip_prefix("ext::") {
                    all.push(Told::Script(Word { text: command.to_owned(), ..word.clone() }));
                } else if let Some(stuck) = text.strip_prefix("--config-env=") {
                    all.extend(git_setting(&Word { text: stuck.to_owned(), ..word.clone() }, true));
                } else if text.starts_with("-O") && text.len() > 2 && words.iter().any(|word| word.text == "grep") {
                    all.push(Told::Script(Word { text: text[2..].to_owned(), ..word.clone() }));
                } else if let Some(stuck) = text.strip_prefix("--open-files-in-pager=") {
                    all.push(Told::Script(Word { text: stuck.to_owned(), ..word.clone() }));
                }
            }
        }
    }
    all
}

/// `KEY=VALUE` as `git -c` has it. With `hidden`, the value is in a variable.
fn git_setting(word: &Word, hidden: bool) -> Option<Told> {
    let (key, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
    if key.contains(['$', '`', '*', '?', '{']) {
        return Some(Told::Unknown);
    }
    // What can not be seen may be a command.
    let setting = Setting::of(key, if hidden { "!" } else { value });
    if mcode_git::leads(&setting) {
        return Some(Told::Unknown);
    }
    if !mcode_git::runs(&setting) || matches!(value, "" | "true" | "false") && !hidden {
        return None;
    }
    if hidden {
        return Some(Told::Unknown);
    }
    let text = match value.strip_prefix('!') {
        Some(command) => command.to_owned(),
        None if setting.section == "alias" => format!("git {value}"),
        None => value.to_owned(),
    };
    Some(Told::Script(Word { text, ..word.clone() }))
}

/// What a variable has run when it is given this value.
pub(crate) fn of_variable(name: &str, value: Option<&Word>) -> Option<Told> {
    let (_, sets) = VARIABLES.iter().find(|(pattern, _)| fits(pattern, name))?;
    let value = value?;
    match sets {
        _ if value.text.is_empty() || HARMLESS_TEXTS.contains(&value.text.as_str()) || value.text == "/dev/null" => {
            None
        }
        // Numbers and switches of `git` that are no settings.
        Sets::Other if name == "GIT_CONFIG_NOSYSTEM" => None,
        // `make` is told of its own number of jobs in it.
        Sets::Other if name == "MAKEFLAGS" && value.text.starts_with("-j") && !value.text.contains(' ') => None,
        Sets::Other => Some(Told::Unknown),
        Sets::Script => {
            Some(Told::Script(Word { text: value.text.trim_start_matches('|').to_owned(), ..value.clone() }))
        }
        Sets::Expanded if value.dynamic => Some(Told::Unknown),
        Sets::Expanded => {
            let text = value.text.replace('\\', "").replace('"', "\\\"");
            Some(Told::Script(Word::literal(format!(": \"{text}\""))))
        }
    }
}

/// Whether a text fits a pattern in which each `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            let Some(at) = rest.find(middle) else { return false };
            rest = &rest[at + middle.len()..];
        }
    }
    last.map_or(rest.is_empty(), |end| rest.ends_with(end))
}
