//! From the command line to a daemon that serves, and back.
//!
//! Order matters: the file mode mask before any file, the handed-over socket before any thread, the log before anything
//! that may fail in a way worth keeping, the locks before the data.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use mcode_config::ConfigHandle;
use mcode_endpoint::{Activated, EndpointError, SocketPath, bind, lock_file, lock_socket};
use mcode_env::{Clock, Dirs, SystemClock};
use mcode_store::ArchiveError;
use mcode_text::chain;

use crate::failure::Failure;
use crate::signals::{Ending, Signals};
use crate::{logging, wiring};

/// How long a daemon that is about to end is waited for: it may wait for the issuer of a login, for half a minute.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(60);
/// How long the data are waited for. A predecessor at the same socket has let go of them before it lets go of that, so
/// only a daemon at another socket can hold them, and that one stays.
const DATA_WAIT: Duration = Duration::from_secs(1);
/// Threads that run tasks; blocking work has threads of its own.
const WORKERS: usize = 2;
/// File in the data directory whose lock keeps a second daemon away from the same data.
const DATA_LOCK: &str = "mcoded.lock";

/// The mcode daemon: serves your threads to every `mcode` client. Clients start it when it is needed.
#[derive(Debug, Parser)]
#[command(name = "mcoded", version, about)]
pub(crate) struct Options {
    /// Write the log to standard error instead of the log file.
    #[arg(long)]
    foreground: bool,
    /// Where to listen, instead of `MCODE_SOCKET` or the user's own place.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Bring back a copy that `mcode doctor --backup` has written, and end; no daemon may run meanwhile.
    #[arg(long, value_name = "FILE")]
    restore: Option<PathBuf>,
}

/// Runs until told to end.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    close_to_others();
    let activated = Activated::from_env()?;
    let dirs = Dirs::from_env()?;
    for place in [&dirs.state, &dirs.data] {
        create(&dirs, place)?;
    }
    if options.foreground {
        logging::to_stderr();
    } else {
        let log = dirs.log_file();
        logging::to_file(&log).map_err(|error| Failure::config(not_usable(&dirs, &dirs.state, &log, &error)))?;
    }
    let socket = SocketPath::resolve(options.socket.as_deref(), &dirs)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("mcoded")
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("cannot start the runtime: {error}")))?;
    let result = match &options.restore {
        Some(archive) => runtime.block_on(restore(&dirs, &socket, archive)),
        None => runtime.block_on(serve(&dirs, &socket, activated)),
    };
    // Blocking work that does not end by itself must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(dirs: &Dirs, socket: &SocketPath, activated: Activated) -> Result<(), Failure> {
    let signals = Signals::listen().map_err(|error| Failure::internal(format!("cannot take signals: {error}")))?;
    let ending = Ending::default();
    let config = ConfigHandle::open(dirs);
    let watcher = tokio::spawn(signals.watch(config.clone(), ending.clone()));

    let taken = async {
        let socket_lock = lock_socket(socket, PREDECESSOR_WAIT).await?;
        let data_lock = lock_data(dirs, socket).await?;
        Ok::<_, Failure>((socket_lock, data_lock))
    };
    let (socket_lock, data_lock) = tokio::select! {
        taken = taken => taken?,
        () = ending.token.cancelled() => return Ok(()),
    };
    let (incoming, socket_lock) = bind(socket, socket_lock, activated)?.into_parts()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        socket = %socket.address().display(),
        data = %dirs.data.display(),
        "serving"
    );
    for fault in config.errors().iter().chain(&config.warnings()) {
        tracing::warn!("{fault}");
    }
    let result = wiring::serve(config, dirs, socket, incoming, ending.clone()).await;
    ending.token.cancel();
    watcher.abort();
    // In this order: whoever waits for the socket's lock goes for the data's next.
    drop(data_lock);
    drop(socket_lock);
    tracing::info!("ended");
    result.map_err(|error| Failure::internal(format!("serving failed: {}", chain(error.as_ref()))))
}

/// Brings a copy back while no daemon has the data, and tells what came of it on standard output, as JSON.
async fn restore(dirs: &Dirs, socket: &SocketPath, archive: &Path) -> Result<(), Failure> {
    let _data_lock = lock_data(dirs, socket).await?;
    let now = SystemClock.now().to_string().replace([':', '.'], "");
    let restored = mcode_store::restore(archive, &dirs.database(), &dirs.blobs(), &now).map_err(|error| {
        // Of one that could not even be taken back the error says so itself.
        let unchanged = !matches!(error, ArchiveError::Unfinished(_));
        let end = if unchanged { "; nothing was changed" } else { "" };
        Failure::config(format!("{}: {}{end}", archive.display(), chain(&error)))
    })?;
    tracing::warn!(archive = %archive.display(), ?restored, "a copy was brought back");
    let told = serde_json::json!({
        "threads": restored.copied.threads,
        "bodies": restored.copied.bodies,
        "missing_bodies": restored.copied.missing,
        "former": restored.former,
    });
    writeln!(io::stdout(), "{told}").map_err(|error| Failure::internal(format!("cannot tell it: {error}")))
}

/// Keeps daemons at other sockets away from the same data.
async fn lock_data(dirs: &Dirs, socket: &SocketPath) -> Result<File, Failure> {
    let path = dirs.data.join(DATA_LOCK);
    match lock_file(&path, socket.address(), DATA_WAIT).await {
        Err(EndpointError::LockHeld { pid, .. }) => {
            let who = pid.map_or_else(|| "another daemon".to_owned(), |pid| format!("another daemon (pid {pid})"));
            let data = dirs.data.display();
            let reached = match mcode_endpoint::holder_reached_at(&path) {
                Some(socket) => {
                    let socket = socket.display();
                    format!(
                        "the socket {socket}: use it with --socket {socket}, or end that daemon with \
                         'mcode --socket {socket} daemon stop'"
                    )
                }
                None => "another socket: end it, or use its --socket".to_owned(),
            };
            Err(Failure::config(format!("{who} uses {data} through {reached}")))
        }
        other => Ok(other?),
    }
}

fn create(dirs: &Dirs, place: &Path) -> Result<(), Failure> {
    mcode_env::files::create_private_dir(place).map_err(|error| Failure::config(not_usable(dirs, place, place, &error)))
}

/// What can not be used, which variable put it there, and what to do.
fn not_usable(dirs: &Dirs, place: &Path, path: &Path, error: &io::Error) -> String {
    let variable = dirs.variable(place);
    let path = path.display();
    format!(
        "cannot create {path} (its place comes from {variable}): {error}; set MCODE_HOME to a folder that mcode may write to"
    )
}

/// New files are readable by this user alone.
#[cfg(unix)]
fn close_to_others() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// The profile's folders are closed to others already.
#[cfg(windows)]
fn close_to_others() {}
