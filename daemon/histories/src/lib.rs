//! Conversations as files: threads that leave as a file, and those that come from one, from mcode or from others.
//!
//! - [`write_thread`] and [`ThreadFile`]: mcode's own format, lossless, for moving a thread to another machine. What it
//!   looks like is said in [`own`].
//! - [`write_markdown`] and [`write_messages`]: for people and for scripts; one way. The shape of the JSON is said in
//!   [`messages`].
//! - [`foreign`]: histories of other coding agents, made into events as ours.
//!
//! Everything here is blocking and takes events one after the other, so a thread of any size needs the memory of its
//! largest event. Who sends a file in pieces gives a [`Chunks`] to write to. Nothing here knows the store: events come
//! as an iterator, bodies by [`Blobs`](mcode_events::Blobs), and what is read is the caller's to commit, all of it or
//! nothing.
//!
//! An import goes through three crates: this one reads and checks, `store/importing.rs` writes a staged log that nobody
//! sees before it is whole, `threads/importing.rs` says as which thread and in which project. What is imported is known
//! again by [`Contents::content`] or by [`Found::key`](foreign::Found::key) with the time of its last change: whoever
//! changes what these cover makes everything that came in before look new. What a fold holds of a hostile file is
//! bounded in `own/held.rs`; a new kind of event that leaves something open belongs there, and a new kind of id into
//! `own/renamed.rs`.
//!
//! A file that is read may attack. What it holds is history and nothing else: it makes no grant, rule or approval,
//! nothing in it is left running or waiting, and times that lie ahead are refused.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

mod chunks;
mod error;
pub mod foreign;
pub mod markdown;
pub mod messages;
pub mod own;
mod rendering;

pub use chunks::{CHUNK_BYTES, Chunks};
pub use error::{ExportError, Fault, ImportError};
pub use markdown::write_markdown;
pub use messages::write_messages;
pub use own::read::{Contents, Identity, Importing, Place, ThreadFile};
pub use own::write::{Written, write_thread};
pub use own::{Limits, ThreadInfo};
pub use rendering::Rendering;
