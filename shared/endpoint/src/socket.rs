//! Where the socket is.
//!
//! The contract version is part of the path, so daemons of two contracts live side by side. Nothing is created here.

use std::path::{Path, PathBuf};

use mcode_env::Dirs;

use crate::error::EndpointError;

/// The longest path that fits into a socket address of this system, in bytes (interface.md section 2).
pub const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "macos") { 103 } else { 104 };

/// File name of the socket.
#[cfg(unix)]
const FILE_NAME: &str = "mcoded.sock";
/// Directory that names the contract version.
#[cfg(unix)]
const VERSION_DIR: &str = "v1";

/// The address of a daemon, with the lock files that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath {
    address: PathBuf,
    lock: PathBuf,
    start_lock: PathBuf,
    kind: Kind,
}

/// Who owns the directory that the socket is in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(windows, allow(dead_code, reason = "pipes are in no directory"))]
enum Kind {
    /// The user named the path; an existing directory is left as it is.
    Explicit,
    /// Ours, below a directory that belongs to the user.
    Runtime(PathBuf),
    /// Ours, below a directory that everybody may write to.
    Shared(PathBuf),
}

impl SocketPath {
    /// The socket for `explicit` (`--socket`), else for `MCODE_SOCKET`, else for `dirs`.
    ///
    /// A path of ours that is too long for the system gives way to a short one below `/tmp/mcode-<uid>/`, which depends
    /// on the long path, so that two homes never share a daemon.
    ///
    /// # Errors
    /// [`EndpointError::TooLong`] for an explicit path; the system's error when the working directory is gone.
    pub fn resolve(explicit: Option<&Path>, dirs: &Dirs) -> Result<Self, EndpointError> {
        let named =
            explicit.map(Path::to_path_buf).or_else(|| mcode_env::process::var("MCODE_SOCKET").map(PathBuf::from));
        Self::of(named, dirs)
    }

