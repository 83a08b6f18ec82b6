//! What has to hold after a daemon was killed and started again, seen through the public interface alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::load::{self, Load};
use crate::daemon::{Output, TestDaemon};

/// What a client was told before the daemon died, and has to find again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Runs that were started: (thread, run, the last seq before it).
    pub runs: Vec<(String, String, u64)>,
    /// Inputs that were taken: (thread, input).
    pub inputs: Vec<(String, String)>,
    /// Events that were shown: (thread, seq, type).
    pub events: Vec<(String, u64, String)>,
    /// Forks that were made.
    pub forks: Vec<String>,
    /// Titles that were given: (thread, title).
    pub titles: Vec<(String, String)>,
}

impl Acknowledged {
    /// Takes in what `ask --detach --output json` printed, if it succeeded.
    pub fn detached(&mut self, output: &Output) -> Option<(String, String)> {
        if output.code != 0 {
            return None;
        }
        let said = output.json();
        let (thread, run) = (text(&said, "thread_id"), text(&said, "run_id"));
        self.runs.push((thread.clone(), run.clone(), number(&said["seq"])));
        Some((thread, run))
    }

    /// Takes in what `threads fork --output json` printed, if it succeeded.
    pub fn forked(&mut self, output: &Output) {
        if output.code == 0 {
            self.forks.push(text(&output.json(), "thread_id"));
        }
    }

    /// Takes in the complete lines that `--output jsonl` printed before its end, whatever that was.
    pub fn shown(&mut self, output: &Output) {
        let complete = output.stdout.rsplit_once('\n').map_or("", |(lines, _)| lines);
        for line in complete.lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else { panic!("not a line of JSON: {line}") };
            let seq = number(&event["seq"]);
            if seq > 0 && event["type"] != "result" {
                self.events.push((text(&event, "thread_id"), seq, text(&event, "type")));
            }
        }
    }

    /// Threads that are named anywhere.
    #[must_use]
    pub fn threads(&self) -> Vec<String> {
        let mut threads: Vec<String> = self
            .runs
            .iter()
            .map(|(thread, ..)| thread)
            .chain(self.inputs.iter().map(|(thread, _)| thread))
            .chain(self.events.iter().map(|(thread, ..)| thread))
            .chain(&self.forks)
            .cloned()
            .collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Threads.
    pub threads: u64,
    /// Events.
    pub events: u64,
    /// Items that were given their end by the recovery.
    pub interrupted: u64,
    /// Facts that a client had been told.
    pub acknowledged: u64,
    /// Approvals that outlived the daemon and were answered afterwards.
    pub answered: u64,
}

/// Panics when anything that was acknowledged is gone, a log has a gap or is damaged, an item has no end or two, a call
/// ran twice or its effect is missing, or a process is left that no thread knows.
#[must_use]
pub fn check(daemon: &TestDaemon, load: &Load, told: &Acknowledged) -> Figures {
    let mut figures = Figures::default();
    let mut threads = told.threads();
    // Commands outlive the daemon; those in the foreground are seen to their end, and then nothing is at work.
    daemon.wait_until("nothing to be at work after a crash", || {
        figures.answered += answer_what_waits(daemon, figures.answered);
        let listed = daemon.mcode(&["threads", "list", "--limit", "20", "--output", "json"]).ok().json();
        let listed = listed["threads"].as_array().cloned().unwrap_or_default();
        threads.extend(listed.iter().map(|thread| text(thread, "thread_id")));
        listed.iter().all(|thread| thread["state"] == "idle")
    });
    let mut living = BTreeSet::new();
    threads.sort_unstable();
    threads.dedup();
    for thread in &threads {
        let (events, title) = events_of(daemon, thread);
        figures.acknowledged += u64::from(told.forks.contains(thread));
        for (_, given) in told.titles.iter().filter(|(of, _)| of == thread) {
            assert_eq!(&title, given, "{thread}: the title that was given is gone");
            figures.acknowledged += 1;
        }
        figures.threads += 1;
        figures.events += events.last().map_or(0, |event| number(&event["seq"]));
        living.extend(one_end_each(thread, &events));
        figures.interrupted += events
            .iter()
            .filter(|event| event["status"] == "interrupted" && event["type"] != "run_status_changed")
            .count() as u64;
        effects_are_there(load, thread, &events);
        figures.acknowledged += acknowledged_is_there(told, thread, &events);
    }
    assert_eq!(load.repeated(), Vec::<String>::new(), "a tool call ran twice");
    let left: BTreeSet<String> =
        leftovers().into_iter().filter(|(_, _, call)| !living.contains(call)).map(said).collect();
    assert_eq!(left, BTreeSet::new(), "processes are left that no thread knows; the daemon's log:\n{}", log(daemon));
    let alive: BTreeSet<String> = leftovers().into_iter().map(|(_, _, call)| call).collect();
    let dead: Vec<&String> = living.difference(&alive).collect();
    assert_eq!(
        dead,
        Vec::<&String>::new(),
        "processes are said to live that do not; the daemon's log:\n{}",
        log(daemon)
    );
    assert_eq!(load.server.problems(), Vec::<String>::new(), "the provider refused a request");
    figures
}

