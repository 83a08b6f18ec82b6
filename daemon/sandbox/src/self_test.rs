//! Whether policies are really held here: a child tries what it must not.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::confine::{self, Strength};
use crate::policy::{Network, Policy};
use crate::process::CommandSpec;
use crate::runner::LocalRunner;

/// How often it is tried when it can not be run.
const TRIES: usize = 3;
/// How long the child may take.
const TIME_MAX: Duration = Duration::from_secs(10);

/// What a command is held to on this machine. A throw-away child tries to write outside its folder and to read what is
/// hidden; if it succeeds at either, or can not do what it may, nothing is claimed.
pub async fn self_test() -> Strength {
    self_test_in(&std::env::temp_dir()).await
}

/// The same with its files in this folder, from which whoever owns it removes what a killed daemon left.
pub async fn self_test_in(folder: &Path) -> Strength {
    let strength = confine::strength();
    if !strength.enforced() {
        return strength;
    }
    let namespaces = matches!(strength, Strength::Enforced { namespaces: true, .. });
    // What is found lasts as long as the daemon, so a machine that is just too busy gets another chance.
    let mut reason = String::new();
    for _ in 0..TRIES {
        match tried(folder, namespaces).await {
            Ok(None) => return strength,
            Ok(Some(fault)) => return Strength::None(fault.to_owned()),
            Err(error) => reason = format!("the self-test could not run: {error}"),
        }
    }
    Strength::None(reason)
}

/// What was not held.
async fn tried(folder: &Path, namespaces: bool) -> io::Result<Option<&'static str>> {
    let stage = tempfile::Builder::new().prefix("mcode-self-test-").tempdir_in(folder)?;
    let root = stage.path().canonicalize()?;
    for name in ["in", "out", "hidden"] {
        std::fs::create_dir(root.join(name))?;
    }
    let policy = Policy {
        write: vec![root.join("in")],
        hidden: vec![root.join("hidden")],
        fixed: vec![root.join("in/fixed")],
        network: Network::Deny,
        temp: root.join("in"),
        ..Policy::default()
    };
    let tries = "echo x > in/a; ln -s ../out in/l; (echo x > out/a; echo x > in/l/b; mkdir hidden/c; echo x > in/fixed) \
                 2>/dev/null; if cat hidden/secret >/dev/null 2>&1; then echo x > in/read; fi; \
                 cat /proc/net/dev > in/net; echo x > in/end";
    for name in ["hidden/secret", "in/fixed"] {
        std::fs::File::create(root.join(name))?;
    }
    let spec = CommandSpec {
        argv: ["/bin/sh", "-c", tries].map(str::to_owned).to_vec(),
        cwd: root.clone(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        stdin: false,
        umask: None,
        policy: Some(std::sync::Arc::new(policy)),
    };
    let mut child = LocalRunner.spawn(&spec).map_err(io::Error::other)?;
    tokio::time::timeout(TIME_MAX, child.wait()).await.map_err(io::Error::other)??;
    let there = |name: &str| root.join(name).exists();
    Ok(if !there("in/a") || !there("in/end") {
        Some("a sandboxed command could not write where it may")
    } else if there("out/a") || there("out/b") || there("hidden/c") {
        Some("a sandboxed command could write where it must not")
    } else if there("in/read") {
        Some("a sandboxed command could read what is hidden")
    } else if namespaces && std::fs::metadata(root.join("in/fixed"))?.len() > 0 {
        Some("a sandboxed command could write what is fixed")
    } else if namespaces && std::fs::read_to_string(root.join("in/net"))?.lines().skip(2).any(|line| !is_loopback(line))
    {
        Some("a sandboxed command had a network though it must not")
    } else {
        None
    })
}

/// Whether a line of `/proc/net/dev` is about the loopback.
fn is_loopback(line: &str) -> bool {
    line.trim_start().starts_with("lo:")
}
