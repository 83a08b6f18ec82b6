//! Programs that are given code as text: could that code read a file or run a program?

use crate::command::Simple;
use crate::tables::code::{AWKS, CAPABLE, EDITORS, INTERPRETERS, LITTLE, SEDS};
use crate::unwrap::program_of;
use crate::words::Word;

fn plain_name(words: &[Word]) -> &str {
    let name = program_of(words);
    name.trim_end_matches(|char: char| char.is_ascii_digit() || char == '.')
}

/// Whether a program is given code, in an argument or as its input, that could read a file or run a program.
pub(crate) fn runs_capable_code(simple: &Simple, command: &str) -> bool {
    interpreted(simple, command) || little(&simple.words, command)
}

/// Whether a program with a language of its own is told to reach for a file or a program, by its words or by what the
/// command feeds it.
pub(crate) fn little(words: &[Word], command: &str) -> bool {
    let name = program_of(words);
    let rest = words.get(1..).unwrap_or_default();
    if AWKS.contains(&name) {
        return awk(rest);
    }
    if SEDS.contains(&name) {
        return sed(rest);
    }
    if EDITORS.contains(&name) {
        return edits(rest);
    }
    let Some(little) = LITTLE.iter().find(|little| little.programs.contains(&name)) else { return false };
    let capable = |text: &str| {
        let text = text.to_lowercase();
        little.words.iter().any(|word| text.contains(word))
    };
    rest.iter().any(|word| capable(&word.text)) || little.fed && is_fed(command) && capable(command)
}

/// Whether the command feeds something to a program.
fn is_fed(command: &str) -> bool {
    command.contains("<<") || command.contains('|')
}

fn interpreted(simple: &Simple, command: &str) -> bool {
    if !INTERPRETERS.contains(&plain_name(&simple.words)) {
        return false;
    }
    let words = || simple.words.iter().skip(1).map(|word| word.text.as_str());
    let capable = |text: &str| {
        let text = text.to_lowercase();
        CAPABLE.iter().any(|word| text.contains(word))
    };
    let inline = words().any(|text| {
        text.starts_with("--eval")
            || text.starts_with("--print")
            || (text.starts_with('-') && !text.starts_with("--") && text.contains(['c', 'e', 'E', 'r', 'p']))
    });
    let asks = words().any(|text| matches!(text, "--version" | "--help" | "-V" | "-h" | "-v"));
    let from_input = !asks && words().all(|text| text.starts_with('-'));
    let module = words().any(|text| text == "-m");
    !module && (inline && words().any(capable) || from_input && capable(command))
}

/// `vim -c '!x'`; going to a line and leaving are harmless.
fn edits(words: &[Word]) -> bool {
    const HARMLESS: [&str; 10] = ["q", "q!", "qa", "qa!", "wq", "wqa", "x", "w", "", "$"];
    let mut code = false;
    words.iter().any(|word| {
        let text = word.text.as_str();
        let value = if std::mem::take(&mut code) { Some(text) } else { text.strip_prefix('+') };
        code = matches!(text, "-c" | "--cmd");
        let harmless = |text: &str| HARMLESS.contains(&text) || text.chars().all(|char| char.is_ascii_digit());
        value.is_some_and(|text| !harmless(text)) || matches!(text, "-es" | "-Es" | "-s" | "-")
    })
}

/// Whether an `awk` program runs something, or reads what it does not name as an operand.
fn awk(words: &[Word]) -> bool {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        match text {
            "-F" | "-v" | "--assign" | "--field-separator" => {
                rest.next();
            }
            // A program in a file is a script.
            "-f" | "--file" => return rest.next().is_some_and(|file| file.dynamic || file.text == "-"),
            "-e" | "--source" => return rest.next().is_some_and(awk_program),
            _ if text.starts_with('-') && text.len() > 1 => {}
            _ => return awk_program(word),
        }
    }
    false
}

fn awk_program(word: &Word) -> bool {
    // Put together by the shell, it may hold anything.
    if word.dynamic {
        return true;
    }
    let text = word.text.to_lowercase();
    if ["system", "getline", "@", "argv", "argc", "inetl"].iter().any(|name| text.contains(name)) {
        return true;
    }
    // `print | "sh"`. Within a text or where nothing is printed, the line is no pipe.
    let mut bare = String::new();
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            '"' => quoted = !quoted,
            plain if !quoted => bare.push(plain),
            _ => {}
        }
    }
    bare.replace("||", " ").split([';', '{', '}', '\n']).any(|part| part.contains("print") && part.contains('|'))
}

