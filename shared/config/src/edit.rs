//! Changing a configuration file: comments, order and layout stay, and a change that would break the file is refused.

use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcode_env::FileLock;
use toml_edit::{DocumentMut, Item, Key, RawString, Table, TableLike, Value};

use crate::check;
use crate::error::ConfigError;
use crate::handle::read_text;
use crate::list;
use crate::schema::{self, Kind, Node};

/// How long somebody else may be changing the file, before a change is given up.
pub const CHANGE_WAIT: Duration = Duration::from_secs(5);
/// What is put after the file's name for the lock of those who change it.
const LOCK_SUFFIX: &str = ".lock";

/// A change was not made; the file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// There is no such key.
    #[error("{0}")]
    UnknownKey(String),
    /// The text is not a dotted key.
    #[error("'{0}' is not a key: write names joined by dots, such as limits.max_cost_per_run")]
    NotAKey(String),
    /// The key stands for a whole section.
    #[error("'{0}' is a section: name a key below it")]
    Section(String),
    /// The value does not fit.
    #[error("{key}: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// What it takes.
        expected: String,
    },
    /// The file is broken, or would be.
    #[error("{0}")]
    Config(ConfigError),
    /// Somebody else has been changing the file all the time.
    #[error("{} is being changed by another process, for {} s already", file.display(), waited.as_secs())]
    Held {
        /// The file.
        file: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The file could not be written.
    #[error("cannot write {}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// A change of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets a key; see [`ConfigEdit::set`].
    Set {
        /// The dotted key.
        key: String,
        /// The value.
        value: String,
    },
    /// Removes a key or section, if it is there.
    Unset {
        /// The dotted key.
        key: String,
    },
    /// Adds tables to a list of tables, but for those that are there already by their first key.
    AddTables {
        /// The dotted key of the list.
        key: String,
        /// Each as an inline table of TOML.
        tables: Vec<String>,
    },
}

/// A configuration file that can be read key by key.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
    document: DocumentMut,
}

impl ConfigFile {
    /// Opens the file; one that is not there is empty.
    ///
    /// # Errors
    /// [`EditError::Config`] when it can not be read or is not TOML.
    pub fn open(path: &Path) -> Result<Self, EditError> {
        let text = read_text(path).map_err(EditError::Config)?;
        match text.parse::<DocumentMut>() {
            Ok(document) => Ok(Self { path: path.to_path_buf(), text, document }),
            Err(_) => Err(first_error(path, &text)),
        }
    }

    /// The value of a key as TOML, a whole section too; `None` when it is not set. A secret is masked.
    ///
    /// # Errors
    /// [`EditError::UnknownKey`], [`EditError::NotAKey`].
    pub fn get(&self, key: &str) -> Result<Option<String>, EditError> {
        let path = known(key)?.0;
        let dotted = dotted(&path);
        let mut below: Vec<(String, String)> = self.list();
        below.retain(|(name, _)| {
            name.strip_prefix(&dotted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        Ok(match below.as_slice() {
            [] => None,
            [(name, value)] if *name == dotted => Some(value.clone()),
            many => Some(many.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("\n")),
        })
    }

    /// All values: dotted key and value as TOML; secrets are masked.
    #[must_use]
    pub fn list(&self) -> Vec<(String, String)> {
        check::check(&self.path, &self.text).values.into_iter().map(|(key, value, _)| (key, value)).collect()
    }
}

/// A configuration file that can be changed key by key. Nobody else changes it until this is dropped: of two changes at
/// once, in this process or another one, none is lost.
#[derive(Debug)]
pub struct ConfigEdit {
    file: ConfigFile,
    #[allow(dead_code, reason = "held for its drop")]
    lock: FileLock,
}

impl Deref for ConfigEdit {
    type Target = ConfigFile;

    fn deref(&self) -> &ConfigFile {
        &self.file
    }
}

impl ConfigEdit {
    /// Opens the file for a change, as soon as nobody else changes it; waits for that at most [`CHANGE_WAIT`], which
    /// blocks. Its folder is made where it is missing, the file by the first change.
    ///
    /// # Errors
    /// [`EditError::Held`], [`EditError::Write`], and those of [`ConfigFile::open`].
    pub fn open(path: &Path) -> Result<Self, EditError> {
        Self::open_within(path, CHANGE_WAIT)
    }

    fn open_within(path: &Path, wait: Duration) -> Result<Self, EditError> {
        let target = target(path);
        let failed = |source| EditError::Write { file: target.clone(), source };
        if let Some(folder) = target.parent() {
            mcode_env::files::create_private_dir(folder).map_err(failed)?;
        }
        let mut name = target.clone().into_os_string();
        name.push(LOCK_SUFFIX);
        let lock = FileLock::take(Path::new(&name), wait).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => EditError::Held { file: target.clone(), waited: wait },
            _ => failed(error),
        })?;
        // Read behind the lock: what others have written before is there.
        Ok(Self { file: ConfigFile::open(path)?, lock })
    }

    /// Sets a key. Text needs no quotes; lists are written as TOML, or as one text for a list of one.
    ///
    /// # Errors
    /// See [`EditError`]; nothing is written then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), EditError> {
        self.change(&[Change::Set { key: key.to_owned(), value: value.to_owned() }]).map(drop)
    }

