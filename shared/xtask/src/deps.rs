//! `cargo xtask deps`: which crate may know which.
//!
//! [`EDGES`] is the table of the architecture as code. An edge in a Cargo.toml that is not listed fails; a listed edge
//! that nobody uses is a warning. [`EXCLUSIVE`] keeps third-party crates behind the border that owns them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

/// Workspace crates that each crate may depend on, in reading order.
const EDGES: &[(&str, &[&str])] = &[
    ("mcode-proto", &[]),
    ("mcode-ids", &[]),
    ("mcode-env", &[]),
    ("mcode-text", &[]),
    ("mcode-git", &[]),
    ("mcode-config", &["mcode-env"]),
    ("mcode-endpoint", &["mcode-env"]),
    ("mcode-testkit", &[]),
    ("xtask", &["mcode-testkit"]),
    ("mcode-events", &["mcode-ids"]),
    ("mcode-store", &["mcode-ids", "mcode-env", "mcode-events"]),
    ("mcode-histories", &["mcode-ids", "mcode-env", "mcode-text", "mcode-events"]),
    ("mcode-models", &["mcode-ids", "mcode-events"]),
    ("mcode-providers", &["mcode-ids", "mcode-env", "mcode-text", "mcode-events", "mcode-config", "mcode-models"]),
    ("mcode-permissions", &["mcode-git", "mcode-events", "mcode-config"]),
    ("mcode-sandbox", &["mcode-git"]),
    ("mcode-toolhost", &["mcode-sandbox"]),
    ("mcode-checkpoints", &["mcode-env", "mcode-git"]),
    ("mcode-tools", &["mcode-ids", "mcode-env", "mcode-events", "mcode-text", "mcode-permissions", "mcode-sandbox"]),
    (
        "mcode-agent",
        &["mcode-ids", "mcode-env", "mcode-events", "mcode-text", "mcode-models", "mcode-tools", "mcode-permissions"],
    ),
    (
        "mcode-threads",
        &[
            "mcode-ids",
            "mcode-env",
            "mcode-events",
            "mcode-git",
            "mcode-config",
            "mcode-store",
            "mcode-models",
            "mcode-tools",
            "mcode-permissions",
            "mcode-checkpoints",
            "mcode-histories",
            "mcode-agent",
        ],
    ),
    (
        "mcode-server",
        &[
            "mcode-ids",
            "mcode-env",
            "mcode-text",
            "mcode-events",
            "mcode-proto",
            "mcode-models",
            "mcode-sandbox",
            "mcode-threads",
        ],
    ),
    (
        "mcoded",
        &[
            "mcode-env",
            "mcode-text",
            "mcode-config",
            "mcode-endpoint",
            "mcode-store",
            "mcode-models",
            "mcode-providers",
            "mcode-permissions",
            "mcode-sandbox",
            "mcode-tools",
            "mcode-threads",
            "mcode-server",
        ],
    ),
    ("mcode-client", &["mcode-env", "mcode-text", "mcode-endpoint", "mcode-proto"]),
    ("mcode-cli", &["mcode-env", "mcode-text", "mcode-config", "mcode-endpoint", "mcode-proto", "mcode-client"]),
];

/// Edges of `[dev-dependencies]` beside those above: the testkit for everybody, everything for the testkit, and these.
const DEV_EDGES: &[(&str, &str)] =
    &[("mcoded", "mcode-client"), ("mcode-server", "mcode-client"), ("mcode-histories", "mcode-store")];

/// The crate that is for tests only.
const TESTKIT: &str = "mcode-testkit";

/// Third-party crates that only these may use (tests excepted).
const EXCLUSIVE: &[(&str, &[&str])] = &[
    // Histories reads the databases of others, never ours.
    ("rusqlite", &["mcode-store", "mcode-histories"]),
    ("tar", &["mcode-store"]),
    ("fuzzy-matcher", &["mcode-store"]),
    ("tonic", &["mcode-proto", "mcode-endpoint", "mcode-server", "mcode-client", "mcode-cli", "mcoded"]),
    ("tonic-prost", &["mcode-proto"]),
    ("tonic-health", &["mcode-endpoint", "mcode-server"]),
    ("tonic-reflection", &["mcode-server"]),
    ("tonic-types", &["mcode-server", "mcode-client"]),
    ("tonic-prost-build", &["xtask"]),
    ("protox", &["xtask"]),
    ("prost", &["mcode-proto", "mcode-server", "mcode-client"]),
    ("prost-types", &["mcode-proto", "mcode-server", "mcode-client", "mcode-cli"]),
    ("prost-reflect", &["mcode-client"]),
    ("reqwest", &["mcode-providers"]),
    ("aws-config", &["mcode-providers"]),
    ("google-cloud-auth", &["mcode-providers"]),
    ("aws-credential-types", &["mcode-providers"]),
    ("aws-sigv4", &["mcode-providers"]),
    ("aws-smithy-eventstream", &["mcode-providers", "mcode-testkit"]),
    ("aws-smithy-runtime-api", &["mcode-providers"]),
    ("aws-smithy-types", &["mcode-providers", "mcode-testkit"]),
    ("url", &["mcode-providers", "mcode-testkit"]),
    ("keyring", &["mcode-providers"]),
    ("sha2", &["mcode-providers", "mcode-testkit"]),
    ("open", &["mcode-cli"]),
    ("rustls", &["mcode-providers", "mcoded"]),
    ("clap", &["mcoded", "mcode-cli", "xtask"]),
    ("clap_complete", &["mcode-cli"]),
    ("anyhow", &["mcoded", "mcode-cli", "mcode-testkit", "xtask"]),
    ("tracing-subscriber", &["mcoded"]),
    // The server only reads the time in an id; making ids is banned by .clippy.toml.
    ("uuid", &["mcode-ids", "mcode-env", "mcode-server"]),
    ("rand", &["mcode-env"]),
    ("directories", &["mcode-env"]),
    ("toml", &["mcode-config", "xtask"]),
    ("toml_edit", &["mcode-config"]),
    ("listenfd", &["mcode-endpoint"]),
    ("interprocess", &["mcode-endpoint"]),
    ("hyper-util", &["mcode-endpoint"]),
    ("tower", &["mcode-endpoint"]),
    ("tree-sitter", &["mcode-permissions"]),
    ("tree-sitter-bash", &["mcode-permissions"]),
    ("ignore", &["mcode-tools", "mcode-checkpoints"]),
    ("zstd", &["mcode-checkpoints"]),
    ("grep-searcher", &["mcode-tools"]),
    ("grep-regex", &["mcode-tools"]),
    ("grep-matcher", &["mcode-tools"]),
    ("globset", &["mcode-tools", "mcode-permissions", "mcode-sandbox"]),
    ("image", &["mcode-providers", "mcode-tools"]),
];

