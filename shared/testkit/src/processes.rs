//! Processes that a test has started somewhere, and knows by how long they sleep.
//!
//! Tests run beside each other, also those of two checkouts; [`nap`] gives each its own mark.

use std::sync::atomic::{AtomicU32, Ordering};

/// The argument of a `sleep` that outlasts every test and that nobody else on this machine sleeps for: in seconds, with
/// this program's number and a counter after the point, all naps of one length.
#[must_use]
pub fn nap() -> String {
    static NAPS: AtomicU32 = AtomicU32::new(0);
    format!("611.{:07}{:04}", std::process::id(), NAPS.fetch_add(1, Ordering::Relaxed))
}

/// Numbers of the living processes whose command line holds this, shells that are told to sleep among them.
#[must_use]
pub fn running(mark: &str) -> Vec<u32> {
    command_lines().filter(|(_, words)| words.iter().any(|word| word.contains(mark))).map(|(pid, _)| pid).collect()
}

/// How many living processes are just `sleep` with this nap.
#[must_use]
pub fn sleeping(nap: &str) -> usize {
    let sleeps = |words: &[String]| matches!(words, [program, time] if program.ends_with("sleep") && time == nap);
    command_lines().filter(|(_, words)| sleeps(words)).count()
}

/// Number and words of every process; none where there is no `/proc`.
pub fn command_lines() -> impl Iterator<Item = (u32, Vec<String>)> {
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line);
        Some((pid, line.trim_end_matches('\0').split('\0').map(str::to_owned).collect()))
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_found_by_its_nap_and_gone_when_it_ends() {
        let (ours, other) = (nap(), nap());
        assert_eq!(ours.len(), other.len());
        assert_ne!(ours, other);
        let mut child = std::process::Command::new("sh").args(["-c", &format!("sleep {ours}; :")]).spawn().unwrap();
        let began = std::time::Instant::now();
        while sleeping(&ours) != 1 {
            assert!(began.elapsed() < std::time::Duration::from_secs(10), "it never slept");
        }
        let both = running(&ours);
        assert!(both.len() == 2 && both.contains(&child.id()), "{both:?}");
        assert_eq!((sleeping(&other), running(&other)), (0, Vec::new()));
        for pid in both {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        child.wait().unwrap();
        while sleeping(&ours) != 0 {
            assert!(began.elapsed() < std::time::Duration::from_secs(10), "it never ended");
        }
    }
}
