//! One file with everything, and the way back.
//!
//! The file is a tar: `mcode.db`, the bodies as `blobs/ab/abcdef…`, and `manifest.json` at its end, so that a file that was
//! cut off is known. What comes back is trusted in nothing: names, kinds and sizes of entries are checked, every body is
//! what its name says, the database is what the manifest says and has the tables of this program and nothing else.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use mcode_events::blob::Blobs;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::Store;
use crate::blobs::{BlobFiles, is_hash};
use crate::error::StoreError;

/// The form of the file.
const FORMAT: u64 = 1;

/// Entries that are read from a file at most.
pub const ARCHIVE_ENTRIES_MAX: u64 = 5_000_000;

/// Bytes that one entry may have at most (256 GiB). Nothing is compressed, so a file gives no more than it has.
pub const ARCHIVE_ENTRY_BYTES_MAX: u64 = 256 * 1024 * 1024 * 1024;

/// Bytes that the manifest may have at most.
const MANIFEST_BYTES_MAX: u64 = 64 * 1024;

/// Names of entries.
const DATABASE: &str = "mcode.db";
const BLOBS: &str = "blobs";
const MANIFEST: &str = "manifest.json";

/// Where a file is unpacked and looked at, beside the database.
const STAGING: &str = "restoring";
/// In there, when all of it may take its place: the name of the folder for what was there before.
const READY: &str = "ready";
/// What that name begins with.
const FORMER: &str = "before-restore-";
/// Bytes that it may have.
const NAME_BYTES_MAX: u64 = 256;

/// A copy cannot be made or brought back.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not a whole copy, or not one of ours.
    #[error("it is not a copy that can be brought back: {0}")]
    Refused(String),
    /// A copy was being brought back when it failed, and what was there before could not be put back.
    #[error("{0}; the next start of the daemon goes on with it")]
    Unfinished(Box<ArchiveError>),
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ArchiveError {
    /// Whether it fails only because no space is left.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Path { source, .. } => crate::error::out_of_space(source),
            Self::Store(error) => error.is_disk_full(),
            Self::Unfinished(error) => error.is_disk_full(),
            Self::Refused(_) => false,
        }
    }
}

impl From<ArchiveError> for StoreError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Store(error) => error,
            ArchiveError::Path { path, source } => Self::Io { path, source },
            ArchiveError::Refused(why) => Self::Undone(why),
            unfinished @ ArchiveError::Unfinished(_) => Self::Undone(unfinished.to_string()),
        }
    }
}

impl From<rusqlite::Error> for ArchiveError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(StoreError::Database(error))
    }
}

/// A copy that was made or brought back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Threads in it.
    pub threads: u64,
    /// Bodies in it.
    pub bodies: u64,
    /// Bodies that events name and that were not there, or not whole.
    pub missing: u64,
}

/// What was brought back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restored {
    /// What the copy held.
    pub copied: Copied,
    /// Where the data are that were there before, if there were any.
    pub former: Option<PathBuf>,
}

