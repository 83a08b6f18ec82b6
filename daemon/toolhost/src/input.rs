//! A command's standard input.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// What ends the input of a terminal.
const END_OF_TRANSMISSION: u8 = 4;

/// Bytes on their way to a command.
#[derive(Debug)]
pub(crate) struct Input {
    fd: Option<OwnedFd>,
    terminal: bool,
    waiting: VecDeque<u8>,
    taken: u64,
    ending: bool,
}

impl Input {
    /// Over this descriptor, which does not block; `None` for a command without input.
    pub(crate) fn new(fd: Option<OwnedFd>, terminal: bool) -> Self {
        Self { fd, terminal, waiting: VecDeque::new(), taken: 0, ending: false }
    }

    /// Bytes that the command has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that wait for it.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether it takes more.
    pub(crate) fn is_open(&self) -> bool {
        self.fd.is_some() && !self.ending
    }

    /// What to wait for until more can be written.
    pub(crate) fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().filter(|_| !self.waiting.is_empty()).map(AsFd::as_fd)
    }

    /// Takes more bytes for the command.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.is_open() {
            self.waiting.extend(bytes);
            self.feed();
        }
    }

    /// Closes it once what waits is taken.
    pub(crate) fn end(&mut self) {
        if self.is_open() && self.terminal {
            self.waiting.push_back(END_OF_TRANSMISSION);
        }
        self.ending = true;
        self.feed();
    }

    /// Gives the command what it takes now.
    pub(crate) fn feed(&mut self) {
        while let (Some(fd), (bytes @ [_, ..], _)) = (&self.fd, self.waiting.as_slices()) {
            match rustix::io::write(fd, bytes) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    self.taken += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody reads it any more.
                Err(_) => {
                    self.waiting.clear();
                    self.fd = None;
                }
            }
        }
        if self.ending {
            self.fd = None;
        }
    }

    /// Closes it now.
    pub(crate) fn close(&mut self) {
        self.waiting.clear();
        self.fd = None;
    }
}
