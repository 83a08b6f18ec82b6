//! The user's terminal: whether somebody is there, and what is typed.
//!
//! What is piped into a command is no terminal, but its user may still sit at one: then it is asked by its own name, as
//! `ssh`, `sudo` and `git` do.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::thread;

use tokio::sync::mpsc;
use tokio::time::Instant;

/// The terminal of this process, whatever its stdin is.
#[cfg(not(windows))]
const OWN: &str = "/dev/tty";
#[cfg(windows)]
const OWN: &str = "CONIN$";

/// Columns and lines of a terminal that does not say.
const SIZE: (usize, usize) = (80, 24);

/// Typed lines on their way.
const LINES_MAX: usize = 8;

/// Most bytes of a line; terminals give no more than 4096.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Ends of input in a row after which the terminal is taken to be gone.
const ENDS_MAX: u32 = 3;

/// What came from the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A line, without its line break.
    Line(String),
    /// The end of input: Ctrl+D, or the terminal is gone.
    End,
}

/// Whether somebody can see what is asked and can answer it.
pub(crate) fn is_there() -> bool {
    io::stderr().is_terminal() && (io::stdin().is_terminal() || File::open(OWN).is_ok())
}

/// Whether stdin is a terminal, and not only one that is there beside it.
pub(crate) fn is_typed_into() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// One line, before anything else reads from the terminal; empty when there is none. Blocking.
pub(crate) fn line() -> String {
    let mut bytes = Vec::new();
    let stdin = io::stdin();
    let read = if stdin.is_terminal() {
        stdin.lock().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)
    } else {
        // In lines, as terminals give their input: nothing after the line is taken.
        File::open(OWN).and_then(|own| BufReader::new(own).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes))
    };
    if read.is_err() {
        bytes.clear();
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// What is typed is not shown for as long as this lives.
#[derive(Debug)]
pub(crate) struct Hidden {
    #[cfg(unix)]
    shown: Option<(File, rustix::termios::Termios)>,
}

/// Stops showing what is typed; where the terminal can not do that, it goes on.
#[cfg(unix)]
pub(crate) fn hide_typing() -> Hidden {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let hide = || {
        let own = File::open(OWN).ok()?;
        let shown = tcgetattr(&own).ok()?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&own, OptionalActions::Flush, &hidden).ok()?;
        Some((own, shown))
    };
    Hidden { shown: hide() }
}

#[cfg(unix)]
impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some((own, shown)) = self.shown.take() {
            // A terminal that has gone shows nothing anyway.
            let _gone = rustix::termios::tcsetattr(&own, rustix::termios::OptionalActions::Flush, &shown);
        }
    }
}

/// Here the line is read as it is typed.
#[cfg(not(unix))]
pub(crate) fn hide_typing() -> Hidden {
    Hidden {}
}

/// Columns and lines of the terminal on stderr.
pub(crate) fn size() -> (usize, usize) {
    let known = known_size().filter(|(columns, lines)| *columns > 0 && *lines > 0);
    known.map_or(SIZE, |(columns, lines)| (usize::from(columns), usize::from(lines)))
}

#[cfg(unix)]
fn known_size() -> Option<(u16, u16)> {
    rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| (size.ws_col, size.ws_row))
}

#[cfg(not(unix))]
fn known_size() -> Option<(u16, u16)> {
    None
}

/// Reads what is typed. A thread reads, since a read can not be called off; it ends with us.
#[derive(Debug)]
pub(crate) struct Terminal {
    lines: mpsc::Receiver<(Instant, Typed)>,
    own: Option<File>,
    asked: Instant,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let stdin = io::stdin();
        let own = if stdin.is_terminal() { None } else { File::open(OWN).ok() };
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let copy = own.as_ref().map(File::try_clone);
        let reader = move || match copy {
            Some(Ok(file)) => read_lines(BufReader::new(file), &sender),
            None if stdin.is_terminal() => read_lines(stdin.lock(), &sender),
            // What is piped in answers nothing.
            None | Some(Err(_)) => {}
        };
        // Without the thread nobody can answer, which is what a closed channel says.
        drop(thread::Builder::new().name("terminal".to_owned()).spawn(reader));
        Self { lines, own, asked: Instant::now() }
    }

    /// Forgets what was typed so far: it can not be meant for what is asked only now.
    pub(crate) fn forget(&mut self) {
        self.drop_unread();
        self.asked = Instant::now();
    }

    /// What is typed next. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Typed {
        while let Some((at, typed)) = self.lines.recv().await {
            if at >= self.asked {
                return typed;
            }
        }
        Typed::End
    }

    /// Drops what the system holds for the next read, unfinished lines too.
    #[cfg(unix)]
    fn drop_unread(&self) {
        use rustix::termios::{QueueSelector, tcflush};
        let dropped = match &self.own {
            Some(file) => tcflush(file, QueueSelector::IFlush),
            None => tcflush(io::stdin(), QueueSelector::IFlush),
        };
        // A terminal that can not do that gives what was typed early as a line, which `next` knows by its time.
        let _ = dropped.is_ok();
    }

    #[cfg(not(unix))]
    fn drop_unread(&self) {
        let _ = &self.own;
    }
}

fn read_lines(mut source: impl BufRead, sender: &mpsc::Sender<(Instant, Typed)>) {
    let mut ends = 0;
    while ends < ENDS_MAX {
        let mut bytes = Vec::new();
        let typed = match source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
            // On a terminal the end of input is not for good: what is typed after it can be read.
            Ok(0) => {
                ends += 1;
                Typed::End
            }
            Ok(_) => {
                ends = 0;
                let text = String::from_utf8_lossy(&bytes);
                Typed::Line(text.trim_end_matches(['\n', '\r']).to_owned())
            }
        };
        if sender.blocking_send((Instant::now(), typed)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &'static [u8]) -> Vec<Typed> {
        let (sender, mut lines) = mpsc::channel(LINES_MAX);
        read_lines(BufReader::new(text), &sender);
        drop(sender);
        std::iter::from_fn(|| lines.try_recv().ok()).map(|(_, typed)| typed).collect()
    }

    #[test]
    fn lines_are_read_until_the_input_has_ended_for_good() {
        let line = |text: &str| Typed::Line(text.to_owned());
        assert_eq!(
            typed(b"y\r\nn\xff\nrest"),
            [line("y"), line("n\u{fffd}"), line("rest"), Typed::End, Typed::End, Typed::End]
        );
    }

    #[tokio::test]
    async fn what_was_typed_before_the_question_is_no_answer() {
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let early = (Instant::now(), Typed::Line("early".into()));
        sender.send(early).await.unwrap();
        let mut terminal = Terminal { lines, own: None, asked: Instant::now() };
        terminal.asked = Instant::now();
        sender.send((Instant::now(), Typed::Line("answer".into()))).await.unwrap();
        drop(sender);
        assert_eq!(terminal.next().await, Typed::Line("answer".into()));
        assert_eq!(terminal.next().await, Typed::End);
    }
}
