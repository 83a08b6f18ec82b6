//! What the next daemon needs to go on with a run, and going on with one.
//!
//! A run leaves in its log what commands are run with and whether the daemon reaches the models by itself
//! ([`Kept`]); never a key. With that, whatever it waited for is waited for by the next daemon: its command, the answer
//! about a call. Then it goes on, or, when its key was the client's alone, ends as interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use mcode_agent::{AdoptedCall, Resumption};
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::run::{Kept, RunError, RunErrorKind, RunOptions, RunRecord};
use mcode_ids::{RunId, ThreadId, TurnId};

use crate::actor::Actor;
use crate::command::RunSurroundings;
use crate::deps::Deps;

/// Times that a run is gone on with; one whose daemon died more often ends.
pub const RESUMES_MAX: u32 = 20;

/// Variables that are kept for commands: none of them holds a secret.
const KEPT_NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_TARGET_DIR",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "JAVA_HOME",
    "NVM_DIR",
    "NODE_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "PYTHONPATH",
    "RBENV_ROOT",
    "GEM_HOME",
    "DOTNET_ROOT",
    "ANDROID_HOME",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "COMSPEC",
    "PATHEXT",
    "USERPROFILE",
    "USERNAME",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "TEMP",
    "TMP",
    "SSL_CERT_FILE",
    "NO_PROXY",
];
/// Those of them that say how servers are reached. A proxy may hold a password and is not kept.
const REACHING_NAMES: &[&str] = &["SSL_CERT_FILE", "NO_PROXY", "no_proxy"];
/// Beginnings of further such variables.
const KEPT_PREFIXES: &[&str] = &["LC_", "XDG_"];
/// Longest value that is kept, in bytes.
const KEPT_VALUE_BYTES_MAX: usize = 8 * 1024;

/// Threads whose run was left open by recovery, until their actor takes it up.
#[derive(Debug, Default)]
pub struct GoingOn(Mutex<BTreeSet<ThreadId>>);

impl GoingOn {
    pub(crate) fn add(&self, thread: ThreadId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(thread);
    }

    fn take(&self, thread: ThreadId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&thread)
    }
}

