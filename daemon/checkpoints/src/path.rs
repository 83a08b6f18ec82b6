//! Paths below a project's root, as bytes: a name need not be text, and may hold a line break.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a path at most. Linux takes 4096 at once; what lies deeper is reached folder by folder.
pub const PATH_BYTES_MAX: usize = 64 * 1024;

/// A path below the project's root: names between slashes, on every system.
///
/// Its text is the path itself where that is plain text. Otherwise it stands in double quotes as git writes it, with
/// `\n`, `\"`, `\\` and octal `\377`; that text is read back to the same bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Box<[u8]>);

/// A text that is no path below a project.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a path below the project; give it from the project's root on, such as src/main.rs")]
pub struct ParsePathError {
    /// What was given, cut at 200 characters.
    pub text: String,
}

impl TreePath {
    /// Takes a path of plain names.
    ///
    /// # Errors
    /// When it is empty, absolute, leads out or through `.git`, or is too long.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ParsePathError> {
        let sound = bytes.len() <= PATH_BYTES_MAX && bytes.split(|byte| *byte == b'/').all(is_name);
        if sound {
            return Ok(Self(bytes.into()));
        }
        Err(ParsePathError { text: String::from_utf8_lossy(bytes).chars().take(200).collect() })
    }

    /// The path of a name in a folder; the root is the empty folder.
    pub(crate) fn join(folder: &[u8], name: &[u8]) -> Self {
        Self(joined(folder, name).into())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The folder it lies in, empty for the root, and its name there.
    #[must_use]
    pub fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[], &self.0),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.split().1
    }

    /// The folders above it, nearest first, without the root.
    pub(crate) fn above(&self) -> impl Iterator<Item = Self> + '_ {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let at = rest.iter().rposition(|byte| *byte == b'/')?;
            rest = &rest[..at];
            Some(Self(rest.into()))
        })
    }

    /// Whether it is `folder` or lies in it.
    #[must_use]
    pub fn is_within(&self, folder: &Self) -> bool {
        self.0.strip_prefix(&*folder.0).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// How many folders it lies in.
    pub(crate) fn depth(&self) -> usize {
        self.0.iter().filter(|byte| **byte == b'/').count()
    }

    /// The text of [`fmt::Display`].
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        text_of(&self.0)
    }
}

/// A folder and a name as one path.
pub(crate) fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Whether it may be the name of something in a folder that is looked at or written.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let odd = if cfg!(windows) { &b"/\0\\:"[..] } else { &b"/\0"[..] };
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| odd.contains(byte)) && !is_git(name)
}

/// Whether it is the folder, or the file, that git keeps for itself: also in other letters, for file systems that do not
/// tell them apart.
pub(crate) fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git") || (cfg!(windows) && name.eq_ignore_ascii_case(b"git~1"))
}

/// Bytes as a path of the system's; `None` where a path has to be text and they are none.
#[cfg(unix)]
#[allow(clippy::unnecessary_wraps, reason = "other systems have names that are no text")]
pub(crate) fn as_os(bytes: &[u8]) -> Option<&Path> {
    use std::os::unix::ffi::OsStrExt;
    Some(Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

/// Bytes as a path of the system's; `None` where a path has to be text and they are none.
#[cfg(not(unix))]
pub(crate) fn as_os(bytes: &[u8]) -> Option<&Path> {
    std::str::from_utf8(bytes).ok().map(Path::new)
}

/// The bytes of a path of the system's, names between slashes; `None` where they are no text and have to be.
pub(crate) fn from_os(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in path.components() {
        let std::path::Component::Normal(name) = part else { return None };
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        #[cfg(unix)]
        bytes.extend_from_slice(std::os::unix::ffi::OsStrExt::as_bytes(name));
        #[cfg(not(unix))]
        bytes.extend_from_slice(name.to_str()?.as_bytes());
    }
    Some(bytes)
}

/// Bytes as text that is read back to the same bytes by [`bytes_of`].
pub(crate) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.starts_with('"')
        && !text.chars().any(char::is_control)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\\' => text.extend(['\\', char]),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                char if char.is_control() => {
                    let mut buffer = [0; 4];
                    octal(char.encode_utf8(&mut buffer).as_bytes(), &mut text);
                }
                char => text.push(char),
            }
        }
        octal(chunk.invalid(), &mut text);
    }
    text.push('"');
    Cow::Owned(text)
}

fn octal(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        text.push_str(&format!("\\{byte:03o}"));
    }
}

/// The bytes of a text made by [`text_of`]; `None` where its quotes are not in order.
pub(crate) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let Some(quoted) = text.strip_prefix('"') else { return Some(text.as_bytes().to_vec()) };
    let mut rest = quoted.strip_suffix('"')?.bytes();
    let mut bytes = Vec::with_capacity(quoted.len());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'"' => return None,
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b't' => b'\t',
                plain @ (b'"' | b'\\') => plain,
                first @ b'0'..=b'3' => {
                    let digits = [first, rest.next()?, rest.next()?];
                    let text = std::str::from_utf8(&digits).ok()?;
                    u8::from_str_radix(text, 8).ok()?
                }
                _ => return None,
            },
            plain => plain,
        });
    }
    Some(bytes)
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

impl FromStr for TreePath {
    type Err = ParsePathError;

    /// Reads what [`fmt::Display`] writes. A leading `./` and a slash at the end are taken off.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParsePathError { text: text.chars().take(200).collect() };
        let bytes = bytes_of(text).ok_or_else(wrong)?;
        let bytes = bytes.strip_prefix(b"./").unwrap_or(&bytes);
        Self::from_bytes(bytes.strip_suffix(b"/").unwrap_or(bytes)).map_err(|_| wrong())
    }
}

impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_become_text_and_come_back() {
        let names: [&[u8]; 8] = [
            b"src/main.rs",
            b"a b",
            b"new\nline",
            b"\xff\xfe/x",
            b"\"quoted\"",
            b"back\\slash",
            "é\u{1b}[31m".as_bytes(),
            b"\t\x7f",
        ];
        for name in names {
            let path = TreePath::from_bytes(name).unwrap();
            let text = path.to_string();
            assert!(!text.chars().any(char::is_control), "{text:?}");
            assert_eq!(text.parse::<TreePath>().unwrap(), path, "{text}");
        }
        assert_eq!(TreePath::from_bytes(b"a\n\xff\"").unwrap().to_string(), r#""a\n\377\"""#);
        assert_eq!("./src/".parse::<TreePath>().unwrap().to_string(), "src");
    }

    #[test]
    fn what_leads_out_or_into_git_is_no_path() {
        let wrong = [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a//b",
            "a/./b",
            ".git",
            ".git/config",
            "sub/.GIT/hooks/x",
            "\"",
            "\"a",
            "\"\\9\"",
            "\"a\\000b\"",
        ];
        for text in wrong {
            assert!(text.parse::<TreePath>().is_err(), "{text}");
        }
        assert!(TreePath::from_bytes(&vec![b'a'; PATH_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_path_knows_where_it_lies() {
        let path: TreePath = "a/b/c".parse().unwrap();
        assert_eq!(path.split(), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(path.above().map(|path| path.to_string()).collect::<Vec<_>>(), ["a/b", "a"]);
        assert!(path.is_within(&"a/b".parse().unwrap()) && path.is_within(&path));
        assert!(
            !path.is_within(&"a/bc".parse().unwrap())
                && !"ab".parse::<TreePath>().unwrap().is_within(&"a".parse().unwrap())
        );
    }
}
