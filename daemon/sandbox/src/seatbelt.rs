//! A policy as a profile of macOS' Seatbelt, whose rules are read in order and the last one that fits counts.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::{Network, Policy, within};

/// Devices that may be written.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/tty", "/dev/stdout", "/dev/stderr", "/dev/ptmx", "/dev/dtracehelper"];

/// The profile.
///
/// # Errors
/// When a path holds what can not be written in a profile.
pub(crate) fn profile(policy: &Policy) -> io::Result<String> {
    let mut text = "(version 1)\n(allow default)\n(deny file-write*)\n".to_owned();
    rule(&mut text, "allow file-write*", "literal", DEVICES.map(PathBuf::from).iter())?;
    text.push_str("(allow file-write* (regex #\"^/dev/(ttys|pty|fd/)\"))\n");
    rule(&mut text, "allow file-write*", "subpath", policy.write.iter())?;
    // What is fixed can be written neither itself nor by moving a folder above it away, and what is not there yet can
    // not be made.
    let kept = || policy.fixed.iter().chain(&policy.absent);
    rule(&mut text, "deny file-write*", "subpath", kept())?;
    let mut above: Vec<PathBuf> = kept()
        .flat_map(|path| path.ancestors().skip(1))
        .filter(|folder| within(folder, &policy.write))
        .map(Path::to_path_buf)
        .collect();
    above.sort_unstable();
    above.dedup();
    rule(&mut text, "deny file-write-unlink", "literal", above.iter())?;
    rule(&mut text, "deny file-read* file-write*", "subpath", policy.hidden.iter())?;
    rule(&mut text, "allow file-read*", "literal", policy.shown.iter())?;
    if policy.network != Network::Allow {
        text.push_str("(deny network*)\n(allow network* (local unix-socket))\n");
        text.push_str("(allow network-outbound (remote unix-socket))\n");
    }
    for path in &policy.sockets {
        let path = quoted(path)?;
        writeln!(text, "(deny network-outbound (remote unix-socket (subpath {path})))").map_err(io::Error::other)?;
    }
    text.push_str("(deny signal)\n(allow signal (target same-sandbox))\n(deny process-info* (target others))\n");
    Ok(text)
}

fn rule<'a>(text: &mut String, what: &str, filter: &str, paths: impl Iterator<Item = &'a PathBuf>) -> io::Result<()> {
    for path in paths {
        writeln!(text, "({what} ({filter} {}))", quoted(path)?).map_err(io::Error::other)?;
    }
    Ok(())
}

/// A path between quotes. One that holds control characters, or is no text, is refused: what is not plainly written
/// could be read as another rule.
fn quoted(path: &Path) -> io::Result<String> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control)).ok_or_else(|| {
        let path = path.display();
        io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} can not be named in a sandbox profile"))
    })?;
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy {
            write: vec!["/w".into(), "/t".into()],
            fixed: vec!["/w/.git/hooks".into()],
            absent: vec!["/w/.mcode".into()],
            hidden: vec!["/h/.ssh".into()],
            shown: vec!["/h/.ssh/known_hosts".into()],
            sockets: vec!["/h/.docker/run".into()],
            network: Network::Deny,
            temp: "/t".into(),
            ..Policy::default()
        }
    }

    #[test]
    fn later_rules_take_back_what_earlier_ones_give() {
        let text = profile(&policy()).unwrap();
        let mut last = 0;
        for rule in [
            "(deny file-write*)\n",
            "(allow file-write* (literal \"/dev/null\"))",
            "(allow file-write* (subpath \"/w\"))",
            "(deny file-write* (subpath \"/w/.git/hooks\"))",
            "(deny file-write* (subpath \"/w/.mcode\"))",
            "(deny file-write-unlink (literal \"/w/.git\"))",
            "(deny file-read* file-write* (subpath \"/h/.ssh\"))",
            "(allow file-read* (literal \"/h/.ssh/known_hosts\"))",
            "(deny network*)",
            "(allow network-outbound (remote unix-socket))",
            "(deny network-outbound (remote unix-socket (subpath \"/h/.docker/run\")))",
            "(deny signal)",
        ] {
            let at = text.find(rule).unwrap_or_else(|| panic!("{rule} is missing in\n{text}"));
            assert!(at >= last, "{rule} comes too early in\n{text}");
            last = at;
        }
        assert!(!profile(&Policy { network: Network::Allow, ..policy() }).unwrap().contains("network*"));
    }

    #[test]
    fn a_path_is_never_read_as_a_rule() {
        let odd = Policy { write: vec!["/w\") (allow default) (\\".into()], ..Policy::default() };
        assert!(profile(&odd).unwrap().contains("(subpath \"/w\\\") (allow default) (\\\\\")"));
        for path in ["/w\n(allow default)", "/w\u{1b}"] {
            assert!(profile(&Policy { hidden: vec![path.into()], ..Policy::default() }).is_err());
        }
    }
}