/// What of a client's environment is kept for commands.
fn kept_env(tool_env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let kept = |name: &str, value: &str| {
        let name = name.to_ascii_uppercase();
        (KEPT_NAMES.contains(&name.as_str()) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            && value.len() <= KEPT_VALUE_BYTES_MAX
            && !mcode_agent::secrets::looks_like_a_key(value)
    };
    tool_env
        .iter()
        .filter(|(name, value)| kept(name, value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The daemon's own environment, with what a client said of how servers are reached that is no secret.
pub(crate) fn own_env(deps: &Deps, kept: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut env = deps.own_env.as_ref().clone();
    for name in REACHING_NAMES {
        if let Some(value) = kept.get(*name) {
            env.entry((*name).to_owned()).or_insert_with(|| value.clone());
        }
    }
    env
}

impl Actor {
    /// Whether the next daemon goes on with the run at work if this one leaves commands to it.
    pub(crate) fn outlasts(&self) -> bool {
        self.attends() || self.waits()
    }

    /// What another daemon needs to go on with a run.
    pub(crate) fn kept(&self, surroundings: &RunSurroundings, options: &RunOptions, fallback: &[String]) -> Kept {
        let env = kept_env(&surroundings.tool_env);
        let own_env = own_env(&self.deps, &env);
        let same = |model: &String| {
            let resolve = |env| self.deps.models.resolve(model, env).map(|resolved| resolved.access);
            match (resolve(&surroundings.client_env), resolve(&own_env)) {
                // The very same, such as a stored login: what was begun with the client's own key must not be charged to
                // another one.
                (Ok(clients), Ok(own)) => clients == own,
                // A fallback that could not be used before can not be used later.
                (Err(_), _) => true,
                (Ok(_), Err(_)) => false,
            }
        };
        Kept { env, umask: surroundings.umask, own_access: same(&options.model) && fallback.iter().all(same) }
    }

    /// What a run that this daemon begins by itself works with, if the last one left enough for it.
    pub(crate) fn own_surroundings(&self, options: &RunOptions) -> Option<RunSurroundings> {
        let kept = options.kept.as_ref()?;
        Some(RunSurroundings {
            client_env: Arc::new(own_env(&self.deps, &kept.env)),
            tool_env: Arc::new(kept.env.clone()),
            umask: kept.umask,
        })
    }

    /// Whether the run at work waits for an answer, or for a provider, and the next daemon can go on waiting for that.
    pub(crate) fn waits(&self) -> bool {
        let Some(kept) = self.state.active_run().and_then(|run| run.options.kept.as_ref()) else { return false };
        let asked = !(self.state.open.approvals.is_empty() && self.state.open.questions.is_empty());
        asked || (kept.own_access && self.state.is_parked())
    }

    /// Goes on with what an earlier daemon left, if recovery left anything or a command of it was found.
    pub(crate) async fn resume_left(&mut self, attended: Vec<AdoptedCall>) {
        let untouched = self.deps.going_on.take(self.thread_id) && self.damage.is_none();
        let open = &self.state.open;
        let anything = !attended.is_empty() || untouched;
        let (Some(run_id), Some(turn_id), true) = (open.run, open.turn, anything) else { return };
        if let Err(error) = self.resume(run_id, turn_id, attended, untouched).await {
            tracing::error!(thread_id = %self.thread_id, %error, "a run could not be gone on with");
        }
    }

    async fn resume(
        &mut self,
        run_id: RunId,
        turn_id: TurnId,
        attended: Vec<AdoptedCall>,
        untouched: bool,
    ) -> Result<(), crate::error::ThreadError> {
        let Some(run) = self.state.run(run_id).cloned() else { return Ok(()) };
        self.append(vec![NewEvent::of_run(run_id, Some(turn_id), EventBody::RunResumed {})], None).await?;
        let end = self.obstacle(&run);
        tracing::info!(thread_id = %self.thread_id, %run_id, to_its_end = end.is_none(), "a run is gone on with");
        let surroundings = self.own_surroundings(&run.options).unwrap_or_else(|| RunSurroundings {
            client_env: Arc::default(),
            tool_env: Arc::default(),
            umask: 0o077,
        });
        let resumption = Resumption {
            turn_id,
            step_id: self.state.open.step,
            attended,
            untouched,
            table: Arc::clone(&self.deps.processes),
            end,
        };
        let left = self.time_left(&run);
        let working = self.working(run.options, surroundings).await?;
        self.spawn_resumed(run_id, working, resumption, left);
        Ok(())
    }

    /// Why the models of a run can not be asked again.
    fn obstacle(&self, run: &RunRecord) -> Option<RunError> {
        let kept = run.options.kept.as_ref().is_some_and(|kept| kept.own_access);
        let provider = run.options.model.split('/').next().unwrap_or_default();
        let why = if run.resumed >= RESUMES_MAX {
            format!("and that has happened {RESUMES_MAX} times")
        } else if !kept {
            format!(
                "and what '{provider}' is asked with (its key, its address or a proxy) was in the environment of the \
                 client, which is never stored"
            )
        } else {
            match self.deps.models.resolve(&run.options.model, &self.deps.own_env) {
                Ok(_) => return None,
                Err(error) => format!("and the model can not be asked: {}", error.message),
            }
        };
        Some(RunError {
            kind: RunErrorKind::Interrupted,
            reason: "INTERRUPTED".to_owned(),
            message: format!(
                "the daemon was restarted while the run was at work, {why}; what it waited for was seen to its end"
            ),
            hint: format!("go on with 'mcode ask --thread {} \"go on\"'", self.thread_id),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_holds_no_key() {
        let env: BTreeMap<String, String> = [
            ("PATH", "/usr/bin"),
            ("LC_ALL", "C"),
            ("Path", "C:\\bin"),
            ("MY_NOTE", "x"),
            ("TERM", "sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ("HTTPS_PROXY", "http://me:secret@proxy"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        assert_eq!(kept_env(&env).into_keys().collect::<Vec<_>>(), ["LC_ALL", "PATH", "Path"]);
    }
}
