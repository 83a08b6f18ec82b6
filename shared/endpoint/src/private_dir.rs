//! Directories that belong to one user.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::EndpointError;

/// The user's directory below the one that everybody may write to. `TMPDIR` is not asked: client and daemon could
/// disagree on it, and it may be long.
pub(crate) fn shared_root() -> PathBuf {
    PathBuf::from(format!("/tmp/mcode-{}", mcode_env::process::user_id()))
}

/// Makes a directory, its parents too, and closes it to others.
pub(crate) fn create(path: &Path) -> Result<(), EndpointError> {
    mcode_env::files::create_private_dir(path).map_err(EndpointError::io("create the socket directory", path))
}

/// Makes a directory where others may have been first, and checks whose it is.
pub(crate) fn create_in_shared(path: &Path) -> Result<(), EndpointError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(EndpointError::io("create the socket directory", path)(error)),
    }
    verify(path)
}

/// Checks that `path` is a directory (not a link to one), ours, and closed to others.
pub(crate) fn verify(path: &Path) -> Result<(), EndpointError> {
    let meta = fs::symlink_metadata(path).map_err(EndpointError::io("look at the socket directory", path))?;
    let refuse = |reason: String| Err(EndpointError::UnsafeDirectory { path: path.to_path_buf(), reason });
    if !meta.is_dir() {
        return refuse("it is not a directory".to_owned());
    }
    let user = mcode_env::process::user_id();
    if meta.uid() != user {
        return refuse(format!("it belongs to user {}, not to user {user}", meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return refuse(format!("its mode is {:o}, which lets other users in", meta.mode() & 0o777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_files_and_open_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        create_in_shared(&real).unwrap();
        verify(&real).unwrap();
        create_in_shared(&real).unwrap();

        let link = dir.path().join("link");
        symlink(&real, &link).unwrap();
        assert!(matches!(create_in_shared(&link), Err(EndpointError::UnsafeDirectory { .. })));

        let file = dir.path().join("file");
        fs::File::create(&file).unwrap();
        assert!(matches!(create_in_shared(&file), Err(EndpointError::UnsafeDirectory { .. })));

        fs::set_permissions(&real, fs::Permissions::from_mode(0o755)).unwrap();
        let text = create_in_shared(&real).unwrap_err().to_string();
        assert!(text.contains("755") && text.contains("real"), "{text}");
    }
}