    /// Makes all of these changes, or none; `false` when nothing is different then.
    ///
    /// # Errors
    /// See [`EditError`]; nothing is written then.
    pub fn change(&mut self, changes: &[Change]) -> Result<bool, EditError> {
        let mut changed = self.file.document.clone();
        for change in changes {
            match change {
                Change::Set { key, value } => put(&mut changed, key, value)?,
                Change::Unset { key } => drop(remove(&mut changed, &parse_key(key)?)),
                Change::AddTables { key, tables } => add_tables(&mut changed, key, tables)?,
            }
        }
        let different = changed.to_string() != self.file.text;
        if different {
            self.write(changed)?;
        }
        Ok(different)
    }

    /// Adds a text to the end of a list; `false` when it is there already. Comments between the others stay.
    ///
    /// # Errors
    /// See [`EditError`]; nothing is written then.
    pub fn push(&mut self, key: &str, text: &str) -> Result<bool, EditError> {
        let path = known(key)?.0;
        let mut changed = self.file.document.clone();
        match array_at(&mut changed, key, &path)? {
            None => {
                let list = Value::Array(toml_edit::Array::from_iter([text]));
                self.set(key, &list.to_string())?;
                return Ok(true);
            }
            Some(list) if list.iter().any(|known| known.as_str() == Some(text)) => return Ok(false),
            Some(list) => list::push(list, text),
        }
        self.write(changed)?;
        Ok(true)
    }

    /// Takes a text out of a list; `false` when it is not there. Comments stay.
    ///
    /// # Errors
    /// See [`EditError`]; nothing is written then.
    pub fn pull(&mut self, key: &str, text: &str) -> Result<bool, EditError> {
        let path = known(key)?.0;
        let mut changed = self.file.document.clone();
        let removed = array_at(&mut changed, key, &path)?.is_some_and(|list| list::pull(list, text));
        if removed {
            self.write(changed)?;
        }
        Ok(removed)
    }

    /// Removes a key or section; `false` when it was not set. Comments above it stay.
    ///
    /// # Errors
    /// See [`EditError`]; nothing is written then.
    pub fn unset(&mut self, key: &str) -> Result<bool, EditError> {
        // Keys that are not known may be removed as well: that is how a slip is mended.
        let path = parse_key(key)?;
        let mut changed = self.file.document.clone();
        if !remove(&mut changed, &path) {
            return Ok(false);
        }
        self.write(changed)?;
        Ok(true)
    }

    fn write(&mut self, changed: DocumentMut) -> Result<(), EditError> {
        let (path, text) = (&self.file.path, changed.to_string());
        let before = check::check(path, &self.file.text).errors.len();
        let after = check::check(path, &text).errors;
        // A file with several faults may be mended one by one, but never get a new one.
        if !after.is_empty() && after.len() >= before {
            return Err(first_error(path, &text));
        }
        let target = target(path);
        mcode_env::files::write_atomic(&target, text.as_bytes())
            .map_err(|source| EditError::Write { file: target.clone(), source })?;
        (self.file.text, self.file.document) = (text, changed);
        Ok(())
    }
}

