//! What is not held on this machine, and what is missing for it.

use std::fs;

/// Version of Landlock's interface that holds signals and abstract sockets (Linux 6.12).
const SCOPES: u32 = 6;

/// One sentence for each thing that is not held.
pub(super) fn lacking(landlock: u32, namespaces: bool, processes: bool, memory: bool) -> Vec<String> {
    let mut lacks = Vec::new();
    if !namespaces {
        lacks.push(format!(
            "commands can change .git/hooks, .git/config, .mcode and what deny rules name in the project (it is told \
             afterwards), change modes and dates of the user's files, and reach sockets of other programs such as \
             docker's; without a network they have no localhost either: namespaces can not be had ({})",
            why_no_namespaces()
        ));
    }
    if landlock < SCOPES && !namespaces {
        lacks.push(format!(
            "commands can end other processes and reach abstract sockets: Landlock of version {SCOPES} is needed (Linux \
             6.12), this is {landlock}"
        ));
    } else if landlock < SCOPES {
        lacks.push(format!(
            "commands can end other processes, and reach abstract sockets while they have the network: Landlock of \
             version {SCOPES} is needed (Linux 6.12), this is {landlock}"
        ));
    }
    if !processes {
        lacks.push(
            "the number of a command's own processes is not limited: a control group that this user may divide is \
             needed, such as that of a systemd user service"
                .to_owned(),
        );
    }
    if !memory {
        lacks.push(
            "the memory of commands is not limited, but where it runs out they are ended before anything else: a control \
             group with the memory controller that this user may divide is needed"
                .to_owned(),
        );
    }
    lacks
}

/// The setting in the way of user namespaces, if it is a known one.
fn why_no_namespaces() -> &'static str {
    let is = |name: &str, value: &str| fs::read_to_string(name).is_ok_and(|text| text.trim() == value);
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor forbids them: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for mcoded that \
         allows userns"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "sysctl kernel.unprivileged_userns_clone=1 allows them"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "sysctl user.max_user_namespaces=1000 allows them"
    } else {
        "the kernel, or the container that mcoded runs in, refuses CLONE_NEWUSER"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_is_missing_is_named() {
        assert_eq!(lacking(7, true, true, true), Vec::<String>::new());
        for (found, wanted) in [
            (lacking(7, false, true, true), vec![".git/hooks"]),
            (lacking(4, true, true, true), vec!["Linux 6.12"]),
            (lacking(4, false, false, true), vec!["namespaces", "Linux 6.12", "control group"]),
            (lacking(7, true, true, false), vec!["the memory of commands"]),
        ] {
            assert_eq!(found.len(), wanted.len());
            assert!(found.iter().zip(&wanted).all(|(found, wanted)| found.contains(wanted)), "{found:?}");
        }
    }
}
