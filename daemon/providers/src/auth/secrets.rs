//! The secrets that this daemon has loaded or was given, so that they can be taken out of what is written down.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use mcode_models::Secret;

/// The most secrets that are remembered; the one that was not used for longest goes first.
const KNOWN_MAX: usize = 64;

/// Secrets, the one that was used last at the end.
#[derive(Debug, Default)]
pub(crate) struct KnownSecrets(Mutex<VecDeque<Secret>>);

impl KnownSecrets {
    /// Remembers one.
    pub(crate) fn note(&self, secret: &Secret) {
        if secret.expose().is_empty() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter().position(|other| other == secret) {
            Some(at) => drop(known.remove(at)),
            None if known.len() >= KNOWN_MAX => drop(known.pop_front()),
            None => {}
        }
        known.push_back(secret.clone());
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Secret> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_each_once() {
        let known = KnownSecrets::default();
        known.note(&Secret::new(""));
        for number in 0..KNOWN_MAX {
            known.note(&Secret::new(format!("secret-{number}")));
        }
        known.note(&Secret::new("secret-0"));
        known.note(&Secret::new("another"));
        let all = known.all();
        assert_eq!(all.len(), KNOWN_MAX);
        let has = |text: &str| all.contains(&Secret::new(text));
        assert!(has("secret-0") && has("another") && !has("secret-1"), "what is used stays");
        assert!(!format!("{known:?}").contains("secret-"));
    }
}
