//! One question asked by the Windows programs under wine, answered by the scripted model.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::toolchain::{Toolchain, install_missing, run};

/// How long one program may take under wine; the first start is slow.
const WINE_TIME_MAX: Duration = Duration::from_secs(120);

/// wine 8 lacks this library, without which Rust programs end silently.
const RANDOM_LIBRARY: &str = r"#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *p, SIZE_T n) {
    while (n) {
        ULONG k = n > 0x10000000 ? 0x10000000 : (ULONG)n;
        if (!SystemFunction036(p, k)) return FALSE;
        p += k;
        n -= k;
    }
    return TRUE;
}
";

/// Installs wine and makes its prefix.
pub(super) fn prepare(cache: &Path) -> anyhow::Result<()> {
    install_missing("wine", &["wine64", "wine"])?;
    let prefix = cache.join("wp");
    let system = prefix.join("drive_c/windows/system32");
    let library = system.join("bcryptprimitives.dll");
    if library.is_file() {
        return Ok(());
    }
    run(wine(cache, "wineboot").arg("--init").stderr(Stdio::null())).context("wine cannot make its prefix")?;
    let source = cache.join("bcryptprimitives.c");
    fs::write(&source, RANDOM_LIBRARY)?;
    let mut compiler = Command::new("x86_64-w64-mingw32-gcc");
    run(compiler.args(["-shared", "-O2", "-s", "-o"]).arg(&library).arg(&source).arg("-ladvapi32"))
}

fn wine(cache: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("WINEPREFIX", cache.join("wp")).env("WINEDEBUG", "-all");
    command
}

/// A child that does not outlive us.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Makes wine ready and builds the programs.
pub(super) fn build(root: &Path, toolchain: &Toolchain) -> anyhow::Result<()> {
    prepare(toolchain.cache())?;
    toolchain.cargo(root, "build", &["-p", "mcoded", "-p", "mcode-cli", "-p", "mcode-toolhost"])
}

/// Starts the scripted model and asks, with the programs that were built.
pub(super) fn ask(root: &Path, toolchain: &Toolchain) -> anyhow::Result<()> {
    let cache = toolchain.cache();
    let place = tempdir(cache)?;
    let result = ask_in(root, toolchain, &place);
    // The daemon is asked to stop; then everything of this prefix, which is ours alone, is ended.
    run(wine(cache, "wineserver").arg("-k")).ok();
    fs::remove_dir_all(&place).ok();
    result
}

/// Runs the tests of what only this system has, with the programs that were built.
pub(super) fn test(root: &Path, toolchain: &Toolchain) -> anyhow::Result<()> {
    let cache = toolchain.cache();
    let mut command = toolchain.cargo_command(root, "test", &["-p", "mcode-toolhost", "--test", "restricted"]);
    command.env("WINEPREFIX", cache.join("wp")).env("WINEDEBUG", "-all");
    let result = run(command.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", "wine"));
    run(wine(cache, "wineserver").arg("-k")).ok();
    result
}

fn tempdir(cache: &Path) -> anyhow::Result<PathBuf> {
    let place = cache.join(format!("run-{}", std::process::id()));
    fs::create_dir_all(place.join("project"))?;
    Ok(place)
}

fn ask_in(root: &Path, toolchain: &Toolchain, place: &Path) -> anyhow::Result<()> {
    let script = place.join("script.json");
    fs::write(&script, r#"{"replies": [], "fallback": {"text": "hello from wine"}}"#)?;
    let (_model, url) = fake_model(root, &script)?;
    let programs = toolchain.target_dir().join("x86_64-pc-windows-gnu/debug");
    let home = format!("Z:{}", place.join("home").display()).replace('/', "\\");
    let mcode = |arguments: &[&str]| -> anyhow::Result<(bool, String, String)> {
        let mut command = wine(toolchain.cache(), "wine");
        command
            .arg(programs.join("mcode.exe"))
            .args(arguments)
            .env("MCODE_HOME", &home)
            .env("MCODE_DISABLE", "keyring,update,titles")
            .env("ANTHROPIC_BASE_URL", &url)
            .env("ANTHROPIC_API_KEY", "test-key")
            .current_dir(place.join("project"));
        bounded(command, place)
    };
    let (ok, stdout, stderr) = mcode(&["ask", "say hello"])?;
    mcode(&["daemon", "stop"]).ok();
    if ok && stdout.trim() == "hello from wine" {
        return Ok(());
    }
    bail!("mcode.exe ask did not get its answer; stdout: {stdout}\nstderr: {stderr}")
}

/// The scripted model as a program of this system; wine shares the network.
fn fake_model(root: &Path, script: &Path) -> anyhow::Result<(Killed, String)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "-q", "-p", "mcode-testkit", "--bin", "fake-model", "--", "--script"]).arg(script);
    let mut child = command.current_dir(root).stdout(Stdio::piped()).spawn().context("cannot start the fake model")?;
    let mut url = String::new();
    let stdout = child.stdout.take().context("the fake model has no stdout")?;
    let killed = Killed(child);
    BufReader::new(stdout).read_line(&mut url)?;
    if url.trim().is_empty() {
        bail!("the fake model did not start");
    }
    Ok((killed, url.trim().to_owned()))
}

/// Runs a command with a time limit. Output goes to files: a daemon that inherits a pipe would keep it open.
fn bounded(mut command: Command, place: &Path) -> anyhow::Result<(bool, String, String)> {
    let (out, err) = (place.join("stdout"), place.join("stderr"));
    command.stdin(Stdio::null()).stdout(fs::File::create(&out)?).stderr(fs::File::create(&err)?);
    let mut child = Killed(command.spawn().context("cannot start wine")?);
    let deadline = Instant::now() + WINE_TIME_MAX;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break Some(status);
        }
        if Instant::now() > deadline {
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let read = |path: &Path| -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (stdout, mut stderr) = (read(&out)?, read(&err)?);
    if status.is_none() {
        stderr.push_str(&format!("\n(ended after {} s)", WINE_TIME_MAX.as_secs()));
    }
    Ok((status.is_some_and(|status| status.success()), stdout, stderr))
}
