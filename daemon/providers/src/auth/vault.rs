//! Where tokens and keys are kept: `auth.json` (0600) in the data folder holds what there is, and the secrets too where
//! the system has no keyring.
//!
//! A change is whole or it is not: written beside, synced and renamed, under a lock that other processes keep to. A file
//! that can not be read is told by its name and left as it is.

mod content;
mod ring;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcode_env::{FileLock, IdGen as _, SystemIds};
use serde::{Deserialize, Serialize};

pub(crate) use self::content::VaultError;
use self::content::{Content, Entry, Seen};
use self::ring::Ring;
use super::lock;

/// The file's name.
pub(super) const FILE: &str = "auth.json";
/// How long another process may hold the file.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// The word for what is kept in the keyring.
const KEYRING: &str = "keyring";

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Tokens of an OAuth login.
    Login,
    /// An API key.
    Key,
}

impl Kind {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Key => "key",
        }
    }

    /// The words for it, for people.
    pub(crate) const fn told(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Key => "stored key",
        }
    }
}

/// The secret part. `access` is the key where the kind is one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tokens {
    pub(crate) access: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh: Option<String>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(…)")
    }
}

/// What is known of a stored login without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) kind: Kind,
    /// Whose it is, for people.
    #[serde(default)]
    pub(crate) account: String,
    /// What goes along as a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account_id: Option<String>,
    /// When the access token ends, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ms: Option<i64>,
    /// When it was saved.
    pub(crate) saved_at_ms: i64,
    /// Whether there is a refresh token.
    #[serde(default)]
    pub(crate) renewable: bool,
    /// An address of the user's environment that it was given for, beside the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// Another one with every save.
    #[serde(default)]
    pub(crate) stamp: String,
    /// Whether the secrets are in the keyring.
    #[serde(default)]
    pub(crate) in_keyring: bool,
}

/// A stored login with its secrets.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) about: About,
    pub(crate) tokens: Tokens,
}

/// Keeps logins.
pub(crate) struct Vault {
    folder: PathBuf,
    ring: Arc<Ring>,
    seen: Mutex<Option<(Seen, Arc<Content>)>>,
    /// What was read from the keyring, by the stamp that it was saved with.
    read: Mutex<BTreeMap<String, (String, Tokens)>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Vault {
    /// The vault in this folder; the keyring is used where there is one and `keyring` says so.
    pub(crate) fn new(folder: PathBuf, keyring: bool) -> Self {
        Self {
            folder,
            ring: Arc::new(Ring::new(keyring)),
            seen: Mutex::default(),
            read: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// The file of a lock for what happens to one provider's login.
    pub(crate) fn lock_file(&self, provider: &str) -> PathBuf {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let name: String = provider
            .chars()
            .map(|c| if plain(c) { c.to_string() } else { format!("_{:x}", u32::from(c)) })
            .take(64)
            .collect();
        self.folder.join(format!("auth-{name}.lock"))
    }

    /// In words, where a login is kept.
    pub(crate) fn place(&self, about: &About) -> String {
        if about.in_keyring { KEYRING.to_owned() } else { self.file().display().to_string() }
    }

    /// All stored logins without their secrets. Cheap while the file stays as it is.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, About>, VaultError> {
        let content = self.content()?;
        Ok(content.logins.iter().map(|(name, entry)| (name.clone(), entry.about.clone())).collect())
    }

    /// One of them.
    pub(crate) fn about(&self, provider: &str) -> Result<Option<About>, VaultError> {
        Ok(self.content()?.logins.get(provider).map(|entry| entry.about.clone()))
    }

    fn content(&self) -> Result<Arc<Content>, VaultError> {
        let path = self.file();
        let seen = Seen::of(&path);
        let mut known = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, content)) = known.as_ref().filter(|(then, _)| *then == seen && seen.is_there()) {
            return Ok(Arc::clone(content));
        }
        let content = Arc::new(Content::read(&path)?);
        *known = Some((seen, Arc::clone(&content)));
        Ok(content)
    }

