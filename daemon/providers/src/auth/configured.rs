//! Keys that the user's configuration names without holding them: `keyring:NAME` and `command:CMD`.
//!
//! A command is the daemon's own and runs with the daemon's environment: what a client brings along may come from a tool
//! call, and must not decide what runs outside of the sandbox.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_models::{GiveKey, GivenKey, KeySource, ModelError, ModelErrorKind, Secret};
use tokio::time::{Instant, timeout_at};

use super::Auth;

/// Runs a command of the user's configuration and gives what it prints; the error says why not, without its output.
pub type RunKeyCommand = Arc<dyn Fn(String) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// The beginnings of such words.
pub(crate) const FORMS: &[&str] = &["keyring:", "command:"];
/// Keys that are remembered, so that not every request runs a command.
const REMEMBERED_MAX: usize = 16;
/// For so long, in milliseconds: what a password manager gives may change.
const REMEMBERED_FOR_MS: i64 = 15 * 60 * 1000;
/// For so long, in milliseconds, it is remembered that there was no key: many requests that come at once wait for one
/// attempt, and whoever has unlocked their password manager need not wait to try again.
const FAILED_FOR_MS: i64 = 5 * 1000;
/// How long a command or a keyring may take, whoever waits for the one that asks; both have bounds of their own below this.
const GIVE_WAIT: Duration = Duration::from_secs(45);
/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 16 * 1024;

/// A key, or why there was none.
type Fetched = Result<Secret, String>;

/// Keys by the words of the configuration, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    keys: Mutex<VecDeque<(String, Fetched, i64)>>,
    /// Held while the key of these words is fetched: many threads that start together ask once.
    fetching: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Remembered {
    fn find(&self, words: &str, now_ms: i64, refused: Option<&Secret>) -> Option<Fetched> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|(_, fetched, at)| {
            let lasts = if fetched.is_ok() { REMEMBERED_FOR_MS } else { FAILED_FOR_MS };
            (0..lasts).contains(&(now_ms - at))
        });
        let (_, fetched, _) = keys.iter().find(|(known, ..)| known == words)?;
        (fetched.as_ref().ok().is_none_or(|key| Some(key) != refused)).then(|| fetched.clone())
    }

    /// What is held while the key of these words is fetched. Those that nobody holds make room.
    fn fetching(&self, words: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        if !fetching.contains_key(words) && fetching.len() >= REMEMBERED_MAX {
            fetching.retain(|_, held| Arc::strong_count(held) > 1);
        }
        Arc::clone(fetching.entry(words.to_owned()).or_default())
    }

    fn remember(&self, words: &str, fetched: &Fetched, now_ms: i64) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|(known, ..)| known != words);
        if keys.len() >= REMEMBERED_MAX {
            keys.pop_front();
        }
        keys.push_back((words.to_owned(), fetched.clone(), now_ms));
    }
}

/// A key of the configuration, by the words that name it.
struct Configured {
    auth: Arc<Auth>,
    provider: String,
    words: String,
    /// [`GIVE_WAIT`].
    wait: Duration,
}

/// The source of such a key; `None` when the words are no such form.
pub(crate) fn source(auth: &Arc<Auth>, provider: &str, words: &str) -> Option<KeySource> {
    let form = FORMS.iter().find(|form| words.starts_with(**form))?.trim_end_matches(':');
    let (provider_of, words) = (provider.to_owned(), words.to_owned());
    let giver = Configured { auth: Arc::clone(auth), provider: provider_of, words, wait: GIVE_WAIT };
    // Not the words: what follows may be a secret.
    Some(KeySource::new(format!("{form} of [providers.{provider}]"), Arc::new(giver)))
}

impl GiveKey for Configured {
    fn give<'a>(&'a self, refused: Option<&'a Secret>) -> BoxFuture<'a, Result<GivenKey, ModelError>> {
        Box::pin(async move {
            let key = self.found(refused).await.map_err(|reason| self.no_key(&reason))?;
            self.auth.keeper.secrets.note(&key);
            Ok(GivenKey { key, headers: Vec::new(), base_url: None })
        })
    }
}

impl Configured {
    async fn found(&self, refused: Option<&Secret>) -> Fetched {
        let remembered = &self.auth.remembered;
        let now = || self.auth.keeper.now_ms();
        if let Some(fetched) = remembered.find(&self.words, now(), refused) {
            return fetched;
        }
        let late = || format!("nothing came within {} s", self.wait.as_secs());
        let deadline = Instant::now() + self.wait;
        let fetching = remembered.fetching(&self.words);
        let _fetching = timeout_at(deadline, fetching.lock()).await.map_err(|_| late())?;
        if let Some(fetched) = remembered.find(&self.words, now(), refused) {
            return fetched;
        }
        let text = timeout_at(deadline, self.fetch()).await.unwrap_or_else(|_| Err(late()));
        let fetched = text.and_then(|text| checked(&text));
        remembered.remember(&self.words, &fetched, now());
        fetched
    }

