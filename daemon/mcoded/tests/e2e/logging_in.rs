//! Logging in and out through the front door, and runs with what comes of it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;

use mcode_client::v1;
use mcode_testkit::oauth_issuer::{ACCOUNT, SECRET_MARK};
use mcode_testkit::{ModelServer, OauthIssuer, Output, RecordedRequest, Reply, Script, TestDaemon, Wire, Workspace};
use serde_json::json;

use crate::setup::{Stage, of_type};

/// The model of the provider that is logged in to.
const MODEL: &str = "example/m";

/// A stage whose model server takes the tokens of an issuer only.
struct Lobby {
    issuer: Arc<OauthIssuer>,
    stage: Stage,
}

/// Whether the request holds a token that is good now.
fn is_good(issuer: &OauthIssuer, request: &RecordedRequest) -> bool {
    let given = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
    given.is_some_and(|token| issuer.takes(token))
}

impl Lobby {
    fn new() -> Self {
        Self::answering(|_| Reply::text("hello"))
    }

    fn answering(answer: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Self {
        let issuer = Arc::new(OauthIssuer::start());
        let judge = Arc::clone(&issuer);
        let script = Script::new().fallback(move |request| {
            if is_good(&judge, request) {
                answer(request)
            } else {
                Reply::status(401).message("that token is not good")
            }
        });
        let server = ModelServer::start_blocking(script);
        let mut daemon = TestDaemon::prepare();
        daemon.write_config(&format!(
            "{}[providers.example]\nwire = \"openai-chat\"\nbase_url = \"{}\"\n\
             models = [{{ id = \"m\", context = 100000, max_output = 1000 }}]\n",
            issuer.section("example"),
            server.base_url(Wire::Chat)
        ));
        daemon.restart();
        Self { issuer, stage: Stage { server, daemon, workspace: Workspace::with_files([("f.txt", "one\ntwo\n")]) } }
    }

    /// Logs in as a user does: the address is opened in a browser.
    fn login(&self) -> Output {
        let begun = Begun::new(&self.stage, &["login", "example"]);
        assert!(self.issuer.browse(&begun.url).contains("close this page"));
        begun.end()
    }

    fn ask(&self) -> Output {
        self.stage.ask(&["-m", MODEL, "hi"])
    }
}

/// A `mcode login` at work, whose address was read from its stderr.
struct Begun {
    child: Child,
    url: String,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Begun {
    fn new(stage: &Stage, words: &[&str]) -> Self {
        Self::fed(stage, words, Stdio::null())
    }

    fn fed(stage: &Stage, words: &[&str], stdin: Stdio) -> Self {
        let mut command = stage.daemon.command(&stage.workspace.path(), words);
        let mut child = command.stdin(stdin).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let url = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "no address was shown");
            if line.trim().starts_with("http://") {
                break line.trim().to_owned();
            }
        };
        Self { child, url, stderr }
    }

    fn end(mut self) -> Output {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.stderr, &mut rest).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: rest,
        }
    }
}

#[test]
fn a_login_gives_the_token_renews_it_and_ends_with_the_logout() {
    let lobby = Lobby::new();
    let before = lobby.ask();
    assert_eq!(before.code, 5, "{before:#?}");
    assert!(before.stderr.contains("mcode login example"), "{before:#?}");
    let done = lobby.login().ok();
    assert!(done.stdout.contains(&format!("logged in to example as {ACCOUNT}")), "{done:#?}");
    assert!(done.stdout.contains("auth.json"), "{done:#?}");
    assert_eq!(lobby.ask().ok().stdout, "hello\n");
    // The issuer takes the token back: it is renewed once, and the run does not notice.
    lobby.issuer.end_access();
    assert_eq!(lobby.ask().ok().stdout, "hello\n");
    assert_eq!(lobby.issuer.renewals(), 1);
    // The next daemon has it too.
    let mut lobby = lobby;
    lobby.stage.daemon.kill9();
    lobby.stage.daemon.restart();
    assert_eq!(lobby.ask().ok().stdout, "hello\n");
    let models = lobby.stage.json(&["models", "list", "--provider", "example"]);
    assert_eq!(models["models"][0]["key_source"], format!("login of {ACCOUNT} (auth.json)"));
    let doctor = lobby.stage.mcode(&["doctor"]);
    assert!(doctor.stdout.contains(&format!("login for example of {ACCOUNT}, kept in ")), "{doctor:#?}");
    let out = lobby.stage.mcode(&["logout", "example"]).ok();
    assert!(out.stdout.contains("logged out of example"), "{out:#?}");
    let after = lobby.stage.ask(&["-m", MODEL, "--output", "json", "hi"]);
    assert_eq!((after.code, &after.json()["error"]["reason"]), (5, &json!("MODEL_NO_KEY")), "{after:#?}");
    assert!(after.json()["error"]["hint"].as_str().unwrap().contains("mcode login example"));
    assert_eq!(lobby.issuer.problems(), Vec::<String>::new());
}

