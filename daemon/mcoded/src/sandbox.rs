//! What commands are held to: the user's settings, where the daemon's own things are, and the self-test.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcode_config::{ConfigHandle, SandboxNetwork};
use mcode_env::Dirs;
#[cfg(unix)]
use mcode_sandbox::proxy::Proxy;
use mcode_sandbox::{NetworkRule, Settings, Strength};
use mcode_server::{SandboxReport, TellSandbox};
use mcode_tools::bounds::CurrentSettings;
use mcode_tools::{Bounds, OwnPlaces};

/// What commands are held to, with what goes on for them meanwhile.
pub(crate) struct Sandbox {
    /// The bounds of all runs.
    pub(crate) bounds: Arc<Bounds>,
    /// Reaches the hosts that the user has listed.
    #[allow(dead_code, reason = "held for its drop")]
    proxy: Option<Proxy>,
}

/// Puts it together for this daemon.
pub(crate) fn sandbox(config: &ConfigHandle, dirs: &Dirs, socket: &Path) -> Sandbox {
    let settings = settings(config.clone());
    let temp = temp(mcode_env::process::var("MCODE_HOME")).unwrap_or_else(|error| {
        tracing::warn!(%error, "temporary files of commands go to the state folder");
        dirs.state.join("tmp")
    });
    let proxy = proxy(&temp, &dirs.state, Arc::clone(&settings));
    let places = OwnPlaces {
        private: vec![dirs.config.clone(), dirs.data.clone(), dirs.state.clone()],
        socket: Some(socket.to_path_buf()),
        temp,
        aside: dirs.data.join("aside"),
        proxy: proxy.as_ref().map(|proxy| proxy.socket().to_path_buf()),
    };
    Sandbox { bounds: Bounds::new(settings, places), proxy }
}

fn settings(config: ConfigHandle) -> CurrentSettings {
    Arc::new(move || {
        let wanted = config.current().sandbox.clone();
        let network = match wanted.network {
            SandboxNetwork::Deny => NetworkRule::Deny,
            SandboxNetwork::Ask => NetworkRule::Ask,
            SandboxNetwork::Allow => NetworkRule::Allow,
        };
        Settings { enabled: wanted.enabled, network, hosts: wanted.hosts, write: wanted.write }
    })
}

/// Without one, commands reach no host that was not asked for. `state` is this daemon's alone, and the next daemon's: by
/// its number the socket is named, so that commands that outlive a daemon find the proxy of the next one.
#[cfg(unix)]
fn proxy(folder: &Path, state: &Path, settings: CurrentSettings) -> Option<Proxy> {
    use std::os::unix::fs::MetadataExt;
    let listen = || {
        mcode_env::files::create_private_dir(folder)?;
        let socket = folder.join(format!("proxy-{}", state.metadata()?.ino()));
        // Of an earlier daemon.
        std::fs::remove_file(&socket).ok();
        Proxy::listen(&socket, Arc::new(move || settings().hosts))
    };
    listen().inspect_err(|error| tracing::warn!(%error, "no proxy for sandboxed commands")).ok()
}

/// Nothing is held back here, so nothing is let through.
#[cfg(not(unix))]
#[derive(Debug)]
enum Proxy {}

#[cfg(not(unix))]
impl Proxy {
    fn socket(&self) -> &Path {
        match *self {}
    }
}

#[cfg(not(unix))]
fn proxy(_folder: &Path, _state: &Path, _settings: CurrentSettings) -> Option<Proxy> {
    None
}

/// Tries out what is really held, says so in the log, and removes old temporary files.
pub(crate) async fn try_out(bounds: Arc<Bounds>) {
    let strength = bounds.strength().await;
    match strength {
        Strength::Enforced { .. } => tracing::info!(%strength, lacks = ?strength.lacks(), "commands run in a sandbox"),
        Strength::None(reason) => tracing::warn!(reason, "commands run without a sandbox"),
    }
    if let Err(error) = tokio::task::spawn_blocking(move || bounds.sweep()).await {
        tracing::warn!(%error, "old temporary files were not removed");
    }
}

/// Tells what commands are held to.
pub(crate) fn tell(bounds: Arc<Bounds>) -> TellSandbox {
    Arc::new(move || {
        if bounds.settings().enabled == Some(false) {
            let lacks = vec!["commands are not held to anything: [sandbox] enabled = false".to_owned()];
            return Some(SandboxReport { enforced: false, strength: "off".to_owned(), lacks });
        }
        let strength = bounds.known_strength()?;
        let word = if strength.enforced() { strength.to_string() } else { "none".to_owned() };
        Some(SandboxReport { enforced: strength.enforced(), strength: word, lacks: strength.lacks() })
    })
}

/// A folder for temporary files that no other user can have made or can look into: where `MCODE_HOME` has everything,
/// or a short path, since commands make sockets there.
#[cfg(unix)]
fn temp(home: Option<String>) -> io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let user = mcode_env::process::user_id();
    let folder = match home {
        Some(home) => Path::new(&home).join("tmp"),
        None => Path::new("/tmp").join(format!("mcode-{user}")),
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = folder.symlink_metadata()?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(folder);
    }
    Err(io::Error::other(format!("{} is not a folder of this user alone", folder.display())))
}

#[cfg(not(unix))]
fn temp(home: Option<String>) -> io::Result<PathBuf> {
    let folder = home.map_or_else(|| std::env::temp_dir().join("mcode"), |home| Path::new(&home).join("tmp"));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
