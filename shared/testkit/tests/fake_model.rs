//! The `fake-model` program: script file in, port on stdout, log lines out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn it_serves_a_script_and_logs_requests() {
    let dir = tempfile::tempdir().unwrap();
    let (script, log) = (dir.path().join("s.json"), dir.path().join("log"));
    let text = r#"{"replies":[{"text":"one"},{"tool_calls":[{"name":"view","arguments":{"path":"f"}}]}],"loop":true}"#;
    std::fs::write(&script, text).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fake-model"))
        .arg("--script")
        .arg(&script)
        .arg("--log")
        .arg(&log)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let _child = Killed(child);
    let address = url.trim().strip_prefix("http://").unwrap();
    for expected in ["one", "view", "one"] {
        let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#;
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "POST /v1/messages HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(expected), "{answer}");
    }
    let lines: Vec<Value> =
        std::fs::read_to_string(&log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<_> = lines.iter().filter(|line| line["event"] == "request").collect();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0]["body"]["messages"][0]["content"], "hi");
    assert_eq!(lines.iter().filter(|line| line["event"] == "replied").count(), 3);
}

#[test]
fn help_is_given_without_a_script() {
    let output = Command::new(env!("CARGO_BIN_EXE_fake-model")).arg("--help").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(["--script FILE", "--port N", "--log FILE"].iter().all(|flag| text.contains(flag)), "{text}");
    for wire in ["anthropic", "openai-chat", "openai-responses", "gemini", "bedrock"] {
        assert!(text.contains(wire), "{wire}: {text}");
    }
}
