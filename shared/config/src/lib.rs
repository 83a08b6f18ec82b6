//! Configuration: files, then one effective set of values, each with its origin.
//!
//! A file that does not parse, or a value that does not fit, is named by file, line and key, and the last good values
//! stay in force. Keys that nobody knows are named too, but harm nothing. [`ConfigFile`] reads the user's file and
//! [`ConfigEdit`] changes it, alone, and keeps its comments. A file of the machine ([`Managed`]) comes before the user's and can not be loosened. A project's
//! own file ([`ProjectConfig`]) is read only by whoever knows that the project is trusted; it never loosens permissions.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

mod check;
mod duration;
mod edit;
pub mod effective;
mod error;
mod handle;
mod list;
mod low;
mod project;
mod schema;

pub use duration::{DurationError, parse_duration};
pub use edit::{CHANGE_WAIT, Change, ConfigEdit, ConfigFile, EditError};
pub use effective::{
    Effective, Keeping, Limits, LoginEntry, ModelEntry, PackEntry, PermissionRules, PermissionTest, ProviderEntry,
    RuleSource, Sandbox, SandboxNetwork, WrittenRule,
};
pub use error::ConfigError;
pub use handle::{CONFIG_BYTES_MAX, ConfigHandle, Managed, Origin, parse_packs};
pub use project::ProjectConfig;
pub use schema::{ROLES, THINKING_FORMS, THINKING_LEVELS, nearest};