impl Store {
    /// Writes a copy of everything into a file that is not there yet; it can be read by its owner alone. Appends go on
    /// meanwhile; the copy holds what was there at its beginning.
    pub async fn back_up(&self, path: PathBuf) -> Result<Copied, ArchiveError> {
        let (readers, blobs) = (std::sync::Arc::clone(&self.readers), std::sync::Arc::clone(&self.blobs));
        tokio::task::spawn_blocking(move || copy(readers.database(), &blobs, &path))
            .await
            .map_err(|_| ArchiveError::Store(StoreError::Closed))?
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> ArchiveError + '_ {
    move |source| ArchiveError::Path { path: path.to_path_buf(), source }
}

fn copy(database: &Path, blobs: &BlobFiles, path: &Path) -> Result<Copied, ArchiveError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    if path.symlink_metadata().is_ok() {
        return Err(at(path)(std::io::Error::new(std::io::ErrorKind::AlreadyExists, "it is there already")));
    }
    let scratch = tempfile::Builder::new().prefix(".mcode-backup-").tempdir_in(folder).map_err(at(folder))?;
    let snapshot = scratch.path().join(DATABASE);
    crate::schema::open_reader(database)?.execute("VACUUM INTO ?1", [snapshot.to_string_lossy()])?;
    let connection = crate::schema::open_reader(&snapshot)?;
    let file = tempfile::NamedTempFile::new_in(folder).map_err(at(folder))?;
    let mut archive = tar::Builder::new(BufWriter::new(file));
    let threads = count(&connection, "SELECT count(*) FROM threads")?;
    let mut copied = Copied { threads, ..Copied::default() };
    let (hash, bytes) = hashed(&snapshot).map_err(at(&snapshot))?;
    let mut opened = File::open(&snapshot).map_err(at(&snapshot))?;
    add(&mut archive, DATABASE, bytes, &mut opened).map_err(at(path))?;
    let mut names = blake3::Hasher::new();
    let mut statement = connection.prepare("SELECT DISTINCT hash FROM named ORDER BY hash")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let hash: String = row.get(0)?;
        // What is damaged is not worth keeping; that it is missing is told.
        let Ok(content) = blobs.get(&hash) else {
            copied.missing += 1;
            continue;
        };
        names.update(hash.as_bytes());
        copied.bodies += 1;
        add(&mut archive, &entry_of(&hash), content.len() as u64, &mut content.as_slice()).map_err(at(path))?;
    }
    let manifest = json!({
        "format": FORMAT,
        "mcode": env!("CARGO_PKG_VERSION"),
        "database": { "blake3": hash, "bytes": bytes },
        "threads": copied.threads,
        "bodies": { "count": copied.bodies, "names": names.finalize().to_hex().as_str(), "missing": copied.missing },
    })
    .to_string();
    add(&mut archive, MANIFEST, manifest.len() as u64, &mut manifest.as_bytes()).map_err(at(path))?;
    let file = archive.into_inner().and_then(|buffer| buffer.into_inner().map_err(|error| error.into_error()));
    let file = file.map_err(at(path))?;
    file.as_file().sync_all().map_err(at(path))?;
    copied.bytes = file.as_file().metadata().map_err(at(path))?.len();
    file.persist_noclobber(path).map_err(|error| at(path)(error.error))?;
    sync_folder(folder).map_err(at(folder))?;
    Ok(copied)
}

fn add(archive: &mut tar::Builder<impl Write>, name: &str, bytes: u64, content: &mut dyn Read) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_entry_type(tar::EntryType::Regular);
    archive.append_data(&mut header, name, content)
}

fn entry_of(hash: &str) -> String {
    format!("{BLOBS}/{}/{hash}", hash.get(..2).unwrap_or("__"))
}

fn count(connection: &Connection, sql: &str) -> rusqlite::Result<u64> {
    let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

fn hashed(path: &Path) -> std::io::Result<(String, u64)> {
    let mut hasher = blake3::Hasher::new();
    let bytes = std::io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok((hasher.finalize().to_hex().to_string(), bytes))
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The system keeps names without being asked.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Brings a copy back in the place of the database and its bodies. Nothing may use them meanwhile. All of the copy is
/// looked at before anything is touched; what was there is put into a folder beside, which is told. `now` names it.
pub fn restore(archive: &Path, database: &Path, blobs: &Path, now: &str) -> Result<Restored, ArchiveError> {
    let folder = database.parent().unwrap_or(Path::new("."));
    mcode_env::files::create_private_dir(folder).map_err(at(folder))?;
    finish(database, blobs)?;
    let staging = folder.join(STAGING);
    if staging.exists() {
        std::fs::remove_dir_all(&staging).map_err(at(&staging))?;
    }
    mcode_env::files::create_private_dir(&staging).map_err(at(&staging))?;
    let looked = unpack(archive, &staging).and_then(|unpacked| verify(&unpacked, &staging)).and_then(|copied| {
        forget_policy(&staging.join(DATABASE))?;
        Ok(copied)
    });
    let copied = match looked {
        Ok(copied) => copied,
        Err(error) => {
            std::fs::remove_dir_all(&staging).ok();
            return Err(error);
        }
    };
    let former = folder.join(format!("{FORMER}{now}"));
    if former.symlink_metadata().is_ok() {
        return Err(at(&former)(std::io::Error::new(std::io::ErrorKind::AlreadyExists, "it is there already")));
    }
    let former = exchange(&staging, database, blobs, &former)?;
    std::fs::remove_dir_all(&staging).ok();
    Ok(Restored { copied, former })
}

/// What was in a file.
#[derive(Debug, Default)]
struct Unpacked {
    manifest: Option<Value>,
    has_database: bool,
    bodies: u64,
    names: blake3::Hasher,
    bytes: u64,
}

fn refused(why: impl Into<String>) -> ArchiveError {
    ArchiveError::Refused(why.into())
}

fn unpack(path: &Path, staging: &Path) -> Result<Unpacked, ArchiveError> {
    let file = File::open(path).map_err(at(path))?;
    let mut unpacked = Unpacked { bytes: file.metadata().map_err(at(path))?.len(), ..Unpacked::default() };
    let mut archive = tar::Archive::new(BufReader::new(file));
    let broken = |error: std::io::Error| refused(format!("it does not read as a tar file: {error}"));
    let mut seen = 0u64;
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        seen += 1;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if seen > ARCHIVE_ENTRIES_MAX || entry.size() > ARCHIVE_ENTRY_BYTES_MAX.min(unpacked.bytes) {
            return Err(refused(format!("'{}' is more than is taken", name.escape_debug())));
        }
        // No link, device, folder or sparse file is ever in a copy.
        if entry.header().entry_type() != tar::EntryType::Regular || unpacked.manifest.is_some() {
            return Err(refused(format!("'{}' does not belong into it", name.escape_debug())));
        }
        take(&name, &mut entry, staging, &mut unpacked)?;
    }
    Ok(unpacked)
}

/// Takes one entry; its name has to be one of those that are written.
fn take(name: &str, entry: &mut impl Read, staging: &Path, unpacked: &mut Unpacked) -> Result<(), ArchiveError> {
    let broken = |error: std::io::Error| refused(format!("'{}' ends too early: {error}", name.escape_debug()));
    match name {
        DATABASE if !unpacked.has_database => {
            unpacked.has_database = true;
            write_out(entry, &staging.join(DATABASE))?;
        }
        MANIFEST => {
            let mut text = String::new();
            entry.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).map_err(broken)?;
            let manifest = serde_json::from_str(&text);
            unpacked.manifest =
                Some(manifest.map_err(|error| refused(format!("its manifest does not read: {error}")))?);
        }
        body => {
            let hash = body.rsplit('/').next().unwrap_or_default();
            if !is_hash(hash) || entry_of(hash) != body {
                return Err(refused(format!("'{}' does not belong into it", name.escape_debug())));
            }
            let path = staging.join(BLOBS).join(hash.get(..2).unwrap_or("__")).join(hash);
            let shelf = path.parent().unwrap_or(staging);
            std::fs::create_dir_all(shelf).map_err(at(shelf))?;
            if write_out(entry, &path)? != hash {
                return Err(refused(format!("body {hash} is not what its name says")));
            }
            unpacked.names.update(hash.as_bytes());
            unpacked.bodies += 1;
        }
    }
    Ok(())
}

