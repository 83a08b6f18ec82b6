//! Text that the shell evaluates as an expression, which can run further commands: `$((x))` runs `id` when `x` is
//! `a[$(id)]`, and so do `[[ x -eq 1 ]]`, `test -v "$x"`, `${x@P}`, `let`, `unset` and subscripts.
//!
//! The border: such a text does harm only when it holds `[`, `$` or a backtick, as only a subscript brings the shell to
//! expand something. Where all of the text is written in the command, that is seen, and so is a variable that is only
//! ever given numbers and plain words (`i=0`, `n=$(wc -l < f)`). What comes from elsewhere (`read`, other programs, names
//! of files) can hold anything. A variable that the command does not set is the user's, and is trusted.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::numeric::gives_number;
use crate::words::Word;

/// Most nodes of the tree that are looked at for one value; a larger one counts as unknown. Values nest, so that without
/// a bound the work would grow with the square of a command.
const NODES_MAX: usize = 128;

/// What a text may hold when it is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// Numbers, operators, and these names, whose values are evaluated in turn.
    Names(BTreeSet<String>),
    /// Anything.
    Unknown,
}

impl Default for Text {
    fn default() -> Self {
        Self::Names(BTreeSet::new())
    }
}

impl Text {
    fn name(name: &str) -> Self {
        Self::Names(BTreeSet::from([plain(name).to_owned()]))
    }

    fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Names(names), Self::Names(more)) => names.extend(more),
            (whole, _) => *whole = Self::Unknown,
        }
    }

    /// A text that is written in the command.
    pub(crate) fn literal(text: &str) -> Self {
        if text.contains(['[', '$', '`', '\\']) {
            return Self::Unknown;
        }
        let names = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        Self::Names(names.filter(|name| name.starts_with(is_name_start)).map(str::to_owned).collect())
    }

    /// A word of a command.
    pub(crate) fn of_word(word: &Word) -> Self {
        if !word.dynamic {
            // The shell would replace it with names of files.
            let replaced = word.glob && word.text.contains(['*', '?']);
            return if replaced { Self::Unknown } else { Self::literal(&word.text) };
        }
        if !word.text.contains('$') {
            return Self::Unknown;
        }
        // `$name` and `${name}` among plain text.
        let mut parts = word.text.split('$');
        let mut text = Self::literal(parts.next().unwrap_or_default());
        for part in parts {
            let part = part.strip_prefix('{').unwrap_or(part);
            let end = part.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(part.len());
            if end == 0 {
                return Self::Unknown;
            }
            text.add(Self::name(&part[..end]));
            text.add(Self::literal(part[end..].strip_prefix('}').unwrap_or(&part[end..])));
        }
        text
    }
}

/// All arguments of functions and scripts (`$1`, `$*`) are one variable here.
fn plain(name: &str) -> &str {
    if name == "*" || name.chars().all(|char| char.is_ascii_digit()) { "@" } else { name }
}

fn is_name_start(char: char) -> bool {
    char.is_ascii_alphabetic() || char == '_'
}

/// What a command gives to its variables, and what of it the shell evaluates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Evaluated {
    given: BTreeMap<String, Text>,
    evaluated: Text,
}

impl Evaluated {
    pub(crate) fn give(&mut self, name: &str, text: Text) {
        self.given.entry(plain(name).to_owned()).or_default().add(text);
    }

    pub(crate) fn evaluate(&mut self, text: Text) {
        self.evaluated.add(text);
    }

    /// Adds what a script does that the command runs: it may know the variables of the command.
    pub(crate) fn merge(&mut self, other: Self) {
        other.given.into_iter().for_each(|(name, text)| self.give(&name, text));
        self.evaluate(other.evaluated);
    }

    /// Whether something that can not be seen may be evaluated.
    pub(crate) fn risky(&self) -> bool {
        let Text::Names(names) = &self.evaluated else { return true };
        let (mut seen, mut open) = (BTreeSet::new(), names.iter().collect::<Vec<_>>());
        while let Some(name) = open.pop() {
            if !seen.insert(name) {
                continue;
            }
            match self.given.get(name) {
                Some(Text::Unknown) => return true,
                Some(Text::Names(further)) => open.extend(further),
                None => {}
            }
        }
        false
    }

