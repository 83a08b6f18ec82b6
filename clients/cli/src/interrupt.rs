//! Ctrl+C.

use mcode_client::ClientError;

use crate::failure::{self, Failure};

/// Exit status of a command that was ended by Ctrl+C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Waits for Ctrl+C, as often as it is pressed. From its making on, Ctrl+C no longer ends the process by itself.
#[derive(Debug)]
pub(crate) struct Interrupts {
    #[cfg(unix)]
    signals: tokio::signal::unix::Signal,
    #[cfg(windows)]
    signals: tokio::signal::windows::CtrlC,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        #[cfg(unix)]
        let signals = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
        #[cfg(windows)]
        let signals = tokio::signal::windows::ctrl_c();
        signals.map(|signals| Self { signals }).map_err(failure::runtime)
    }

    /// The next Ctrl+C. May be dropped while it waits.
    pub(crate) async fn next(&mut self) {
        self.signals.recv().await;
    }

    /// The outcome of `work`, or of Ctrl+C when that comes first.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
        tokio::select! {
            outcome = work => Ok(outcome?),
            () = self.next() => Err(Failure::Told(INTERRUPTED)),
        }
    }
}
