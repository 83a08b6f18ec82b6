//! Commands on Windows: fewer rights, their output, their end. Run by `cargo xtask check-windows --run`.
#![cfg(windows)]
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mcode_sandbox::{About, CommandSpec, Ended, ExitState, Hosted, HostedSpec, Hosts, Progress};
use tokio::time::timeout;
use windows_sys::Win32::Security::{GetTokenInformation, TOKEN_PRIVILEGES, TOKEN_QUERY, TokenPrivileges};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// Says to this program that it is the command.
const COMMAND: &str = "MCODE_TEST_COMMAND";
const END_MAX: Duration = Duration::from_secs(60);

/// Beside the folder of this test.
fn toolhost() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(std::path::Path::parent).unwrap().join("mcode-toolhost.exe")
}

async fn start(name: &str, limit: Option<Duration>) -> Hosted {
    let own = std::env::current_exe().unwrap().display().to_string();
    let mut env: BTreeMap<String, String> = std::env::vars().collect();
    env.insert(COMMAND.to_owned(), name.to_owned());
    let argv = [&own, "--exact", "this_is_the_command", "--nocapture", "a \"quoted\" word"].map(ToString::to_string);
    let command =
        CommandSpec { argv: argv.to_vec(), cwd: std::env::temp_dir(), env, stdin: true, umask: None, policy: None };
    let (about, background) = (About::default(), true);
    let spec = HostedSpec { command, about, limit, background, experience: None, terminal: None };
    Hosts::new(toolhost(), PathBuf::new()).start(spec).await.unwrap()
}

async fn gone(hosted: &Hosted) -> Progress {
    let mut progress = hosted.progress();
    timeout(END_MAX, progress.wait_for(|now| now.gone)).await.unwrap().unwrap().clone()
}

/// Not a test unless it was started by one: then it is what runs with fewer rights.
#[test]
fn this_is_the_command() {
    match std::env::var(COMMAND).as_deref() {
        Ok("tells") => {
            println!("privileges={}", privileges());
            println!("word={:?}", std::env::args().next_back().unwrap());
            std::process::exit(7);
        }
        Ok("reads") => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            println!("read={}", line.trim());
        }
        Ok("lasts") => {
            #[allow(clippy::disallowed_methods, reason = "a grandchild is what is to be ended")]
            let mut child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "this_is_the_command"])
                .env(COMMAND, "sleeps")
                .spawn()
                .unwrap();
            println!("child={}", child.id());
            child.wait().unwrap();
        }
        Ok("sleeps") => std::thread::sleep(Duration::from_secs(600)),
        _ => {}
    }
}

/// How many privileges this process's token has.
fn privileges() -> u32 {
    let (mut token, mut size) = (std::ptr::null_mut(), 0);
    let mut buffer = [0_u64; 256];
    // SAFETY: the places for results are live and as large as is said.
    unsafe {
        assert_ne!(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token), 0);
        let bytes = u32::try_from(size_of_val(&buffer)).unwrap();
        assert_ne!(GetTokenInformation(token, TokenPrivileges, buffer.as_mut_ptr().cast(), bytes, &raw mut size), 0);
        (*buffer.as_ptr().cast::<TOKEN_PRIVILEGES>()).PrivilegeCount
    }
}

#[tokio::test]
async fn a_command_has_fewer_rights_and_its_own_words_output_and_code() {
    let hosted = start("tells", None).await;
    let end = gone(&hosted).await;
    let output = String::from_utf8(hosted.output().head(4096)).unwrap();
    assert_eq!(end.ended, Some(Ended::Exited(ExitState { code: Some(7), signal: None })), "{output}");
    // Whoever runs the test has some; what is left is to pass through folders.
    assert!(privileges() > 1, "{}", privileges());
    assert!(output.contains("privileges=1\r\n") || output.contains("privileges=1\n"), "{output}");
    assert!(output.contains(r#"word="a \"quoted\" word""#), "{output}");
}

#[tokio::test]
async fn a_command_takes_input() {
    let hosted = start("reads", None).await;
    hosted.write(b"a line\n").await.unwrap();
    assert!(gone(&hosted).await.ended.is_some());
    let output = String::from_utf8(hosted.output().head(4096)).unwrap();
    assert!(output.contains("read=a line"), "{output}");
}

#[tokio::test]
async fn a_limit_ends_all_of_it() {
    let limit = Duration::from_secs(3);
    let hosted = start("lasts", Some(limit)).await;
    assert_eq!(gone(&hosted).await.ended, Some(Ended::TimedOut(limit)));
    assert_eq!(hosted.members(), Vec::<u32>::new());
}