/// Whether a `sed` script runs something: the command `e`, and the flag `e` of a substitution.
fn sed(words: &[Word]) -> bool {
    let given = |word: &Word| word.text == "-e" || word.text == "--expression";
    let scripts: Vec<&Word> = if words.iter().any(given) {
        words.iter().zip(words.iter().skip(1)).filter(|(option, _)| given(option)).map(|(_, script)| script).collect()
    } else {
        words.iter().find(|word| !word.text.starts_with('-')).into_iter().collect()
    };
    let stuck =
        words.iter().filter_map(|word| word.text.strip_prefix("--expression=").or(word.text.strip_prefix("-e")));
    scripts.iter().map(|word| word.text.as_str()).chain(stuck).any(sed_runs)
}

fn sed_runs(script: &str) -> bool {
    let mut rest = script.chars().peekable();
    while let Some(&first) = rest.peek() {
        match first {
            // Between commands, and of addresses what holds no letters of its own.
            ' ' | '\t' | '\n' | ';' | '{' | '}' | '!' | ',' | '$' | '~' | '+' | '0'..='9' => drop(rest.next()),
            '/' => {
                rest.next();
                skip_part(&mut rest, '/');
                while rest.next_if(|char| matches!(char, 'I' | 'M')).is_some() {}
            }
            '\\' => {
                rest.next();
                if let Some(delimiter) = rest.next() {
                    skip_part(&mut rest, delimiter);
                }
            }
            's' | 'y' => {
                rest.next();
                let Some(delimiter) = rest.next() else { return false };
                skip_part(&mut rest, delimiter);
                skip_part(&mut rest, delimiter);
                while let Some(flag) = rest.next_if(|char| char.is_ascii_alphanumeric()) {
                    match flag {
                        'e' => return true,
                        'w' => skip_line(&mut rest),
                        _ => {}
                    }
                }
            }
            'e' => return true,
            // What follows to the end of the line is text, a file or a label.
            'r' | 'R' | 'w' | 'W' | '#' | ':' => skip_line(&mut rest),
            'a' | 'i' | 'c' => skip_text(&mut rest),
            'b' | 't' | 'T' => while rest.next_if(|char| !matches!(char, ';' | '\n' | '}')).is_some() {},
            _ => drop(rest.next()),
        }
    }
    false
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_part(rest: &mut Chars<'_>, delimiter: char) {
    while let Some(char) = rest.next() {
        if char == '\\' {
            rest.next();
        } else if char == delimiter {
            return;
        }
    }
}

/// Text goes on where a line ends with a backslash.
fn skip_text(rest: &mut Chars<'_>) {
    while let Some(char) = rest.next() {
        match char {
            '\\' => drop(rest.next()),
            '\n' => return,
            _ => {}
        }
    }
}

fn skip_line(rest: &mut Chars<'_>) {
    while rest.next_if(|char| *char != '\n').is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    fn reaches(command: &str) -> bool {
        runs_capable_code(&parse(command).unwrap().commands[0], command)
    }

    #[test]
    fn code_that_reaches_out_is_told_from_code_that_does_not() {
        for command in [
            "awk 'BEGIN{system(\"id\")}'",
            "awk '{print | \"sh\"}' f",
            "awk '{print $1|\"sh\"}' f",
            "awk 'BEGIN{while((\"id\" | getline x)>0) print x}'",
            "gawk -F: -v x=1 '{ \"cat k\" | getline }' f",
            "awk 'BEGIN{ARGV[1]=\"k\"; ARGC=2} 1'",
            "awk \"$p\" f",
            "sed '1e id' f",
            "sed -n 's/x/id/e' f",
            "sed 's|x|id|ge' f",
            "sed -e p -e '/a/e' f",
            "sed '/x/{e id\n}' f",
            "sqlite3 x.db '.shell id'",
            "sqlite3 :memory: \"select readfile('k')\"",
            "sqlite3 x.db <<EOF\n.system id\nEOF",
            "psql -c '\\! id'",
            "vim -c '!id' f",
            "vim '+!id' f",
            "gdb -batch -ex 'shell id' a",
            "ed -s f <<EOF\n!id\nEOF",
            "emacs --batch --eval '(x)'",
            "m4 <<EOF\nsyscmd(id)\nEOF",
            "Rscript -e 'system(\"id\")'",
        ] {
            assert!(reaches(command), "{command}");
        }
        for command in [
            "awk '{print $1}' f",
            "awk -F'|' '{print $2}' f",
            "awk '/foo|bar/ {print $2}' f",
            "awk '$1 > 5 || $2 < 3 { s += $1 } END { print s }' f",
            "awk 'BEGIN{FS=\"|\"}{print $1 \"|\" $2}' f",
            "sed 's/a/e/' f",
            "sed -i 's#a/b#c/e#g' f",
            "sed -n '/end/,/else/p' f",
            "sed '/re/d;s/e/x/g' f",
            "sed '1i\\\necho' f",
            "sqlite3 x.db 'select 1'",
            "sqlite3 x.db .tables",
            "vim +12 f",
            "vim -c q f",
            "gdb -batch -ex bt a core",
            "psql -c 'select 1'",
        ] {
            assert!(!reaches(command), "{command}");
        }
    }
}