/// The file itself, where a link leads to it.
fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Sets a key in a document.
fn put(changed: &mut DocumentMut, key: &str, value: &str) -> Result<(), EditError> {
    let (path, node) = known(key)?;
    let value = match node {
        Node::Leaf(kind) => {
            parse(value, kind).ok_or_else(|| EditError::Value { key: key.to_owned(), expected: kind.describe() })?
        }
        Node::List(keys) => value.parse::<Value>().ok().filter(Value::is_array).ok_or_else(|| {
            let first = keys.first().map_or("id", |(name, _)| name);
            let expected = format!("a list of tables, such as [{{ {first} = \"…\" }}]");
            EditError::Value { key: key.to_owned(), expected }
        })?,
        Node::Table(_) | Node::Named(_) => return Err(EditError::Section(key.to_owned())),
    };
    insert(changed.as_table_mut(), &path, value).ok_or_else(|| EditError::Value {
        key: key.to_owned(),
        expected: "a table above it, but a value is there".to_owned(),
    })
}

/// Adds tables to a list of tables, but for those whose first key has a value that is there already.
fn add_tables(changed: &mut DocumentMut, key: &str, tables: &[String]) -> Result<(), EditError> {
    let (path, node) = known(key)?;
    let Node::List(keys) = node else { return Err(EditError::Section(key.to_owned())) };
    let first = keys.first().map_or("id", |(name, _)| name);
    let wrong = || EditError::Value { key: key.to_owned(), expected: format!("tables with the key {first}") };
    let mut new = Vec::new();
    for table in tables {
        let value = table.parse::<Value>().ok().filter(Value::is_inline_table).ok_or_else(wrong)?;
        let id = value.as_inline_table().and_then(|table| table.get(first)?.as_str().map(str::to_owned));
        new.push((id.ok_or_else(wrong)?, value));
    }
    let mut item = changed.as_item_mut();
    for name in &path {
        match item.as_table_like_mut().and_then(|table| table.get_mut(name)) {
            Some(child) if !child.is_none() => item = child,
            _ => {
                let list = Value::Array(new.into_iter().map(|(_, value)| value).collect());
                return put(changed, key, &list.to_string());
            }
        }
    }
    match item {
        Item::Value(Value::Array(list)) => {
            for (id, value) in new {
                let has = |known: &Value| {
                    known.as_inline_table().and_then(|table| table.get(first)?.as_str()) == Some(id.as_str())
                };
                if !list.iter().any(has) {
                    list.push(value);
                }
            }
        }
        Item::ArrayOfTables(list) => {
            for (id, value) in new {
                let has = |known: &Table| known.get(first).and_then(Item::as_str) == Some(id.as_str());
                if let Value::InlineTable(table) = value
                    && !list.iter().any(has)
                {
                    list.push(table.into_table());
                }
            }
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

fn first_error(path: &Path, text: &str) -> EditError {
    let fault = check::check(path, text).errors.into_iter().next();
    EditError::Config(fault.unwrap_or_else(|| ConfigError {
        file: path.to_path_buf(),
        line: 0,
        key: String::new(),
        message: "this is not TOML".to_owned(),
    }))
}

fn parse_key(key: &str) -> Result<Vec<String>, EditError> {
    let keys = Key::parse(key).map_err(|_| EditError::NotAKey(key.to_owned()))?;
    Ok(keys.iter().map(|key| key.get().to_owned()).collect())
}

fn known(key: &str) -> Result<(Vec<String>, Node), EditError> {
    let path = parse_key(key)?;
    match schema::find(&path) {
        Ok(node) => Ok((path, node)),
        Err((name, there)) => Err(EditError::UnknownKey(schema::unknown(&name, there.into_iter()))),
    }
}

/// The list at the path; `None` when it is not set.
fn array_at<'a>(
    document: &'a mut DocumentMut,
    key: &str,
    path: &[String],
) -> Result<Option<&'a mut toml_edit::Array>, EditError> {
    let mut item = document.as_item_mut();
    for name in path {
        item = match item.as_table_like_mut().and_then(|table| table.get_mut(name)) {
            None | Some(Item::None) => return Ok(None),
            Some(child) => child,
        };
    }
    item.as_array_mut().map(Some).ok_or_else(|| EditError::Value {
        key: key.to_owned(),
        expected: "a list of texts, but something else is there".to_owned(),
    })
}

fn dotted(path: &[String]) -> String {
    path.iter().map(|name| Key::new(name).display_repr().into_owned()).collect::<Vec<_>>().join(".")
}

fn parse(text: &str, kind: Kind) -> Option<Value> {
    let value = match kind {
        Kind::Text | Kind::Secret | Kind::Duration | Kind::Choice(_) => Value::from(text),
        Kind::Texts if !text.trim_start().starts_with('[') => Value::from_iter([text]),
        Kind::Texts | Kind::Whole(_) | Kind::Money | Kind::Switch => text.trim().parse().ok()?,
    };
    check::fits(&value, kind).then_some(value)
}

/// Puts the value at the path, making tables on the way; the layout around an old value stays.
fn insert(root: &mut dyn TableLike, path: &[String], mut value: Value) -> Option<()> {
    let (name, parents) = path.split_last()?;
    let mut table = root;
    for (depth, parent) in parents.iter().enumerate() {
        if !table.contains_key(parent) {
            let mut made = Table::new();
            // A table that only holds tables needs no line of its own.
            made.set_implicit(depth + 1 < parents.len());
            table.insert(parent, Item::Table(made));
        }
        table = table.get_mut(parent)?.as_table_like_mut()?;
    }
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(other) => *other = Item::Value(value),
        None => {
            table.insert(name, Item::Value(value));
        }
    }
    Some(())
}

