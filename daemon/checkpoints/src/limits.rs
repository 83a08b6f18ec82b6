//! What bounds a depot.

/// Content of a larger file is not kept: it is noted with its size and date, and can not be brought back.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Files, links and folders of a project; with more of them there are no checkpoints.
pub const ENTRIES_MAX: u64 = 200_000;
/// Milliseconds that a snapshot may take; it is given up then. The first one reads every file.
pub const SNAPSHOT_MS_MAX: u64 = 60_000;
/// Bytes on the disk that a depot may take.
pub const DEPOT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Milliseconds that the lock of a depot is waited for.
pub const LOCK_MS_MAX: u64 = 60_000;

/// The limits of one depot. [`Limits::default`] gives the constants of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// See [`FILE_BYTES_MAX`]; never above it.
    pub file_bytes: u64,
    /// See [`ENTRIES_MAX`].
    pub entries: u64,
    /// See [`SNAPSHOT_MS_MAX`].
    pub snapshot_ms: u64,
    /// See [`DEPOT_BYTES_MAX`].
    pub depot_bytes: u64,
    /// See [`LOCK_MS_MAX`].
    pub lock_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: FILE_BYTES_MAX,
            entries: ENTRIES_MAX,
            snapshot_ms: SNAPSHOT_MS_MAX,
            depot_bytes: DEPOT_BYTES_MAX,
            lock_ms: LOCK_MS_MAX,
        }
    }
}
