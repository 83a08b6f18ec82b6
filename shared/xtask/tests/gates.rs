//! The gates of `cargo xtask` as tests, so that `cargo test` fails where CI would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

use std::process::Command;

fn passes(chore: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg(chore).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cargo xtask {chore}:\n{stdout}{stderr}");
}

#[test]
fn crates_keep_to_the_table_of_edges() {
    passes("deps");
}

#[test]
fn the_tree_is_tidy() {
    passes("tidy");
}
