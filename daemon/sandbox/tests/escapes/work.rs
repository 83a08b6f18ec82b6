//! What must go on working in the sandbox.

use std::time::Duration;

use mcode_sandbox::policy::SHARED_BYTES_MAX;
use mcode_sandbox::{Network, Policy, Strength, self_test};
use tokio::time::Instant;

use crate::stage::{SECRET, Stage};

/// Most that the sandbox may add to a start.
const ADDED_MAX: Duration = Duration::from_millis(10);
const STARTS: usize = 20;

#[tokio::test]
async fn ordinary_work_is_not_in_the_way() {
    for (what, script) in [
        (
            "files of the project",
            "echo x > new && mkdir d && mv new d/ && ln d/new d/hard && ln -s new d/soft && rm -r d",
        ),
        ("temporary files", "f=$(mktemp) && echo x > $f && rm $f"),
        (
            "devices",
            "echo x > /dev/null && head -c 4 /dev/urandom > /dev/null && cat /dev/zero | head -c 1 > /dev/null",
        ),
        ("its own output by name", "echo x > /dev/stdout && echo x > /dev/stderr && echo x | cat /dev/stdin"),
        ("pipes and here documents", "cat <<E | sort | uniq\nb\na\nE"),
        (
            "the machine's programs and settings",
            "ls / /etc /usr/bin > /dev/null && cat /etc/passwd /proc/self/status > /dev/null",
        ),
        ("its own processes", "sleep 60 & kill $! && ! wait $!"),
        ("shared memory", "echo x > /dev/shm/mcode-$$ && rm /dev/shm/mcode-$$"),
        ("a terminal of its own", "$PYTHON -c 'import pty, os; pty.spawn([\"true\"])'"),
        (
            "a server of its own",
            "$PYTHON -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\",0)); s.listen(); socket.create_connection(s.getsockname())'",
        ),
        (
            "a Unix socket of its own",
            "$PYTHON -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind(\"s\"); s.listen(); socket.socket(socket.AF_UNIX).connect(\"s\")'",
        ),
        ("threads", "$PYTHON -c 'import threading; [threading.Thread(target=print).start() for _ in range(9)]'"),
        (
            "git commits",
            "rm -rf n && git init -q n && cd n && touch a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && git log --oneline",
        ),
        (
            "git in a repository whose settings are fixed",
            "git status && touch a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && git checkout -qb other",
        ),
    ] {
        for alone in [false, true] {
            let stage = Stage::new();
            let mut policy = stage.policy();
            policy.without_namespaces = alone;
            let (output, code) = stage.shell(script, Some(policy)).await;
            assert_eq!(code, Some(0), "{what} (Landlock alone: {alone}): {output}");
        }
    }
}

#[tokio::test]
async fn without_a_network_there_is_a_loopback_of_its_own() {
    let Strength::Enforced { namespaces, .. } = self_test().await else { panic!("no sandbox") };
    let stage = Stage::new();
    let policy = Policy { network: Network::Deny, ..stage.policy() };
    let script = "$PYTHON -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\",0)); s.listen(); \
                  socket.create_connection(s.getsockname()); print(\"reached\")'";
    let (output, _) = stage.shell(script, Some(policy)).await;
    assert_eq!(output.contains("reached"), namespaces, "{output}");
}

#[tokio::test]
async fn shared_memory_is_bounded() {
    let Strength::Enforced { namespaces, .. } = self_test().await else { panic!("no sandbox") };
    let stage = Stage::new();
    let (output, _) = stage.shell("df -Pk /dev/shm | tail -n 1", Some(stage.policy())).await;
    let size: u64 = output.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect(&output);
    assert!(!namespaces || size * 1024 == SHARED_BYTES_MAX, "{output}");
}

#[tokio::test]
async fn what_is_shown_can_be_read_beside_what_is_hidden() {
    let stage = Stage::new();
    std::fs::write(stage.path("hid/known_hosts"), "host").unwrap();
    let mut policy = stage.policy();
    policy.shown = vec![stage.path("hid/known_hosts")];
    let (output, _) = stage.shell("cat $HID/known_hosts; cat $HID/secret", Some(policy)).await;
    assert!(output.contains("host") && !output.contains(SECRET), "{output}");
}

#[tokio::test]
async fn what_is_hidden_below_a_writable_folder_stays_hidden_and_new_files_are_readable() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("w/.ssh")).unwrap();
    std::fs::write(stage.path("w/.ssh/key"), SECRET).unwrap();
    let mut policy = stage.policy();
    policy.hidden.push(stage.path("w/.ssh"));
    let script = "cat .ssh/key; echo x > .ssh/key; mv .ssh s; cat s/key; echo fresh > n; cat n mine";
    let (output, _) = stage.shell(script, Some(policy.clone())).await;
    let Strength::Enforced { namespaces, .. } = self_test().await else { panic!("no sandbox") };
    // Without them what may be read was named one by one, so what is new is not.
    assert!(!output.contains(SECRET) && output.contains("fresh") == namespaces && output.contains("mine"), "{output}");
    policy.without_namespaces = true;
    let (output, _) = stage.shell("cat .ssh/key; cat mine", Some(policy)).await;
    assert!(!output.contains(SECRET) && output.contains("mine"), "{output}");
}

#[tokio::test]
async fn what_is_not_there_is_passed_over() {
    let Strength::Enforced { namespaces, .. } = self_test().await else { panic!("no sandbox") };
    let stage = Stage::new();
    let mut policy = stage.policy();
    policy.fixed = vec!["/dev/null\0".into(), stage.path("w/mine")];
    policy.write.push("/proc/self/no-such".into());
    // A path that no system call takes is not there either.
    let (output, code) = stage.shell("echo x > mine || echo held", Some(policy)).await;
    assert_eq!((output.contains("held"), code), (namespaces, Some(0)), "{output}");
}

#[tokio::test]
async fn the_sandbox_adds_little_to_a_start() {
    let stage = Stage::new();
    let mut took = Vec::new();
    for policy in [None, Some(stage.policy())] {
        let mut times = Vec::new();
        for _ in 0..STARTS {
            let began = Instant::now();
            assert_eq!(stage.output(vec!["/bin/true".to_owned()], policy.clone()).await.1, Some(0));
            times.push(began.elapsed());
        }
        // The fastest: what else the machine does at the time is not what is measured.
        took.push(times.into_iter().min().unwrap());
    }
    let added = took[1].saturating_sub(took[0]);
    println!("a bare start took {:?}, the sandbox adds {added:?}", took[0]);
    assert!(added <= ADDED_MAX, "the sandbox adds {added:?}");
}
