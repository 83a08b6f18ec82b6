//! The catalogue on demand: fetched when a person asks for it, checked, kept in the data folder, loaded at the start.
//!
//! What is fetched is other people's text. It can add figures of models; it names no address, no key and no program.
//! One that is damaged, too large or not believable changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use mcode_env::{Clock as _, SystemClock};
use mcode_models::{Catalogue, CatalogueState, ModelError, ModelErrorKind, ModelInfo, Refreshed};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Registry;
use crate::http;

/// Where the list comes from when nobody names another place: models.dev (MIT, Copyright (c) 2025 models.dev).
pub const USUAL_SOURCE: &str = "https://models.dev/api.json";
/// The largest list that is taken, in bytes; models.dev's has some 3 MB.
pub const BYTES_MAX: usize = 32 * 1024 * 1024;
/// What is kept beside the list is smaller than this, in bytes.
const KEPT_BESIDE: usize = 16 * 1024;
/// Ends a fetch.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest silence within it.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What is kept, as it is written.
#[derive(Serialize, Deserialize)]
struct Kept<'a> {
    source: String,
    fetched_at_ms: i64,
    #[serde(borrow)]
    providers: &'a RawValue,
}

/// What was fetched and is kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Renewal {
    /// The file that it is kept in; `None` keeps nothing.
    file: Option<PathBuf>,
    source: String,
    fetched_at_ms: Option<i64>,
    problem: String,
}

impl Registry {
    /// Keeps fetched catalogues in this file, and takes the one that is there.
    #[must_use]
    pub fn keeping_catalogue(self, file: PathBuf) -> Self {
        let mut renewal = Renewal { file: Some(file.clone()), ..Renewal::default() };
        match load(&file) {
            Ok(None) => {}
            Ok(Some((newer, source, at_ms))) => {
                self.refresh(&newer);
                (renewal.source, renewal.fetched_at_ms) = (source, Some(at_ms));
            }
            Err(problem) => {
                tracing::warn!(file = %file.display(), problem, "the fetched catalogue is not used");
                renewal.problem = problem;
            }
        }
        *self.renewal() = renewal;
        self
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn catalogue_state(&self) -> CatalogueState {
        let renewal = self.renewal().clone();
        CatalogueState {
            source: renewal.source,
            fetched_at_ms: renewal.fetched_at_ms,
            models: self.catalogue().models().len(),
            problem: renewal.problem,
        }
    }

    pub(super) async fn renew(&self, from: &str, env: &BTreeMap<String, String>) -> Result<Refreshed, ModelError> {
        let source = if from.trim().is_empty() { USUAL_SOURCE } else { from.trim() };
        let text = if Path::new(source).is_absolute() {
            let path = PathBuf::from(source);
            blocking(move || read_file(&path, BYTES_MAX)).await?
        } else {
            self.fetch(source, env).await?
        };
        let shown = without_secrets(source);
        let (text, newer) = blocking(move || {
            let newer = check(&text)?;
            Ok((text, newer))
        })
        .await
        .map_err(|error| ModelError { message: format!("{shown}: {}", error.message), ..error })?;
        let fetched_at_ms = SystemClock.now().millis();
        let source = without_secrets(source);
        let file = self.renewal().file.clone();
        if let Some(file) = file {
            let kept_source = source.clone();
            blocking(move || keep(&file, &text, kept_source, fetched_at_ms)).await?;
        }
        let before = self.catalogue();
        self.refresh(&newer);
        {
            let mut renewal = self.renewal();
            (renewal.source, renewal.fetched_at_ms, renewal.problem) = (source, Some(fetched_at_ms), String::new());
        }
        let after = self.catalogue();
        let (added, changed) = differences(&before, &after);
        tracing::info!(added, changed, left_out = newer.left_out(), "the catalogue was renewed");
        Ok(Refreshed { state: self.catalogue_state(), added, changed, left_out: newer.left_out() })
    }

    async fn fetch(&self, source: &str, env: &BTreeMap<String, String>) -> Result<String, ModelError> {
        let url = http::base(source, "").map_err(|error| {
            ModelError::new(ModelErrorKind::InvalidRequest, error.message.replace("the base URL", "the address"))
                .with_hint("Give an http or https address, or the absolute path of a file.")
        })?;
        let host = http::host(&url);
        let (clients, network) = (Arc::clone(&self.clients), crate::http::network_env(env));
        let client = blocking(move || clients.client(&network)).await?;
        let fetching = async {
            let mut response = client.get(url).send().await.map_err(|error| http::transport(&error, &host))?;
            let status = response.status();
            if !status.is_success() {
                let to = response.headers().get("location").and_then(|to| to.to_str().ok());
                let hint = to
                    .filter(|_| status.is_redirection())
                    .map(|to| format!("It points to {to}: name that with --from."));
                return Err(refused(format!("{host} answered with status {}", status.as_u16()))
                    .with_hint(hint.unwrap_or_else(|| "Check the address.".to_owned())));
            }
            let mut body = Vec::new();
            loop {
                let chunk = tokio::time::timeout(SILENCE_MAX, response.chunk()).await.map_err(|_| {
                    ModelError::new(
                        ModelErrorKind::Transport,
                        format!("{host} went silent for {} s", SILENCE_MAX.as_secs()),
                    )
                })?;
                let Some(chunk) = chunk.map_err(|error| http::transport(&error, &host))? else { break };
                if body.len() + chunk.len() > BYTES_MAX {
                    return Err(too_large(&host));
                }
                body.extend_from_slice(&chunk);
            }
            String::from_utf8(body).map_err(|_| refused(format!("what {host} sent is no text")))
        };
        tokio::time::timeout(FETCH_TIMEOUT, Box::pin(fetching)).await.unwrap_or_else(|_| {
            let text = format!("{host} did not send the list within {} s", FETCH_TIMEOUT.as_secs());
            Err(ModelError::new(ModelErrorKind::Transport, text))
        })
    }
}

/// How many models are new, and of how many something else is known.
fn differences(before: &Catalogue, after: &Catalogue) -> (usize, usize) {
    let known: BTreeMap<&str, &ModelInfo> = before.models().iter().map(|info| (info.id.as_str(), info)).collect();
    let (mut added, mut changed) = (0, 0);
    for info in after.models() {
        match known.get(info.id.as_str()) {
            None => added += 1,
            Some(old) if *old != info => changed += 1,
            Some(_) => {}
        }
    }
    (added, changed)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ModelError> + Send + 'static,
) -> Result<T, ModelError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(refused(format!("it could not be done: {error}"))))
}