    /// Notes what this node of a command gives or has evaluated; its children are visited by the caller.
    pub(crate) fn collect(&mut self, node: Node<'_>, source: &str) {
        match node.kind() {
            "arithmetic_expansion" => self.evaluate(children(node, source)),
            "compound_statement" if node.child(0).is_some_and(|first| first.kind() == "((") => {
                self.evaluate(children(node, source));
            }
            "c_style_for_statement" => {
                for name in ["initializer", "condition", "update"] {
                    let mut cursor = node.walk();
                    let found: Vec<Node<'_>> = node.children_by_field_name(name, &mut cursor).collect();
                    found.into_iter().for_each(|child| self.evaluate(value(child, source)));
                }
            }
            "subscript" => {
                if let Some(index) = node.child_by_field_name("index") {
                    // `${a[@]}` is all of them.
                    let all = matches!(text(index, source), "@" | "*");
                    self.evaluate(if all { Text::default() } else { value(index, source) });
                }
            }
            // In `${x:+$((y))}` the grammar takes it for commands.
            "command_substitution" => {
                if let Some(inside) = text(node, source).strip_prefix("$((") {
                    let inside = inside.trim_end_matches(')').to_owned();
                    self.evaluate(Text::of_word(&Word { dynamic: inside.contains('$'), text: inside, glob: false }));
                }
            }
            "expansion" => self.expansion(node, source),
            "variable_assignment" => self.assignment(node, source),
            "for_statement" => {
                let Some(name) = node.child_by_field_name("variable") else { return };
                let mut cursor = node.walk();
                let values: Vec<Node<'_>> = node.children_by_field_name("value", &mut cursor).collect();
                let mut given = if values.is_empty() { Text::name("@") } else { Text::default() };
                values.into_iter().for_each(|child| given.add(value(child, source)));
                self.give(text(name, source), given);
            }
            "test_command" => self.condition(node, source),
            _ => {}
        }
    }

    fn assignment(&mut self, node: Node<'_>, source: &str) {
        let whole = text(node, source);
        let name = &whole[..whole.find(['=', '[', '+']).unwrap_or(whole.len())];
        let given = node.child_by_field_name("value").map(|child| value(child, source)).unwrap_or_default();
        let declared = node.parent().filter(|parent| parent.kind() == "declaration_command");
        let options = declared.map_or("", |parent| text(parent, source));
        let option =
            |letter: char| options.split_whitespace().any(|word| word.starts_with(['-', '+']) && word.contains(letter));
        if let Some(array) = node.child_by_field_name("value").filter(|value| value.kind() == "array") {
            let mut cursor = array.walk();
            array.named_children(&mut cursor).for_each(|element| self.index(text(element, source)));
        }
        if INTEGERS.contains(&name) {
            self.evaluate(given.clone());
        }
        // `declare -n x='a[…]'` makes every `$x` a subscript, `declare -i x` evaluates whatever it is given.
        if option('n') {
            self.evaluate(given.clone());
        }
        if option('i') {
            self.evaluate(Text::name(name));
        }
        self.give(name, given);
    }

    /// The subscript of an element: `a=([x]=1)`.
    fn index(&mut self, element: &str) {
        if let Some((index, _)) = element.strip_prefix('[').and_then(|rest| rest.split_once("]=")) {
            self.evaluate(Text::of_word(&Word::unquote(index)));
        }
    }

    fn expansion(&mut self, node: Node<'_>, source: &str) {
        let whole = text(node, source);
        let inside = whole.strip_prefix("${").unwrap_or(whole);
        let direct = inside.trim_start_matches(['!', '#']);
        let end = direct.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(direct.len());
        let end = if direct.starts_with(['@', '*']) { 1 } else { end };
        let (name, rest) = direct.split_at(end);
        if let Some(after) = inside.strip_prefix('!') {
            // `${!a[@]}` and `${!prefix*}` give names; `${!x}` looks up what `x` holds, subscript and all.
            let names = rest.starts_with("[@]") || rest.starts_with("[*]") || rest == "*}" || rest == "@}";
            self.evaluate(if names || after == "}" { Text::default() } else { Text::name(name) });
        }
        let after = if rest.starts_with('[') { rest.split_once(']').map_or("", |(_, after)| after) } else { rest };
        let operator = after.strip_prefix(':').filter(|rest| !rest.starts_with(['-', '=', '+', '?']));
        if operator.is_some() {
            // `${x:offset:length}`
            let mut cursor = node.walk();
            let operands: Vec<Node<'_>> = node.named_children(&mut cursor).skip(1).collect();
            operands.into_iter().for_each(|child| self.evaluate(value(child, source)));
        }
        if rest.rsplit(']').next().is_some_and(|rest| rest.starts_with("@P")) {
            // Expanded as a prompt is, with everything in it.
            self.evaluate(Text::name(name));
        }
        if after.starts_with(":=") || after.starts_with('=') {
            self.give(name, children(node, source));
        }
    }

