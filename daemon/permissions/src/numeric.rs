//! Substitutions that surely give a number.

use tree_sitter::Node;

use crate::words::Word;

/// Whether what a substitution gives is surely a number: the last program of it prints nothing else.
pub(crate) fn gives_number(node: Node<'_>, source: &str) -> bool {
    let mut node = node;
    loop {
        let count = node.named_child_count();
        let inner = match node.kind() {
            "redirected_statement" => node.child_by_field_name("body"),
            "command" => break,
            "pipeline" => count.checked_sub(1).and_then(|last| node.named_child(u32::try_from(last).ok()?)),
            "command_substitution" if count == 1 => node.named_child(0),
            _ => None,
        };
        let Some(inner) = inner else { return false };
        node = inner;
    }
    let mut cursor = node.walk();
    let words: Vec<Word> = node.named_children(&mut cursor).map(|child| Word::unquote(text(child, source))).collect();
    let Some((program, rest)) = words.split_first() else { return false };
    let Some((_, allowed)) = program.known().and_then(|name| NUMERIC.iter().find(|(known, _)| *known == name)) else {
        return false;
    };
    let text = |word: &Word| word.known().map(str::to_owned).unwrap_or_default();
    let option = |word: &&Word| word.text.starts_with(['-', '+', '%']);
    let plain = rest.iter().filter(option).all(|word| allowed.contains(&text(word).as_str()));
    let operands = rest.iter().filter(|word| !option(word)).count();
    plain
        && match text(program).as_str() {
            // With a file, its name is printed too.
            "wc" => operands == 0,
            "grep" | "egrep" => operands <= 2 && rest.iter().any(|word| word.text.contains('c')),
            "date" | "id" => rest.len() == 1 && operands == 0,
            "stat" => operands <= 1 && rest.len() > 1,
            "git" => {
                operands <= 2
                    && rest.len() > 1
                    && rest[0].text == "rev-list"
                    && rest.iter().any(|it| it.text == "--count")
            }
            _ => true,
        }
}

/// Whether a function of this name makes numbers of these programs something else.
pub(crate) fn is_numeric(name: &str) -> bool {
    NUMERIC.iter().any(|(known, _)| *known == name)
}

/// Programs that print a number, with the options (and formats) that leave it so.
const NUMERIC: [(&str, &[&str]); 9] = [
    ("nproc", &["--all"]),
    ("seq", &["-w", "-1"]),
    ("wc", &["-l", "-c", "-w", "-m"]),
    ("grep", &["-c", "-i", "-ic", "-v", "-vc", "-E", "-F", "-w", "-x", "-cE", "-cF"]),
    ("egrep", &["-c", "-i", "-ic"]),
    ("date", &["+%s", "+%s%N", "+%N", "+%Y", "+%m", "+%d", "+%H", "+%M", "+%S", "+%j", "+%u", "+%Y%m%d"]),
    ("id", &["-u", "-g"]),
    ("stat", &["-c", "-f", "%s", "%z", "%Y", "%m", "-c%s", "-f%z", "--format=%s"]),
    ("git", &["--count"]),
];

fn text<'a>(node: Node<'_>, source: &'a str) -> &'a str {
    source.get(node.byte_range()).unwrap_or_default()
}
