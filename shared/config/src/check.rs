//! Holding a file against the schema, with the line and key of every fault.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, TableLike, Value};

use crate::duration::parse_duration;
use crate::error::ConfigError;
use crate::schema::{self, Kind, MONEY_MAX, Node};

/// What was found in one file.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Faults that make the whole file unusable.
    pub(crate) errors: Vec<ConfigError>,
    /// Things that are left out of account, or unwise.
    pub(crate) warnings: Vec<ConfigError>,
    /// Every value: dotted key, value as it may be shown, line.
    pub(crate) values: Vec<(String, String, usize)>,
}

/// Most faults that are listed; the rest is of no help.
const FINDINGS_MAX: usize = 100;

/// Checks the text of `file`.
pub(crate) fn check(file: &Path, text: &str) -> Findings {
    let mut checker = Checker { file, text, found: Findings::default() };
    match Document::parse(text) {
        Ok(document) => checker.table(document.as_table(), schema::ROOT, ""),
        Err(error) => {
            let message = error.message().lines().next().unwrap_or("this is not TOML").to_owned();
            let line = line_of(text, error.span());
            checker.found.errors.push(ConfigError { file: file.to_path_buf(), line, key: String::new(), message });
        }
    }
    checker.found
}

struct Checker<'a> {
    file: &'a Path,
    text: &'a str,
    found: Findings,
}

impl Checker<'_> {
    fn table(&mut self, table: &dyn TableLike, keys: &'static [(&'static str, Node)], prefix: &str) {
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let path = join(prefix, name);
            match keys.iter().find(|(key, _)| *key == name) {
                Some((_, node)) => self.node(item, *node, &path, span),
                None => self.warn(&path, span, schema::unknown(name, keys.iter().map(|(key, _)| *key))),
            }
        }
    }

    fn node(&mut self, item: &Item, node: Node, path: &str, span: Option<Range<usize>>) {
        match node {
            Node::Leaf(kind) => self.leaf(item, kind, path, span),
            Node::Table(keys) => match item.as_table_like() {
                Some(table) => self.table(table, keys, path),
                None => self.error(path, span, "expected a table".to_owned()),
            },
            Node::Named(child) => match item.as_table_like() {
                Some(table) => {
                    for (name, item) in table.iter() {
                        let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
                        self.node(item, *child, &join(path, name), span);
                    }
                }
                None => self.error(path, span, "expected a table".to_owned()),
            },
            Node::List(keys) => self.list(item, keys, path, span),
        }
    }

    fn list(&mut self, item: &Item, keys: &'static [(&'static str, Node)], path: &str, span: Option<Range<usize>>) {
        let tables: Option<Vec<&dyn TableLike>> = match item {
            Item::ArrayOfTables(tables) => Some(tables.iter().map(|table| table as &dyn TableLike).collect()),
            Item::Value(Value::Array(values)) => {
                values.iter().map(|value| value.as_inline_table().map(|table| table as &dyn TableLike)).collect()
            }
            _ => None,
        };
        let Some(tables) = tables else {
            let first = keys.first().map_or("id", |(key, _)| key);
            return self.error(path, span, format!("expected a list of tables, such as [{{ {first} = \"…\" }}]"));
        };
        for (index, table) in tables.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some((first, _)) = keys.first().filter(|(key, _)| !table.contains_key(key)) {
                self.error(&path, span.clone(), format!("the key '{first}' is missing"));
            }
            self.table(table, keys, &path);
        }
    }

    fn leaf(&mut self, item: &Item, kind: Kind, path: &str, span: Option<Range<usize>>) {
        let Some(value) = item.as_value().filter(|value| fits(value, kind)) else {
            return self.error(path, span, format!("expected {}", kind.describe()));
        };
        let secret = kind == Kind::Secret && value.as_str().is_some_and(|text| !is_reference(text));
        if secret && path.ends_with(".api_key") {
            let hint = "the key is written in the file itself; better \"env:NAME\" or \"command:CMD\"";
            self.warn(path, span.clone(), hint.to_owned());
        }
        let shown = if secret { "\"***\"".to_owned() } else { value.to_string().trim().to_owned() };
        self.found.values.push((path.to_owned(), shown, line_of(self.text, span)));
    }

    fn error(&mut self, key: &str, span: Option<Range<usize>>, message: String) {
        if self.found.errors.len() < FINDINGS_MAX {
            let fault = self.fault(key, span, message);
            self.found.errors.push(fault);
        }
    }

    fn warn(&mut self, key: &str, span: Option<Range<usize>>, message: String) {
        if self.found.warnings.len() < FINDINGS_MAX {
            let fault = self.fault(key, span, message);
            self.found.warnings.push(fault);
        }
    }

    fn fault(&self, key: &str, span: Option<Range<usize>>, message: String) -> ConfigError {
        ConfigError { file: self.file.to_path_buf(), line: line_of(self.text, span), key: key.to_owned(), message }
    }
}

/// Whether the value is of the kind.
pub(crate) fn fits(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Text | Kind::Secret => value.is_str(),
        Kind::Duration => value.as_str().is_some_and(|text| parse_duration(text).is_ok()),
        Kind::Choice(words) => value.as_str().is_some_and(|text| words.contains(&text)),
        Kind::Whole(most) => value.as_integer().is_some_and(|n| u64::try_from(n).is_ok_and(|n| n <= most)),
        Kind::Money => match value {
            Value::Integer(number) => u32::try_from(*number.value()).is_ok_and(|number| f64::from(number) <= MONEY_MAX),
            Value::Float(number) => (0.0..=MONEY_MAX).contains(number.value()),
            _ => false,
        },
        Kind::Switch => value.is_bool(),
        Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_str)),
    }
}

/// Whether the text says where a secret is, and is not one itself.
pub(crate) fn is_reference(text: &str) -> bool {
    ["env:", "keyring:", "command:"].iter().any(|prefix| text.starts_with(prefix))
}

/// A dotted key; names with other signs are put in quotes.
fn join(prefix: &str, name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = if plain { name.to_owned() } else { format!("{name:?}") };
    if prefix.is_empty() { name } else { format!("{prefix}.{name}") }
}

fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let Some(span) = span else { return 0 };
    text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count() + 1
}