/// Answers the approvals that outlived the daemon, by turns with yes and no.
fn answer_what_waits(daemon: &TestDaemon, before: u64) -> u64 {
    let waiting = daemon.mcode(&["approvals", "list", "--output", "json"]).ok().json();
    let approvals = waiting["approvals"].as_array().cloned().unwrap_or_default();
    for (at, approval) in approvals.iter().enumerate() {
        let word = if (before + at as u64).is_multiple_of(2) { "allow" } else { "deny" };
        drop(daemon.mcode(&["approvals", word, &text(approval, "approval_id")]).ok());
    }
    approvals.len() as u64
}

/// All events of a thread, and its title. The daemon itself reports a gap as damage; here the order and both ends are
/// looked at.
fn events_of(daemon: &TestDaemon, thread: &str) -> (Vec<Value>, String) {
    let shown = daemon.mcode(&["threads", "show", thread, "--output", "json"]).ok().json();
    let events = shown["events"].as_array().cloned().unwrap_or_default();
    let mut before = 0;
    for event in &events {
        let seq = number(&event["seq"]);
        // Checkpoints of a message's text are events too, and not shown.
        assert!(seq > before, "{thread}: seq {seq} after {before}");
        before = seq;
    }
    assert_eq!(events.first().map(|event| number(&event["seq"])), Some(1), "{thread} begins with 1");
    assert_eq!(before, number(&shown["thread"]["last_seq"]), "{thread} is readable to its end");
    (events, text(&shown["thread"], "title"))
}

/// The logs have no gap, and what lists say is what their events say. Panics when anything is not whole.
pub fn is_whole(daemon: &TestDaemon) {
    let output = daemon.mcode(&["doctor", "--db", "--output", "json"]);
    assert_eq!(output.code, 0, "the database is not whole after a crash: {output:#?}");
}

/// Beginnings and ends, and the field that names what began.
const PAIRS: &[(&str, &[&str], &str)] = &[
    ("run_started", &["run_finished"], "run_id"),
    ("turn_started", &["turn_finished"], "turn_id"),
    ("step_started", &["step_finished"], "step_id"),
    ("message_started", &["message_finished", "message_discarded"], "item_id"),
    ("tool_call_started", &["tool_call_finished"], "tool_call_id"),
    ("approval_requested", &["approval_resolved"], "approval_id"),
    ("question_asked", &["question_answered"], "question_id"),
    ("process_started", &["process_exited"], "process_id"),
];

/// Gives the calls whose processes live on.
fn one_end_each(thread: &str, events: &[Value]) -> BTreeSet<String> {
    let mut living = BTreeSet::new();
    for (begin, ends, name) in PAIRS {
        let mut open: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        for event in events {
            let kind = event["type"].as_str().unwrap_or_default();
            let id = text(event, name);
            if kind == "thread_forked" {
                // What was at work at that place is the other thread's, which has the end of it.
                open.retain(|_, counts| *counts != (1, 0));
            } else if kind == *begin {
                assert!(!id.is_empty(), "{begin} without {name}: {event}");
                open.entry(id).or_default().0 += 1;
            } else if ends.contains(&kind) {
                open.entry(id).or_default().1 += 1;
            }
        }
        for (id, counts) in open {
            // The user's messages are complete at once and have no beginning.
            let whole = *begin == "message_started" && counts == (0, 1);
            let lives = *begin == "process_started" && counts == (1, 0);
            if lives {
                let started = events.iter().find(|event| event["type"] == *begin && event[*name] == id.as_str());
                living.extend(started.map(|event| text(event, "tool_call_id")));
            }
            assert!(whole || lives || counts == (1, 1), "{thread}: {begin} {id} has (beginnings, ends) {counts:?}");
        }
    }
    living
}

