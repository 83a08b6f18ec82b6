//! The shell tool against the public fault reports of area B, with real processes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

mod stage;

use std::time::Duration;

use mcode_testkit::{nap, sleeping};
use mcode_tools::ToolFailure;
use serde_json::json;
use stage::{Stage, wait_until};
use tokio::time::Instant;

#[tokio::test]
async fn b01_a_timeout_ends_the_children_too() {
    let nap = nap();
    let stage = Stage::new();
    let began = Instant::now();
    let command = format!("for i in 1 2 3; do sh -c 'exec sleep {nap}' & done; sleep {nap}");
    let out = stage.shell(json!({"command": command, "timeout_s": 2})).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(out.text.contains("timed out after 2 s"), "{}", out.text);
    assert!(out.failed);
    assert_eq!(sleeping(&nap), 0);
    assert_eq!(stage.port.exited().len(), 1);
}

#[tokio::test]
async fn b03_a_command_that_ignores_term_is_killed_and_we_live() {
    let nap = nap();
    let stage = Stage::new();
    for _ in 0..2 {
        let out = stage.shell(json!({"command": format!("trap '' TERM; sleep {nap}"), "timeout_s": 1})).await;
        assert!(out.text.contains("timed out after 1 s"), "{}", out.text);
    }
    assert_eq!(sleeping(&nap), 0);
}

#[tokio::test]
async fn b04_a_child_that_holds_the_pipe_does_not_hold_the_call() {
    let nap = nap();
    let stage = Stage::new();
    for (command, word) in [
        (format!("sleep {nap} & echo done"), "done"),
        (format!("sleep {nap} </dev/null >/dev/null & echo done2"), "done2"),
    ] {
        let began = Instant::now();
        let out = stage.shell(json!({"command": command})).await;
        assert!(began.elapsed() < Duration::from_secs(2));
        assert!(
            out.text.starts_with(&format!("{word}\n[exit code 0]\n[a process it started still runs (pid ")),
            "{}",
            out.text
        );
        assert_eq!((out.code, out.failed), (Some(0), false));
    }
    assert_eq!(sleeping(&nap), 2);
    assert_eq!(stage.port.exited().len(), 0);
    stage.table.kill_thread(stage.context.thread_id).await;
    assert_eq!(sleeping(&nap), 0);
    assert_eq!(stage.port.exited().len(), 2);
}

