//! What can not be known of a command before it runs, where a rule speaks of it.
//!
//! A rule that forbids `cat secret` can not be held against `cat $x`. Such a command is asked about, and `--approve all`
//! does not reach over a deny rule that might be meant.

use std::path::Path;

use mcode_config::effective::RuleSource;

use crate::code::runs_capable_code;
use crate::command::{Parsed, Simple};
use crate::git::{self, Shows, may_be_alias, shows};
use crate::mentions::bases;
use crate::paths::{Places, absolute};
use crate::rule::{Rule, Subject};
use crate::tables::files::{BUILDING, PATTERN_FIRST, SHOWING_NOTHING};
use crate::tables::running::TELLING;
use crate::tables::wrappers::{SHELLS, WRAPPERS};
use crate::touched::changes;
use crate::unwrap::base_name;
use crate::words::Word;

/// Variables that say where names lead.
const LEADING: [&str; 4] = ["HOME", "PWD", "OLDPWD", "CDPATH"];

/// Why it is not known whether one of these rules speaks of the command; `None` when it is known, or no rule could.
/// With `shielded`, files that rules forbid are out of the command's reach anyway; what `git` keeps of them is not.
pub(crate) fn unknown_part(
    (command, cwd): (&str, &Path),
    parsed: Option<&Parsed>,
    rules: &[Rule],
    shielded: bool,
    places: &Places<'_>,
) -> Option<String> {
    // The rules that are always there are about mcode's own folders: they must not make every variable suspicious.
    let rules = || rules.iter().filter(|rule| rule.source != RuleSource::BuiltIn);
    let about_text = |rule: &Rule| rule.pattern.is_some() && matches!(rule.subject, Subject::Shell | Subject::Tool(_));
    let paths = !shielded && rules().any(|rule| rule.path_pattern().is_some());
    let named = rules().any(|rule| rule.path_pattern().is_some());
    if !named && !rules().any(about_text) {
        return None;
    }
    let Some(parsed) = parsed else { return Some("the command can not be read as a whole".into()) };
    if parsed.unseen {
        return Some("part of the command is known only when it runs".into());
    }
    if parsed.evaluates {
        return Some("the shell may evaluate text in it as an expression, which can run further commands".into());
    }
    if let Some(simple) = parsed.all().find(|simple| runs_capable_code(simple, command)) {
        let program = simple.program();
        return Some(format!("what the code does that '{program}' is given is not known"));
    }
    if rules().any(about_git) && parsed.all().any(|simple| may_be_alias(&simple.words)) {
        return Some("what is no command of git's own may be an alias for any".into());
    }
    // What `git` keeps is not out of reach where the files are.
    let reading: Vec<&Rule> = rules().filter(|rule| !matches!(rule.subject, Subject::Edit)).collect();
    if let Some(why) = shown_by_git(parsed, cwd, &reading, places) {
        return Some(why);
    }
    if !paths {
        return None;
    }
    if parsed.all().flat_map(|simple| &simple.assigned).any(|name| LEADING.contains(&name.as_str())) {
        return Some("the command sets a variable that says where names lead".into());
    }
    let lost = parsed.all().any(moves_somewhere);
    let changing = rules().any(|rule| matches!(rule.subject, Subject::Edit) && rule.pattern.is_some());
    let reading = rules().any(|rule| !matches!(rule.subject, Subject::Edit) && rule.path_pattern().is_some());
    let file = |program: &str| Some(format!("which file '{program}' is given is known only when it runs"));
    for redirect in &parsed.redirects {
        if (if redirect.write { changing } else { reading }) && unknown(&redirect.target) {
            return file(if redirect.write { ">" } else { "<" });
        }
    }
    parsed.all().find_map(|simple| {
        let program = simple.program();
        let reads = reading && may_show(program);
        let changes = changing && changes(simple);
        let unknown = reads && operand_unknown(simple, PATTERN_FIRST.contains(&program))
            || changes && operand_unknown(simple, false)
            // After a move to somewhere, no relative name is known.
            || lost && (reads || changes) && simple.words.iter().skip(1).any(is_relative);
        if unknown { file(program) } else { None }
    })
}