/// A shell call that is said to be done has left its line.
fn effects_are_there(load: &Load, thread: &str, events: &[Value]) {
    let mut effects: BTreeMap<String, String> = BTreeMap::new();
    for event in events {
        let command = event["arguments"]["command"].as_str().unwrap_or_default();
        let effect = command.split(' ').find(|word| word.starts_with("effect-"));
        if let (Some(effect), true) = (effect, event["type"] == "tool_call_started") {
            effects.insert(text(event, "tool_call_id"), effect.to_owned());
        }
        // A background call is done when its command has begun, which is before the command has written.
        let done = event["type"] == "tool_call_finished" && event["status"] == "done" && !event["exit_code"].is_null();
        if let (true, Some(effect)) = (done, effects.get(&text(event, "tool_call_id"))) {
            assert!(load.has_line(effect), "{thread}: {effect} is said to be done and left no line");
        }
    }
}

fn acknowledged_is_there(told: &Acknowledged, thread: &str, events: &[Value]) -> u64 {
    let mut found = 0;
    for (_, run, seq) in told.runs.iter().filter(|(of, ..)| of == thread) {
        let started = events.iter().find(|event| event["type"] == "run_started" && event["run_id"] == run.as_str());
        let started = started.unwrap_or_else(|| panic!("{thread}: the acknowledged {run} is gone"));
        assert!(number(&started["seq"]) > *seq, "{thread}: {run} begins before its acknowledged place");
        found += 1;
    }
    for (_, input) in told.inputs.iter().filter(|(of, _)| of == thread) {
        let queued = |event: &&Value| event["type"] == "input_queued" && event["input_id"] == input.as_str();
        assert!(events.iter().any(|event| queued(&event)), "{thread}: the acknowledged {input} is gone");
        found += 1;
    }
    for (_, seq, kind) in told.events.iter().filter(|(of, ..)| of == thread) {
        let kept = events.iter().find(|event| number(&event["seq"]) == *seq);
        assert_eq!(
            kept.map(|event| text(event, "type")).as_ref(),
            Some(kind),
            "{thread}: event {seq} was shown as {kind}"
        );
        found += 1;
    }
    found
}

/// The next prompt is taken by the daemon and by the provider, and is answered.
pub fn go_on(daemon: &TestDaemon, load: &Load, dir: &Path, thread: &str) {
    let output = daemon.mcode_in(dir, &["ask", "-t", thread, "--yolo", load::GO_ON]);
    assert_eq!(load.server.problems(), Vec::<String>::new(), "{thread}: the provider refused to go on");
    assert_eq!((output.code, output.stdout.trim()), (0, load::GOING_ON), "{thread} does not go on: {output:#?}");
}

/// Ends the daemon as its user does, which ends everything that it runs. Panics when something is left.
pub fn end_all(daemon: &TestDaemon) {
    drop(daemon.mcode(&["daemon", "stop", "--force"]).ok());
    let left: Vec<String> = leftovers().into_iter().map(said).collect();
    assert_eq!(left, Vec::<String>::new(), "a stop leaves processes; the daemon's log:\n{}", log(daemon));
    daemon.wait_until("the hosts of commands to be gone", || daemon.hosts().is_empty());
}

fn said((pid, line, call): (u32, String, String)) -> String {
    format!("{pid} {line} of {call}")
}

/// Sleeping children of this program's load: number, command line, and tool call.
#[must_use]
pub fn leftovers() -> Vec<(u32, String, String)> {
    let lines = crate::processes::command_lines().map(|(pid, words)| (pid, words.join(" ")));
    lines.filter(|(_, line)| line.contains(load::nap())).map(|(pid, line)| (pid, line, tool_call_of(pid))).collect()
}

/// The tool call whose mark a process carries.
fn tool_call_of(pid: u32) -> String {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let environ = String::from_utf8_lossy(&environ);
    let mark = environ.split('\0').find_map(|variable| variable.strip_prefix("MCODE_TOOL_CALL_ID="));
    mark.unwrap_or("no call").to_owned()
}

/// The log of a daemon that was started by a client.
fn log(daemon: &TestDaemon) -> String {
    std::fs::read_to_string(daemon.home().join("state/mcoded.log")).unwrap_or_default()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

/// A number, also where the JSON of the proto writes it as text.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}
