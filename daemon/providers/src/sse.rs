//! Server-sent events from bytes as they come off the network.
//!
//! Lines end in LF, CRLF or CR; bytes may be cut anywhere, also inside a character. Comments carry no data, but the
//! bytes that hold them count as life for the idle timer, which the reader of the bytes keeps. An event that the end
//! of the stream cuts off before its blank line is still given. Events without data are not.

use std::borrow::Cow;

/// The longest line that is taken, in bytes.
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
/// The most data one event may hold, in bytes.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// The longest event name that is kept, in bytes; longer ones are cut.
const MAX_NAME_BYTES: usize = 128;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Its name; empty when it has none.
    pub name: &'a str,
    /// Its data lines, joined by LF.
    pub data: &'a str,
}

/// The stream is not one we can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line has no end.
    #[error("the stream holds a line longer than {MAX_LINE_BYTES} bytes")]
    LineTooLong,
    /// An event has no end.
    #[error("the stream holds an event larger than {MAX_EVENT_BYTES} bytes")]
    EventTooLarge,
}

/// Decodes a stream that is fed piece by piece.
#[derive(Debug, Default)]
pub struct SseDecoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    name: String,
    /// The last piece ended in CR: a LF that comes next belongs to it.
    skip_lf: bool,
    started: bool,
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and calls `give` for each event that is complete with them. An error of `give` ends the
    /// feed at once.
    pub fn feed<E: From<SseError>>(
        &mut self,
        mut bytes: &[u8],
        give: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.skip_lf {
                self.skip_lf = false;
                if bytes[0] == b'\n' {
                    bytes = &bytes[1..];
                    continue;
                }
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                if self.line.len() + bytes.len() > MAX_LINE_BYTES {
                    return Err(SseError::LineTooLong.into());
                }
                self.line.extend_from_slice(bytes);
                return Ok(());
            };
            if let Some(data) = self.whole(bytes, end) {
                if data.len() >= MAX_EVENT_BYTES {
                    return Err(SseError::EventTooLarge.into());
                }
                let given = give(SseEvent { name: &self.name, data: &text(data) });
                self.name.clear();
                given?;
                bytes = &bytes[end + 2..];
                continue;
            }
            self.skip_lf = bytes[end] == b'\r';
            if self.line.len() + end > MAX_LINE_BYTES {
                return Err(SseError::LineTooLong.into());
            }
            if self.line.is_empty() {
                self.take_line(&bytes[..end], give)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                let taken = self.take_line(&line, give);
                line.clear();
                self.line = line;
                taken?;
            }
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }

    /// The data of an event whose one line is here with the blank line after it, as nearly all of a stream are: it need
    /// not be copied. `end` is the first end of a line in `bytes`.
    fn whole<'a>(&self, bytes: &'a [u8], end: usize) -> Option<&'a [u8]> {
        let alone = self.started && self.line.is_empty() && !self.has_data && end <= MAX_LINE_BYTES;
        if !alone || bytes[end] != b'\n' || bytes.get(end + 1) != Some(&b'\n') {
            return None;
        }
        let data = bytes[..end].strip_prefix(b"data:")?;
        Some(data.strip_prefix(b" ").unwrap_or(data))
    }

    /// The stream ended: gives an event that was not closed by a blank line.
    pub fn finish<E: From<SseError>>(&mut self, give: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_line(&line, give)?;
        }
        self.dispatch(give)
    }

    fn take_line<E: From<SseError>>(
        &mut self,
        mut line: &[u8],
        give: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.started {
            self.started = true;
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(give);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(0) => return Ok(()),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.data.len() + value.len() >= MAX_EVENT_BYTES {
                    return Err(SseError::EventTooLarge.into());
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&text(&value[..value.len().min(MAX_NAME_BYTES)]));
            }
            _ => {}
        }
        Ok(())
    }

    fn dispatch<E: From<SseError>>(&mut self, give: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>) -> Result<(), E> {
        let given = if self.has_data {
            let data = text(&self.data);
            give(SseEvent { name: &self.name, data: &data })
        } else {
            Ok(())
        };
        self.data.clear();
        self.has_data = false;
        self.name.clear();
        given
    }
}

/// Bytes as text. To find out that all of it is right is several times faster than to look for what is not.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<Vec<(String, String)>, SseError> {
        let mut decoder = SseDecoder::new();
        let mut events = Vec::new();
        let mut give = |event: SseEvent<'_>| {
            events.push((event.name.to_owned(), event.data.to_owned()));
            Ok::<(), SseError>(())
        };
        for piece in pieces {
            decoder.feed(piece, &mut give)?;
        }
        decoder.finish(&mut give)?;
        Ok(events)
    }

    fn data(texts: &[&str]) -> Vec<(String, String)> {
        texts.iter().map(|text| (String::new(), (*text).to_owned())).collect()
    }

    #[test]
    fn all_line_ends_comments_and_spaces() {
        let stream =
            b": ping\r\n\r\ndata:{a}\r\n\r\ndata:  two spaces\n\ndata: x\rdata: y\r\rid: 3\nretry: 4\n\ndata\n\n";
        assert_eq!(decode(&[stream]).unwrap(), data(&["{a}", " two spaces", "x\ny", ""]));
    }

    #[test]
    fn names_belong_to_their_event_alone() {
        let events = decode(&[b"event: error\ndata: 1\n\ndata: 2\n\nevent: lost\n\ndata: 3"]).unwrap();
        let expected: Vec<(String, String)> = [("error", "1"), ("", "2"), ("", "3")]
            .iter()
            .map(|(name, data)| ((*name).to_owned(), (*data).to_owned()))
            .collect();
        assert_eq!(events, expected);
    }

    #[test]
    fn any_cut_gives_the_same_events() {
        let stream =
            "\u{feff}: c\r\n\r\ndata:{\"t\":\"héé€😀\"}\r\n\r\nevent: e\rdata: 1\ndata: 2\r\n\ndata: end".as_bytes();
        let whole = decode(&[stream]).unwrap();
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[2].1, "end");
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(decode(&pieces).unwrap(), whole, "cut at {first} and {second}");
            }
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decode(&bytes).unwrap(), whole);
    }

    #[test]
    fn lines_and_events_are_bounded() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(decode(&[&long]), Err(SseError::LineTooLong));
        assert_eq!(decode(&[&long, b"\n"]), Err(SseError::LineTooLong));
        let mut line = b"data: ".to_vec();
        line.resize(MAX_LINE_BYTES, b'y');
        line.push(b'\n');
        assert_eq!(decode(&[&line, &line, &line]), Err(SseError::EventTooLarge));
        line.push(b'\n');
        assert_eq!(decode(&[&line, &line, &line]).unwrap().len(), 3);
    }
}
