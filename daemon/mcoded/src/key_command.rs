//! Runs the commands of `api_key = "command:…"`: they are the user's own, so they run outside of the sandbox and with the
//! daemon's environment, never with that of a client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcode_providers::auth::RunKeyCommand;
use mcode_sandbox::{CommandSpec, ExitState, LocalRunner, OutputPipe};

/// How long a command may take: somebody may have to type a passphrase.
const RUN_MAX: Duration = Duration::from_secs(40);
/// Most that is read of what it prints, in bytes.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// How long the rest of the output is waited for when the command has ended: what it started may hold the pipe.
const REST_WAIT: Duration = Duration::from_millis(200);

/// Runs such commands on this machine.
pub(crate) fn runner() -> RunKeyCommand {
    Arc::new(|command| {
        Box::pin(async move {
            match tokio::time::timeout(RUN_MAX, run(&command)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(format!("the command did not end within {} s", RUN_MAX.as_secs())),
            }
        })
    })
}

/// What it says on standard error may be anything and is not told.
fn words(command: &str) -> Vec<String> {
    let words: &[&str] =
        if cfg!(windows) { &["cmd", "/C"] } else { &["sh", "-c", "{ eval \"$1\"; } 2>/dev/null", "sh"] };
    words.iter().copied().chain([command]).map(str::to_owned).collect()
}

async fn run(command: &str) -> Result<String, String> {
    let env = mcode_env::process::vars();
    let home = ["HOME", "USERPROFILE"].iter().find_map(|name| env.get(*name)).map(PathBuf::from);
    let cwd = home.filter(|home| home.is_dir()).unwrap_or_else(|| PathBuf::from("/"));
    let spec = CommandSpec { argv: words(command), cwd, env, stdin: false, umask: None, policy: None };
    let mut child = LocalRunner.spawn(&spec).map_err(|error| mcode_text::chain(&error))?;
    let Some(mut output) = child.take_output() else { return Err("the command has no output".to_owned()) };
    let mut bytes = Vec::new();
    let state = tokio::select! {
        state = child.wait() => state,
        read = read(&mut output, &mut bytes) => {
            read?;
            child.wait().await
        }
    };
    let state = state.map_err(|error| error.to_string())?;
    // Cut off when something that the command started goes on.
    if let Ok(read) = tokio::time::timeout(REST_WAIT, read(&mut output, &mut bytes)).await {
        read?;
    }
    match state {
        ExitState { code: Some(0), .. } => {
            String::from_utf8(bytes).map_err(|_| "it prints what is not text".to_owned())
        }
        ExitState { code: Some(code), .. } => Err(format!("the command ended with status {code}")),
        ExitState { code: None, .. } => Err("the command was killed".to_owned()),
    }
}

async fn read(output: &mut OutputPipe, bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut piece = [0u8; 4096];
    loop {
        match output.read(&mut piece).await {
            Ok(0) => return Ok(()),
            Ok(length) if bytes.len() + length <= OUTPUT_BYTES_MAX => bytes.extend_from_slice(&piece[..length]),
            Ok(_) => return Err(format!("the command prints more than {OUTPUT_BYTES_MAX} bytes")),
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_command_prints_is_given_and_its_failure_told_without_it() {
        let run = |command: &str| (runner())(command.to_owned());
        assert_eq!(run("echo oops >&2; printf 'k-%s' \"$((40+2))\"").await.as_deref(), Ok("k-42"));
        let failed = run("echo SECRET; exit 3").await.unwrap_err();
        assert!(failed.contains("status 3") && !failed.contains("SECRET"), "{failed}");
        assert!(run("head -c 100000 /dev/zero | tr '\\0' x").await.unwrap_err().contains("more than"));
        // What goes on in the background is not waited for.
        assert_eq!(run("sleep 60 & echo key").await.as_deref(), Ok("key\n"));
    }
}
