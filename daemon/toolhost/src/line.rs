//! The host's end of the line to the daemon.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mcode_sandbox::hosted::wire::{Incoming, Order, Report};

/// Bytes read at once.
const READ_BYTES: usize = 16 * 1024;
/// How long a daemon that does not read is waited for at the end; what it misses is in the status.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// A connected daemon. Nothing here blocks but [`Line::first`] and [`Line::finish`].
#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    incoming: Incoming,
    outgoing: Vec<u8>,
}

impl Line {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, incoming: Incoming::default(), outgoing: Vec::new() }
    }

    /// Waits for the first order.
    ///
    /// # Errors
    /// When the other end is no daemon, or went away.
    pub(crate) fn first(&mut self) -> io::Result<Order> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Some(order) = self.incoming.order()? {
                return Ok(order);
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.incoming.push(&buffer[..count]),
            }
        }
    }

    pub(crate) fn unblock(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether something could not be sent yet.
    pub(crate) fn is_behind(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends a report, as far as that is possible now.
    ///
    /// # Errors
    /// When the other end is gone.
    pub(crate) fn send(&mut self, report: &Report) -> io::Result<()> {
        self.outgoing.extend(report.encode()?);
        self.flush()
    }

    /// Sends what waits, as far as that is possible now.
    ///
    /// # Errors
    /// When the other end is gone.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The orders that have come in.
    ///
    /// # Errors
    /// When the other end is gone, or sends nonsense.
    pub(crate) fn orders(&mut self) -> io::Result<Vec<Order>> {
        let mut buffer = [0; READ_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.incoming.push(&buffer[..count]);
                    // What is left is told again; nobody sends so fast that orders may wait for more.
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        let mut orders = Vec::new();
        while let Some(order) = self.incoming.order()? {
            orders.push(order);
        }
        Ok(orders)
    }

    /// Sends what still waits, if the daemon takes it soon.
    pub(crate) fn finish(mut self) {
        if self.is_behind() && self.stream.set_nonblocking(false).is_ok() {
            self.stream.set_write_timeout(Some(LAST_WAIT)).ok();
            self.stream.write_all(&self.outgoing).ok();
            self.outgoing.clear();
        }
    }
}
