//! Checkpoints of a project: what its files were before and after whatever an agent did, so that it can be looked at and
//! undone. It does not matter who changed a file: a tool, a command, a formatter, the user's editor.
//!
//! A [`Depot`] keeps snapshots of a project's whole tree, outside the project and its git. [`Depot::snapshot`] takes one,
//! [`Depot::changes`] and [`Depot::diff`] compare two, [`Depot::plan`] says what bringing back would do and
//! [`Depot::restore`] does it. [`Depot::retain`], [`Depot::make_room`] and [`Depot::verify`] look after the disk.
//! Everything blocks.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mcode_checkpoints::{Choice, Depot, Hint, Limits, Settings, Span};
//! # let kept = tempfile::tempdir()?;
//! # let (data, root) = (kept.path().join("data"), kept.path().canonicalize()?.join("project"));
//! # std::fs::create_dir(&root)?;
//! # let clock = std::sync::Arc::new(mcode_env::SystemClock);
//! let settings = Settings { clock, excludes: None, skip: Vec::new(), limits: Limits::default() };
//! let depot = Depot::open(&Depot::folder(&data, &root), &root, settings)?;
//! let before = depot.snapshot(Hint::None)?.id;
//! std::fs::write(root.join("made"), "by the agent, in a turn")?;
//! let after = depot.snapshot(Hint::None)?.id;
//! assert_eq!(depot.changes(before, after)?.len(), 1);
//!
//! // Later, when the turn is to be undone:
//! let now = depot.snapshot(Hint::None)?.id;
//! let plan = depot.plan(&[Span { before, after }], &Choice::default(), now)?;
//! let restored = depot.restore(&plan)?;
//! assert!(!root.join("made").exists() && restored.conflicts.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! What belongs to a snapshot: every file, link and folder that git would not ignore (`.gitignore`, `.ignore`,
//! `.git/info/exclude` and the user's own list), in repositories and submodules within too, but nothing of any `.git`. Files
//! above [`FILE_BYTES_MAX`], and what may not be read, are noted and can not be brought back. Sockets, pipes and devices
//! are noted and left alone. Owners, dates, extended attributes and hard links are not kept.
//!
//! A [`Lookout`] takes snapshots while something is at work, and looks only at what the system says was touched.
//!
//! Reading order: `depot.rs`, `scan/` (looking at the project), `lookout.rs` and `watch.rs` (not looking), `store/` (objects in packs), `changes.rs`, `diff.rs`,
//! `restore/` (plan, journal, carrying out), `keep.rs`, `verify.rs`. Absent on purpose: which snapshot belongs to which turn, which the
//! thread's log knows.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

mod cache;
mod changes;
mod depot;
mod diff;
mod disk;
mod error;
mod ground;
mod ids;
mod keep;
mod limits;
mod lock;
mod looking;
mod lookout;
mod node;
mod path;
mod restore;
mod rules;
mod scan;
mod store;
#[cfg(test)]
mod tests;
mod verify;
mod watch;

pub use changes::{Change, ChangeKind};
pub use depot::{Depot, Hint, NOTED_MAX, Settings, Snapshot};
pub use diff::{DIFF_BYTES_MAX, DIFF_LINES_MAX, DiffBody, FileDiff, Hunk};
pub use error::CheckpointError;
pub use ids::{ObjectId, ParseIdError, SnapshotId};
pub use keep::{Retained, Usage};
pub use limits::{DEPOT_BYTES_MAX, ENTRIES_MAX, FILE_BYTES_MAX, LOCK_MS_MAX, Limits, SNAPSHOT_MS_MAX};
pub use looking::Listed;
pub use lookout::{Care, Lookout};
pub use node::{Node, Special};
pub use path::{PATH_BYTES_MAX, ParsePathError, TreePath};
pub use restore::{Action, Choice, Conflict, ConflictKind, Failure, Interrupted, Pick, Plan, Restored, Span};
pub use scan::global_excludes;
pub use verify::{DAMAGE_MAX, Damage, Verified};
pub use watch::{TOUCHED_MAX, WATCHED_MAX};
