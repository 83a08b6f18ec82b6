//! Writing files so that a crash leaves the old content or the new one, never half of it; and reading what others may have
//! put there, without waiting for it and within bounds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// The whole content of a file of at most `bytes_max` bytes. Nothing else than a regular file (links are followed) is
/// opened for long: a pipe that nobody writes into does not hold up its reader, a device is not read from.
///
/// # Errors
/// [`io::ErrorKind::NotFound`]; [`io::ErrorKind::InvalidInput`] for what is no regular file;
/// [`io::ErrorKind::FileTooLarge`]; or what else the system says.
pub fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Looked at before it is opened as well: opening some devices has an effect.
    let about = fs::metadata(path)?;
    let checked = |about: &fs::Metadata| {
        if !about.is_file() {
            let what = if about.is_dir() { "it is a folder, no file" } else { "it is no regular file" };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if about.len() > bytes_max { Err(too_large(bytes_max)) } else { Ok(()) }
    };
    checked(&about)?;
    let file = open_at_once(path)?;
    checked(&file.metadata()?)?;
    let mut bytes = Vec::new();
    // One byte more than fits tells a file that grows from one that just fits.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(too_large(bytes_max)) } else { Ok(bytes) }
}

/// The same for text; what is not UTF-8 is [`io::ErrorKind::InvalidData`].
///
/// # Errors
/// As [`read_bounded`].
pub fn read_text_bounded(path: &Path, bytes_max: u64) -> io::Result<String> {
    let bytes = read_bounded(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn too_large(bytes_max: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes"))
}

/// Opens a file for reading without waiting for anybody at its other end.
fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
    }
    options.open(path)
}

/// Writes `content` to a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder.
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
    sync_dir(dir)
}

/// Has the names of a directory on the disk: without it a power cut may bring the old file back.
#[cfg(unix)]
fn sync_dir(dir: &Path) -> io::Result<()> {
    match fs::File::open(dir)?.sync_all() {
        // Some network file systems do not know it.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

#[cfg(not(unix))]
fn sync_dir(_dir: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(write_atomic(&taken, b"x").is_err());
        assert!(taken.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write_atomic(&dir.path().join("no/such/folder"), b"x").is_err());
    }

    #[test]
    fn files_are_read_within_bounds_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap(), b"12345");
        assert_eq!(read_text_bounded(&path, 5).unwrap(), "12345");
        let kind = |path: &Path, max: u64| read_bounded(path, max).unwrap_err().kind();
        assert_eq!(kind(&path, 4), io::ErrorKind::FileTooLarge);
        assert_eq!(kind(dir.path(), 4), io::ErrorKind::InvalidInput);
        assert_eq!(kind(&dir.path().join("none"), 4), io::ErrorKind::NotFound);
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text_bounded(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_that_nobody_writes_into_and_a_device_hold_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (told, hear) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let kinds = [&pipe, Path::new("/dev/zero")].map(|path| read_bounded(path, 10).unwrap_err().kind());
            // Also one that took the place of a file between the look and the opening.
            told.send((kinds, open_at_once(&pipe).is_ok())).unwrap();
        });
        let (kinds, opened) = hear.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        assert_eq!((kinds, opened), ([io::ErrorKind::InvalidInput; 2], true));
    }

    #[cfg(unix)]
    #[test]
    fn modes_are_private_when_new_and_kept_when_old() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        write_atomic(&path, b"one").unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(mode(&path), 0o640);

        let private = dir.path().join("a/b");
        create_private_dir(&private).unwrap();
        assert_eq!(mode(&private), 0o700);
        fs::set_permissions(&private, fs::Permissions::from_mode(0o755)).unwrap();
        create_private_dir(&private).unwrap();
        assert_eq!(mode(&private), 0o700);
        assert!(create_private_dir(&path).is_err());
    }
}
