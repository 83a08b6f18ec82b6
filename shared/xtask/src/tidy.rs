//! `cargo xtask tidy`: what the compiler does not check about the shape of the tree.

mod rust_source;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::{codegen, deps};

/// Lines of a source file (tests left out) that bring a warning …
const FILE_LINES_WARN: usize = 500;
/// … and those that fail.
const FILE_LINES_MAX: usize = 800;
/// Lines of one function outside tests.
const FUNCTION_LINES_MAX: usize = 70;
/// Packages in Cargo.lock. Raised on purpose only.
const LOCK_PACKAGES_MAX: usize = 560;
/// What a visitor sees at the top, and nothing else.
const TOP_LEVEL: [&str; 10] =
    ["Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "clients", "daemon", "launchd", "proto", "shared", "systemd"];
/// Module names that say nothing.
const EMPTY_NAMES: [&str; 4] = ["utils", "common", "helpers", "misc"];
/// Written in two halves, so that this file does not hold them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];

#[derive(Default)]
struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// Prints warnings, and fails with the list of everything that has to be mended.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let files = tracked(root)?;
    let mut findings = Findings::default();
    top_level(&files, &mut findings);
    for file in &files {
        check_file(root, file, &mut findings);
    }
    for package in deps::metadata(root)?.packages {
        if package.license.as_deref() != Some("Apache-2.0") {
            findings.errors.push(format!("{}: its Cargo.toml has no license.workspace = true", package.name));
        }
    }
    lock_size(root, &mut findings)?;
    if let Err(error) = codegen::run(root, true) {
        findings.errors.push(format!("{error:#}"));
    }
    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    if !findings.errors.is_empty() {
        bail!("{} things are untidy:\n- {}", findings.errors.len(), findings.errors.join("\n- "));
    }
    println!("tidy: {} files are in order", files.len());
    Ok(())
}

/// Files that git knows, or would know with the next commit.
fn tracked(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<String> =
        names.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

fn top_level(files: &[String], findings: &mut Findings) {
    let found: BTreeSet<&str> =
        files.iter().filter_map(|file| file.split('/').next()).filter(|name| !name.starts_with('.')).collect();
    for name in found.iter().filter(|name| !TOP_LEVEL.contains(name)) {
        findings.errors.push(format!("{name}: does not belong at the top level"));
    }
    for name in TOP_LEVEL.iter().filter(|name| !found.contains(*name)) {
        findings.errors.push(format!("{name}: is missing at the top level"));
    }
}

fn lock_size(root: &Path, findings: &mut Findings) -> anyhow::Result<()> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    if packages > LOCK_PACKAGES_MAX {
        findings.errors.push(format!("Cargo.lock: {packages} packages, at most {LOCK_PACKAGES_MAX} are agreed"));
    }
    Ok(())
}

fn check_file(root: &Path, file: &str, findings: &mut Findings) {
    if file.starts_with("proto/src/gen/") || file == "Cargo.lock" || file.contains("/fixtures/") {
        return;
    }
    // What is not text has nothing to check.
    let Ok(text) = fs::read_to_string(root.join(file)) else { return };
    machine_paths(root, file, &text, findings);
    let written_by_hand = ["rs", "toml", "proto", "md", "py", "service", "socket", "plist"];
    if file.starts_with(".ci/") || Path::new(file).extension().is_some_and(|e| written_by_hand.iter().any(|w| e == *w))
    {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
                findings.errors.push(format!("{file}:{}: {word} (finish it, or open an issue)", number + 1));
            }
        }
    }
    if Path::new(file).extension().is_some_and(|extension| extension == "rs") {
        check_rust(file, &text, findings);
    }
}

fn machine_paths(root: &Path, file: &str, text: &str, findings: &mut Findings) {
    let here = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    let here = here.to_string_lossy().into_owned();
    let home = std::env::var("HOME").unwrap_or_default();
    let machine =
        [format!("{here}/"), format!("{home}/.cargo"), format!("{home}/.rustup"), concat!("/wo", "rk/").into()];
    for (number, line) in text.lines().enumerate() {
        if machine.iter().any(|path| path.len() > 3 && line.contains(path.as_str())) {
            findings.errors.push(format!("{file}:{}: a path of one machine", number + 1));
        }
    }
}

fn check_rust(file: &str, text: &str, findings: &mut Findings) {
    let starts_with_doc = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!"))
        .is_some_and(|line| line.starts_with("//!"));
    if !starts_with_doc {
        findings.errors.push(format!("{file}: does not begin with //! and what it is for"));
    }
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    for name in EMPTY_NAMES {
        let declared = text.lines().any(|line| {
            let line = line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            line.strip_prefix("mod ").is_some_and(|rest| rest.trim_end_matches([';', '{', ' ']) == name)
        });
        if stem == name || declared {
            findings.errors.push(format!("{file}: a module called {name} says nothing about what is in it"));
        }
    }
    if file.contains("/tests/") || file.ends_with("/tests.rs") {
        return;
    }
    let source = rust_source::Source::new(text);
    let lines = source.lines_without_tests();
    if lines > FILE_LINES_MAX {
        findings.errors.push(format!("{file}: {lines} lines without tests, at most {FILE_LINES_MAX}"));
    } else if lines > FILE_LINES_WARN {
        findings.warnings.push(format!("{file}: {lines} lines without tests, {FILE_LINES_WARN} are enough"));
    }
    for function in source.functions() {
        if function.lines > FUNCTION_LINES_MAX {
            findings.errors.push(format!(
                "{file}:{}: fn {} has {} lines, at most {FUNCTION_LINES_MAX}",
                function.first_line, function.name, function.lines
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(file: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_rust(file, text, &mut findings);
        findings.errors
    }

    #[test]
    fn a_long_function_is_found_and_a_long_test_is_not() {
        let body = "    let x = \"}\";\n".repeat(FUNCTION_LINES_MAX);
        let text = format!("//! Doc.\nfn long() {{\n{body}}}\n");
        assert_eq!(errors_of("a/src/x.rs", &text), ["a/src/x.rs:2: fn long has 72 lines, at most 70"]);
        let text = format!("//! Doc.\n#[cfg(test)]\nmod tests {{\nfn long() {{\n{body}}}\n}}\n");
        assert_eq!(errors_of("a/src/x.rs", &text), Vec::<String>::new());
    }

    #[test]
    fn a_file_needs_a_purpose_and_a_name() {
        assert_eq!(errors_of("a/src/x.rs", "fn a() {}\n").len(), 1);
        assert_eq!(errors_of("a/src/utils.rs", "//! Doc.\n").len(), 1);
        assert_eq!(errors_of("a/src/x.rs", "//! Doc.\npub(crate) mod helpers;\n").len(), 1);
    }

    #[test]
    fn a_long_file_is_refused() {
        let text = format!("//! Doc.\n{}", "const A: u8 = 1;\n".repeat(FILE_LINES_MAX));
        assert_eq!(errors_of("a/src/x.rs", &text), ["a/src/x.rs: 801 lines without tests, at most 800"]);
    }

    #[test]
    fn strangers_at_the_top_are_named() {
        let mut findings = Findings::default();
        let mut files: Vec<String> = TOP_LEVEL.iter().map(|name| format!("{name}/x")).collect();
        files.push("notes.txt".to_owned());
        files.push(".hidden/x".to_owned());
        top_level(&files, &mut findings);
        assert_eq!(findings.errors, ["notes.txt: does not belong at the top level"]);
    }
}
