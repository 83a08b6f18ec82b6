//! The keyring of the operating system: Secret Service, Keychain, Credential Manager.
//!
//! Its calls block and may wait for somebody to unlock it, so each has a thread and an end. Whether there is one is tried
//! out once, with a real look-up.

use std::time::Duration;

use tokio::sync::OnceCell;

/// The name under which all of ours stands.
const SERVICE: &str = "mcode";
/// An entry that is never there: asking for it tells whether anything answers.
const PROBE: &str = "probe";
/// How long the keyring may take; it may have to be unlocked by its user.
const CALL_WAIT: Duration = Duration::from_secs(30);
/// The same for the question whether there is one.
const PROBE_WAIT: Duration = Duration::from_secs(5);

/// The keyring, if it may be used.
#[derive(Debug)]
pub(super) struct Ring {
    allowed: bool,
    usable: OnceCell<bool>,
}

impl Ring {
    pub(super) fn new(allowed: bool) -> Self {
        Self { allowed, usable: OnceCell::new() }
    }

    /// Whether there is one.
    pub(super) async fn is_usable(&self) -> bool {
        let probe = || async {
            if !self.allowed {
                return false;
            }
            let tried = within(PROBE_WAIT, || read(PROBE)).await;
            if let Err(reason) = &tried {
                tracing::info!(reason, "there is no keyring; logins are kept in a file");
            }
            tried.is_ok()
        };
        *self.usable.get_or_init(probe).await
    }

    /// What stands under a name.
    pub(super) async fn get(&self, user: String) -> Result<Option<String>, String> {
        self.check()?;
        within(CALL_WAIT, move || read(&user)).await
    }

    /// Puts a text under a name.
    pub(super) async fn set(&self, user: String, text: String) -> Result<(), String> {
        self.check()?;
        within(CALL_WAIT, move || entry(&user)?.set_password(&text).map_err(told)).await
    }

    /// Takes away what stands under a name.
    pub(super) async fn delete(&self, user: String) -> Result<(), String> {
        self.check()?;
        let delete = move || match entry(&user)?.delete_credential() {
            Ok(()) | Err(keyring::Error::NoEntry) => Ok(()),
            Err(error) => Err(told(error)),
        };
        within(CALL_WAIT, delete).await
    }

    fn check(&self) -> Result<(), String> {
        if self.allowed { Ok(()) } else { Err("MCODE_DISABLE turns the keyring off".to_owned()) }
    }
}

fn entry(user: &str) -> Result<keyring::Entry, String> {
    keyring::Entry::new(SERVICE, user).map_err(told)
}

fn read(user: &str) -> Result<Option<String>, String> {
    match entry(user)?.get_password() {
        Ok(text) => Ok(Some(text)),
        Err(keyring::Error::NoEntry) => Ok(None),
        Err(error) => Err(told(error)),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is used as a map of errors")]
fn told(error: keyring::Error) -> String {
    // Some of its errors carry what they could not decode.
    match error {
        keyring::Error::BadEncoding(_) => "what is in it is not text".to_owned(),
        other => mcode_text::chain(&other),
    }
}

/// Runs a call on a thread of its own, for at most `wait`. One that hangs keeps its thread.
async fn within<T: Send + 'static>(
    wait: Duration,
    call: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(wait, tokio::task::spawn_blocking(call)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Err(format!("the call failed: {error}")),
        Err(_) => Err(format!("no answer within {} s", wait.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_is_turned_off_is_never_asked() {
        let ring = Ring::new(false);
        assert!(!ring.is_usable().await);
        for outcome in [ring.get("x".into()).await.map(drop), ring.set("x".into(), "y".into()).await] {
            assert!(outcome.unwrap_err().contains("MCODE_DISABLE"));
        }
    }

    #[tokio::test]
    async fn a_call_that_hangs_has_an_end() {
        let (release, hang) = std::sync::mpsc::sync_channel::<()>(1);
        let hanging = move || {
            hang.recv().ok();
            Ok(())
        };
        assert!(within(Duration::from_millis(20), hanging).await.unwrap_err().contains("no answer"));
        release.send(()).unwrap();
    }
}
