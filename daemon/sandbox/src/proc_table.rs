//! What Linux tells of running processes, read from `/proc/<pid>/stat`.

use std::collections::BTreeSet;
use std::io::Read;

use crate::process::ProcessIdentity;

/// One process, as far as its kin matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    pub(crate) started_ticks: u64,
    /// Ended, but not yet waited for.
    pub(crate) ended: bool,
}

/// Longest line of `stat`: a name of 64 bytes and some 50 numbers.
const STAT_BYTES_MAX: usize = 2048;

/// The row of one process; `None` when there is none.
pub(crate) fn row(pid: u32) -> Option<Row> {
    // One read for the whole line: this is done for every process of the machine.
    let mut bytes = [0; STAT_BYTES_MAX];
    let count = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut bytes).ok()?;
    parse(&String::from_utf8_lossy(&bytes[..count]))
}

/// Reads a `stat` line. The name (field 2) may hold spaces and parentheses, so fields count from the last `)`.
fn parse(text: &str) -> Option<Row> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Row {
        pid,
        ended: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started_ticks: fields.get(19)?.parse().ok()?,
    })
}

/// Every process.
pub(crate) fn all() -> Vec<Row> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(row).collect()
}

/// The living processes of the session that `leader` began, and their descendants in whatever session.
///
/// The kernel does not give a number out again while a group or session bears it; so when the leader's number names
/// a process with another start time, the session is gone.
pub(crate) fn session_members(leader: ProcessIdentity) -> Vec<Row> {
    let rows = all();
    let reused = |row: &Row| row.pid == leader.pid && row.started_ticks != leader.started_ticks;
    if rows.iter().any(reused) {
        return Vec::new();
    }
    // A daemon that was itself started by a command of the dead one (an `mcode` in a shell tool) is not its kin.
    let own = std::process::id();
    let ours = |row: &&Row| row.pid != own;
    let mut kin: BTreeSet<u32> = rows
        .iter()
        .filter(ours)
        .filter(|row| row.session == leader.pid || row.group == leader.pid)
        .map(|row| row.pid)
        .collect();
    loop {
        let before = kin.len();
        let children = rows.iter().filter(ours).filter(|row| kin.contains(&row.parent)).map(|row| row.pid);
        kin.extend(children.collect::<Vec<_>>());
        if kin.len() == before {
            break;
        }
    }
    rows.into_iter().filter(|row| !row.ended && kin.contains(&row.pid)).collect()
}

/// The living descendants of a process. Empty when its number names another process by now.
pub(crate) fn descendants(of: ProcessIdentity) -> Vec<Row> {
    let rows = all();
    if !rows.iter().any(|row| row.pid == of.pid && row.started_ticks == of.started_ticks) {
        return Vec::new();
    }
    let mut kin = BTreeSet::from([of.pid]);
    loop {
        let before = kin.len();
        kin.extend(rows.iter().filter(|row| kin.contains(&row.parent)).map(|row| row.pid).collect::<Vec<_>>());
        if kin.len() == before {
            break;
        }
    }
    rows.into_iter().filter(|row| !row.ended && row.pid != of.pid && kin.contains(&row.pid)).collect()
}

/// Processor time in milliseconds and resident memory in bytes of one process.
pub(crate) fn usage(pid: u32) -> Option<(u64, u64)> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let page_bytes = rustix::param::page_size() as u64;
    Some(((number(11)? + number(12)?) * 1000 / ticks_per_second, number(21)? * page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b) S 7 42 41 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 987 1 1";
        let row = parse(line).expect("a row");
        assert_eq!((row.pid, row.parent, row.group, row.session), (42, 7, 42, 41));
        assert_eq!(row.started_ticks, 987);
        assert!(!row.ended);
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn this_process_has_a_row() {
        let own = row(std::process::id()).expect("own row");
        assert!(own.started_ticks > 0);
        assert!(usage(std::process::id()).expect("own usage").1 > 0);
        assert_eq!(descendants(ProcessIdentity { pid: own.pid, started_ticks: own.started_ticks + 1 }), []);
    }
}
