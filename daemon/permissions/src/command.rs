//! Taking a shell command apart into the simple commands and redirections it consists of.

use std::cell::RefCell;

use tree_sitter::{Node, Parser, Tree};

use crate::evaluated::{Evaluated, Text};
use crate::numeric::is_numeric;
use crate::texts::of_variable;
use crate::unwrap::{self, Runs};
pub use crate::words::Word;

/// Longest command that is taken apart, in bytes; a longer one is not understood.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;
/// Most simple commands in one command.
pub const SIMPLE_MAX: usize = 256;
/// How deep `sh -c` and the like are followed.
pub const DEPTH_MAX: usize = 8;

/// One program with its arguments, or an assignment without a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Simple {
    /// Names that are assigned before it.
    pub assigned: Vec<String>,
    /// The texts that are assigned before it.
    pub values: Vec<Word>,
    /// Program and arguments, quotes taken off.
    pub words: Vec<Word>,
    /// What it runs in turn, if it is a wrapper such as `sudo` or `xargs`.
    pub inner: Option<Box<Inner>>,
}

impl Simple {
    /// The program that it calls, without its folder; empty when it only assigns.
    #[must_use]
    pub fn program(&self) -> &str {
        unwrap::program_of(&self.words)
    }
}

/// What a wrapper runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inner {
    /// The simple commands.
    pub commands: Vec<Simple>,
    /// A rule that allows what is run allows it in this wrapper too (`nice`, but not `sudo`).
    pub transparent: bool,
}

/// A redirection of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The file.
    pub target: Word,
    /// It is written, not read.
    pub write: bool,
}

/// A command taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// Every simple command in it, wherever it stands.
    pub commands: Vec<Simple>,
    /// Every redirection.
    pub redirects: Vec<Redirect>,
    /// Part of it can not be seen (`eval "$x"`, `source file`).
    pub opaque: bool,
    /// Text that is run as commands is known only when it runs: in a variable, from a pipe.
    pub unseen: bool,
    /// The shell may evaluate text in it as an expression, which can run further commands: `$((x))` runs `id` when `x`
    /// is `a[$(id)]`. Not where all that is evaluated is seen to be harmless.
    pub evaluates: bool,
    /// What is known of that.
    pub(crate) evaluated: Evaluated,
    /// The functions that it defines.
    functions: Vec<String>,
}

impl Parsed {
    /// Every simple command, wrappers and what they run.
    pub fn all(&self) -> impl Iterator<Item = &Simple> {
        let mut stack: Vec<&Simple> = self.commands.iter().rev().collect();
        std::iter::from_fn(move || {
            let next = stack.pop()?;
            if let Some(inner) = &next.inner {
                stack.extend(inner.commands.iter().rev());
            }
            Some(next)
        })
    }
}

/// Takes a command apart; `None` when it can not be understood whole.
#[must_use]
pub fn parse(command: &str) -> Option<Parsed> {
    parse_at(command, 0)
}

/// Whether a line goes on in the middle of a word (`r\\⏎m` is `rm`): a shell joins what the parser here takes for two
/// words, so what is read is not what would run. Where the text stays as it is (in single quotes, in a here-document)
/// nothing is joined; what a here-document has run is looked at as everything else.
fn joins_words(root: Node<'_>, command: &str) -> bool {
    let bytes = command.as_bytes();
    let blank = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_none_or(|byte| b" \t\n".contains(byte));
    let is = |at: Option<usize>, these: &[u8]| at.and_then(|at| bytes.get(at)).is_some_and(|byte| these.contains(byte));
    let joins = command.match_indices("\\\n").filter(|(at, _)| {
        let before = bytes[..*at].iter().rev().take_while(|byte| **byte == b'\\').count();
        let (last, next) = (at.checked_sub(1), Some(at + 2));
        // Between commands (`a &&⏎b`) there is no word to be joined.
        let between = is(last, b";|&") && !is(next, b";|&()<>");
        // An even number of backslashes before this one: it is not itself escaped.
        before % 2 == 0 && !blank(last) && !blank(next) && !between
    });
    let mut joins = joins.map(|(at, _)| root.descendant_for_byte_range(at, at + 2).map_or("", |node| node.kind()));
    joins.any(|kind| !matches!(kind, "raw_string" | "heredoc_content" | "heredoc_body"))
}

