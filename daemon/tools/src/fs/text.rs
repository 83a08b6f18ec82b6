//! Bytes to text and back without loss: UTF-8, UTF-16 with a byte order mark, and windows-1252 for old files.

use std::fmt;

use encoding_rs::WINDOWS_1252;

/// How many bytes at the start decide whether a file is text.
const SNIFFED_BYTES: usize = 8192;

/// How the characters of a text file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// UTF-16, low byte first, with a byte order mark.
    Utf16Le,
    /// UTF-16, high byte first, with a byte order mark.
    Utf16Be,
    /// Not UTF-8: taken as windows-1252, in which every byte is a character, so that nothing is lost.
    Windows1252,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Windows1252 => "windows-1252",
        })
    }
}

/// The text of a file and how to store it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The characters, without a byte order mark.
    pub text: String,
    /// How they are stored.
    pub encoding: Encoding,
    /// Whether a byte order mark comes first.
    pub mark: bool,
}

impl Text {
    /// UTF-8 without a mark.
    #[must_use]
    pub fn plain(text: String) -> Self {
        Self { text, encoding: Encoding::Utf8, mark: false }
    }

    /// The bytes of a file; `None` when it is not text.
    #[must_use]
    pub fn decode(bytes: Vec<u8>) -> Option<Self> {
        match bytes.as_slice() {
            [0xEF, 0xBB, 0xBF, rest @ ..] => {
                let text = std::str::from_utf8(rest).ok()?.to_owned();
                Some(Self { text, encoding: Encoding::Utf8, mark: true })
            }
            [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes, Encoding::Utf16Le),
            [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes, Encoding::Utf16Be),
            _ if looks_binary(&bytes) => None,
            _ => match String::from_utf8(bytes) {
                Ok(text) => Some(Self::plain(text)),
                Err(error) => windows_1252(error.as_bytes()),
            },
        }
    }

    /// The bytes to store.
    ///
    /// # Errors
    /// The first character that the encoding does not have.
    pub fn encode(&self) -> Result<Vec<u8>, char> {
        let mark = if self.mark { "\u{FEFF}" } else { "" };
        match self.encoding {
            Encoding::Utf8 => Ok([mark.as_bytes(), self.text.as_bytes()].concat()),
            Encoding::Utf16Le => {
                Ok(mark.encode_utf16().chain(self.text.encode_utf16()).flat_map(u16::to_le_bytes).collect())
            }
            Encoding::Utf16Be => {
                Ok(mark.encode_utf16().chain(self.text.encode_utf16()).flat_map(u16::to_be_bytes).collect())
            }
            Encoding::Windows1252 => {
                let (bytes, _, unmapped) = WINDOWS_1252.encode(&self.text);
                if !unmapped {
                    return Ok(bytes.into_owned());
                }
                let lacks = |c: &char| WINDOWS_1252.encode(c.encode_utf8(&mut [0; 4])).2;
                Err(self.text.chars().find(lacks).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16, encoding: Encoding) -> Option<Text> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    // Half a surrogate pair has no text: then it is not UTF-16.
    let text = char::decode_utf16(pairs.iter().map(|pair| unit(*pair))).collect::<Result<String, _>>().ok()?;
    (!text.contains('\0')).then_some(Text { text, encoding, mark: true })
}

fn windows_1252(bytes: &[u8]) -> Option<Text> {
    let sniffed = bytes.get(..SNIFFED_BYTES).unwrap_or(bytes);
    let control = sniffed.iter().filter(|byte| **byte < 0x20 && !b"\t\n\r\x0c\x1b".contains(byte)).count();
    if control * 100 > sniffed.len() || bytes.contains(&0) || kind_of(bytes).is_some() {
        return None;
    }
    let text = WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned();
    Some(Text { text, encoding: Encoding::Windows1252, mark: false })
}

/// Whether these first bytes of a file hold a NUL, as no text does.
#[must_use]
pub fn looks_binary(bytes: &[u8]) -> bool {
    bytes.get(..SNIFFED_BYTES).unwrap_or(bytes).contains(&0)
}

/// What a file that is not text is, as a MIME type, from its first bytes.
#[must_use]
pub fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    infer::get(bytes).filter(|kind| kind.matcher_type() != infer::MatcherType::Text).map(|kind| kind.mime_type())
}

/// How the lines of a text end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endings {
    /// LF, or no line end at all.
    Lf,
    /// All CRLF.
    Crlf,
    /// Both.
    Mixed,
}

/// How the lines of `text` end.
#[must_use]
pub fn endings(text: &str) -> Endings {
    let all = text.matches('\n').count();
    let crlf = text.matches("\r\n").count();
    match crlf {
        0 => Endings::Lf,
        n if n == all => Endings::Crlf,
        _ => Endings::Mixed,
    }
}

/// `text` with every line ending in LF.
#[must_use]
pub fn to_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// `text` with every line ending in CRLF.
#[must_use]
pub fn to_crlf(text: &str) -> String {
    to_lf(text).replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_comes_back_byte_for_byte() {
        let all_but_nul: Vec<u8> = b"caf\xe9 ".iter().copied().cycle().take(8192).chain(1..=255).collect();
        for (bytes, encoding) in [
            (b"caf\xc3\xa9\n".to_vec(), Encoding::Utf8),
            (b"\xef\xbb\xbfa\n".to_vec(), Encoding::Utf8),
            (b"\xff\xfea\0\n\0".to_vec(), Encoding::Utf16Le),
            (b"\xfe\xff\xd8\x3d\xde\x00\0\n".to_vec(), Encoding::Utf16Be),
            (all_but_nul, Encoding::Windows1252),
        ] {
            let text = Text::decode(bytes.clone()).unwrap();
            assert_eq!(text.encoding, encoding);
            assert!(!text.text.starts_with('\u{FEFF}'));
            assert_eq!(text.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn what_is_not_text_is_not_decoded() {
        for bytes in
            [&b"a\0b"[..], b"\xff\xfea\0\n", b"\xff\xfe\x00\xd8", b"\x89PNG\r\n\x1a\n\xff", b"\x01\x02\x03\xff"]
        {
            assert_eq!(Text::decode(bytes.to_vec()), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_character_the_encoding_lacks_is_named() {
        let text = Text { text: "a漢".into(), encoding: Encoding::Windows1252, mark: false };
        assert_eq!(text.encode(), Err('漢'));
    }

    #[test]
    fn endings_are_told_apart() {
        assert_eq!(endings("a\nb"), Endings::Lf);
        assert_eq!(endings("a\r\nb\r\n"), Endings::Crlf);
        assert_eq!(endings("a\r\nb\n"), Endings::Mixed);
        assert_eq!(to_crlf("a\r\nb\n"), "a\r\nb\r\n");
    }
}
