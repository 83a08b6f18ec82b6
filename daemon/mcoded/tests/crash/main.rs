//! The real daemon, killed while it works. The long version is `cargo xtask crash`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use mcode_testkit::TestDaemon;
use mcode_testkit::crash::{rounds, seed};

#[test]
fn a_crash_loses_nothing_and_repeats_nothing() {
    const ROUNDS: u32 = 20;
    let report = rounds::run(TestDaemon::prepare(), ROUNDS, seed(), |_| {});
    assert_eq!(report.rounds, ROUNDS);
    assert!(report.kills >= ROUNDS, "{report:#?}");
    assert!(report.seen.interrupted > 0, "no kill hit any work: {report:#?}");
    assert!(report.seen.answered > 0, "no approval outlived a daemon: {report:#?}");
    assert!(report.seen.acknowledged > 0 && report.effects > 0 && report.went_on >= ROUNDS, "{report:#?}");
}