pub(crate) fn parse_at(command: &str, depth: usize) -> Option<Parsed> {
    if command.len() > COMMAND_BYTES_MAX || depth > DEPTH_MAX {
        return None;
    }
    let tree = tree_of(command)?;
    let root = tree.root_node();
    if root.has_error() || joins_words(root, command) {
        return None;
    }
    let mut parsed = Parsed::default();
    // A stack of its own: hostile commands nest deeper than a thread's stack.
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        if node.is_error() || node.is_missing() || parsed.commands.len() > SIMPLE_MAX {
            return None;
        }
        collect(node, command, &mut parsed, depth)?;
        let mut cursor = node.walk();
        let from = stack.len();
        stack.extend(node.children(&mut cursor));
        stack[from..].reverse();
    }
    for simple in &parsed.commands {
        let called =
            simple.words.first().and_then(Word::known).is_some_and(|it| parsed.functions.iter().any(|f| f == it));
        if called {
            simple.words[1..].iter().for_each(|word| parsed.evaluated.positional(word));
        }
    }
    parsed.evaluates = parsed.evaluated.risky();
    Some(parsed)
}

thread_local! {
    /// Making a parser costs more than reading a short command.
    static PARSER: RefCell<Option<Parser>> = RefCell::new(bash());
}

fn bash() -> Option<Parser> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    Some(parser)
}

fn tree_of(command: &str) -> Option<Tree> {
    PARSER.with_borrow_mut(|parser| parser.as_mut()?.parse(command, None))
}

fn text<'a>(node: Node<'_>, source: &'a str) -> Option<&'a str> {
    source.get(node.byte_range())
}

/// Notes what this node adds; its children are visited by the caller.
fn collect(node: Node<'_>, source: &str, parsed: &mut Parsed, depth: usize) -> Option<()> {
    parsed.evaluated.collect(node, source);
    if node.kind() == "variable_assignment" {
        variable(node, source, parsed, depth);
    }
    // The grammar does not look into all places where the shell does: ${x:-`id`}.
    if matches!(node.kind(), "word" | "regex" | "string_content" | "extglob_pattern" | "heredoc_content")
        && node.child_count() == 0
        && substitutes(text(node, source)?)
    {
        (parsed.opaque, parsed.unseen) = (true, true);
    }
    match node.kind() {
        "command" => {
            let simple = simple(node, source)?;
            push(simple, parsed, depth)?;
        }
        "declaration_command" | "unset_command" | "test_command" => {
            let mut words = Vec::new();
            let mut cursor = node.walk();
            for child in node.children(&mut cursor) {
                let text = text(child, source)?;
                // `[[` and `export` are the grammar's own; `[` in them is no pattern.
                words.push(if child.is_named() { Word::unquote(text) } else { Word::literal(text) });
            }
            if node.kind() != "test_command" {
                parsed.evaluated.builtin(&words);
            }
            parsed.commands.push(Simple { words, ..Simple::default() });
        }
        "function_definition" => {
            let name = text(node.child_by_field_name("name")?, source)?;
            if is_numeric(name) {
                parsed.evaluated.evaluate(Text::Unknown);
            }
            parsed.functions.push(name.to_owned());
        }
        "variable_assignment" if !matches!(node.parent()?.kind(), "command" | "declaration_command") => {
            let (assigned, values) = (vec![assigned_name(node, source)?], assigned_value(node, source));
            parsed.commands.push(Simple { assigned, values, ..Simple::default() });
        }
        "for_statement" | "c_style_for_statement" | "select_statement" => {
            if let Some(name) = node.child_by_field_name("variable") {
                let assigned = vec![text(name, source)?.to_owned()];
                parsed.commands.push(Simple { assigned, ..Simple::default() });
            }
        }
        "file_redirect" => redirect(node, source, parsed)?,
        "heredoc_redirect" if expands(node, source) => (parsed.opaque, parsed.unseen) = (true, true),
        _ => {}
    }
    Some(())
}