#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    kind: Option<String>,
}

/// What cargo knows about the workspace's own crates.
pub(crate) fn metadata(root: &Path) -> anyhow::Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata gave something else than expected")
}

/// Fails on the first run with an unlisted edge; prints everything it finds.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let metadata = metadata(root)?;
    let findings = check(&metadata.packages);
    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    if !findings.errors.is_empty() {
        bail!("edges that the table in shared/xtask/src/deps.rs does not have:\n- {}", findings.errors.join("\n- "));
    }
    println!("deps: {} crates keep to the table", metadata.packages.len());
    Ok(())
}

#[derive(Default)]
struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
}

fn check(packages: &[Package]) -> Findings {
    let mut findings = Findings::default();
    let table: BTreeMap<&str, BTreeSet<&str>> =
        EDGES.iter().map(|(name, allowed)| (*name, allowed.iter().copied().collect())).collect();
    let own: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    for package in packages {
        let name = package.name.as_str();
        let Some(allowed) = table.get(name) else {
            findings.errors.push(format!("{name} is not in the table"));
            continue;
        };
        check_package(package, allowed, &own, &mut findings);
    }
    for name in table.keys().filter(|name| !own.contains(*name)) {
        findings.warnings.push(format!("{name} is in the table but not in the workspace"));
    }
    findings
}

fn check_package(package: &Package, allowed: &BTreeSet<&str>, own: &BTreeSet<&str>, findings: &mut Findings) {
    let name = package.name.as_str();
    let mut used = BTreeSet::new();
    for dependency in &package.dependencies {
        let other = dependency.name.as_str();
        let dev = dependency.kind.as_deref() == Some("dev");
        if own.contains(other) {
            used.insert(other);
            let for_tests = dev && (name == TESTKIT || other == TESTKIT || DEV_EDGES.contains(&(name, other)));
            if !allowed.contains(other) && !for_tests {
                let kind = if dev { "[dev-dependencies] " } else { "" };
                findings.errors.push(format!("{kind}{name} -> {other}"));
            }
        } else if !dev
            && let Some((_, owners)) = EXCLUSIVE.iter().find(|(exclusive, _)| *exclusive == other)
            && !owners.contains(&name)
        {
            findings.errors.push(format!("{name} -> {other}, which belongs to {}", owners.join(", ")));
        }
    }
    for unused in allowed.difference(&used) {
        findings.warnings.push(format!("{name} -> {unused} is listed and not used"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).to_owned(), kind: kind.map(str::to_owned) })
            .collect();
        Package { name: name.to_owned(), license: None, dependencies }
    }

    #[test]
    fn an_unlisted_edge_and_a_borrowed_crate_are_errors() {
        let packages = [
            package("mcode-agent", &[("mcode-store", None), ("rusqlite", None), ("mcode-testkit", None)]),
            package("mcode-store", &[("rusqlite", None), ("mcode-testkit", Some("dev"))]),
            package("mcode-testkit", &[]),
            package("stranger", &[]),
        ];
        assert_eq!(
            check(&packages).errors,
            [
                "mcode-agent -> mcode-store",
                "mcode-agent -> rusqlite, which belongs to mcode-store, mcode-histories",
                "mcode-agent -> mcode-testkit",
                "stranger is not in the table",
            ]
        );
    }

    #[test]
    fn an_unused_edge_is_a_warning() {
        let warnings = check(&[package("mcode-events", &[])]).warnings;
        assert!(warnings.contains(&"mcode-events -> mcode-ids is listed and not used".to_owned()), "{warnings:?}");
    }
}
