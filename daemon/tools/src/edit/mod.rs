//! Changing parts of files: by exact text, or by a patch.

pub mod diagnose;

pub mod matching;
pub mod patch;
pub mod patch_apply;
pub mod patch_parse;
pub mod replace;

pub use patch::ApplyPatchTool;
pub use replace::EditTool;