    /// A login with its secrets, as it is stored now.
    pub(crate) async fn load(&self, provider: &str) -> Result<Option<Login>, VaultError> {
        let content = self.content()?;
        let Some(entry) = content.logins.get(provider) else { return Ok(None) };
        let about = entry.about.clone();
        if let Some(tokens) = entry.tokens.clone() {
            return Ok(Some(Login { about, tokens }));
        }
        {
            let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, tokens)) = read.get(provider).filter(|(stamp, _)| *stamp == about.stamp) {
                return Ok(Some(Login { about, tokens: tokens.clone() }));
            }
        }
        let text = self.ring.get(content.user(provider)).await;
        let text = text.map_err(|reason| VaultError::Keyring { provider: provider.to_owned(), reason })?;
        let lost = |reason: &str| VaultError::Keyring { provider: provider.to_owned(), reason: reason.to_owned() };
        let text = text.ok_or_else(|| lost("it is not in the keyring any more"))?;
        let tokens: Tokens = serde_json::from_str(&text).map_err(|_| lost("what is in the keyring is not a login"))?;
        self.remember(provider, &about.stamp, &tokens);
        Ok(Some(Login { about, tokens }))
    }

    fn remember(&self, provider: &str, stamp: &str, tokens: &Tokens) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(provider.to_owned(), (stamp.to_owned(), tokens.clone()));
    }

    /// Stores a login in the place of what there was. When this returns, it is on the disk.
    pub(crate) async fn save(&self, provider: &str, login: &Login) -> Result<About, VaultError> {
        let _changing = self.changing.lock().await;
        let _held = self.hold().await?;
        let mut content = Content::read(&self.file())?;
        let mut about = login.about.clone();
        about.stamp = SystemIds.next().simple().to_string();
        about.in_keyring = self.put_in_ring(&content.user(provider), &login.tokens).await;
        let was_in_keyring = content.logins.get(provider).is_some_and(|entry| entry.about.in_keyring);
        let tokens = (!about.in_keyring).then(|| login.tokens.clone());
        content.logins.insert(provider.to_owned(), Entry { about: about.clone(), tokens });
        self.write(&content)?;
        if about.in_keyring {
            self.remember(provider, &about.stamp, &login.tokens);
        } else if was_in_keyring && let Err(reason) = self.ring.delete(content.user(provider)).await {
            tracing::warn!(provider, reason, "an old login could not be taken out of the keyring");
        }
        Ok(about)
    }

    async fn put_in_ring(&self, user: &str, tokens: &Tokens) -> bool {
        if !self.ring.is_usable().await {
            return false;
        }
        let Ok(text) = serde_json::to_string(tokens) else { return false };
        match self.ring.set(user.to_owned(), text).await {
            Ok(()) => true,
            Err(reason) => {
                tracing::warn!(reason, file = %self.file().display(), "the keyring takes no login; it goes to the file");
                false
            }
        }
    }

    /// Forgets a login; false when there was none.
    pub(crate) async fn remove(&self, provider: &str) -> Result<bool, VaultError> {
        let _changing = self.changing.lock().await;
        let _held = self.hold().await?;
        let mut content = Content::read(&self.file())?;
        let Some(entry) = content.logins.remove(provider) else { return Ok(false) };
        self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(provider);
        // First the secret: what is left after a crash in between says that it is gone.
        if entry.about.in_keyring {
            let gone = self.ring.delete(content.user(provider)).await;
            gone.map_err(|reason| VaultError::Keyring { provider: provider.to_owned(), reason })?;
        }
        self.write(&content)?;
        Ok(true)
    }

    async fn hold(&self) -> Result<FileLock, VaultError> {
        mcode_env::files::create_private_dir(&self.folder).map_err(|error| VaultError::io(&self.folder, &error))?;
        let path = self.folder.join("auth.lock");
        lock::take(&path, LOCK_WAIT).await.map_err(|error| VaultError::io(&path, &error))
    }

    fn write(&self, content: &Content) -> Result<(), VaultError> {
        let path = self.file();
        content.write(&path)?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// What is in the keyring under a name of the user's own.
    pub(crate) async fn named(&self, name: &str) -> Result<Option<String>, String> {
        self.ring.get(name.to_owned()).await
    }
}

/// Whether others than the user can read the file.
#[cfg(unix)]
pub(crate) fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
pub(crate) fn is_open_to_others(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests;