/// Removes what is at the path, and tables that become empty; comments above it move to what follows.
fn remove(document: &mut DocumentMut, path: &[String]) -> bool {
    let Some(orphan) = remove_from(document.as_table_mut(), path) else { return false };
    if !orphan.is_empty() {
        let trailing = document.trailing().as_str().unwrap_or_default();
        document.set_trailing(RawString::from(format!("{orphan}{trailing}")));
    }
    true
}

/// Comments that found no place in the same table; `None` when nothing was there.
fn remove_from(table: &mut dyn TableLike, path: &[String]) -> Option<String> {
    let (name, below) = path.split_first()?;
    if !below.is_empty() {
        let child = table.get_mut(name)?.as_table_like_mut()?;
        return remove_from(child, below);
    }
    let comment = comment_above(table, name);
    let next = table.iter().map(|(key, _)| key.to_owned()).skip_while(|key| key != name).nth(1);
    table.remove(name)?;
    if comment.is_empty() {
        return Some(comment);
    }
    if let Some(next) = next
        && table.get(&next).is_some_and(Item::is_value)
        && let Some(mut key) = table.key_mut(&next)
    {
        let decor = key.leaf_decor_mut();
        let prefix = decor.prefix().and_then(RawString::as_str).unwrap_or_default().to_owned();
        decor.set_prefix(format!("{comment}{prefix}"));
        return Some(String::new());
    }
    Some(comment)
}

fn comment_above(table: &dyn TableLike, name: &str) -> String {
    let decor = match table.get(name) {
        Some(Item::Table(section)) => Some(section.decor()),
        Some(_) => table.key(name).map(Key::leaf_decor),
        None => None,
    };
    let prefix = decor.and_then(|decor| decor.prefix()).and_then(RawString::as_str).unwrap_or_default();
    if prefix.contains('#') { prefix.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_too_long_for_another_change_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("of/config.toml");
        let first = ConfigEdit::open(&path).unwrap();
        let wait = Duration::from_millis(30);
        let error = ConfigEdit::open_within(&path, wait).unwrap_err();
        assert!(matches!(&error, EditError::Held { file, .. } if *file == path), "{error:?}");
        assert!(error.to_string().contains("changed by another process"), "{error}");
        assert!(ConfigFile::open(&path).is_ok(), "it can be read meanwhile");
        drop(first);
        ConfigEdit::open_within(&path, Duration::ZERO).unwrap().set("model", "a/b").unwrap();
    }
}
