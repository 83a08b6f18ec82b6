//! Chores of this repository: `cargo xtask <chore>`. A thin dispatcher; every chore has a file of its own.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore tells the contributor what it found")]
#![allow(clippy::disallowed_methods, reason = "a build tool runs commands and is no part of the product")]

#[cfg(target_os = "linux")]
mod bench;
mod codegen;
#[cfg(target_os = "linux")]
mod crash;
#[cfg(unix)]
mod cross;
mod deps;
#[cfg(target_os = "linux")]
mod fuzz;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
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
    /// Compiles the workspace for Windows; with --run also asks a question under wine.
    #[cfg(unix)]
    CheckWindows(cross::Options),
    /// Compiles the workspace for macOS.
    #[cfg(unix)]
    CheckMacos(cross::Options),
    /// Measures speed and size of the release build against their bounds.
    #[cfg(target_os = "linux")]
    Bench(bench::Options),
    /// Kills a working daemon at random moments and checks what it left.
    #[cfg(target_os = "linux")]
    Crash(crash::Options),
    /// Throws hostile commands at the permission parser.
    #[cfg(target_os = "linux")]
    Fuzz(fuzz::Options),
    /// Runs everything that CI runs.
    Ci,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let root = repository_root();
    match Args::parse().chore {
        Chore::Codegen { check } => codegen::run(&root, check),
        Chore::Deps => deps::run(&root),
        Chore::Tidy => tidy::run(&root),
        #[cfg(unix)]
        Chore::CheckWindows(options) => cross::windows(&root, options),
        #[cfg(unix)]
        Chore::CheckMacos(options) => cross::macos(&root, options),
        #[cfg(target_os = "linux")]
        Chore::Bench(options) => bench::run(&root, &options),
        #[cfg(target_os = "linux")]
        Chore::Crash(options) => crash::run(&root, &options),
        #[cfg(target_os = "linux")]
        Chore::Fuzz(options) => fuzz::run(&root, &options),
        Chore::Ci => ci(&root),
    }
}

/// `.ci/run` is the one list of what has to hold.
fn ci(root: &Path) -> anyhow::Result<()> {
    let status = Command::new(root.join(".ci/run")).current_dir(root).status().context("cannot start .ci/run")?;
    if status.success() { Ok(()) } else { bail!(".ci/run failed ({status})") }
}

/// The root folder of this repository, known since this program was compiled in it.
fn repository_root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.canonicalize().unwrap_or(here)
}
