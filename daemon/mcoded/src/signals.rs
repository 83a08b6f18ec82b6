//! What the system tells a daemon: end, end now, read the configuration again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mcode_config::ConfigHandle;
use tokio_util::sync::CancellationToken;

/// That the daemon has to end, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    /// Cancelled when it has to.
    pub(crate) token: CancellationToken,
    keep: Arc<AtomicBool>,
}

impl Ending {
    /// Whether commands are left to the next daemon.
    pub(crate) fn keeps(&self) -> bool {
        self.keep.load(Ordering::Relaxed)
    }

    fn end(&self, keep: bool) {
        self.keep.store(keep, Ordering::Relaxed);
        self.token.cancel();
    }
}

/// The signals that are listened to, from the moment this exists.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
    #[cfg(windows)]
    terminate: tokio::signal::windows::CtrlShutdown,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// By a service manager that stops or replaces it: commands are left to the next daemon. Not on Windows, where
    /// they can not outlive it.
    #[cfg_attr(windows, allow(dead_code, reason = "no signal of Windows means it"))]
    Leave,
    /// By somebody at the keyboard: commands end too.
    End,
    /// Windows has no signal for this; there it is asked for over the wire.
    #[cfg_attr(windows, allow(dead_code, reason = "no signal of Windows means it"))]
    Reload,
}

impl Signals {
    /// Starts to listen. Must be called within a tokio runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hangup: signal(SignalKind::hangup())?,
            })
        }
        #[cfg(windows)]
        {
            use tokio::signal::windows::{ctrl_c, ctrl_shutdown};
            Ok(Self { interrupt: ctrl_c()?, terminate: ctrl_shutdown()? })
        }
    }

    /// Follows the signals until the first that asks for the end; a second one is no longer listened to here, and the
    /// drain has a limit of its own.
    pub(crate) async fn watch(mut self, config: ConfigHandle, ending: Ending) {
        loop {
            match self.next().await {
                wish @ (Wish::End | Wish::Leave) => {
                    tracing::info!(keeps_commands = wish == Wish::Leave, "ending on a signal");
                    ending.end(wish == Wish::Leave);
                    return;
                }
                Wish::Reload => reload(&config),
            }
        }
    }

    #[cfg(unix)]
    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Leave,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }

    #[cfg(windows)]
    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
        }
    }
}

fn reload(config: &ConfigHandle) {
    let errors = config.reload();
    if errors.is_empty() {
        tracing::info!("configuration read again");
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
    }
    for error in errors {
        tracing::error!("{error}; the last good values stay in force");
    }
}
