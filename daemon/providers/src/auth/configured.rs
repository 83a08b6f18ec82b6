//! Keys that the user's configuration names without holding them: `keyring:NAME` and `command:CMD`.
//!
//! A command is the daemon's own and runs with the daemon's environment: what a client brings along may come from a tool
//! call, and must not decide what runs outside of the sandbox.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use mcode_models::{GiveKey, GivenKey, KeySource, ModelError, ModelErrorKind, Secret};

use super::Auth;

/// Runs a command of the user's configuration and gives what it prints; the error says why not, without its output.
pub type RunKeyCommand = Arc<dyn Fn(String) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// The beginnings of such words.
pub(crate) const FORMS: &[&str] = &["keyring:", "command:"];
/// Keys that are remembered, so that not every request runs a command.
const REMEMBERED_MAX: usize = 16;
/// For so long, in milliseconds: what a password manager gives may change.
const REMEMBERED_FOR_MS: i64 = 15 * 60 * 1000;
/// How long a command or a keyring may take; both have bounds of their own below this.
const GIVE_WAIT: Duration = Duration::from_secs(45);
/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 16 * 1024;

/// Keys by the words of the configuration, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    keys: Mutex<VecDeque<(String, Secret, i64)>>,
    /// Held while one is fetched: many threads that start together ask once.
    pub(crate) fetching: tokio::sync::Mutex<()>,
}

impl Remembered {
    fn find(&self, words: &str, now_ms: i64, refused: Option<&Secret>) -> Option<Secret> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|(_, _, at)| (0..REMEMBERED_FOR_MS).contains(&(now_ms - at)));
        let (_, key, _) = keys.iter().find(|(known, ..)| known == words)?;
        (Some(key) != refused).then(|| key.clone())
    }

    fn remember(&self, words: &str, key: &Secret, now_ms: i64) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|(known, ..)| known != words);
        if keys.len() >= REMEMBERED_MAX {
            keys.pop_front();
        }
        keys.push_back((words.to_owned(), key.clone(), now_ms));
    }
}

/// A key of the configuration, by the words that name it.
struct Configured {
    auth: Arc<Auth>,
    provider: String,
    words: String,
}

/// The source of such a key; `None` when the words are no such form.
pub(crate) fn source(auth: &Arc<Auth>, provider: &str, words: &str) -> Option<KeySource> {
    let form = FORMS.iter().find(|form| words.starts_with(**form))?.trim_end_matches(':');
    let giver = Configured { auth: Arc::clone(auth), provider: provider.to_owned(), words: words.to_owned() };
    // Not the words: what follows may be a secret.
    Some(KeySource::new(format!("{form} of [providers.{provider}]"), Arc::new(giver)))
}

impl GiveKey for Configured {
    fn give<'a>(
        &'a self,
        refused: Option<&'a Secret>,
        _network_env: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<GivenKey, ModelError>> {
        Box::pin(async move {
            let remembered = &self.auth.remembered;
            let now = || self.auth.keeper.now_ms();
            let given = |key: Secret| GivenKey { key, headers: Vec::new(), base_url: None };
            if let Some(key) = remembered.find(&self.words, now(), refused) {
                return Ok(given(key));
            }
            let _fetching = remembered.fetching.lock().await;
            if let Some(key) = remembered.find(&self.words, now(), refused) {
                return Ok(given(key));
            }
            let fetched = tokio::time::timeout(GIVE_WAIT, self.fetch()).await;
            let fetched = fetched.unwrap_or_else(|_| Err(format!("nothing came within {} s", GIVE_WAIT.as_secs())));
            let key = fetched.and_then(|text| checked(&text)).map_err(|reason| self.no_key(&reason))?;
            remembered.remember(&self.words, &key, now());
            Ok(given(key))
        })
    }
}

impl Configured {
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
            remembered.remember(&format!("command:{number}"), &Secret::new("k"), 0);
        }
        assert_eq!(remembered.find("command:0", 0, None), None);
        let key = remembered.find("command:1", 0, None).unwrap();
        assert_eq!(remembered.find("command:1", 0, Some(&key)), None, "one that was refused is fetched anew");
        assert_eq!(remembered.find("command:1", REMEMBERED_FOR_MS, None), None);
    }
}
