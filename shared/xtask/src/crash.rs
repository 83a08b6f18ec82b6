//! `cargo xtask crash`: the daemon is killed at random moments while it works, and nothing may be lost or done twice.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use mcode_testkit::TestDaemon;
use mcode_testkit::crash::{rounds, seed};

/// How the crash chore runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many times the daemon is loaded and killed
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Makes the random moments repeatable; MCODE_TEST_SEED otherwise
    #[arg(long)]
    seed: Option<u64>,
    /// Use the programs of this folder instead of building them
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let programs = match &options.bin_dir {
        Some(dir) => dir.clone(),
        None => build(root)?,
    };
    let seed = options.seed.unwrap_or_else(seed);
    println!("{} rounds with MCODE_TEST_SEED={seed}", options.rounds);
    let began = std::time::Instant::now();
    let daemon = TestDaemon::prepare_with(programs);
    let report = rounds::run(daemon, options.rounds, seed, |report| {
        if report.rounds % 10 == 0 {
            println!(
                "{:>4} rounds, {} kills, {} facts found again, {:.0} s",
                report.rounds,
                report.kills,
                report.seen.acknowledged,
                began.elapsed().as_secs_f64()
            );
        }
    });
    println!("{report:#?}");
    println!("took {:.0} s; nothing was lost, nothing ran twice", began.elapsed().as_secs_f64());
    Ok(())
}

/// Builds both programs; the folder that they are in.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "-p", "mcoded", "-p", "mcode-cli", "-p", "mcode-toolhost"])
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the programs could not be built ({status})");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok(target.join("debug"))
}
