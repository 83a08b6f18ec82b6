//! Why the daemon does not run, told in one line and an exit status (interface.md section 3).

use std::io::Write;
use std::process::ExitCode;

use mcode_endpoint::EndpointError;
use mcode_env::DirsError;
use mcode_text::chain;

/// Exit status when another daemon already does the work.
const STATUS_RUNNING: u8 = 1;
/// Exit status of a faulty configuration or environment.
const STATUS_CONFIG: u8 = 3;
/// Exit status of a fault of our own.
const STATUS_INTERNAL: u8 = 70;

/// An end before its time.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    /// Something in the user's environment is in the way.
    pub(crate) fn config(message: String) -> Self {
        Self { status: STATUS_CONFIG, message }
    }

    /// A fault of our own.
    pub(crate) fn internal(message: String) -> Self {
        Self { status: STATUS_INTERNAL, message }
    }

    /// Tells it, in the log and on standard error (which the client that started us shows to the user).
    pub(crate) fn report(&self) -> ExitCode {
        tracing::error!(status = self.status, "{}", self.message);
        // Nothing is left to tell a failure of telling to.
        writeln!(std::io::stderr(), "mcoded: {}", self.message).ok();
        ExitCode::from(self.status)
    }
}

impl From<DirsError> for Failure {
    fn from(error: DirsError) -> Self {
        Self::config(format!("{error}; {}", error.hint()))
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        let status = match &error {
            EndpointError::AlreadyRunning { .. } | EndpointError::LockHeld { .. } => STATUS_RUNNING,
            EndpointError::TooLong { .. }
            | EndpointError::UnsafeDirectory { .. }
            | EndpointError::Occupied { .. }
            | EndpointError::Activation(_)
            | EndpointError::Io { .. } => STATUS_CONFIG,
        };
        Self { status, message: chain(&error) }
    }
}