    async fn fetch(&self) -> Result<String, String> {
        if let Some(command) = self.words.strip_prefix("command:") {
            return (self.auth.run_command)(command.to_owned()).await;
        }
        let name = self.words.strip_prefix("keyring:").unwrap_or_default();
        let found = self.auth.keeper.vault.named(name).await?;
        found.ok_or_else(|| format!("the keyring holds nothing for the service 'mcode' and the name '{name}'"))
    }

    fn no_key(&self, reason: &str) -> ModelError {
        let form = self.words.split(':').next().unwrap_or_default();
        ModelError::new(
            ModelErrorKind::Auth,
            format!("[providers.{}] api_key = \"{form}:…\" gives no key: {reason}", self.provider),
        )
        .with_hint(format!("Mend api_key in config.toml, or store a key with: mcode login {} --key", self.provider))
    }
}

/// A key as it can be sent.
pub(crate) fn checked(text: &str) -> Result<Secret, String> {
    let key = text.trim();
    if key.is_empty() {
        return Err("it is empty".to_owned());
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(format!("it is longer than {KEY_BYTES_MAX} bytes"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("it is not one word of plain letters, digits and signs".to_owned());
    }
    Ok(Secret::new(key))
}

#[cfg(test)]
mod tests {
    use mcode_env::ManualClock;

    use super::*;

    #[test]
    fn keys_are_one_word() {
        assert_eq!(checked(" sk-1\n").unwrap().expose(), "sk-1");
        for (text, words) in [
            ("", "empty"),
            ("a b", "one word"),
            ("a\nb", "one word"),
            ("ké", "one word"),
            (&"x".repeat(KEY_BYTES_MAX + 1), "longer"),
        ] {
            assert!(checked(text).unwrap_err().contains(words), "{words}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_time() {
        let remembered = Remembered::default();
        for number in 0..=REMEMBERED_MAX {
            remembered.remember(&format!("command:{number}"), &Ok(Secret::new("k")), 0);
        }
        assert_eq!(remembered.find("command:0", 0, None), None);
        let key = remembered.find("command:1", 0, None).unwrap().unwrap();
        assert_eq!(remembered.find("command:1", 0, Some(&key)), None, "one that was refused is fetched anew");
        assert_eq!(remembered.find("command:1", REMEMBERED_FOR_MS, None), None);
        for number in 0..=REMEMBERED_MAX {
            remembered.fetching(&format!("command:{number}"));
        }
        assert!(remembered.fetching.lock().unwrap().len() <= REMEMBERED_MAX);
    }

    /// Logins whose commands `hang`, `fail` or give a key, and what was run.
    fn auth(clock: &Arc<ManualClock>) -> (tempfile::TempDir, Arc<Auth>, Arc<Mutex<Vec<String>>>) {
        let folder = tempfile::tempdir().unwrap();
        let config = Arc::new(mcode_config::Effective::default());
        let mut parts =
            super::super::AuthParts::in_folder(folder.path().to_path_buf(), Arc::new(move || Arc::clone(&config)));
        parts.clock = Arc::clone(clock) as Arc<dyn mcode_env::Clock>;
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&log);
        parts.run_command = Arc::new(move |command| {
            seen.lock().unwrap().push(command.clone());
            Box::pin(async move {
                match command.as_str() {
                    "hang" => std::future::pending().await,
                    "fail" => Err("the command ended with status 1".to_owned()),
                    other => Ok(format!("key-of-{other}")),
                }
            })
        });
        (folder, Auth::new(parts), log)
    }

    #[tokio::test]
    async fn a_command_that_hangs_holds_up_its_own_provider_alone_and_for_a_bounded_time() {
        let (_folder, auth, runs) = auth(&Arc::default());
        let (hanging, other) =
            (source(&auth, "a", "command:hang").unwrap(), source(&auth, "b", "command:good").unwrap());
        let given = tokio::select! {
            biased;
            hung = hanging.give(None) => panic!("{hung:?}"),
            given = other.give(None) => given.unwrap(),
        };
        assert_eq!(given.key.expose(), "key-of-good");
        assert_eq!(auth.known_secrets(), [given.key]);
        let words = "command:hang".to_owned();
        let wait = Duration::from_millis(50);
        let short = Configured { auth: Arc::clone(&auth), provider: "a".into(), words, wait };
        // One asks, the other waits for it, and neither longer than the one deadline.
        let (first, second) = tokio::join!(short.give(None), short.give(None));
        for outcome in [first, second] {
            assert!(outcome.unwrap_err().message.contains("nothing came"));
        }
        assert_eq!(*runs.lock().unwrap(), ["hang", "good", "hang"]);
    }

    #[tokio::test]
    async fn a_command_that_fails_is_left_alone_for_some_seconds() {
        let clock = Arc::new(ManualClock::default());
        let (_folder, auth, runs) = auth(&clock);
        let failing = source(&auth, "a", "command:fail").unwrap();
        for _ in 0..3 {
            assert!(failing.give(None).await.unwrap_err().message.contains("status 1"));
        }
        assert_eq!(runs.lock().unwrap().len(), 1);
        clock.advance_millis(FAILED_FOR_MS);
        failing.give(None).await.unwrap_err();
        assert_eq!(runs.lock().unwrap().len(), 2);
    }
}
