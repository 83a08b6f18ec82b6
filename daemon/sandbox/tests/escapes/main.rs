//! Ways out of the sandbox, each really tried: bare, where it must do its harm (so that the try is a real one), and
//! sandboxed, where it must not.
//!
//! What needs namespaces is tried with them where this machine has them; the rest is tried both with them and with
//! Landlock alone. What a mount namespace would have fixed must at least be told where there is none.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod files;
mod layouts;
mod stage;
mod system;
mod work;

use mcode_sandbox::{Network, Strength, self_test};

use stage::{Held, Stage, Try};

/// Runs every try of a table, and tells all that were not as they should be.
async fn all(table: &[Try]) {
    tried(table, false).await;
}

/// The same, with deny rules on files of the project or without.
async fn tried(table: &[Try], rules: bool) {
    let strength = self_test().await;
    let Strength::Enforced { namespaces, processes, memory, .. } = strength else {
        panic!("this kernel can not hold a sandbox: {strength}")
    };
    let mut faults = Vec::new();
    let root = rustix::process::getuid().is_root();
    for attempt in table.iter().filter(|attempt| root || !attempt.root) {
        let bare = Stage::new().attempt(attempt, None).await;
        if !bare.harmed {
            faults.push(format!("{}: does no harm even without a sandbox: {}", attempt.name, bare.output));
        }
        for alone in [false, true] {
            let mut stage = Stage::new();
            stage.rules = rules;
            let mut policy = stage.policy();
            policy.without_namespaces = alone;
            policy.network = if attempt.offline { Network::Deny } else { Network::Allow };
            let covered = !alone && namespaces;
            let held = match attempt.held {
                Held::Always => true,
                Held::WithNamespaces | Held::WithNamespacesElseTold => covered,
                Held::WithProcessLimit => processes && (covered || root),
                Held::WithMemoryLimit => memory,
            };
            if !held && attempt.held != Held::WithNamespacesElseTold {
                continue;
            }
            let found = stage.attempt(attempt, Some(policy)).await;
            if found.harmed && held {
                faults.push(format!("{} (Landlock alone: {alone}): NOT HELD: {}", attempt.name, found.output));
            }
            if found.harmed && !held && found.told.is_empty() {
                faults.push(format!("{} (Landlock alone: {alone}): NOT TOLD: {}", attempt.name, found.output));
            }
        }
    }
    assert!(faults.is_empty(), "of {} tries:\n{}", table.len(), faults.join("\n"));
}

#[tokio::test]
async fn nothing_is_written_outside() {
    all(files::WRITES).await;
}

#[tokio::test]
async fn nothing_hidden_is_read() {
    all(files::READS).await;
}

#[tokio::test]
async fn nothing_fixed_is_changed() {
    all(files::FIXED).await;
}

#[tokio::test]
async fn nothing_planted_is_left_where_it_would_be_obeyed() {
    all(files::PLANTED).await;
}

#[tokio::test]
async fn what_deny_rules_name_is_neither_read_nor_changed() {
    tried(files::DENIED, true).await;
}

#[tokio::test]
async fn no_other_process_is_touched() {
    all(system::PROCESSES).await;
}

#[tokio::test]
async fn there_is_no_network_when_it_is_denied() {
    all(system::NETWORK).await;
}

#[tokio::test]
async fn no_more_is_taken_than_was_given() {
    all(system::QUOTAS).await;
}

#[test]
fn the_table_is_as_long_as_it_is_said_to_be() {
    let (of_files, of_system) = (
        [files::WRITES, files::READS, files::FIXED, files::DENIED, files::PLANTED],
        [system::PROCESSES, system::NETWORK, system::QUOTAS],
    );
    let tables: Vec<&[Try]> = of_files.into_iter().chain(of_system).collect();
    let mut names: Vec<&str> = tables.iter().flat_map(|table| table.iter().map(|attempt| attempt.name)).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "two tries have one name");
    assert!(count >= 100, "{count} tries");
}
