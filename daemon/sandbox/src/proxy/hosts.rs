//! Which hosts may be reached.

use std::net::IpAddr;

/// Longest name of a host, in bytes.
const NAME_BYTES_MAX: usize = 253;
/// Longest part of one.
const LABEL_BYTES_MAX: usize = 63;
/// The rule that allows every host of the internet.
const EVERY: &str = "*";

/// A host as a client named it: a plain name in small letters, or an address. Nothing else is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl Host {
    /// Reads a host. What is not plainly a name or an address (a NUL, a `#`, a `@`, a second port, …) is `None`: who
    /// resolves it might see another host than who judged it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let label = |label: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty() && label.len() <= LABEL_BYTES_MAX && label.bytes().all(plain)
        };
        // A last label of digits would be taken for a number of an address by some resolvers.
        let numeric = name.rsplit('.').next().is_some_and(|last| {
            last.bytes().all(|byte| byte.is_ascii_digit()) || last.to_ascii_lowercase().starts_with("0x")
        });
        let is_name = name.len() <= NAME_BYTES_MAX && name.split('.').all(label) && !numeric;
        is_name.then(|| Self::Name(name.to_ascii_lowercase()))
    }
}

/// What a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not at all.
    Refused,
    /// Wherever its name leads.
    Allowed,
    /// Where its name leads to the internet, and not to this machine or its neighbours.
    Public,
}

/// `[sandbox] hosts`: `example.org` is that host, `*.example.org` every host below it, `*` all of the internet. A rule
/// that can not be read allows nothing.
pub(crate) fn judge(rules: &[String], host: &Host) -> Verdict {
    let fits = |rule: &String| {
        let rule = rule.trim();
        match (host, rule.strip_prefix("*.")) {
            (Host::Name(name), Some(above)) => {
                let Some(Host::Name(above)) = Host::parse(above) else { return false };
                name.strip_suffix(&above).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
            }
            (_, Some(_)) => false,
            (_, None) => Host::parse(rule).as_ref() == Some(host),
        }
    };
    if rules.iter().any(fits) {
        Verdict::Allowed
    } else if rules.iter().any(|rule| rule.trim() == EVERY) {
        Verdict::Public
    } else {
        Verdict::Refused
    }
}

/// Whether an address is one of the internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let shared = first == 100 && (64..128).contains(&second);
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast()
                || first == 0
                || shared)
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unique_local()
                || address.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(rules: &[&str], host: &str) -> Verdict {
        let rules: Vec<String> = rules.iter().map(|&rule| rule.to_owned()).collect();
        Host::parse(host).map_or(Verdict::Refused, |host| judge(&rules, &host))
    }

    #[test]
    fn a_host_is_what_it_plainly_is() {
        for host in [
            "evil.test\0.ok.test",
            "evil.test#.ok.test",
            "ok.test.evil.test",
            "EVIL.TEST:80@ok.test",
            "evil.test/.ok.test",
            "evil.test\\.ok.test",
            "evil.test?.ok.test",
            "evil.test%00.ok.test",
            "evil.test\r\n.ok.test",
            " a.ok.test",
            "a..ok.test",
            ".ok.test",
            "ok.test",
            "notok.test",
            "a.ok.test:80",
            "а.ok.test",
            "",
            ".",
        ] {
            assert_eq!(verdict(&["*.ok.test"], host), Verdict::Refused, "{host:?}");
        }
        for host in ["a.ok.test", "A.Ok.TEST", "a.b.ok.test", "a.ok.test."] {
            assert_eq!(verdict(&["*.ok.test"], host), Verdict::Allowed, "{host}");
        }
    }

    #[test]
    fn rules_are_exact() {
        for (rule, host, wanted) in [
            ("example.org", "example.org", Verdict::Allowed),
            ("Example.ORG.", "example.org", Verdict::Allowed),
            ("example.org", "www.example.org", Verdict::Refused),
            ("127.0.0.1", "127.0.0.1", Verdict::Allowed),
            ("127.0.0.1", "::ffff:127.0.0.1", Verdict::Allowed),
            ("127.0.0.1", "2130706433", Verdict::Refused),
            ("127.0.0.1", "0x7f.1", Verdict::Refused),
            ("*.0.0.1", "127.0.0.1", Verdict::Refused),
            ("::1", "[::1]", Verdict::Allowed),
            ("*", "example.org", Verdict::Public),
            ("*.", "example.org", Verdict::Refused),
            ("*example.org", "example.org", Verdict::Refused),
            ("", "example.org", Verdict::Refused),
        ] {
            assert_eq!(verdict(&[rule], host), wanted, "{rule} {host}");
        }
    }

    #[test]
    fn the_internet_is_not_this_machine() {
        for address in
            ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "fe80::1", "fd00::1"]
        {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        assert!(!is_public("::ffff:192.168.0.1".parse().unwrap()));
        assert!(is_public("93.184.216.34".parse().unwrap()) && is_public("2606:4700::1".parse().unwrap()));
    }
}
