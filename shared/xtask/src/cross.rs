//! `cargo xtask check-windows` and `check-macos`: the workspace compiled for the systems nobody here runs.
//!
//! The compiler is Debian's `*-web` one, extracted into a cache folder and not installed (rustup has no standard library
//! for these targets everywhere); the standard library is built once into its sysroot. Windows uses mingw, and with
//! `--run` wine asks a question through the real programs; macOS uses zig's C compiler, and can only be checked.
//!
//! This proves windows-gnu, not -msvc, and wine is not Windows; for macOS it proves that everything compiles.

mod toolchain;
mod wine;

use std::path::{Path, PathBuf};

use anyhow::Context;

use toolchain::{Target, Toolchain};

/// What to do beside checking.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Options {
    /// Only make the toolchain ready: fetch, extract, build the standard library.
    #[arg(long)]
    prepare: bool,
    /// Also build the programs and let `mcode ask` run under wine (Windows only).
    #[arg(long)]
    run: bool,
}

/// Checks the workspace for Windows.
pub(crate) fn windows(root: &Path, options: Options) -> anyhow::Result<()> {
    let toolchain = Toolchain::prepare(cache()?, Target::Windows)?;
    if options.prepare {
        if options.run {
            wine::prepare(toolchain.cache())?;
        }
        return Ok(());
    }
    toolchain.cargo(root, "check", &["--workspace", "--bins", "--lib", "--keep-going"])?;
    println!("check-windows: the workspace compiles for {}", Target::Windows.triple());
    if options.run {
        wine::build(root, &toolchain)?;
        wine::test(root, &toolchain)?;
        println!("check-windows: commands have fewer rights, and all of them end (under wine)");
        wine::ask(root, &toolchain)?;
        println!("check-windows: mcode.exe ask got its answer through mcoded.exe (under wine)");
    }
    Ok(())
}

/// Checks the workspace for macOS.
pub(crate) fn macos(root: &Path, options: Options) -> anyhow::Result<()> {
    let toolchain = Toolchain::prepare(cache()?, Target::MacOs)?;
    if !options.prepare {
        toolchain.cargo(root, "check", &["--workspace", "--bins", "--lib", "--keep-going"])?;
        println!("check-macos: the workspace compiles for {}", Target::MacOs.triple());
    }
    Ok(())
}

/// Where toolchains and their build results stay between runs.
fn cache() -> anyhow::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = set("MCODE_XTASK_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("mcode-xtask")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/mcode-xtask")))
        .context("no place for a cache: set MCODE_XTASK_CACHE to a folder with 8 GB of room")?;
    std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}
