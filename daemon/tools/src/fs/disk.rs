//! Reading from and writing to the disk: never a device or pipe, never half a file, never past a missing permission.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use similar::get_close_matches;

use crate::fs::MAX_FILE_BYTES;
use crate::fs::steady::{self, Folder};
use crate::tool::ToolFailure;

/// How many names of a folder are compared to suggest one for a missing file.
const MAX_COMPARED_NAMES: usize = 1000;

/// What the system refused, in words for the model.
#[must_use]
pub fn refusal(shown: &str, error: &io::Error) -> ToolFailure {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is a file, not a folder".to_owned(),
        io::ErrorKind::IsADirectory => "this is a folder".to_owned(),
        _ if is_loop(error) => "a link has taken the place of a part of the path at this moment; try again".to_owned(),
        _ => error.to_string(),
    };
    ToolFailure::Failed(format!("{shown}: {reason}"))
}

#[cfg(unix)]
fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(not(unix))]
fn is_loop(_error: &io::Error) -> bool {
    false
}

/// [`refusal`], with names like it from the same folder when the file is missing.
#[must_use]
pub fn missing(path: &Path, shown: &str, error: &io::Error) -> ToolFailure {
    let plain = refusal(shown, error);
    if error.kind() != io::ErrorKind::NotFound {
        return plain;
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return plain };
    let Ok(entries) = fs::read_dir(folder) else { return plain };
    let names: Vec<String> = entries
        .flatten()
        .take(MAX_COMPARED_NAMES)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let close = get_close_matches(name.to_string_lossy().as_ref(), &names, 3, 0.7);
    if close.is_empty() { plain } else { ToolFailure::Failed(format!("{plain}; in that folder: {}", close.join(", "))) }
}

/// What kind of thing that is neither file nor folder this is.
fn special(meta: &Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = meta.file_type();
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if meta.is_dir() { "a folder" } else { "not a regular file" }
}

/// Opens a regular file for reading; anything else is refused, and a pipe never blocks.
///
/// # Errors
/// [`ToolFailure::Failed`] with the reason.
pub fn open(path: &Path, shown: &str) -> Result<(File, Metadata), ToolFailure> {
    let meta = fs::metadata(path).map_err(|error| missing(path, shown, &error))?;
    if !meta.is_file() {
        return Err(ToolFailure::Failed(format!("{shown}: this is {}, not a regular file", special(&meta))));
    }
    // A pipe, or a link, may take the file's place between the look and the opening.
    let file = steady::open(path).map_err(|error| refusal(shown, &error))?;
    let meta = file.metadata().map_err(|error| refusal(shown, &error))?;
    if !meta.is_file() {
        return Err(ToolFailure::Failed(format!("{shown}: this is {}, not a regular file", special(&meta))));
    }
    Ok((file, meta))
}

/// The whole content of a regular file of at most [`MAX_FILE_BYTES`].
///
/// # Errors
/// [`ToolFailure::Failed`] with the reason; a larger file is refused with its size and the limit.
pub fn read_whole(path: &Path, shown: &str) -> Result<Vec<u8>, ToolFailure> {
    let (file, meta) = open(path, shown)?;
    let mut content = Vec::with_capacity(usize::try_from(meta.len().min(MAX_FILE_BYTES)).unwrap_or_default());
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(|error| refusal(shown, &error))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(ToolFailure::Failed(format!(
            "{shown}: the file has {} bytes; files over {} MB are not changed or read whole. Use view with offset and \
             limit, grep, or a command such as sed",
            meta.len().max(MAX_FILE_BYTES + 1),
            MAX_FILE_BYTES / 1024 / 1024
        )));
    }
    Ok(content)
}

/// The content of a file that may not exist yet; see [`read_whole`].
///
/// # Errors
/// As [`read_whole`], except for a missing file.
pub fn read_existing(path: &Path, shown: &str) -> Result<Option<Vec<u8>>, ToolFailure> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refusal(shown, &error)),
        Ok(_) => read_whole(path, shown).map(Some),
    }
}