/// Whether a here-document holds a substitution in backticks, which the grammar does not see.
fn expands(node: Node<'_>, source: &str) -> bool {
    let part = |wanted: &str| {
        let mut cursor = node.walk();
        let found = node.children(&mut cursor).find(|child| child.kind() == wanted);
        found.and_then(|child| text(child, source)).unwrap_or_default()
    };
    let quoted = part("heredoc_start").contains(['\'', '"', '\\']);
    !quoted && substitutes(&part("heredoc_body").replace('$', " "))
}

/// Whether text holds the beginning of a substitution that is not escaped.
fn substitutes(text: &str) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            '`' => return true,
            '$' if matches!(chars.peek(), Some('(' | '{')) => return true,
            _ => {}
        }
    }
    false
}

/// What the value of a variable has run, as `GIT_PAGER=…` does.
fn variable(node: Node<'_>, source: &str, parsed: &mut Parsed, depth: usize) {
    let values = assigned_value(node, source);
    let told = assigned_name(node, source).and_then(|name| of_variable(&name, values.first()));
    if let Some(told) = told {
        let mut runs = Runs::default();
        runs.absorb(unwrap::text_runs(told, depth));
        parsed.opaque |= runs.opaque;
        parsed.unseen |= runs.unseen;
        parsed.redirects.extend(runs.redirects);
        parsed.commands.extend(runs.commands);
        parsed.evaluated.merge(runs.evaluated);
    }
}

fn push(mut simple: Simple, parsed: &mut Parsed, depth: usize) -> Option<()> {
    parsed.evaluated.builtin(&simple.words);
    match unwrap::inner(&simple.words, depth) {
        unwrap::Unwrapped::Plain => {}
        unwrap::Unwrapped::Runs(runs) => {
            let Runs { commands, redirects, transparent, assigned, opaque, unseen, evaluated } = runs;
            parsed.opaque |= opaque;
            parsed.unseen |= unseen;
            parsed.evaluated.merge(evaluated);
            parsed.redirects.extend(redirects);
            simple.assigned.extend(assigned);
            simple.inner = Some(Box::new(Inner { commands, transparent }));
        }
        unwrap::Unwrapped::Sourced => parsed.opaque = true,
        unwrap::Unwrapped::Unknown => (parsed.opaque, parsed.unseen) = (true, true),
    }
    parsed.commands.push(simple);
    Some(())
}

fn simple(node: Node<'_>, source: &str) -> Option<Simple> {
    let mut simple = Simple::default();
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        match child.kind() {
            "variable_assignment" => {
                simple.assigned.push(assigned_name(child, source)?);
                simple.values.extend(assigned_value(child, source));
            }
            "file_redirect" | "heredoc_redirect" => {}
            "herestring_redirect" => {}
            _ => simple.words.push(Word::unquote(text(child, source)?)),
        }
    }
    Some(simple)
}

fn assigned_value(node: Node<'_>, source: &str) -> Vec<Word> {
    let value = node.child_by_field_name("value").and_then(|value| text(value, source));
    value.map(Word::unquote).into_iter().collect()
}

fn assigned_name(node: Node<'_>, source: &str) -> Option<String> {
    let whole = text(node, source)?;
    let end = whole.find(['=', '[', '+']).unwrap_or(whole.len());
    Some(whole[..end].to_owned())
}

