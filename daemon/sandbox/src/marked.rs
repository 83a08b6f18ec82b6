//! Commands that carry a mark in their environment, so that they are known again when nothing else is recorded.
//!
//! Between the start of a process and the commit of its number a daemon can die. What it had started by then is found
//! by the tool call whose id it carries.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;

#[cfg(target_os = "linux")]
use crate::process::ProcessIdentity;

/// The variable that every command of a tool call carries: the id of the call.
pub const TOOL_CALL_VARIABLE: &str = "MCODE_TOOL_CALL_ID";

/// Times that the processes are looked through: one that is found may have started another meanwhile.
#[cfg(target_os = "linux")]
const LOOKS_MAX: u32 = 5;

/// Ends the processes of an earlier daemon that carry one of these tool call ids, each with its session. Returns how
/// many sessions were ended. Where the OS does not tell the environment of processes, nothing is found.
pub async fn kill_marked(tool_call_ids: Vec<String>) -> usize {
    if tool_call_ids.is_empty() {
        return 0;
    }
    end_marked(tool_call_ids).await
}

#[cfg(not(target_os = "linux"))]
async fn end_marked(_tool_call_ids: Vec<String>) -> usize {
    0
}

#[cfg(target_os = "linux")]
async fn end_marked(tool_call_ids: Vec<String>) -> usize {
    let mut ended = 0;
    for _ in 0..LOOKS_MAX {
        let ids = tool_call_ids.clone();
        let sessions = tokio::task::spawn_blocking(move || marked_sessions(&ids)).await.unwrap_or_default();
        if sessions.is_empty() {
            break;
        }
        for leader in sessions {
            ended += usize::from(crate::runner::end_session(leader).await);
        }
    }
    ended
}

/// The sessions with a living process that carries one of the ids, by their leaders; this program's own left out.
///
/// Every command begins a session, so whatever is in the session of a marked process was started by that command.
#[cfg(target_os = "linux")]
fn marked_sessions(ids: &[String]) -> Vec<ProcessIdentity> {
    let marks: Vec<Vec<u8>> = ids.iter().map(|id| format!("{TOOL_CALL_VARIABLE}={id}").into_bytes()).collect();
    let rows = crate::proc_table::all();
    let own = std::process::id();
    let own_session = rows.iter().find(|row| row.pid == own).map_or(own, |row| row.session);
    let sessions: BTreeSet<u32> = rows
        .iter()
        .filter(|row| !row.ended && row.session != own_session && row.session > 1)
        .filter(|row| {
            // Processes of other users do not show it, and are none of ours.
            std::fs::read(format!("/proc/{}/environ", row.pid)).is_ok_and(|environ| carries(&environ, &marks))
        })
        .map(|row| row.session)
        .collect();
    // The number of a session is not given out again while it has members, also when its leader is gone.
    let began = |pid: u32| rows.iter().find(|row| row.pid == pid).map_or(0, |row| row.started_ticks);
    sessions.into_iter().map(|pid| ProcessIdentity { pid, started_ticks: began(pid) }).collect()
}

#[cfg(target_os = "linux")]
fn carries(environ: &[u8], marks: &[Vec<u8>]) -> bool {
    environ.split(|byte| *byte == 0).any(|variable| marks.iter().any(|mark| mark == variable))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_id_counts() {
        let environ = b"PATH=/bin\0MCODE_TOOL_CALL_ID=tc_12\0HOME=/h\0";
        let mark = |id: &str| vec![format!("{TOOL_CALL_VARIABLE}={id}").into_bytes()];
        assert!(carries(environ, &mark("tc_12")));
        assert!(!carries(environ, &mark("tc_1")));
        assert!(!carries(environ, &mark("tc_123")));
    }
}
