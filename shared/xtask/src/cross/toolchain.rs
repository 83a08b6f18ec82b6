//! A compiler for a foreign target, prepared in a cache folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The compiler's packages; all of one version, the one in the name of the standard library.
const COMPILER: [&str; 7] = [
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    "libstd-rust-web-1.96",
    "libstd-rust-web-dev",
    "rust-web-clippy",
    "libllvm22",
];
/// Libraries that its cargo is linked to.
const LIBRARIES: [&str; 5] = ["libgit2-1.5", "libhttp-parser2.9", "libmbedcrypto7", "libmbedx509-1", "libmbedtls14"];
/// Windows' C compiler and headers.
const MINGW: [&str; 3] = ["gcc-mingw-w64-x86-64-posix", "mingw-w64-x86-64-dev", "binutils-mingw-w64-x86-64"];
/// macOS' C compiler and headers.
const ZIG: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];
/// What of the standard library is built.
const STD: &str = "-Zbuild-std=std,panic_unwind,panic_abort,proc_macro,test";

/// A system that is compiled for from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Windows,
    MacOs,
}

impl Target {
    pub(super) fn triple(self) -> &'static str {
        match self {
            Self::Windows => "x86_64-pc-windows-gnu",
            Self::MacOs => "aarch64-apple-darwin",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Windows => "target-win",
            Self::MacOs => "target-mac",
        }
    }
}

/// A ready compiler.
pub(super) struct Toolchain {
    cache: PathBuf,
    target: Target,
}

impl Toolchain {
    /// Makes the compiler for `target` ready in `cache`; what is there already is kept.
    pub(super) fn prepare(cache: PathBuf, target: Target) -> anyhow::Result<Self> {
        extract_compiler(&cache)
            .context("the compiler cannot be made ready (it needs apt-get and Debian 12's archive)")?;
        match target {
            Target::Windows => install_missing("x86_64-w64-mingw32-gcc", &MINGW)?,
            Target::MacOs => install_zig(&cache)?,
        }
        let toolchain = Self { cache, target };
        toolchain.build_std()?;
        Ok(toolchain)
    }

    pub(super) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Where build results for the target are.
    pub(super) fn target_dir(&self) -> PathBuf {
        self.cache.join(self.target.folder())
    }

    /// Runs `cargo <verb> --target …` in `root`.
    pub(super) fn cargo(&self, root: &Path, verb: &str, arguments: &[&str]) -> anyhow::Result<()> {
        run(&mut self.cargo_command(root, verb, arguments))
    }

    /// The same, not run yet.
    pub(super) fn cargo_command(&self, root: &Path, verb: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.target_dir());
        command.arg(verb).args(["--target", self.target.triple(), "--locked"]).args(arguments).current_dir(root);
        command
    }

    /// This compiler's cargo and nothing of the one that runs us.
    fn command(&self, target_dir: &Path) -> Command {
        let bin = self.cache.join("bin");
        let mut command = match self.target {
            Target::Windows => Command::new(bin.join("cargo")),
            Target::MacOs => Command::new(self.cache.join("zv/bin/cargo-zigbuild")),
        };
        let own_path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{own_path}", bin.display(), self.cache.join("zv/bin").display());
        for name in
            ["RUSTUP_TOOLCHAIN", "RUSTFLAGS", "CARGO", "RUSTC_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_BOOTSTRAP"]
        {
            command.env_remove(name);
        }
        command
            .env("PATH", path)
            .env("RUSTC", bin.join("rustc"))
            .env("RUSTDOC", bin.join("rustdoc"))
            .env("CARGO_TARGET_DIR", target_dir)
            .env("CARGO_ZIGBUILD_CACHE_DIR", self.cache.join("zbc"))
            .env("ZIG_GLOBAL_CACHE_DIR", self.cache.join("zgc"))
            .env("ZIG_LOCAL_CACHE_DIR", self.cache.join("zlc"));
        command
    }

    /// Builds the standard library once, into the place where the compiler looks for it.
    fn build_std(&self) -> anyhow::Result<()> {
        let triple = self.target.triple();
        let library = self.cache.join("rw/usr/lib/rustlib").join(triple).join("lib");
        if has_file(&library, "libstd-") {
            return Ok(());
        }
        println!("building the standard library for {triple} (about a minute, once)");
        let seed = self.cache.join("sys");
        fs::create_dir_all(seed.join("src"))?;
        fs::write(seed.join("src/lib.rs"), "")?;
        fs::write(seed.join("Cargo.toml"), "[package]\nname = \"s\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")?;
        let target_dir = seed.join("target");
        let mut command = self.command(&target_dir);
        command.arg(if self.target == Target::MacOs { "zigbuild" } else { "build" });
        command.args(["--release", STD, "--target", triple]).env("RUSTC_BOOTSTRAP", "1").current_dir(&seed);
        run(&mut command).with_context(|| format!("the standard library for {triple} cannot be built"))?;
        let built = target_dir.join(triple).join("release/deps");
        let staging = library.with_extension("new");
        fs::create_dir_all(&staging)?;
        for entry in fs::read_dir(&built).with_context(|| format!("cannot read {}", built.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let wanted = name.ends_with(".rlib") || name.ends_with(".rmeta");
            // The seed crate's own result is no part of the library.
            if wanted && !name.starts_with("libs-") {
                fs::copy(&path, staging.join(&name))?;
            }
        }
        if library.exists() {
            fs::remove_dir_all(&library)?;
        }
        fs::rename(&staging, &library).context("the standard library cannot be put into place")
    }
}

