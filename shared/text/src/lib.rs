//! Text for terminals: made harmless, cut to size, measured.
//!
//! What models, tools, files and servers write is hostile until it went through [`sanitize`]: a terminal obeys control
//! characters, and a reader is misled by characters that reorder or hide others.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod sanitize;
pub mod truncate;
pub mod width;
pub mod wrap;

pub use sanitize::{sanitize, sanitize_line};
pub use truncate::{truncate_bytes, truncate_middle, truncate_width};
pub use width::width;
pub use wrap::wrap;
