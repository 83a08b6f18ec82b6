//! What is piped into a command.
//!
//! With a prompt on the command line, stdin is context: it is read when it is a file, or a pipe whose writer writes. A
//! pipe that stays open and silent belongs to whoever started us and is left alone. Without a prompt stdin is the
//! prompt, and is awaited to its end.

use std::io::{self, IsTerminal, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use mcode_client::ClientError;

/// Most bytes that are read.
pub(crate) const STDIN_BYTES_MAX: usize = 10 * 1024 * 1024;

/// How long a pipe may be silent before it is left alone.
pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(200);

/// How long a pipe that has begun may pause before what came is taken for all of it.
pub(crate) const NEXT_WAIT: Duration = Duration::from_secs(3);

/// Bytes of one read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks on their way from the reader.
const CHUNKS_MAX: usize = 4;

/// What was piped in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piped {
    /// The text; what is not UTF-8 is replaced.
    pub(crate) text: String,
    /// Whether the writer was still there when we stopped to read.
    pub(crate) cut: bool,
}

/// Reads this process's stdin; `None` when nothing is piped in.
pub(crate) fn read(has_prompt: bool) -> Result<Option<Piped>, ClientError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let waits = has_prompt.then_some((FIRST_WAIT, NEXT_WAIT));
    collect(stdin, waits)
}

/// Reads to the end, or as long as data flows. A thread reads, since a read can not be called off; it ends with us.
fn collect(
    mut source: impl Read + Send + 'static,
    waits: Option<(Duration, Duration)>,
) -> Result<Option<Piped>, ClientError> {
    let (sender, receiver) = sync_channel(CHUNKS_MAX);
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let outcome = match source.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                    Ok(length) => {
                        chunk.truncate(length);
                        Ok(chunk)
                    }
                };
                let last = !matches!(&outcome, Ok(chunk) if !chunk.is_empty());
                if sender.send(outcome).is_err() || last {
                    return;
                }
            }
        })
        .map_err(|error| unreadable(&error))?;
    gather(&receiver, waits)
}

fn gather(
    receiver: &Receiver<io::Result<Vec<u8>>>,
    waits: Option<(Duration, Duration)>,
) -> Result<Option<Piped>, ClientError> {
    let mut bytes = Vec::new();
    let mut cut = false;
    loop {
        let next = match waits {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((first, next)) => receiver.recv_timeout(if bytes.is_empty() { first } else { next }),
        };
        match next {
            Ok(Ok(chunk)) if chunk.is_empty() => break,
            Ok(Ok(chunk)) => bytes.extend(chunk),
            Ok(Err(error)) => return Err(unreadable(&error)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                cut = true;
                break;
            }
        }
        if bytes.len() > STDIN_BYTES_MAX {
            return Err(ClientError::usage(format!(
                "standard input is larger than {} MB",
                STDIN_BYTES_MAX / (1024 * 1024)
            ))
            .hint("save it to a file and name the file in the prompt: the agent reads what it needs of it"));
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some(Piped { text: String::from_utf8_lossy(&bytes).into_owned(), cut }))
}

fn unreadable(error: &io::Error) -> ClientError {
    ClientError::usage(format!("standard input can not be read: {error}")).hint("give the prompt as an argument")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SHORT: Option<(Duration, Duration)> = Some((Duration::from_millis(50), Duration::from_millis(50)));

    #[test]
    fn a_silent_open_pipe_is_left_alone() {
        let (reader, writer) = io::pipe().unwrap();
        assert_eq!(collect(reader, SHORT).unwrap(), None);
        drop(writer);
    }

    #[test]
    fn a_pipe_that_ends_is_read_whole() {
        let (reader, mut writer) = io::pipe().unwrap();
        let text = "line\n".repeat(50_000);
        let expected = text.clone();
        let feeder = thread::spawn(move || writer.write_all(text.as_bytes()));
        let piped = collect(reader, SHORT).unwrap().unwrap();
        feeder.join().unwrap().unwrap();
        assert_eq!(piped, Piped { text: expected, cut: false });
    }

    #[test]
    fn a_pipe_that_pauses_for_too_long_is_cut() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a\xffb").unwrap();
        assert_eq!(collect(reader, SHORT).unwrap(), Some(Piped { text: "a\u{fffd}b".into(), cut: true }));
        drop(writer);
    }

    #[test]
    fn without_a_prompt_the_end_is_awaited() {
        let (reader, mut writer) = io::pipe().unwrap();
        let waiting = thread::spawn(move || collect(reader, None));
        writer.write_all(b"the prompt").unwrap();
        assert!(!waiting.is_finished());
        drop(writer);
        assert_eq!(waiting.join().unwrap().unwrap().unwrap().text, "the prompt");
    }

    #[test]
    fn nothing_and_the_end_is_nothing() {
        assert_eq!(collect(io::empty(), None).unwrap(), None);
        assert_eq!(collect(io::empty(), SHORT).unwrap(), None);
    }

    #[test]
    fn the_limit_is_kept() {
        let fits = io::repeat(b'x').take(STDIN_BYTES_MAX as u64);
        assert_eq!(collect(fits, None).unwrap().unwrap().text.len(), STDIN_BYTES_MAX);
        let error = collect(io::repeat(b'x').take(STDIN_BYTES_MAX as u64 + 1), None).unwrap_err();
        assert_eq!((error.exit_code(), error.message.as_str()), (2, "standard input is larger than 10 MB"));
    }
}
