//! `mcode` at a terminal: what is asked there, and what is typed.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use mcode_testkit::{Reply, Script};
use serde_json::json;

use crate::setup::{MESSAGES, Stage, WAIT_FOR_GO};

/// What ends the prompt of an approval.
const PROMPT: &str = "?: help > ";

/// A shell command at a terminal of its own (`script` of util-linux makes it).
pub(crate) struct Terminal<'a> {
    stage: &'a Stage,
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
    /// What was looked at already.
    seen: usize,
}

impl<'a> Terminal<'a> {
    /// `$MCODE` is the program.
    pub(crate) fn run(stage: &'a Stage, command: &str) -> Self {
        let mcode = stage.daemon.command(&stage.workspace.path(), &[]);
        let mut script = Command::new("script");
        script.args(["-qefc", command, "/dev/null"]).current_dir(stage.workspace.path()).env_clear();
        script.envs(mcode.get_envs().filter_map(|(name, value)| Some((name, value?))));
        script.env("MCODE", mcode.get_program()).env("MODEL", MESSAGES).env("TERM", "xterm").env("SHELL", "/bin/sh");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let (shown, mut output) = (Arc::clone(&screen), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        let keys = child.stdin.take().unwrap();
        Self { stage, child, keys, screen, seen: 0 }
    }

    /// Waits until this is shown, after what was waited for before.
    fn shows(&mut self, text: &str) {
        let (screen, seen) = (Arc::clone(&self.screen), self.seen);
        let mut end = None;
        self.stage.daemon.wait_until(&format!("'{text}' on the terminal"), || {
            let screen = screen.lock().unwrap();
            end = screen[seen..].find(text).map(|at| seen + at + text.len());
            end.is_some()
        });
        self.seen = end.unwrap();
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// The exit status, and all that was shown.
    pub(crate) fn end(mut self) -> (i32, String) {
        let mut status = None;
        self.stage.daemon.wait_until("the command has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap().code().unwrap(), self.screen.lock().unwrap().clone())
    }
}

#[allow(clippy::print_stdout, reason = "the screen of a failed test belongs into the test's output")]
impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- the screen ---\n{}\n--- end of the screen ---", self.screen.lock().unwrap());
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn makes<const N: usize>(paths: [&str; N]) -> Reply {
    Reply::tool_calls(paths.map(|path| ("shell", json!({"command": format!("touch {path}")}))))
}

const ASK: &str = r#""$MCODE" ask -m "$MODEL" make"#;

#[test]
fn the_end_of_input_refuses_one_call_and_the_next_is_asked_for() {
    let question = ("ask_user", json!({"question": "Which colour?"}));
    let stage = Stage::new(
        Script::new()
            .reply(makes(["first"]))
            .reply(makes(["second"]))
            .reply(Reply::tool_calls([question]))
            .reply(Reply::text("done")),
    );
    let mut terminal = Terminal::run(&stage, ASK);
    terminal.shows(PROMPT);
    terminal.types("\x04");
    terminal.shows("end of input: refused");
    terminal.shows(PROMPT);
    terminal.types("y\n");
    terminal.shows("Which colour?");
    terminal.shows("your answer > ");
    terminal.types("\x04");
    terminal.shows("there is no answer");
    let (_, screen) = terminal.end();
    assert!(!stage.exists("first") && stage.exists("second"), "{screen}");
    assert!(stage.server.request(2).tool_results()[0].1.contains("the terminal ended"));
    assert!(stage.server.request(4).tool_results()[0].1.contains("gave no answer"));
    stage.server.finish();
}

#[test]
fn what_is_not_understood_is_asked_again_and_then_refused() {
    let stage = Stage::new(Script::new().reply(makes(["first"])).reply(makes(["second"])).reply(Reply::text("done")));
    let mut terminal = Terminal::run(&stage, ASK);
    terminal.shows(PROMPT);
    terminal.types("git status\n");
    terminal.shows("not understood: 'git status'");
    terminal.shows(PROMPT);
    terminal.types("?\n");
    terminal.shows("n REASON");
    terminal.shows("keep the rule shell(touch first");
    terminal.shows(PROMPT);
    terminal.types("n not on a Monday\n");
    terminal.shows(PROMPT);
    for again in ["one\n", "\n"] {
        terminal.types(again);
        terminal.shows(PROMPT);
    }
    terminal.types("three\n");
    let (code, screen) = terminal.end();
    assert!(screen.contains("not understood 3 times: refused"), "{screen}");
    assert!(!stage.exists("first") && !stage.exists("second"), "{screen}");
    let told = |request: usize| stage.server.request(request).tool_results()[0].1.clone();
    assert!(told(2).contains("said: not on a Monday"), "{}", told(2));
    assert!(told(3).contains("no clear answer"), "{}", told(3));
    assert_eq!(code, 4);
    stage.server.finish();
}

#[test]
fn what_was_typed_before_a_question_does_not_answer_it() {
    let wait = Reply::tool_calls([("view", json!({"path": "f.txt"})), ("shell", json!({"command": WAIT_FOR_GO}))]);
    let stage = Stage::configured(
        Script::new().reply(wait).reply(makes(["made"])).reply(Reply::text("done")),
        "[permissions]\nask = [\"shell(touch made)\"]\nallow = [\"shell\"]\n",
    );
    let mut terminal = Terminal::run(&stage, ASK);
    stage.daemon.wait_until("the command has begun", || stage.exists("begun"));
    terminal.types("y\ny");
    // The terminal shows what is typed.
    terminal.shows("y\r\ny");
    stage.go();
    terminal.shows("touch made");
    terminal.shows(PROMPT);
    terminal.types("n\n");
    let (_, screen) = terminal.end();
    assert!(!stage.exists("made"), "{screen}");
    stage.server.finish();
}

/// The user is there, whatever is piped in.
#[test]
fn a_pipe_into_the_command_does_not_silence_its_user() {
    let stage = Stage::new(Script::new().reply(makes(["made"])).reply(Reply::text("done")));
    let mut terminal = Terminal::run(&stage, r#"echo a log | "$MCODE" ask -m "$MODEL" make > answer"#);
    terminal.shows(PROMPT);
    terminal.types("y\n");
    let (code, screen) = terminal.end();
    assert!(code == 0 && stage.exists("made"), "{screen}");
    assert_eq!(stage.workspace.read("answer"), "done\n");
    assert!(stage.server.request(1).last_user_text().contains("a log"));
    stage.server.finish();
}

#[test]
fn ctrl_c_at_a_question_cancels_and_says_nothing_of_elsewhere() {
    let stage = Stage::new(Script::new().reply(makes(["made"])));
    let mut terminal = Terminal::run(&stage, ASK);
    terminal.shows(PROMPT);
    terminal.types("\x03");
    let (code, screen) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert!(!screen.contains("elsewhere") && !screen.contains("cancelled cancelled"), "{screen}");
    assert!(!stage.exists("made"));
    stage.server.finish();
}

/// Words are shown as they come, and the answer stands on stdout alone.
#[test]
fn words_are_shown_while_they_are_written() {
    let words = "streamed words ".repeat(40);
    let stage = Stage::new(Script::new().reply(Reply::text(words.clone()).delay(20)));
    let mut terminal = Terminal::run(&stage, r#""$MCODE" ask -m "$MODEL" talk > answer"#);
    terminal.shows("streamed words streamed words");
    assert_eq!(stage.workspace.read("answer"), "", "the answer is complete before it was seen live");
    let (code, screen) = terminal.end();
    assert_eq!((code, stage.workspace.read("answer")), (0, format!("{words}\n")), "{screen}");
    // What was shown meanwhile is taken away: nothing stands after the last clearing.
    assert_eq!(screen.rsplit("\x1b[J").next(), Some(""), "{screen:?}");
    stage.server.finish();
}

#[test]
fn ctrl_c_leaves_the_words_that_were_there() {
    let text = "half of an answer ".repeat(20);
    let stage = Stage::new(Script::new().reply(Reply::text(text).stall_after(700)));
    let mut terminal = Terminal::run(&stage, ASK);
    terminal.shows("half of an");
    terminal.types("\x03");
    let (code, screen) = terminal.end();
    assert_eq!(code, 130, "{screen}");
    assert!(screen.contains("(cut off)") && !screen.contains("tries again"), "{screen}");
    let last = screen.rsplit("\x1b[J").next().unwrap();
    assert!(!last.contains("could not do its work"), "{last}");
    stage.server.finish();
}

#[test]
fn what_was_said_is_changed_in_the_editor() {
    let stage = Stage::new(Script::new().fallback(|request| {
        Reply::text(format!("so {}", request.last_user_text().lines().last().unwrap_or_default()))
    }));
    stage.ask(&["plant the old tree"]).ok();
    let (code, screen) = Terminal::run(&stage, "EDITOR='sed -i s/old/young/' \"$MCODE\" threads resend latest").end();
    assert!(code == 0 && screen.contains("so plant the young tree"), "{screen}");
    let (code, screen) = Terminal::run(&stage, "VISUAL='sed -i d' \"$MCODE\" threads resend latest").end();
    assert!(code == 2 && screen.contains("nothing was sent"), "{screen}");
    // What was written is kept when it can not be sent.
    let (code, screen) =
        Terminal::run(&stage, "EDITOR='echo mine >' \"$MCODE\" threads resend latest -m no/such").end();
    assert!(code != 0 && screen.contains("what you wrote is in "), "{screen}");
    let file = screen.split("what you wrote is in ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "mine\n");
    std::fs::remove_file(file).unwrap();
}