fn redirect(node: Node<'_>, source: &str, parsed: &mut Parsed) -> Option<()> {
    let mut operator = "";
    let mut cursor = node.walk();
    let mut targets = Vec::new();
    for child in node.children(&mut cursor) {
        match child.kind() {
            "file_descriptor" => {}
            kind if !child.is_named() => operator = kind,
            _ => targets.push(Word::unquote(text(child, source)?)),
        }
    }
    let duplicates = matches!(operator, ">&" | "<&" | ">&-" | "<&-");
    let write = operator.contains('>');
    for target in targets {
        let descriptor = target.text.trim_end_matches('-').chars().all(|char| char.is_ascii_digit());
        if !(duplicates && descriptor && !target.dynamic) {
            parsed.redirects.push(Redirect { target, write });
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(command: &str) -> Option<Vec<String>> {
        let parsed = parse(command)?;
        let line = |simple: &Simple| simple.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        Some(parsed.all().map(line).collect())
    }

    #[test]
    fn every_simple_command_is_found() {
        for (command, wanted) in [
            ("ls -la", &["ls -la"][..]),
            ("a && b || c; d & e | f", &["a", "b", "c", "d", "e", "f"]),
            ("(a; { b; }) | c", &["a", "b", "c"]),
            ("a $(b `c`)", &["a $(b `c`)", "b `c`", "c"]),
            ("a \"x $(b)\"", &["a x $(b)", "b"]),
            ("a <(b) > >(c)", &["a <(b)", "b", "c"]),
            ("if a; then b; else c; fi", &["a", "b", "c"]),
            ("while a; do b; done", &["a", "b"]),
            ("f() { a; }; f", &["a", "f"]),
            ("case x in y) a;; esac", &["a"]),
            ("a <<EOF\n$(b)\nEOF\n", &["a", "b"]),
            ("sudo -u x rm -rf /", &["sudo -u x rm -rf /", "rm -rf /"]),
            ("env A=b nice -n 5 cargo test", &["env A=b nice -n 5 cargo test", "nice -n 5 cargo test", "cargo test"]),
            ("bash -lc 'a; b | c'", &["bash -lc a; b | c", "a", "b", "c"]),
            ("eval 'a; b'", &["eval a; b", "a", "b"]),
            ("xargs -0 -n 1 rm -f", &["xargs -0 -n 1 rm -f", "rm -f {}"]),
            ("find . -name x -exec rm {} +", &["find . -name x -exec rm {} +", "rm {}"]),
            ("time -p make; timeout 5s make", &["time -p make", "make", "timeout 5s make", "make"]),
            ("! a", &["a"]),
            ("echo $((1+$(a)))", &["echo $((1+$(a)))", "a"]),
        ] {
            assert_eq!(
                names(command).as_deref(),
                Some(wanted).map(|it| it.iter().map(|&it| it.to_owned()).collect::<Vec<_>>()).as_deref(),
                "{command}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_says_so() {
        for command in ["a 'unfinished", "a && ", "(a", "if a; then", &"a;".repeat(40_000)] {
            assert_eq!(parse(command), None, "{}", &command[..command.len().min(40)]);
        }
        for command in ["eval \"$x\"", "bash -c \"$x\"", "$x foo", "source ./x", "env -S 'rm x'", "{rm,-rf} x"] {
            assert!(parse(command).is_none_or(|parsed| parsed.opaque), "{command}");
        }
        let nested = (0..12).fold("x".to_owned(), |inner, _| format!("eval '{}'", inner.replace('\'', "'\\''")));
        assert!(parse(&nested).is_none_or(|parsed| parsed.opaque));
        let deep = format!("{}x{}", "(".repeat(20_000), ")".repeat(20_000));
        assert!(parse(&deep).is_none_or(|parsed| parsed.commands.len() <= SIMPLE_MAX + 1));
    }

    #[test]
    fn redirections_are_told_apart() {
        let all = |command: &str| -> Vec<(String, bool)> {
            parse(command).unwrap().redirects.into_iter().map(|it| (it.target.text, it.write)).collect()
        };
        assert_eq!(
            all("a > x 2>&1 < y >> z &> w"),
            [("x", true), ("y", false), ("z", true), ("w", true)].map(|(at, it)| (at.to_owned(), it))
        );
        assert_eq!(all("a 2>/dev/null 1>&2 >&-"), [("/dev/null".to_owned(), true)]);
        assert_eq!(all("a >& file"), [("file".to_owned(), true)]);
        assert_eq!(all("sh -c 'b > q'"), [("q".to_owned(), true)]);
        assert_eq!(all("{ a; } >| 'x y'"), [("x y".to_owned(), true)]);
    }
}
