//! What a process cost: the kernel's own figures.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// What a finished child cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    /// Largest resident set in MB.
    pub(super) rss_mb: f64,
}

/// Runs a command to its end; fails when it fails or prints something else than `expected`. A figure of an answer that
/// was cut short would be a good one.
pub(super) fn measure(command: &mut Command, expected: &str) -> anyhow::Result<Cost> {
    use std::process::Stdio;
    // Files, not pipes: nobody has to read beside the program, and nothing it starts can keep them open.
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let start = Instant::now();
    let child = command.spawn().context("cannot start the program")?;
    let pid = libc::pid_t::try_from(child.id()).context("a process id out of range")?;
    let (status, usage) = wait4(pid)?;
    let wall = start.elapsed();
    if status != 0 {
        bail!("it ended with wait status {status}: {}", text(&mut stderr)?);
    }
    let printed = text(&mut stdout)?;
    if printed.trim_end() != expected {
        let start: String = printed.chars().take(200).collect();
        bail!("it printed {} bytes instead of {}: {start}", printed.len(), expected.len());
    }
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Ok(Cost { wall, cpu, rss_mb: usage.ru_maxrss as f64 / 1024.0 })
}

fn text(file: &mut fs::File) -> anyhow::Result<String> {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[allow(unsafe_code, reason = "only wait4 gives the figures of one child")]
fn wait4(pid: libc::pid_t) -> anyhow::Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: a rusage of zeroes is a valid value, and both pointers are to live locals of the right type.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid, &raw mut status, 0, &raw mut usage), usage)
    };
    if waited == pid { Ok((status, usage)) } else { Err(std::io::Error::last_os_error()).context("wait4 failed") }
}

/// Processor time of a running process, its finished threads included; to 10 ms.
pub(super) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    let fields: Vec<&str> = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // Linux reports 100 ticks a second to user space, whatever it uses itself.
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}

/// Proportional memory of a running process in MB.
pub(super) fn pss_mb(pid: u32) -> anyhow::Result<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the process is gone")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss in smaps_rollup")?;
    let kb: f64 = line.trim().trim_end_matches(" kB").parse().context("Pss is not a number")?;
    Ok(kb / 1024.0)
}

/// How often the threads of a process have gone to sleep by themselves, hence were woken.
pub(super) fn wakeups(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).context("the process is gone")? {
        // A thread may end while we look.
        let status = fs::read_to_string(entry?.path().join("status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// The middle of the values.
pub(super) fn median(mut values: Vec<f64>) -> anyhow::Result<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("nothing was measured")
}

/// A duration in milliseconds.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