#[tokio::test]
async fn b06_editors_and_password_prompts_fail_at_once() {
    let mut stage = Stage::new();
    stage.set_env("EDITOR", "vi");
    let home = stage.folder.path().display().to_string();
    stage.set_env("HOME", &home);
    let setup = "git init -q && git config user.email a@b && git config user.name a && echo x > f && git add f";
    assert_eq!(stage.shell(json!({"command": setup})).await.code, Some(0));
    let began = Instant::now();
    let out = stage.shell(json!({"command": "git commit"})).await;
    assert!(out.failed && out.text.contains("no editor can be opened here"), "{}", out.text);
    let out = stage.shell(json!({"command": "git -c credential.helper= ls-remote https://127.0.0.1:9/x"})).await;
    assert!(out.failed && out.text.contains("fatal:"), "{}", out.text);
    let out = stage.shell(json!({"command": "read -p 'password: ' x </dev/tty; echo \"got [$x]\""})).await;
    assert!(out.text.contains("got []"), "{}", out.text);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn b08_endless_output_is_counted_and_not_held() {
    let stage = Stage::new();
    let before = peak_memory_kb();
    let out = stage.shell(json!({"command": "yes | head -c 400000000; echo; echo END-MARK"})).await;
    assert!(out.text.contains("full output: 400000010 bytes"), "{}", &out.text[out.text.len() - 300..]);
    assert!(out.text.starts_with("y\ny\n") && out.text.contains("y\n\nEND-MARK\n[exit code 0]"));
    assert!(out.text.len() < 40_000);
    let out = stage.shell(json!({"command": "head -c 50000000 /dev/zero | tr '\\0' a"})).await;
    assert!(out.text.contains("full output: 50000000 bytes") && out.text.len() < 40_000);
    let grown = peak_memory_kb() - before;
    assert!(grown < 100_000, "grew by {grown} KB");
}

#[tokio::test]
async fn b10_any_bytes_become_clean_text() {
    let stage = Stage::new();
    let out = stage.shell(json!({"command": r"printf 'ok \xff\xfe\x00 end\n\x1b[31mred\x1b[0m\n'"})).await;
    assert_eq!(out.text, "ok \u{fffd}\u{fffd} end\nred\n[exit code 0]");
}

#[tokio::test]
async fn b12_each_call_starts_afresh_as_the_description_says() {
    let stage = Stage::new();
    std::fs::create_dir(stage.folder.path().join("sub")).unwrap();
    let description = stage.shell_tool().spec().description;
    assert!(description.contains("`cd`, `export`, aliases and other shell state do not persist"), "{description}");
    assert_eq!(stage.shell(json!({"command": "cd sub; export Q=1"})).await.code, Some(0));
    let folder = stage.context.cwd.display().to_string();
    let out = stage.shell(json!({"command": "pwd; echo Q=$Q"})).await;
    assert_eq!(out.text, format!("{folder}\nQ=\n[exit code 0]"));
    let out = stage.shell(json!({"command": "exit 3"})).await;
    assert_eq!((out.code, out.failed, out.text.as_str()), (Some(3), true, "(no output)\n[exit code 3]"));
    assert_eq!(stage.shell(json!({"command": "echo still"})).await.text, "still\n[exit code 0]");
    let out = stage.shell(json!({"command": "pwd", "cwd": "sub"})).await;
    assert_eq!(out.text, format!("{folder}/sub\n[exit code 0]"));
}

#[tokio::test]
async fn b14_the_limit_holds_in_the_background_and_is_told() {
    let nap = nap();
    let stage = Stage::new();
    let began = Instant::now();
    let out =
        stage.shell(json!({"command": format!("sleep {nap}; echo late"), "background": true, "timeout_s": 3})).await;
    assert!(out.text.contains("prc_"), "{}", out.text);
    assert!(began.elapsed() < Duration::from_secs(1));
    wait_until("the notice", || !stage.port.exited().is_empty()).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    let notice = stage.port.exited()[0].notice.clone().unwrap();
    assert!(notice.contains("timed out after 3 s") && !notice.contains("late\n"), "{notice}");
    assert_eq!(sleeping(&nap), 0);
}

#[tokio::test]
async fn b15_commands_arrive_byte_for_byte() {
    let stage = Stage::new();
    let wanted = "$HOME `id` \\n \"q\" 'z' !x %s\n";
    let command = format!("cat <<'EOF' > f\n{wanted}EOF\nwc -c < f # end");
    let out = stage.shell(json!({"command": command})).await;
    assert_eq!(out.text.trim_start(), format!("{}\n[exit code 0]", wanted.len()));
    assert_eq!(std::fs::read_to_string(stage.folder.path().join("f")).unwrap(), wanted);
    let command = format!("cat <<-'EOF' > g\n\t{wanted}\tEOF\nwc -c < g # end");
    assert_eq!(stage.shell(json!({"command": command})).await.code, Some(0));
    assert_eq!(std::fs::read_to_string(stage.folder.path().join("g")).unwrap(), wanted);
    let long = format!("cat <<'EOF' | wc -c\n{}\nEOF\n", "a".repeat(300_000));
    assert_eq!(stage.shell(json!({"command": long})).await.text.trim_start(), "300001\n[exit code 0]");
    assert_eq!(stage.shell(json!({"command": "echo next"})).await.text, "next\n[exit code 0]");
    let error = stage.try_shell(json!({"command": "a".repeat(2_000_000)})).await.unwrap_err();
    assert!(matches!(&error, ToolFailure::BadArguments(text) if text.starts_with("command: it has 2000000 bytes")));
}

#[tokio::test]
async fn b16_the_login_shell_and_its_files_do_not_matter() {
    let mut stage = Stage::new();
    let rc = stage.folder.path().join(".bashrc");
    std::fs::write(&rc, "echo WELCOME\nalias rm='rm -i'\n").unwrap();
    for (name, value) in [("SHELL", "/usr/bin/fish"), ("BASH_ENV", rc.to_str().unwrap()), ("ENV", rc.to_str().unwrap())]
    {
        stage.set_env(name, value);
    }
    let home = stage.folder.path().display().to_string();
    stage.set_env("HOME", &home);
    assert!(stage.shell_tool().spec().description.contains("Runs a command in bash"));
    let out = stage.shell(json!({"command": "export A=1; [[ -n $A ]] && echo ok; touch t; rm t; echo end"})).await;
    assert_eq!(out.text, "ok\nend\n[exit code 0]");
}

#[tokio::test]
async fn a_cancelled_call_ends_its_command() {
    let nap = nap();
    let stage = Stage::new();
    let cancel = stage.context.cancel.clone();
    let call = stage.try_shell(json!({"command": format!("sleep {nap} & sleep {nap}")}));
    let canceller = async {
        wait_until("the command", || sleeping(&nap) == 2).await;
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(call, canceller);
    assert_eq!(result.unwrap_err(), ToolFailure::Cancelled);
    assert_eq!(sleeping(&nap), 0);
    assert_eq!(stage.port.exited()[0].reason, "killed: its call was cancelled");
}

#[tokio::test]
async fn a_dropped_call_ends_its_command_and_is_recorded() {
    let nap = nap();
    let stage = Stage::new();
    {
        let call = stage.try_shell(json!({"command": format!("sleep {nap}")}));
        tokio::select! {
            _ = call => panic!("the command must not end"),
            () = wait_until("the command", || sleeping(&nap) == 1) => {}
        }
    }
    wait_until("the end", || stage.port.exited().len() == 1).await;
    assert_eq!(sleeping(&nap), 0);
}

#[tokio::test]
async fn a_process_is_recorded_before_its_end_and_output_is_shown_live() {
    let stage = Stage::new();
    let out = stage.shell(json!({"command": "echo one; sleep 0.3; echo two; exit 5"})).await;
    assert_eq!(out.text, "one\ntwo\n[exit code 5]");
    assert_eq!(out.preview.split(" in ").next(), Some("exit 5"));
    let (started, exited) = (stage.port.started(), stage.port.exited());
    assert_eq!((started.len(), exited.len()), (1, 1));
    assert_eq!(started[0].process_id, exited[0].process_id);
    assert!(started[0].started_ticks > 0 || cfg!(not(target_os = "linux")));
    assert_eq!((exited[0].code, exited[0].reason.as_str(), &exited[0].notice), (Some(5), "exit code 5", &None));
    assert_eq!(stage.port.output_text(), "one\ntwo\n");
}

#[tokio::test]
async fn progress_lines_show_their_last_state_and_long_output_is_kept() {
    let stage = Stage::new();
    let out = stage.shell(json!({"command": r"for i in 1 50 100; do printf '\r%d%%' $i; done; echo"})).await;
    assert_eq!(out.text, "100%\n[exit code 0]");
    let out = stage.shell(json!({"command": "seq 1 20000"})).await;
    assert!(out.text.starts_with("1\n2\n") && out.text.ends_with("20000\n[exit code 0]"));
    assert!(out.text.contains("full output: 108894 bytes, view it with path \"blob:"), "{}", out.text);
    let blobs = stage.blobs.contents();
    assert_eq!(blobs.len(), 1);
    assert!(blobs[0].len() == 108_894 && blobs[0].ends_with(b"\n20000\n"));
}

#[tokio::test]
async fn bad_arguments_are_named() {
    let stage = Stage::new();
    for (arguments, wanted) in [
        (json!({"command": "  "}), "command: give the command"),
        (json!({"command": "a\u{0}b"}), "command: it holds a NUL byte"),
        (json!({"command": "a", "timeout_s": 0}), "timeout_s: 0 is not between"),
        (json!({"command": "a", "timeout_s": 3601}), "timeout_s: 3601 is not between"),
        (json!({"command": "a", "cwd": "no/such"}), "cwd: the folder "),
    ] {
        let error = stage.try_shell(arguments).await.unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[cfg(target_os = "linux")]
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(not(target_os = "linux"))]
fn peak_memory_kb() -> u64 {
    0
}

/// Whoever allows a command sees all of it, and where it runs: nothing hides behind a long beginning.
#[tokio::test]
async fn the_whole_command_and_its_folder_are_shown_before_it_runs() {
    let stage = Stage::new();
    let plan = |arguments| stage.shell_tool().plan(&arguments, &stage.context).unwrap().preview;
    let long = format!("echo start; {}rm -rf important", "true; ".repeat(3000));
    assert_eq!(plan(json!({"command": long})), long);
    let elsewhere = plan(json!({"command": "rm -rf x", "cwd": "/"}));
    assert_eq!(elsewhere, "in /:\nrm -rf x");
}
