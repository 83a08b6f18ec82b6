//! A process as lists show it.

use std::time::Duration;

use mcode_ids::{ProcessId, ThreadId, ToolCallId};
use mcode_sandbox::hosted::Usage;

use super::process::{Process, Stage};
use super::table::ProcessTable;

/// A process that runs, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    /// Its id.
    pub process_id: ProcessId,
    /// The call that started it.
    pub tool_call_id: ToolCallId,
    /// The OS's number of the command.
    pub pid: u32,
    /// The command, shortened.
    pub command: String,
    /// How far it has come.
    pub stage: Stage,
    /// Exit status, when the command has ended by itself.
    pub exit_code: Option<i32>,
    /// Whether it outlives its call.
    pub background: bool,
    /// Since its start.
    pub age: Duration,
    /// What its processes use.
    pub usage: Usage,
}

impl Process {
    /// Where it stands now. Looks at all processes of the machine.
    #[must_use]
    pub fn row(&self) -> ProcessRow {
        ProcessRow {
            process_id: self.process_id,
            tool_call_id: self.tool_call_id,
            pid: self.identity().pid,
            command: self.command.clone(),
            stage: self.stage(),
            exit_code: self.end().and_then(|end| end.code()),
            background: self.is_background(),
            age: self.age(),
            usage: self.usage(),
        }
    }
}

impl ProcessTable {
    /// The processes of a thread that run, oldest first. Blocking: it looks at all processes of the machine.
    #[must_use]
    pub fn rows(&self, thread: ThreadId) -> Vec<ProcessRow> {
        let all = self.list(thread);
        all.iter().filter(|process| process.stage() < Stage::Gone).map(|process| process.row()).collect()
    }
}

/// What processes use, in words; empty where the OS does not tell.
pub(super) fn usage_words(usage: &Usage) -> String {
    if usage.processes == 0 {
        return String::new();
    }
    let (cpu, megabytes) = (usage.cpu_ms as f64 / 1000.0, usage.rss_bytes as f64 / 1e6);
    format!(", {} processes, {cpu:.1} s of CPU, {megabytes:.0} MB", usage.processes)
}