/// Writes a new file to the disk; gives the hash of what it holds.
fn write_out(content: &mut impl Read, path: &Path) -> Result<String, ArchiveError> {
    let mut file = File::create_new(path).map_err(at(path))?;
    let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0u8; 256 * 1024]);
    loop {
        let read = content.read(&mut piece).map_err(|error| refused(format!("it ends too early: {error}")))?;
        let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else { break };
        hasher.update(piece);
        file.write_all(piece).map_err(at(path))?;
    }
    file.sync_all().map_err(at(path))?;
    Ok(hasher.finalize().to_hex().to_string())
}

fn verify(unpacked: &Unpacked, staging: &Path) -> Result<Copied, ArchiveError> {
    let manifest = unpacked.manifest.as_ref().ok_or_else(|| refused("it is cut off: its manifest is missing"))?;
    if manifest["format"].as_u64() != Some(FORMAT) {
        return Err(refused(format!("its form {} is not known; a newer mcode made it", manifest["format"])));
    }
    let database = staging.join(DATABASE);
    let known = unpacked.has_database.then(|| hashed(&database)).transpose().map_err(at(&database))?;
    let said = (manifest["database"]["blake3"].as_str(), manifest["database"]["bytes"].as_u64());
    if known.as_ref().is_none_or(|(hash, bytes)| said != (Some(hash), Some(*bytes))) {
        return Err(refused("its database is not what its manifest says"));
    }
    let bodies = &manifest["bodies"];
    let names = unpacked.names.finalize().to_hex();
    if bodies["count"].as_u64() != Some(unpacked.bodies) || bodies["names"].as_str() != Some(names.as_str()) {
        return Err(refused("its bodies are not those of its manifest"));
    }
    let connection = crate::schema::open_reader(&database)?;
    crate::schema::expect_own(&connection, &database).map_err(|error| refused(error.to_string()))?;
    let fault: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if fault != "ok" {
        return Err(refused(format!("its database is damaged: {fault}")));
    }
    Ok(Copied {
        bytes: unpacked.bytes,
        threads: count(&connection, "SELECT count(*) FROM threads")?,
        bodies: unpacked.bodies,
        missing: bodies["missing"].as_u64().unwrap_or(0),
    })
}

/// Has a policy of what is kept wait anew: what was brought back is not to go again at once.
fn forget_policy(database: &Path) -> Result<(), ArchiveError> {
    let connection = Connection::open(database)?;
    let is_there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'retention')";
    if connection.query_row(is_there, [], |row| row.get(0))? {
        connection.execute("DELETE FROM retention", [])?;
    }
    Ok(())
}