fn has_file(dir: &Path, prefix: &str) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    entries.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
}

fn extract_compiler(cache: &Path) -> anyhow::Result<()> {
    let root = cache.join("rw");
    let ready = cache.join("bin/cargo");
    if ready.is_file() && root.join("usr/bin/rustc").is_file() {
        return Ok(());
    }
    println!("fetching a compiler for other systems into {} (about 150 MB, once)", cache.display());
    let packages = cache.join("deb");
    fs::create_dir_all(&packages)?;
    let download = || {
        let mut command = Command::new("apt-get");
        command.args(["download", "-q"]).args(COMPILER).args(LIBRARIES).current_dir(&packages);
        run(&mut command)
    };
    if download().is_err() {
        // The list of packages may be missing or old.
        run(Command::new("apt-get").args(["update", "-q"]))?;
        download()?;
    }
    for entry in fs::read_dir(&packages)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&path).arg(&root))?;
        }
    }
    fs::create_dir_all(cache.join("bin"))?;
    for tool in ["rustc", "rustdoc", "clippy-driver", "cargo-clippy", "cargo"] {
        let path = cache.join("bin").join(tool);
        let usr = root.join("usr");
        let usr = usr.display();
        fs::write(
            &path,
            format!(
                "#!/bin/sh\nP='{usr}'\nexport LD_LIBRARY_PATH=\"$P/lib/x86_64-linux-gnu\"\nexec \"$P/bin/{tool}\" \"$@\"\n"
            ),
        )?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn install_zig(cache: &Path) -> anyhow::Result<()> {
    let environment = cache.join("zv");
    if environment.join("bin/cargo-zigbuild").is_file() {
        return Ok(());
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    run(Command::new(environment.join("bin/pip")).args(["install", "-q"]).args(ZIG))
}

/// Installs Debian packages when `program` is not there.
pub(super) fn install_missing(program: &str, packages: &[&str]) -> anyhow::Result<()> {
    if on_path(program) {
        return Ok(());
    }
    let install = || {
        let mut command = Command::new("apt-get");
        command.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
        run(&mut command)
    };
    if install().is_err() {
        run(Command::new("apt-get").args(["update", "-q"]))?;
        install().with_context(|| format!("{program} is missing: install {}", packages.join(" ")))?;
    }
    if on_path(program) {
        Ok(())
    } else {
        bail!("{program} is still not there after installing {}", packages.join(" "))
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs a command to its end; its output is ours.
pub(super) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { bail!("{} failed ({status})", command.get_program().display()) }
}