/// Everything that a home holds, but for the place where logins are kept.
fn kept(stage: &Stage) -> String {
    let mut all = stage.daemon.log();
    let mut folders = vec![stage.daemon.home()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "auth.json") {
                all.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()));
            }
        }
    }
    all
}

#[test]
fn no_secret_of_a_login_gets_anywhere_else() {
    let mut lobby = Lobby::new();
    lobby.stage.daemon.set("MCODE_LOG", "trace");
    lobby.stage.daemon.restart();
    let mut told = String::new();
    let mut tell = |output: Output| told.push_str(&format!("{output:?}"));
    tell(lobby.login().ok());
    tell(lobby.stage.ask(&["-m", MODEL, "--json", "-v", "hi"]).ok());
    lobby.issuer.end_access();
    tell(lobby.stage.ask(&["-m", MODEL, "--json", "hi"]).ok());
    lobby.issuer.revoke();
    let revoked = lobby.stage.ask(&["-m", MODEL, "--output", "json", "hi"]);
    assert_eq!((revoked.code, &revoked.json()["error"]["reason"]), (5, &json!("LOGIN_REVOKED")), "{revoked:#?}");
    assert!(revoked.json()["error"]["hint"].as_str().unwrap().contains("mcode login example"), "{revoked:#?}");
    tell(revoked);
    tell(lobby.stage.mcode(&["login", "--output", "json"]).ok());
    tell(lobby.stage.mcode(&["doctor"]));
    let file = lobby.stage.daemon.home().join("data/auth.json");
    assert!(std::fs::read_to_string(&file).unwrap().contains(SECRET_MARK), "that is where they are");
    lobby.stage.daemon.stop();
    for text in [told, kept(&lobby.stage)] {
        let at = text.find(SECRET_MARK);
        assert!(at.is_none(), "{}", &text[at.unwrap().saturating_sub(300)..at.unwrap() + 30]);
    }
}

#[test]
fn keys_come_from_a_pipe_and_never_show() {
    let stage = Stage::new(Script::new().fallback(|request| {
        if request.headers.get("x-api-key").is_some_and(|key| key == "sk-ant-stored-0123456789") {
            Reply::text("by the stored key")
        } else {
            Reply::status(401).message("invalid x-api-key")
        }
    }));
    let mut stage = stage;
    stage.daemon.unset("ANTHROPIC_API_KEY");
    let piped = |words: &[&str], key: &str| stage.daemon.mcode_with(&stage.workspace.path(), words, key.as_bytes());
    let done = piped(&["login", "anthropic"], "sk-ant-stored-0123456789\n").ok();
    assert!(done.stdout.contains("the key of anthropic is kept in") && !done.stdout.contains("sk-ant"), "{done:#?}");
    // Said before it asks: whose subscription is not for us, and what to give instead.
    assert!(done.stderr.contains("Claude subscription") && done.stderr.contains("API key"), "{done:#?}");
    assert_eq!(stage.ask(&["hi"]).ok().stdout, "by the stored key\n");
    for (words, key) in [
        (&["login", "anthropic"][..], ""),
        (&["login", "anthropic", "--key"], "  \n"),
        (&["login", "anthropic"], "two words\n"),
    ] {
        let refused = piped(words, key);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:#?}");
    }
    // The environment's own key comes first; a wrong one has its own reason.
    let mut stage = stage;
    stage.daemon.set("ANTHROPIC_API_KEY", "sk-ant-wrong-0123456789");
    let wrong = stage.ask(&["--output", "json", "hi"]);
    assert_eq!((wrong.code, &wrong.json()["error"]["reason"]), (5, &json!("MODEL_AUTH")), "{wrong:#?}");
    assert!(wrong.json()["error"]["hint"].as_str().unwrap().contains("mcode login anthropic"), "{wrong:#?}");
    stage.daemon.unset("ANTHROPIC_API_KEY");
    // A key goes where it was given for, and nowhere else that an environment names.
    stage.daemon.set("ANTHROPIC_BASE_URL", "http://192.0.2.1:9");
    let elsewhere = stage.ask(&["hi"]);
    assert!(elsewhere.code == 5 && elsewhere.stderr.contains("its own address only"), "{elsewhere:#?}");
}

