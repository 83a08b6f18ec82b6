//! Objects by their hash, in packs.
//!
//! A snapshot writes what is new into one pack, which gets its name when it is whole and on the disk: 50,000 new files
//! are one file, and two syncs. Bodies are compressed. Reflinks would need each body as a file of its own, as it is; they
//! are no use on ext4, nor between two file systems, and pay for large files only, which are not kept at all.
//! A pack that is there is never changed. Reading order: [`pack`], [`writer`], [`objects`].

pub(crate) mod objects;
pub(crate) mod pack;
pub(crate) mod writer;

pub(crate) use objects::Objects;
pub(crate) use writer::{Bench, Writer};