/// Whether the file (or, when it does not exist, the nearest folder above) may be written by this user. A file or
/// folder without any write bit is taken at its word, even for root.
///
/// # Errors
/// The system's reason, [`io::ErrorKind::PermissionDenied`] as a rule.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if let Ok(meta) = fs::metadata(path) {
        allowed(path, &meta)?;
    }
    let folder = path.ancestors().skip(1).find_map(|folder| fs::metadata(folder).ok().map(|meta| (folder, meta)));
    folder.map_or(Ok(()), |(folder, meta)| allowed_folder(folder, &meta))
}

#[cfg(unix)]
fn allowed(path: &Path, meta: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if meta.permissions().mode() & 0o222 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(io::Error::from)
}

#[cfg(not(unix))]
fn allowed(_path: &Path, meta: &Metadata) -> io::Result<()> {
    if meta.permissions().readonly() { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

#[cfg(unix)]
fn allowed_folder(folder: &Path, meta: &Metadata) -> io::Result<()> {
    if !meta.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    allowed(folder, meta)
}

#[cfg(not(unix))]
fn allowed_folder(_folder: &Path, meta: &Metadata) -> io::Result<()> {
    // The read-only mark of a folder does not forbid new files in it on Windows.
    if meta.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Makes the folders that `path` needs, with the client's mode mask; gives those it made, outermost first.
///
/// # Errors
/// The system's reason; what was made before stays.
pub fn create_parents(path: &Path, umask: u32) -> io::Result<Vec<PathBuf>> {
    let mut absent: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    absent.reverse();
    for folder in &absent {
        let above = Folder::above(folder)?;
        let held = above.child(folder)?;
        match fs::create_dir(&held) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => continue,
            other => other?,
        }
        set_mode(&held, 0o777 & !umask)?;
    }
    Ok(absent)
}

/// Permissions of a file, kept for the one that takes its place.
#[derive(Debug, Clone)]
pub struct Owner(Metadata);

/// The permissions of a file, when it exists.
#[must_use]
pub fn owner(path: &Path) -> Option<Owner> {
    fs::metadata(path).ok().map(Owner)
}

/// Puts `content` at `path` by a synced temporary file beside it and a rename: a reader sees the old content or the
/// new, never half. `old` gives mode and owner; without it `mode` does. The folder must exist.
///
/// # Errors
/// The system's reason; the file is as it was and no temporary file is left.
pub fn replace(path: &Path, content: &[u8], old: Option<&Owner>, mode: u32) -> io::Result<()> {
    check_writable(path)?;
    let folder = Folder::above(path)?;
    let mut file = tempfile::Builder::new().prefix(".mcode-").tempfile_in(folder.path())?;
    file.write_all(content)?;
    match old {
        Some(old) => {
            keep_owner(file.as_file(), &old.0);
            file.as_file().set_permissions(old.0.permissions())?;
        }
        None => set_mode(file.path(), mode)?,
    }
    file.as_file().sync_all()?;
    file.persist(folder.child(path)?).map_err(|error| error.error)?;
    folder.sync();
    Ok(())
}

/// Removes a file.
///
/// # Errors
/// The system's reason.
pub fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(Folder::above(path)?.child(path)?)
}

#[cfg(unix)]
fn keep_owner(file: &File, old: &Metadata) {
    use std::os::unix::fs::MetadataExt;
    let Ok(new) = file.metadata() else { return };
    if (new.uid(), new.gid()) == (old.uid(), old.gid()) {
        return;
    }
    let (uid, gid) = (rustix::fs::Uid::from_raw(old.uid()), rustix::fs::Gid::from_raw(old.gid()));
    // Only root may give files away; a member of the group may keep the group.
    if rustix::fs::fchown(file, Some(uid), Some(gid)).is_err()
        && let Err(error) = rustix::fs::fchown(file, None, Some(gid))
    {
        tracing::debug!(%error, "the owner of a replaced file could not be kept");
    }
}

#[cfg(not(unix))]
fn keep_owner(_file: &File, _old: &Metadata) {}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}
