//! What every verb works with: the flags, the surroundings, and the way to the daemon.

use std::path::{Path, PathBuf};

use mcode_client::{Client, ClientError, ConnectOptions, ErrorKind, v1};
use mcode_endpoint::{SocketPath, StartOptions};
use mcode_env::{Dirs, IdGen, SystemIds};

use crate::args::{Form, Global};
use crate::failure::Failure;
use crate::style::Style;

/// What every verb works with.
#[derive(Debug)]
pub(crate) struct Context {
    /// The flags of every verb.
    pub(crate) global: Global,
    /// The form of what is printed.
    pub(crate) form: Form,
    /// Where mcode keeps its files.
    pub(crate) dirs: Dirs,
    /// How stderr is written.
    pub(crate) stderr: Style,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        let dirs = Dirs::from_env().map_err(ClientError::from)?;
        let form = global.output();
        let stderr = Style::of_stderr(global.color);
        Ok(Self { global, form, dirs, stderr })
    }

    /// The folder the user stands in: absolute, without symbolic links.
    pub(crate) fn cwd(&self) -> Result<PathBuf, ClientError> {
        let unusable = |path: &Path, why: &dyn std::fmt::Display| {
            ClientError::new(
                ErrorKind::User,
                "CWD_UNUSABLE",
                format!("the folder {} can not be used: {why}", path.display()),
            )
            .hint("give a folder that exists with --cwd")
        };
        let path = match &self.global.cwd {
            Some(path) => path.clone(),
            None => mcode_env::process::current_dir().map_err(|error| unusable(Path::new("."), &error))?,
        };
        let real = path.canonicalize().map_err(|error| unusable(&path, &error))?;
        if real.is_dir() { Ok(real) } else { Err(unusable(&path, &"it is not a folder")) }
    }

    /// Connects as the flags say.
    pub(crate) async fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(self.options(!self.global.no_autostart)).await
    }

    /// Connects only to a daemon that is there.
    pub(crate) async fn connect_running(&self) -> Result<Client, ClientError> {
        Client::connect(self.options(false)).await
    }

    /// Connects, starting a daemon whatever the flags say.
    pub(crate) async fn connect_started(&self) -> Result<Client, ClientError> {
        Client::connect(self.options(true)).await
    }

    /// The socket of the daemon.
    pub(crate) fn socket(&self) -> Result<SocketPath, ClientError> {
        Ok(SocketPath::resolve(self.global.socket.as_deref(), &self.dirs)?)
    }

    fn options(&self, autostart: bool) -> ConnectOptions {
        ConnectOptions {
            socket: self.global.socket.clone(),
            autostart,
            dirs: self.dirs.clone(),
            start: StartOptions::default(),
        }
    }

    /// The surroundings of this client, as a run takes them.
    pub(crate) fn client_context(&self, cwd: &Path, interactive: bool) -> Result<v1::ClientContext, ClientError> {
        let cwd = cwd.to_str().ok_or_else(|| {
            ClientError::new(ErrorKind::User, "CWD_UNUSABLE", format!("the folder {} is not UTF-8", cwd.display()))
                .hint("give another folder with --cwd")
        })?;
        Ok(v1::ClientContext {
            cwd: cwd.to_owned(),
            env: mcode_env::process::vars(),
            umask: umask(),
            interactive,
            client: "mcode ask".to_owned(),
            detached: false,
        })
    }
}

/// A fresh name for one mutation.
pub(crate) fn request_id() -> String {
    SystemIds.next().to_string()
}

/// The file mode mask. It can only be read by setting it; nothing else runs in this process meanwhile.
#[cfg(unix)]
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    #[allow(clippy::useless_conversion, reason = "mode_t has 16 bits on macOS")]
    u32::from(mask.as_raw_mode())
}

#[cfg(not(unix))]
fn umask() -> u32 {
    0
}
