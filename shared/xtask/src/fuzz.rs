//! `cargo xtask fuzz`: hostile commands against the permission parser, guided by what they reach.
//!
//! libFuzzer needs counters in the code, which the stable compiler can put there (`-C passes=sancov-module`); the
//! sanitizers themselves would need a nightly one. The target is a workspace of its own, so that a plain build needs
//! neither libFuzzer nor C++. What is found new goes into the corpus, to be committed when it is worth it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// The target's folder.
const TARGET: &str = "daemon/permissions/fuzz";
/// Flags that put counters and comparisons into the code.
const FLAGS: [&str; 7] = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Longest command that is made, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;
/// One command that takes longer is a fault, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// How long, and what with.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// How long to run.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Where to collect what reaches something new, in the folder of builds if nothing is said; the committed corpus is only
    /// read.
    #[arg(long)]
    collect: Option<std::path::PathBuf>,
}

/// Builds the target and runs it; fails when it finds something.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let folder = root.join(TARGET);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // With a target named, build scripts are built without the flags.
    let host = host()?;
    let status = Command::new(&cargo)
        .args(["build", "--release", "--locked", "--target", &host, "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env("CARGO_TARGET_DIR", target_dir(root))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the fuzz target could not be built");
    }
    let corpus = folder.join("corpus");
    let mut fuzzer = Command::new(target_dir(root).join(&host).join("release/command"));
    let collected = options.collect.clone().unwrap_or_else(|| target_dir(root).join("collected"));
    std::fs::create_dir_all(&collected).with_context(|| format!("cannot make {}", collected.display()))?;
    fuzzer.arg(&collected).arg(&corpus).args([
        format!("-max_total_time={}", options.minutes * 60),
        format!("-max_len={INPUT_BYTES_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        "-print_final_stats=1".to_owned(),
        "-verbosity=1".to_owned(),
    ]);
    let status = fuzzer.current_dir(target_dir(root)).status().context("cannot run the fuzz target")?;
    if !status.success() {
        bail!("the fuzz target has found a fault ({status}); the input lies in {}", target_dir(root).display());
    }
    Ok(())
}

/// The platform of the compiler.
fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).context("rustc named no host")
}

fn target_dir(root: &Path) -> std::path::PathBuf {
    let base = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), std::path::PathBuf::from);
    base.join("fuzz")
}
