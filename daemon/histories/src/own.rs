//! mcode's own file of a thread: lossless, JSON lines.
//!
//! ```text
//! {"format":"mcode-thread","version":1,"thread_id":"thr_…","title":"…","project":{…},"exported_at":"…","exported_by":"…","events":2}
//! {"seq":1,"at":1750000000000,"kind":"thread_created","version":1,"payload":{…}}
//! {"seq":2,"at":…,"kind":"…","version":1,"run_id":"run_…","turn_id":"trn_…","payload":{…}}
//! {"blob":"<hash>","media_type":"image/png","size_bytes":700000,"chunk":1,"chunks":2,"data":"<base64>"}
//! {"blob":"<hash>","media_type":"image/png","size_bytes":700000,"chunk":2,"chunks":2,"data":"<base64>"}
//! {"blob":"<hash>","missing":"why the store no longer had it"}
//! {"end":{"lines":6,"events":2,"blobs":1,"missing":1,"blake3":"<hash of every byte above>"}}
//! ```
//!
//! - Every line ends with a line feed. Events stand in their order, gapless from 1; then every body that one of them
//!   names, by hash, in pieces of 512 KiB, so that no such line has more than 1 MiB.
//! - `payload` is the stored form of the event, byte for byte. A payload of a later version that is no JSON on one line
//!   stands as text in `payload_text`.
//! - What is left out: [`kept`](mcode_events::run::RunOptions::kept), the environment of a run. It is of use to no
//!   other machine, and nobody's business.
//! - What a file that was read says of the thread is changed in this: a thread that was exported while it was at work is
//!   ended (`interrupted`), inputs that wait are taken back, and `ephemeral` is gone. With
//!   [`Identity::Fresh`](read::Identity) all its ids are new.

mod check;
mod held;
mod input;
mod lines;
mod named;
pub mod read;
mod renamed;
pub mod write;

use mcode_ids::{ProjectId, Seq, ThreadId};

/// What the first line says the file is.
pub(crate) const FORMAT: &str = "mcode-thread";

/// The version that is written, and the newest that is read.
pub(crate) const VERSION: u32 = 1;

/// Bytes of a body in one line; as base64 they take a third more.
pub(crate) const PIECE_BYTES: usize = 512 * 1024;

/// The longest line, in bytes. Only an event is that long; the largest that is known has some 20 MB.
pub const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// The most events of a file.
pub const EVENTS_MAX: u64 = 5_000_000;

/// The largest body, in bytes; the output of a command has up to 17 MiB.
pub const BLOB_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most bodies of a file.
pub const BLOBS_MAX: usize = 100_000;

/// The most runs of a thread.
pub const RUNS_MAX: usize = 200_000;

/// How far the time of an event may lie ahead, in milliseconds (a day: clocks differ).
pub const AHEAD_MS_MAX: i64 = 24 * 60 * 60 * 1000;

/// The dearest request or run, in US dollars; sums of more would leave what a number can hold.
pub const COST_USD_MAX: f64 = 1e6;

/// What a thread is, beside its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The thread.
    pub thread_id: ThreadId,
    /// What it is called now.
    pub title: String,
    /// `provider/model` that it uses now.
    pub model: String,
    /// Where it works.
    pub cwd: String,
    /// Its project.
    pub project_id: ProjectId,
    /// The project's name for people.
    pub project_name: String,
    /// The project's root.
    pub project_root: String,
    /// When it was made, milliseconds since 1970 UTC.
    pub created_at_ms: i64,
    /// Its last event; later ones are left out.
    pub last_seq: Seq,
}

/// What is taken of a file; more is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a line.
    pub line_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Events.
    pub events: u64,
    /// Bodies.
    pub blobs: usize,
    /// Bytes of a body.
    pub blob_bytes: u64,
    /// Runs.
    pub runs: usize,
}

impl Limits {
    /// Those of every import.
    pub const DEFAULT: Self = Self {
        line_bytes: LINE_BYTES_MAX,
        file_bytes: FILE_BYTES_MAX,
        events: EVENTS_MAX,
        blobs: BLOBS_MAX,
        blob_bytes: BLOB_BYTES_MAX,
        runs: RUNS_MAX,
    };
}