    /// `[[ x -eq 1 ]]` compares expressions, `-v` and `-R` look names up, and in `[ … ]` an expansion without quotes may
    /// become such an operator.
    fn condition(&mut self, node: Node<'_>, source: &str) {
        let single = node.child(0).is_some_and(|first| first.kind() == "[");
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            let mut cursor = node.walk();
            let all: Vec<Node<'_>> = node.children(&mut cursor).collect();
            let operator = all.iter().find(|child| child.kind() == "test_operator").map_or("", |it| text(*it, source));
            let compares = !single && matches!(operator, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge");
            for child in all {
                match child.kind() {
                    "test_operator" => {}
                    _ if !child.is_named() => {}
                    "binary_expression" | "unary_expression" | "parenthesized_expression" if !compares => {
                        stack.push(child);
                    }
                    _ if compares || matches!(operator, "-v" | "-R") => self.evaluate(value(child, source)),
                    "simple_expansion" | "expansion" | "command_substitution" if single => {
                        self.evaluate(value(child, source));
                    }
                    _ => {}
                }
            }
        }
    }

    /// What a builtin that is given names of variables does with them, or with expressions.
    pub(crate) fn builtin(&mut self, words: &[Word]) {
        let Some((program, words)) = words.split_first() else { return };
        // `{a[x]}>file` puts a number into an element.
        let opened = |word: &&Word| word.text.starts_with('{') && word.text.ends_with('}') && word.text.contains('[');
        for word in words.iter().filter(opened) {
            self.named(&Word { text: word.text[1..word.text.len() - 1].to_owned(), ..word.clone() });
        }
        match program.text.as_str() {
            "let" => words.iter().for_each(|word| self.evaluate(Text::of_word(word))),
            "test" | "[" => self.test(words),
            // The values of functions and scripts: `set -- a b`.
            "set" => words.iter().for_each(|word| self.positional(word)),
            name => {
                let Some(naming) = NAMING.iter().find(|naming| naming.name == name) else { return };
                // `declare -i n` evaluates all that it is given from then on, `declare -n n` takes it for a name.
                let letters = |word: &Word| word.text.starts_with('-') && word.text.contains(['i', 'n']);
                let evaluating = matches!(name, "declare" | "typeset" | "local") && words.iter().any(letters);
                for word in naming.names(words) {
                    if evaluating {
                        self.evaluate(Text::of_word(word));
                    }
                    // Of `declare x=y`, the name; what follows is no expression.
                    let end = word.text.find('=').unwrap_or(word.text.len());
                    let named = Word { text: word.text[..end].to_owned(), ..word.clone() };
                    self.named(&named);
                    if naming.fills {
                        self.give(&named.text, Text::Unknown);
                    }
                }
            }
        }
    }

    /// A word that is a name: its subscript is evaluated, or all of it where the name itself is in a variable.
    fn named(&mut self, word: &Word) {
        let (name, index) = word.text.split_once('[').unwrap_or((&word.text, ""));
        if name.contains(['$', '`']) {
            return self.evaluate(Text::of_word(word));
        }
        let index = index.strip_suffix(']').unwrap_or(index);
        if !index.is_empty() {
            self.evaluate(Text::of_word(&Word { text: index.to_owned(), dynamic: word.dynamic, glob: false }));
        }
    }

    /// An argument of a function or of a script.
    pub(crate) fn positional(&mut self, word: &Word) {
        let given = Text::of_word(word);
        self.give("@", given);
    }

    fn test(&mut self, words: &[Word]) {
        let looks_up = words.iter().any(|word| matches!(word.text.as_str(), "-v" | "-R"));
        // An operator may come from a variable, but the operand must hold a subscript.
        let operator = words.iter().any(|word| word.dynamic);
        let subscript = |word: &&Word| word.text.contains('[') && word.text.contains(['$', '`']);
        if looks_up || operator && words.iter().any(|word| subscript(&word)) {
            words.iter().for_each(|word| self.evaluate(Text::of_word(word)));
        }
    }
}

/// Variables that the shell itself takes for numbers.
const INTEGERS: [&str; 6] = ["OPTIND", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "HISTCMD"];

/// A builtin that is given names of variables.
struct Naming {
    name: &'static str,
    /// Options whose value is the next word, and no name.
    valued: &'static [&'static str],
    /// Only the values of these options are names; with none, every operand is one.
    only: &'static [&'static str],
    /// The variables get what is known only when it runs.
    fills: bool,
}

