//! Configuration: files, then one effective set of values, each with its origin.
//!
//! A file that does not parse, or a value that does not fit, is named by file, line and key, and the last good values
//! stay in force. The project's own file is read only once the project is trusted, and can only tighten permissions.

pub mod effective;

pub use effective::{Effective, Limits, ModelEntry, PermissionRules, ProviderEntry};