fn refused(text: String) -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, text)
}

fn too_large(what: &str) -> ModelError {
    refused(format!("the list of {what} is larger than {} MB", BYTES_MAX / 1024 / 1024))
}

fn read_file(path: &Path, bytes_max: usize) -> Result<String, ModelError> {
    let shown = path.display();
    let failed = |error: &dyn std::fmt::Display| refused(format!("{shown} can not be read: {error}"));
    mcode_env::files::read_text_bounded(path, bytes_max as u64).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => too_large(&shown.to_string()),
        _ => failed(&error),
    })
}

/// The catalogue that a text is.
fn check(text: &str) -> Result<Catalogue, ModelError> {
    match Catalogue::parse(text) {
        Some(newer) if !newer.models().is_empty() => Ok(newer),
        Some(_) => Err(refused("there is no model in this list".to_owned())),
        None => Err(refused("this is no list of models in the form of models.dev".to_owned())),
    }
    .map_err(|error| error.with_hint("The catalogue stays as it is."))
}

fn keep(file: &Path, text: &str, source: String, fetched_at_ms: i64) -> Result<(), ModelError> {
    let failed = |error: &dyn std::fmt::Display| {
        refused(format!("the list can not be kept in {}: {error}", file.display()))
            .with_hint("Make room on the disk, or make the folder writable.")
    };
    let providers: &RawValue = serde_json::from_str(text).map_err(|error| failed(&error))?;
    let written = serde_json::to_vec(&Kept { source, fetched_at_ms, providers }).map_err(|error| failed(&error))?;
    mcode_env::files::write_atomic(file, &written).map_err(|error| failed(&error))
}

type Loaded = Option<(Catalogue, String, i64)>;

/// What is kept; `None` when nothing is.
fn load(file: &Path) -> Result<Loaded, String> {
    if !file.exists() {
        return Ok(None);
    }
    let what = file.display();
    let text = read_file(file, BYTES_MAX + KEPT_BESIDE).map_err(|error| error.message)?;
    let kept: Kept<'_> =
        serde_json::from_str(&text).map_err(|error| format!("{what} is damaged ({error}); fetch it again"))?;
    let newer = check(kept.providers.get()).map_err(|error| format!("{what}: {}; fetch it again", error.message))?;
    Ok(Some((newer, kept.source, kept.fetched_at_ms)))
}

/// An address without user, password and query.
fn without_secrets(source: &str) -> String {
    let plain = source.split(['?', '#']).next().unwrap_or_default();
    match (plain.split_once("://"), plain.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_what_is_damaged_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("catalogue.json");
        assert!(load(&file).unwrap().is_none());
        let list = r#"{"p": {"models": {"m": {"limit": {"context": 10, "output": 5}}}}}"#;
        keep(&file, list, "https://h/api.json".into(), 7).unwrap();
        let (newer, source, at_ms) = load(&file).unwrap().unwrap();
        assert_eq!((newer.models().len(), source.as_str(), at_ms), (1, "https://h/api.json", 7));
        let whole = std::fs::read_to_string(&file).unwrap();
        for damaged in [&whole[..whole.len() / 2], "", "{}", &whole.replace("10", "-10")] {
            std::fs::write(&file, damaged).unwrap();
            assert!(load(&file).unwrap_err().contains("fetch it again"), "{damaged}");
        }
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        assert!(read_file(&dir.path().join("folder"), 10).unwrap_err().message.contains("it is a folder"));
        std::fs::write(&file, "x".repeat(11)).unwrap();
        assert!(read_file(&file, 10).is_err() && read_file(&file, 11).is_ok());
    }

    #[test]
    fn addresses_are_told_without_secrets() {
        for (source, shown) in [
            ("https://user:pw@h/x?key=1", "https://h/x"),
            ("https://h/api.json", "https://h/api.json"),
            ("/tmp/a.json", "/tmp/a.json"),
        ] {
            assert_eq!(without_secrets(source), shown);
        }
    }
}