const fn naming(
    name: &'static str,
    valued: &'static [&'static str],
    only: &'static [&'static str],
    fills: bool,
) -> Naming {
    Naming { name, valued, only, fills }
}

const NAMING: [Naming; 12] = [
    naming("read", &["-d", "-i", "-n", "-N", "-p", "-t", "-u"], &[], true),
    naming("mapfile", &["-d", "-n", "-O", "-s", "-u", "-C", "-c"], &[], true),
    naming("readarray", &["-d", "-n", "-O", "-s", "-u", "-C", "-c"], &[], true),
    naming("getopts", &[], &[], true),
    naming("printf", &[], &["-v"], true),
    naming("wait", &[], &["-p"], true),
    naming("unset", &[], &[], false),
    naming("declare", &[], &[], false),
    naming("typeset", &[], &[], false),
    naming("local", &[], &[], false),
    naming("export", &[], &[], false),
    naming("readonly", &[], &[], false),
];

impl Naming {
    fn names<'a>(&self, words: &'a [Word]) -> Vec<&'a Word> {
        let mut names = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            if let Some(stuck) = self.only.iter().find_map(|option| word.text.strip_prefix(option)) {
                // `printf -v'a[…]'`: the option and its value in one word is rare enough to be looked at whole.
                names.push(if stuck.is_empty() { words.get(at).unwrap_or(word) } else { word });
            } else if self.valued.contains(&word.text.as_str()) {
                at += 1;
            } else if self.only.is_empty() && !word.text.starts_with('-') {
                names.push(word);
            }
        }
        names
    }
}

fn text<'a>(node: Node<'_>, source: &'a str) -> &'a str {
    source.get(node.byte_range()).unwrap_or_default()
}

fn children(node: Node<'_>, source: &str) -> Text {
    let mut text = Text::default();
    let mut cursor = node.walk();
    node.named_children(&mut cursor).for_each(|child| text.add(value(child, source)));
    text
}

/// What a node of the tree holds when it is a value, or evaluates to.
fn value(node: Node<'_>, source: &str) -> Text {
    let mut whole = Text::default();
    // A stack of its own: hostile commands nest deeper than a thread's stack.
    let mut stack = vec![node];
    let mut seen = 0;
    while let Some(node) = stack.pop() {
        seen += 1;
        if seen > NODES_MAX {
            return Text::Unknown;
        }
        let text = text(node, source);
        let part = match node.kind() {
            "word" | "extglob_pattern" if text.contains(['*', '?']) && is_value(node) => Text::Unknown,
            "variable_name" => Text::name(text),
            "special_variable_name" if matches!(text, "@" | "*") => Text::name("@"),
            "simple_expansion" if text[1..].chars().all(|char| char.is_ascii_digit()) => Text::name("@"),
            // Their results are numbers; what is evaluated in them is seen when they are visited.
            "arithmetic_expansion" | "process_substitution" | "special_variable_name" | "number" => Text::default(),
            "expansion" if text.starts_with("${#") => Text::default(),
            "command_substitution" if gives_number(node, source) => Text::default(),
            "concatenation" if text.starts_with('[') && text.contains("]=") => {
                // An element of an array with its subscript.
                let (index, element) = text[1..].split_once("]=").unwrap_or_default();
                let mut both = Text::of_word(&Word::unquote(index));
                both.add(Text::of_word(&Word::unquote(element)));
                both
            }
            "simple_expansion"
            | "expansion"
            | "subscript"
            | "concatenation"
            | "string"
            | "array"
            | "binary_expression"
            | "unary_expression"
            | "postfix_expression"
            | "ternary_expression"
            | "parenthesized_expression"
            | "brace_expression"
            | "variable_assignment" => {
                let mut cursor = node.walk();
                stack.extend(node.named_children(&mut cursor));
                Text::default()
            }
            "word" | "raw_string" | "string_content" | "regex" | "test_operator" | "ansi_c_string" => {
                Text::literal(text)
            }
            _ => Text::Unknown,
        };
        whole.add(part);
        if whole == Text::Unknown {
            return whole;
        }
    }
    whole
}

/// Whether a star in this node stands for names of files, and not for a product.
fn is_value(node: Node<'_>) -> bool {
    node.parent().is_some_and(|parent| {
        matches!(parent.kind(), "for_statement" | "array" | "concatenation" | "variable_assignment")
    })
}