#[test]
fn a_pasted_code_comes_over_a_pipe_and_a_wrong_one_ends_it() {
    let lobby = Lobby::new();
    let wrong = Begun::fed(&lobby.stage, &["login", "example", "--paste"], Stdio::piped());
    let mut wrong = wrong;
    std::io::Write::write_all(&mut wrong.child.stdin.take().unwrap(), b"code=x&state=of-another\n").unwrap();
    let output = wrong.end();
    assert!(output.code == 5 && output.stderr.contains("another login"), "{output:#?}");
    let mut begun = Begun::fed(&lobby.stage, &["login", "example", "--paste", "--json"], Stdio::piped());
    let address = lobby.issuer.agree(&begun.url);
    std::io::Write::write_all(&mut begun.child.stdin.take().unwrap(), format!("{address}\n").as_bytes()).unwrap();
    let output = begun.end().ok();
    let lines = output.json_lines();
    assert_eq!((lines.len(), &lines[0]["flow"], &lines[1]["done"]), (2, &json!("paste"), &json!(true)), "{lines:#?}");
    assert_eq!(lines[1]["login"]["account"], ACCOUNT);
}

#[test]
fn ctrl_c_cancels_the_login_and_everybody_else_who_waits_is_told() {
    let lobby = Lobby::new();
    let (runtime, client) = lobby.stage.client();
    let begun = Begun::new(&lobby.stage, &["login", "example", "--json"]);
    let mut line = String::new();
    let mut begun = begun;
    let mut stdout = BufReader::new(begun.child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let started: serde_json::Value = serde_json::from_str(&line).unwrap();
    let login_id = started["login_id"].as_str().unwrap().to_owned();
    let waiting = runtime.spawn({
        let (client, login_id) = (client.clone(), login_id.clone());
        async move { client.complete_login(v1::CompleteLoginRequest { login_id, ..Default::default() }).await }
    });
    let pid = rustix::process::Pid::from_raw(i32::try_from(begun.child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(begun.child.wait().unwrap().code(), Some(130));
    let error = runtime.block_on(waiting).unwrap().unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit_code()), ("LOGIN_CANCELLED", 5));
}

#[test]
fn a_login_that_is_cut_by_the_end_of_the_daemon_or_by_another_one_says_so() {
    let mut lobby = Lobby::new();
    // Asked over, as by a person who has lost the first window.
    let (first, second) =
        (Begun::new(&lobby.stage, &["login", "example"]), Begun::new(&lobby.stage, &["login", "example"]));
    let output = first.end();
    assert!(output.code == 5 && output.stderr.contains("another login to 'example' was begun"), "{output:#?}");
    lobby.stage.daemon.restart();
    let output = second.end();
    assert!(output.code == 6 && output.stderr.contains("was cut: the daemon ends"), "{output:#?}");
    assert!(output.stderr.contains("mcode login example") && !output.stderr.contains("login_"), "{output:#?}");
    // One that dies says nothing; the next one does not know the login.
    let third = Begun::new(&lobby.stage, &["login", "example"]);
    lobby.stage.daemon.kill9();
    let output = third.end();
    assert!(output.code == 6 && output.stderr.contains("cut by a restart of the daemon"), "{output:#?}");
    assert!(output.stderr.contains("mcode login example") && !output.stderr.contains("login_"), "{output:#?}");
    lobby.stage.mcode(&["daemon", "stop"]).ok();
}

#[test]
fn a_tool_call_can_not_log_in_or_out() {
    let lobby = Lobby::answering(|request| match request.tool_results().last() {
        None => Reply::tool_calls([("shell", json!({"command": "sh try.sh"}))]),
        Some(_) => Reply::text("seen"),
    });
    lobby.stage.daemon.write_config(&format!(
        "{}\n[sandbox]\nenabled = false\n",
        std::fs::read_to_string(lobby.stage.daemon.home().join("config/config.toml")).unwrap()
    ));
    lobby.login().ok();
    let mcode = mcode_testkit::program("mcode");
    let mcode = format!("{} --socket {}", mcode.display(), lobby.stage.daemon.socket().display());
    let tries = ["logout example", "login", "login anthropic --key < key"];
    let lines: Vec<String> = tries.iter().map(|words| format!("{mcode} {words}; echo $?\n")).collect();
    lobby.stage.workspace.write("try.sh", lines.concat());
    lobby.stage.workspace.write("key", "sk-of-a-tool-0123456789");
    lobby.stage.ask(&["-m", MODEL, "--yolo", "hi"]).ok();
    let result = lobby.stage.server.request(2).tool_results()[0].1.clone();
    assert_eq!(result.matches("do it yourself in a terminal").count(), 3, "{result}");
    assert_eq!(result.lines().filter(|line| line.trim() == "4").count(), 3, "{result}");
    let logins = lobby.stage.json(&["login"]);
    assert_eq!(logins["logins"].as_array().unwrap().len(), 1, "{logins}");
}

/// The daemon dies after the issuer has rotated and before the pair is saved.
#[test]
fn a_crash_between_renewal_and_save_leaves_a_login_or_says_that_it_is_gone() {
    for lenient in [true, false] {
        let mut lobby = Lobby::new();
        lobby.login().ok();
        lobby.issuer.behave(|behaviour| {
            behaviour.holds = true;
            behaviour.lenient = lenient;
        });
        lobby.issuer.end_access();
        let asking = lobby.stage.daemon.spawn_mcode(&lobby.stage.workspace.path(), &["ask", "-m", MODEL, "hi"]);
        lobby.issuer.wait_for_renewals(1);
        lobby.stage.daemon.kill9();
        drop(asking);
        lobby.issuer.release();
        lobby.stage.daemon.restart();
        let output = lobby.ask();
        if lenient {
            // The issuer still takes the old one once more.
            assert_eq!(output.ok().stdout, "hello\n");
        } else {
            assert_eq!(output.code, 5, "{output:#?}");
            assert!(output.stderr.contains("mcode login example"), "{output:#?}");
            lobby.login().ok();
            assert_eq!(lobby.ask().ok().stdout, "hello\n");
        }
    }
}

#[test]
fn a_run_goes_on_after_a_restart_by_its_login() {
    let mut lobby = Lobby::answering(|request| {
        if request.tool_results().is_empty() {
            Reply::tool_calls([("shell", json!({"command": "echo x >> made"}))])
        } else {
            Reply::text("done")
        }
    });
    lobby.login().ok();
    let run = lobby.stage.detach(&["-m", MODEL, "--approve", "ask", "make it"]);
    let approval = lobby.stage.waiting("approvals");
    lobby.stage.daemon.kill9();
    lobby.stage.daemon.restart();
    lobby.stage.waiting("approvals");
    lobby.stage.mcode(&["approvals", "allow", approval["approval_id"].as_str().unwrap()]).ok();
    let events = lobby.stage.events(&run.thread_id);
    assert_eq!(of_type(&events, "run_finished")[0]["status"], "done", "{events:#?}");
}
