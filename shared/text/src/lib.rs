//! Text for terminals and logs: made harmless, cut to size, measured, secrets taken out.
//!
//! What models, tools, files and servers write is hostile until it went through [`sanitize`]: a terminal obeys control
//! characters, and a reader is misled by characters that reorder or hide others.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod causes;
pub mod redact;
pub mod sanitize;
pub mod truncate;
pub mod width;
pub mod wrap;

pub use causes::{chain, with_causes};
pub use redact::{Redactor, looks_like_a_key, redact};
pub use sanitize::{sanitize, sanitize_line};
pub use truncate::{truncate_bytes, truncate_middle, truncate_width};
pub use width::width;
pub use wrap::wrap;