    #[cfg(unix)]
    fn of(named: Option<PathBuf>, dirs: &Dirs) -> Result<Self, EndpointError> {
        let shared = crate::private_dir::shared_root();
        if let Some(path) = named {
            let path = if path.is_absolute() {
                path
            } else {
                mcode_env::process::current_dir().map_err(EndpointError::io("find the directory of", &path))?.join(path)
            };
            let length = path.as_os_str().len();
            if length > SOCKET_PATH_BYTES_MAX {
                return Err(EndpointError::TooLong { path, length, limit: SOCKET_PATH_BYTES_MAX });
            }
            let kind = if path.starts_with(&shared) { Kind::Shared(shared) } else { Kind::Explicit };
            return Ok(Self::at(path, kind));
        }
        let Some(runtime) = &dirs.runtime else {
            return Ok(Self::below_shared(shared, &dirs.data));
        };
        let path = runtime.join(VERSION_DIR).join(FILE_NAME);
        if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Ok(Self::below_shared(shared, &path));
        }
        Ok(Self::at(path, Kind::Runtime(runtime.clone())))
    }

    #[cfg(unix)]
    fn below_shared(shared: PathBuf, identity: &Path) -> Self {
        Self::at(shared.join(short_hash(identity)).join(FILE_NAME), Kind::Shared(shared))
    }

    #[cfg(unix)]
    fn at(address: PathBuf, kind: Kind) -> Self {
        let beside = |suffix: &str| {
            let mut name = address.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        Self { lock: beside(".lock"), start_lock: beside(".start.lock"), address, kind }
    }

    #[cfg(windows)]
    fn of(named: Option<PathBuf>, dirs: &Dirs) -> Result<Self, EndpointError> {
        let address = match named {
            Some(path) if path.to_string_lossy().starts_with(r"\\.\pipe\") => path,
            Some(path) => pipe(&format!("-{}", short_hash(&path)))?,
            None => match mcode_env::process::var("MCODE_HOME") {
                Some(home) => pipe(&format!("-{}", short_hash(Path::new(&home))))?,
                None => pipe("")?,
            },
        };
        let tag = short_hash(&address);
        Ok(Self {
            lock: dirs.state.join(format!("mcoded-{tag}.lock")),
            start_lock: dirs.state.join(format!("mcoded-{tag}.start.lock")),
            address,
            kind: Kind::Explicit,
        })
    }

    /// The path of the socket, or the name of the pipe.
    #[must_use]
    pub fn address(&self) -> &Path {
        &self.address
    }

    /// The file whose lock the daemon holds for life.
    #[must_use]
    pub fn lock_file(&self) -> &Path {
        &self.lock
    }

    /// The file whose lock a client holds while it starts the daemon.
    #[must_use]
    pub fn start_lock_file(&self) -> &Path {
        &self.start_lock
    }

    /// Makes the directories of the socket, closed to other users.
    #[cfg(unix)]
    pub(crate) fn create_directory(&self) -> Result<(), EndpointError> {
        use crate::private_dir;
        let Some(parent) = self.address.parent() else { return Ok(()) };
        match &self.kind {
            Kind::Explicit if parent.exists() => Ok(()),
            Kind::Explicit => private_dir::create(parent),
            Kind::Runtime(root) => {
                private_dir::create(root)?;
                private_dir::create(parent)?;
                private_dir::verify(parent)
            }
            Kind::Shared(root) => {
                private_dir::create_in_shared(root)?;
                private_dir::create(parent)?;
                private_dir::verify(parent)
            }
        }
    }

    /// Makes the directory of the lock files.
    #[cfg(windows)]
    pub(crate) fn create_directory(&self) -> Result<(), EndpointError> {
        let Some(parent) = self.lock.parent() else { return Ok(()) };
        mcode_env::files::create_private_dir(parent).map_err(EndpointError::io("create the directory", parent))
    }

    /// Checks that nobody else can have put a socket here, where others may write beside us.
    #[cfg(unix)]
    pub(crate) fn verify_directory(&self) -> Result<(), EndpointError> {
        match &self.kind {
            Kind::Shared(root) if root.symlink_metadata().is_ok() => crate::private_dir::verify(root),
            Kind::Shared(_) | Kind::Explicit | Kind::Runtime(_) => Ok(()),
        }
    }

    /// Pipes carry their own access rules.
    #[cfg(windows)]
    pub(crate) fn verify_directory(&self) -> Result<(), EndpointError> {
        Ok(())
    }
}

#[cfg(windows)]
fn pipe(suffix: &str) -> Result<PathBuf, EndpointError> {
    let sid = crate::bind::user_sid().map_err(EndpointError::io("find the user for the pipe", r"\\.\pipe\mcode-v1"))?;
    Ok(PathBuf::from(format!(r"\\.\pipe\mcode-v1-{sid}{suffix}")))
}

/// The first 16 hexadecimal digits of the path's BLAKE3 hash.
fn short_hash(path: &Path) -> String {
    blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex().chars().take(16).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn dirs(runtime: Option<&str>, data: &str) -> Dirs {
        Dirs { config: "/c".into(), data: data.into(), state: "/s".into(), runtime: runtime.map(PathBuf::from) }
    }

    #[test]
    fn the_contract_version_is_in_the_path() {
        let socket = SocketPath::of(None, &dirs(Some("/run/user/7/mcode"), "/d")).unwrap();
        assert_eq!(socket.address(), Path::new("/run/user/7/mcode/v1/mcoded.sock"));
        assert_eq!(socket.lock_file(), Path::new("/run/user/7/mcode/v1/mcoded.sock.lock"));
        assert_eq!(socket.start_lock_file(), Path::new("/run/user/7/mcode/v1/mcoded.sock.start.lock"));
    }

    #[test]
    fn an_explicit_path_at_the_limit_is_taken_and_one_above_is_refused_with_numbers() {
        let fits = format!("/{}", "a".repeat(SOCKET_PATH_BYTES_MAX - 1));
        assert_eq!(SocketPath::of(Some(fits.clone().into()), &dirs(None, "/d")).unwrap().address(), Path::new(&fits));
        let long = format!("{fits}b");
        let text = SocketPath::of(Some(long.clone().into()), &dirs(None, "/d")).unwrap_err().to_string();
        assert!(text.contains(&long) && text.contains(&long.len().to_string()), "{text}");
        assert!(text.contains(&SOCKET_PATH_BYTES_MAX.to_string()), "{text}");
    }

    #[test]
    fn long_runtime_directories_get_short_paths_of_their_own() {
        let mut seen = std::collections::BTreeSet::new();
        for length in [90, 107, 108, 109, 200] {
            for last in ["x", "y"] {
                let runtime = format!("/{}{last}", "r".repeat(length - 2));
                let socket = SocketPath::of(None, &dirs(Some(&runtime), "/d")).unwrap();
                assert!(socket.address().as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
                assert_eq!(socket, SocketPath::of(None, &dirs(Some(&runtime), "/d")).unwrap());
                assert!(seen.insert(socket.address().to_path_buf()), "two homes share {}", socket.address().display());
            }
        }
    }

    #[test]
    fn without_a_runtime_directory_two_homes_have_two_sockets() {
        let one = SocketPath::of(None, &dirs(None, "/home/a")).unwrap();
        let two = SocketPath::of(None, &dirs(None, "/home/b")).unwrap();
        assert_ne!(one.address(), two.address());
        let root = format!("/tmp/mcode-{}", mcode_env::process::user_id());
        assert!(one.address().starts_with(&root), "{}", one.address().display());
        // The daemon is handed the address itself and must treat it alike.
        assert_eq!(SocketPath::of(Some(one.address().to_path_buf()), &dirs(None, "/other")).unwrap(), one);
    }
}