/// Where everything is that an exchange moves.
struct Exchange<'p> {
    staging: &'p Path,
    database: &'p Path,
    blobs: &'p Path,
    former: PathBuf,
}

impl Exchange<'_> {
    /// What is still to be moved, in its order: what is there goes aside right before what takes its place comes. The
    /// database comes last, so that nothing is read of half an exchange.
    fn moves(&self) -> Vec<(PathBuf, PathBuf)> {
        let aside = |path: &Path| (path.to_path_buf(), self.former.join(path.file_name().unwrap_or_default()));
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let beside = |end: &str| {
            let mut name = self.database.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let (new_database, new_blobs) = (self.staging.join(DATABASE), self.staging.join(BLOBS));
        let mut moves = Vec::new();
        if is_there(&new_database) {
            moves.extend([beside("-wal"), beside("-shm")].iter().filter(|path| is_there(path)).map(|path| aside(path)));
        }
        for (new, place) in [(new_blobs, self.blobs), (new_database, self.database)] {
            if is_there(&new) {
                moves.extend(is_there(place).then(|| aside(place)));
                moves.push((new, place.to_path_buf()));
            }
        }
        moves
    }

    /// Moves all of it; when something cannot be moved, what was moved before is told.
    fn carry_out(&self) -> Result<(), (ArchiveError, Vec<(PathBuf, PathBuf)>)> {
        let mut done: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (from, to) in self.moves() {
            if to.starts_with(&self.former)
                && let Err(error) = std::fs::create_dir_all(&self.former)
            {
                return Err((at(&self.former)(error), done));
            }
            if let Err(error) = std::fs::rename(&from, &to) {
                return Err((at(&to)(error), done));
            }
            done.push((from, to));
        }
        Ok(())
    }
}

/// Puts what is there aside and what was unpacked in its place. When that fails in between, all of it is taken back; when
/// it is cut off, the next start finishes it.
fn exchange(staging: &Path, database: &Path, blobs: &Path, former: &Path) -> Result<Option<PathBuf>, ArchiveError> {
    let unpacked_blobs = staging.join(BLOBS);
    std::fs::create_dir_all(&unpacked_blobs).map_err(at(&unpacked_blobs))?;
    for shelf in std::fs::read_dir(&unpacked_blobs).map_err(at(&unpacked_blobs))?.flatten() {
        sync_folder(&shelf.path()).map_err(at(&unpacked_blobs))?;
    }
    sync_folder(&unpacked_blobs).map_err(at(&unpacked_blobs))?;
    let ready = staging.join(READY);
    let name = former.file_name().unwrap_or_default().to_string_lossy().into_owned();
    mcode_env::files::write_atomic(&ready, name.as_bytes()).map_err(at(&ready))?;
    let exchange = Exchange { staging, database, blobs, former: former.to_path_buf() };
    if let Err((error, done)) = exchange.carry_out() {
        let taken_back = done.iter().rev().try_for_each(|(from, to)| std::fs::rename(to, from));
        // Where even that fails, half of it is there, and whoever opens the store next goes on with it.
        return Err(match taken_back.and_then(|()| std::fs::remove_file(&ready)) {
            Ok(()) => {
                std::fs::remove_dir(former).ok();
                error
            }
            Err(_) => ArchiveError::Unfinished(Box::new(error)),
        });
    }
    let folder = database.parent().unwrap_or(Path::new("."));
    sync_folder(folder).map_err(at(folder))?;
    Ok(former.is_dir().then(|| former.to_path_buf()))
}

/// Finishes an exchange that was cut off, so that what is opened next is one whole store.
pub(crate) fn finish(database: &Path, blobs: &Path) -> Result<(), ArchiveError> {
    let folder = database.parent().unwrap_or(Path::new("."));
    let staging = folder.join(STAGING);
    let ready = staging.join(READY);
    let name = match mcode_env::files::read_text_bounded(&ready, NAME_BYTES_MAX) {
        Ok(name) => name,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at(&ready)(error)),
    };
    if !name.starts_with(FORMER) || name.contains(['/', '\\']) {
        return Err(refused(format!("{} names no folder of a restore", ready.display())));
    }
    let exchange = Exchange { staging: &staging, database, blobs, former: folder.join(name) };
    exchange.carry_out().map_err(|(error, _)| error)?;
    sync_folder(folder).map_err(at(folder))?;
    std::fs::remove_dir_all(&staging).map_err(at(&staging))
}
