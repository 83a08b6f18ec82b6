//! `cargo xtask bench`: speed and size of the release build, each figure beside its bound.
//!
//! The scripted model answers in about a millisecond, so a wall time is our own cost. Figures are medians; a broken
//! bound makes the command fail. Nothing else should run on the machine meanwhile.

mod process;
mod scenarios;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use table::Table;

/// A release build from clean, dependencies included, in seconds.
const CLEAN_BUILD_SECONDS_MAX: f64 = 600.0;

/// One event to the log and the disk, 99 of 100, in milliseconds.
const APPEND_P99_MS_MAX: f64 = 10.0;

/// A decision about a plain command or a path, in microseconds.
const DECISION_US_MAX: f64 = 50.0;

/// A decision about a command that takes some reading, in microseconds.
const DECISION_PARSED_US_MAX: f64 = 1_000.0;

/// 100 MB of a stream of deltas, from a socket to the complete answer, in seconds of one processor: 200 MB/s.
const DECODE_SECONDS_MAX: f64 = 0.5;

/// Figures of a store with a lot in it, with their bounds.
const LARGE_STORE: [(&str, &str, &str, f64); 7] = [
    ("open_ms", "last page of a thread of 1,000,000 events", "ms", 150.0),
    ("load_s", "all of it brought to mind before a run", "s", 10.0),
    ("search_rare_ms", "search in it, a rare word", "ms", 200.0),
    ("search_common_ms", "search in it, words that are everywhere", "ms", 200.0),
    ("list_ms", "list of 10,000 threads", "ms", 100.0),
    ("titles_ms", "search among 10,000 titles", "ms", 100.0),
    ("fork_times", "1 GB of output with 50 forks, against the same without", "times", 1.1),
];

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Also time a release build from clean (minutes).
    #[arg(long)]
    full: bool,
    /// Measure only scenarios whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Measure the programs in this folder instead of building them.
    #[arg(long)]
    programs: Option<PathBuf>,
}

/// Measures, prints the table, fails when a bound is broken or a figure could not be taken.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let mut table = Table::default();
    if options.full {
        table.add("release build from clean", clean_build(root), "s", CLEAN_BUILD_SECONDS_MAX);
    }
    let programs = match &options.programs {
        Some(folder) => folder.canonicalize().with_context(|| format!("no folder {}", folder.display()))?,
        None => build(root)?,
    };
    for (name, scenario) in scenarios::ALL {
        if !name.contains(&options.only) {
            continue;
        }
        eprintln!("measuring: {name}");
        // Scenarios use the testkit, which panics when something does not work at all.
        let scenario = std::panic::catch_unwind(|| {
            let mut part = Table::default();
            let ended = scenario(&programs, &mut part);
            (part, ended)
        });
        match scenario {
            Ok((part, Ok(()))) => table.append(part),
            Ok((part, Err(error))) => {
                table.append(part);
                table.failed(name, &format!("{error:#}"));
            }
            Err(_) => table.failed(name, "it did not run to its end, see above"),
        }
    }
    if "append".contains(&options.only) {
        table.add("append to the log, on the disk: p99", append_p99(root), "ms", APPEND_P99_MS_MAX);
    }
    if "decide".contains(&options.only) {
        decide(root, &mut table);
    }
    if "decode".contains(&options.only) {
        decode(root, &mut table);
    }
    if "store".contains(&options.only) {
        large_store(root, &mut table);
    }
    println!("{table}");
    let broken = table.broken();
    if broken > 0 {
        bail!("{broken} bounds are broken");
    }
    Ok(())
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds what is measured; gives the folder of the programs.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let output = cargo()
        .args([
            "build",
            "--release",
            "--locked",
            "-p",
            "mcoded",
            "-p",
            "mcode-cli",
            "-p",
            "mcode-toolhost",
            "--message-format",
            "json",
        ])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the release build failed");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
        .find_map(|path| path.ends_with("mcoded").then(|| path.parent().map(Path::to_path_buf)).flatten())
        .context("cargo named no mcoded")
}

/// What an example of the testkit measures: so this crate needs neither the database nor the rules.
fn example(root: &Path, name: &str) -> anyhow::Result<serde_json::Value> {
    let output = cargo()
        .args(["run", "-q", "--release", "--locked", "-p", "mcode-testkit", "--example", name])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("{name} gave no figures"))
}

/// The store measured by itself.
fn append_p99(root: &Path) -> anyhow::Result<f64> {
    let figures = example(root, "append-log")?;
    figures["p99_us"].as_f64().map(|micros| micros / 1000.0).context("append-log gave no p99")
}

/// Permission decisions, by how much has to be understood.
fn decide(root: &Path, table: &mut Table) {
    let figures = example(root, "decide");
    for (name, key, bound) in [
        ("decision about a path: median", "plain_us", DECISION_US_MAX),
        ("decision about a plain command: median", "parsed_us", DECISION_US_MAX),
        ("decision about a long chain: median", "chain_us", DECISION_PARSED_US_MAX),
    ] {
        let figure = match &figures {
            Ok(figures) => figures[key].as_f64().with_context(|| format!("decide gave no {key}")),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        table.add(name, figure, "us", bound);
    }
}

/// Answers decoded, by wire.
fn decode(root: &Path, table: &mut Table) {
    let figures = example(root, "decode-sse");
    for wire in ["anthropic", "openai-chat", "openai-responses", "gemini"] {
        let figure = match &figures {
            Ok(figures) => figures[wire].as_f64().with_context(|| format!("decode-sse gave no {wire}")),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        table.add(&format!("100 MB of deltas over the wire {wire}: CPU"), figure, "s", DECODE_SECONDS_MAX);
    }
}

/// A store with a lot in it.
fn large_store(root: &Path, table: &mut Table) {
    let figures = example(root, "large-store");
    for (key, name, unit, bound) in LARGE_STORE {
        let figure = match &figures {
            Ok(figures) => figures[key].as_f64().with_context(|| format!("large-store gave no {key}")),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        table.add(name, figure, unit, bound);
    }
}

fn clean_build(root: &Path) -> anyhow::Result<f64> {
    let target = tempfile::tempdir().context("cannot make a temporary folder")?;
    let start = Instant::now();
    let status = cargo()
        .args(["build", "--release", "--locked", "-p", "mcoded", "-p", "mcode-cli", "-p", "mcode-toolhost"])
        .env("CARGO_TARGET_DIR", target.path())
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the release build failed");
    }
    Ok(start.elapsed().as_secs_f64())
}
