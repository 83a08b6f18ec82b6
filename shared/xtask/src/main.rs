//! Chores of this repository: `cargo xtask <chore>`. A thin dispatcher; every chore has a file of its own.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore tells the contributor what it found")]
#![allow(clippy::disallowed_methods, reason = "a build tool runs commands and is no part of the product")]

mod codegen;
mod deps;
mod tidy;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Generates proto/src/gen from proto/mcode/v1; with --check it only says whether what is committed is current.
    Codegen {
        /// Change nothing; fail when the committed code differs.
        #[arg(long)]
        check: bool,
    },
    /// Fails when a crate depends on one that the architecture does not allow it.
    Deps,
    /// Checks sizes, names, top level, licence and generated code.
    Tidy,
}

fn main() -> anyhow::Result<()> {
    let root = repository_root();
    match Args::parse().chore {
        Chore::Codegen { check } => codegen::run(&root, check),
        Chore::Deps => deps::run(&root),
        Chore::Tidy => tidy::run(&root),
    }
}

/// The root folder of this repository, known since this program was compiled in it.
fn repository_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