/// Whether a program may show what is in the files that its words name. What wrappers and shells run is judged itself.
fn may_show(program: &str) -> bool {
    let other = SHOWING_NOTHING.contains(&program) || BUILDING.contains(&program) || SHELLS.contains(&program);
    let runs = || {
        WRAPPERS.iter().any(|wrapper| wrapper.name == program)
            || TELLING.iter().any(|telling| telling.program == program)
    };
    !(program.is_empty() || other || runs())
}

/// Whether a rule may be about a command of `git`.
fn about_git(rule: &Rule) -> bool {
    let pattern = rule.pattern.as_ref().and_then(|pattern| pattern.command.as_ref());
    let about = matches!(rule.subject, Subject::Shell | Subject::Tool(_));
    about && pattern.is_some_and(|pattern| pattern.program().is_none_or(|program| base_name(program) == "git"))
}

/// Whether a command of `git` can show a file that it does not name and that one of these rules speaks of.
fn shown_by_git(parsed: &Parsed, cwd: &Path, rules: &[&Rule], places: &Places<'_>) -> Option<String> {
    let patterns = || rules.iter().filter_map(|rule| rule.path_pattern());
    parsed.all().find_map(|simple| {
        let meant = match shows(&simple.words) {
            Shows::Named => false,
            Shows::Anything => {
                let mut folders = bases(parsed, cwd, places.home);
                folders.push(places.project_root.to_path_buf());
                patterns().any(|pattern| folders.iter().any(|folder| pattern.may_fit_below(folder, places)))
            }
            // Where a pattern may fit anywhere, what is in these folders is looked up on the disk.
            Shows::Below(paths) => {
                let folders = bases(parsed, cwd, places.home);
                let all: Vec<_> = paths
                    .iter()
                    .flat_map(|path| folders.iter().map(move |base| absolute(base, path, places.home)))
                    .collect();
                patterns()
                    .filter(|pattern| !pattern.is_anywhere())
                    .any(|pattern| all.iter().any(|path| pattern.may_fit_below(path, places)))
            }
        };
        meant.then(|| {
            let name = git::subcommand(&simple.words);
            format!(
                "'git {name}' can show what git keeps of any file, also of those that the rule is about; say which files \
                 it may show, after '--': git {name} -- src"
            )
        })
    })
}

/// Whether it is not known where a command goes to.
fn moves_somewhere(simple: &Simple) -> bool {
    let program = simple.program();
    let operand = |word: &&Word| !word.text.starts_with('-') || word.text == "-";
    match program {
        "popd" => true,
        "cd" | "pushd" => {
            simple.words.iter().skip(1).find(operand).is_some_and(|word| unknown(word) || word.glob || word.text == "-")
        }
        _ => false,
    }
}

fn is_relative(word: &Word) -> bool {
    !word.text.starts_with(['-', '/', '~'])
}

/// Whether an operand of a command is known only when it runs. `{}` is what `find` puts there.
fn operand_unknown(simple: &Simple, pattern_first: bool) -> bool {
    let given = |word: &Word| word.text.starts_with("-e") || word.text.starts_with("-f") || word.text.starts_with("--");
    let skipped = usize::from(pattern_first && !simple.words.iter().any(given));
    let operands = simple.words.iter().skip(1).filter(|word| !word.text.starts_with('-'));
    operands.skip(skipped).any(|word| unknown(word) || word.text == "{}")
}

/// Whether a word is known only when it runs. The folders of the user and of the command are known well enough.
fn unknown(word: &Word) -> bool {
    let known = ["$HOME/", "${HOME}/", "$PWD/", "${PWD}/"].iter().find_map(|start| word.text.strip_prefix(start));
    word.dynamic && known.is_none_or(|rest| rest.contains(['$', '`', '<', '>']))
}
