//! Files as the model sees and writes them: paths, text encodings, viewing, and replacing without half-written files.

pub mod change;
pub mod disk;
pub mod listing;
pub mod media;
pub mod path;
pub(crate) mod steady;
pub mod text;
pub mod view;
pub mod write;

pub use view::ViewTool;
pub use write::WriteTool;

/// The largest file that is read whole, and thus the largest that can be changed, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
