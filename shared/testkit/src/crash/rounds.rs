//! Rounds of load, `kill -9`, autostart and a look at what is left.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::aftermath::{self, Acknowledged, Figures};
use super::load::{LOAD, Load};
use super::{FailedRound, Moments};
use crate::daemon::{Running, TestDaemon};

/// The kill comes up to this long after the load was accepted; the whole programme takes about as long.
const WITHIN: Duration = Duration::from_millis(2500);
/// A second kill comes up to this long after the next daemon was asked for.
const WITHIN_RECOVERY: Duration = Duration::from_millis(250);
/// After so many rounds the daemon is stopped, which ends what its threads run in the background.
const ROUNDS_BEFORE_A_STOP: u32 = 5;
/// Threads that are gone on with before a round makes a new one.
const THREADS_KEPT: usize = 6;

/// What all rounds came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Rounds.
    pub rounds: u32,
    /// Kills, those during a recovery included.
    pub kills: u32,
    /// Kills that hit a daemon while it recovered.
    pub kills_in_recovery: u32,
    /// What was looked at, over all rounds.
    pub seen: Figures,
    /// Shell calls that left a line.
    pub effects: u64,
    /// Prompts that were answered after a crash.
    pub went_on: u32,
}

/// Runs `rounds` rounds on a daemon that only ever starts by autostart. Panics when anything is not as it has to be.
#[must_use]
pub fn run(mut daemon: TestDaemon, rounds: u32, seed: u64, mut tell: impl FnMut(&Report)) -> Report {
    let load = Load::start();
    daemon.use_server(&load.server);
    let mut chance = Moments(seed | 1);
    let mut report = Report::default();
    let mut threads: Vec<String> = Vec::new();
    for round in 0..rounds {
        let failed = FailedRound { seed, round };
        let told = crash(&daemon, &load, &mut chance, &threads, round, &mut report);
        let seen = aftermath::check(&daemon, &load, &told);
        report.seen.threads += seen.threads;
        report.seen.events += seen.events;
        report.seen.interrupted += seen.interrupted;
        report.seen.acknowledged += seen.acknowledged;
        report.seen.answered += seen.answered;
        for thread in told.threads() {
            aftermath::go_on(&daemon, &load, &load.workspace.path(), &thread);
            report.went_on += 1;
            threads.retain(|known| *known != thread);
            threads.push(thread);
        }
        if threads.len() > THREADS_KEPT {
            threads.drain(..threads.len() - THREADS_KEPT);
        }
        // What runs in the background adds up, and has to end some time.
        if round % ROUNDS_BEFORE_A_STOP == ROUNDS_BEFORE_A_STOP - 1 {
            aftermath::is_whole(&daemon);
            aftermath::end_all(&daemon);
        }
        report.rounds = round + 1;
        report.effects = load.lines() as u64;
        tell(&report);
        std::mem::forget(failed);
    }
    aftermath::end_all(&daemon);
    report
}

/// One round up to the next daemon; what clients were told before the kill.
fn crash(
    daemon: &TestDaemon,
    load: &Load,
    chance: &mut Moments,
    threads: &[String],
    round: u32,
    report: &mut Report,
) -> Acknowledged {
    let dir = load.workspace.path();
    let mut told = Acknowledged::default();
    let prompt = format!("round {round}: {LOAD}");
    // Every second round waits for approvals: those that are open when the daemon dies are answered by the next.
    let approve = if chance.one_in(2) { "ask" } else { "all" };
    let watched = match threads.first() {
        Some(thread) => daemon.spawn_mcode(&dir, &["ask", "-t", thread, "--yolo", "--output", "jsonl", &prompt]),
        None => daemon.spawn_mcode(&dir, &["ask", "--yolo", "--output", "jsonl", &prompt]),
    };
    let mut detach = vec!["ask", "--detach", "--output", "json", "--approve", approve];
    if let (Some(thread), true) = (threads.get(1), chance.one_in(2)) {
        detach.extend(["-t", thread]);
    }
    detach.push(&prompt);
    let started = told.detached(&daemon.mcode_in(&dir, &detach).ok());
    let (thread, run) = started.unwrap_or_default();
    let steer =
        chance.one_in(2).then(|| daemon.spawn_mcode(&dir, &["runs", "steer", &run, "also this", "--output", "json"]));
    let title = format!("title of round {round}");
    // A thread that nobody works in any more, and one that is at work.
    let renamed =
        threads.get(2).map(|thread| (thread, daemon.spawn_mcode(&dir, &["threads", "rename", thread, &title])));
    let fork = threads.get(usize::from(chance.one_in(2))).filter(|_| chance.one_in(3));
    let fork = fork.map(|thread| daemon.spawn_mcode(&dir, &["threads", "fork", thread, "--output", "json"]));
    // Not a wait for anything: the random moment is the point.
    std::thread::sleep(chance.next_within(WITHIN));
    let client_first = chance.one_in(2);
    let mut watched = watched;
    if client_first {
        watched.kill9();
    }
    report.kills += kill_daemons(daemon);
    watched.kill9();
    told.shown(&watched.output());
    if let Some(steer) = steer {
        steered(&mut told, &thread, steer);
    }
    if let Some((thread, mut renamed)) = renamed {
        renamed.kill9();
        if renamed.output().code == 0 {
            told.titles.push((thread.clone(), title));
        }
    }
    if let Some(mut fork) = fork {
        fork.kill9();
        told.forked(&fork.output());
    }
    kill_the_rest(daemon);
    if chance.one_in(4) {
        let starters = [["daemon", "status"], ["threads", "list"]].map(|words| daemon.spawn_mcode(&dir, &words));
        std::thread::sleep(chance.next_within(WITHIN_RECOVERY));
        let hit = kill_daemons(daemon);
        report.kills += hit;
        report.kills_in_recovery += hit;
        drop(starters);
        kill_the_rest(daemon);
    }
    told
}

/// A steering that was answered before the end is remembered; one that was cut off is not.
fn steered(told: &mut Acknowledged, thread: &str, mut steer: Running) {
    steer.kill9();
    let output = steer.output();
    if output.code == 0 {
        let input = output.json()["input_id"].as_str().unwrap_or_default().to_owned();
        assert!(!input.is_empty(), "an accepted input has an id: {output:#?}");
        told.inputs.push((thread.to_owned(), input));
    }
}

/// Kills every `mcoded` of this home; what they started lives on. A client may be starting another one meanwhile.
fn kill_daemons(daemon: &TestDaemon) -> u32 {
    let found = daemons(daemon).into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    found.map(|pid| u32::from(kill_process(pid, Signal::KILL).is_ok())).sum()
}

/// Kills until no daemon is left: for when no client is left that could start one.
fn kill_the_rest(daemon: &TestDaemon) {
    daemon.wait_until("the killed daemon to be gone", || {
        kill_daemons(daemon);
        // A process that is just ending is not found any more and still holds its socket.
        daemons(daemon).is_empty() && UnixStream::connect(daemon.socket()).is_err()
    });
}

fn daemons(daemon: &TestDaemon) -> Vec<u32> {
    let is_daemon =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "mcoded");
    daemon.processes().into_iter().filter(is_daemon).collect()
}
