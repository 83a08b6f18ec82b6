//! Writing files so that a crash leaves the old content or the new one, never half of it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes `content` to a temporary file beside `path`, syncs it and renames it over `path`.
///
/// A new file is readable by its owner alone (0600); an existing one keeps its mode.
pub fn write_atomic(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".mcode-").tempfile_in(dir)?;
    file.write_all(content)?;
    if let Ok(old) = fs::metadata(path) {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Makes a directory and its parents; on Unix the directory itself is closed to other users (0700).
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let meta = fs::metadata(path)?;
        if meta.uid() == crate::process::user_id() && meta.permissions().mode() & 0o777 != 0o700 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}
