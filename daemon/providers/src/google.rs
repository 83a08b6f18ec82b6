//! Who asks Vertex AI: the project and place of the client, and tokens by its application default credentials.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use google_cloud_auth::credentials::{
    AccessTokenCredentials, external_account, impersonated, mds, service_account, user_account,
};
use mcode_models::{ModelError, ModelErrorKind, ModelRequest, Secret};
use mcode_text::chain;
use serde_json::Value;
use tokio::sync::Mutex;

/// What tokens are asked for.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Where models are asked that no place was named for.
const ANYWHERE: &str = "global";
/// Credentials that are remembered; they hold their token and renew it.
const KEPT_MAX: usize = 8;
/// How long a token may take.
const TOKEN_MAX: Duration = Duration::from_secs(20);
/// Largest file of credentials, in bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The variables that lead to an identity at Google.
pub(crate) const VARIABLES: &[&str] = &["GOOGLE_APPLICATION_CREDENTIALS", "HOME", "APPDATA"];

/// The base URL of a publisher's models on Vertex, by the client's environment. With a key and without a project it is
/// the one of express mode.
pub(crate) fn vertex_base(env: &BTreeMap<String, String>, publisher: &str) -> Result<String, ModelError> {
    let set = |names: &[&str]| {
        let found = names.iter().find_map(|name| env.get(*name).map(|value| value.trim()));
        found.filter(|value| !value.is_empty())
    };
    let project = set(&["GOOGLE_CLOUD_PROJECT", "GOOGLE_VERTEX_PROJECT"]);
    let location = set(&["GOOGLE_CLOUD_LOCATION", "GOOGLE_VERTEX_LOCATION"]).unwrap_or(ANYWHERE);
    let Some(project) = project else {
        if set(&["GOOGLE_CLOUD_API_KEY"]).is_some() {
            return Ok(format!("https://aiplatform.googleapis.com/v1/publishers/{publisher}"));
        }
        return Err(ModelError::new(
            ModelErrorKind::InvalidRequest,
            "it is not known which Google Cloud project to use",
        )
        .with_hint("Set GOOGLE_CLOUD_PROJECT (and GOOGLE_CLOUD_LOCATION), or GOOGLE_CLOUD_API_KEY."));
    };
    let legal =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':' | b'.' | b'_'));
    if !legal(project) || !legal(location) {
        return Err(ModelError::new(
            ModelErrorKind::InvalidRequest,
            "the Google Cloud project or location is not a name that can be used",
        )
        .with_hint("Check GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION."));
    }
    let host = if location == ANYWHERE { String::new() } else { format!("{location}-") };
    Ok(format!(
        "https://{host}aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/publishers/{publisher}"
    ))
}

/// By the file's content, the oldest first; `None` for those of the machine itself.
type Kept = VecDeque<(Option<Value>, Arc<AccessTokenCredentials>)>;

/// Finds and remembers credentials.
#[derive(Debug, Default)]
pub(crate) struct GoogleIdentities {
    kept: Mutex<Kept>,
}

impl GoogleIdentities {
    /// The header for a request that has no key but leads to an identity.
    pub(crate) async fn header(&self, request: &ModelRequest) -> Result<Option<(String, String)>, ModelError> {
        let access = &request.access;
        if access.key.is_some() || access.identity_env.is_empty() {
            return Ok(None);
        }
        let credentials = self.find(&access.identity_env).await?;
        let token = tokio::time::timeout(TOKEN_MAX, credentials.access_token()).await;
        let token = token.map_err(|_| no_token(&format!("nothing answered within {} s", TOKEN_MAX.as_secs())))?;
        let token = token.map_err(|error| no_token(&chain(&error)))?;
        Ok(Some(("authorization".to_owned(), format!("Bearer {}", token.token))))
    }

    async fn find(&self, env: &BTreeMap<String, Secret>) -> Result<Arc<AccessTokenCredentials>, ModelError> {
        let content = file(env).map(read).transpose()?;
        let mut kept = self.kept.lock().await;
        if let Some((_, credentials)) = kept.iter().find(|(known, _)| *known == content) {
            return Ok(Arc::clone(credentials));
        }
        let made = Arc::new(credentials(content.clone()).map_err(|error| no_token(&chain(&error)))?);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((content, Arc::clone(&made)));
        Ok(made)
    }
}

/// The named file, else the one that `gcloud auth application-default login` makes, if it is there.
fn file(env: &BTreeMap<String, Secret>) -> Option<PathBuf> {
    let value = |name: &str| env.get(name).map(Secret::expose).filter(|value| !value.is_empty());
    if let Some(named) = value("GOOGLE_APPLICATION_CREDENTIALS") {
        return Some(named.into());
    }
    let folder = match value("APPDATA") {
        Some(folder) if cfg!(windows) => PathBuf::from(folder).join("gcloud"),
        _ => PathBuf::from(value("HOME")?).join(".config/gcloud"),
    };
    Some(folder.join("application_default_credentials.json")).filter(|file| file.is_file())
}

fn read(file: PathBuf) -> Result<Value, ModelError> {
    let wrong = |reason: String| no_token(&format!("{}: {reason}", file.display()));
    let text = mcode_env::files::read_bounded(&file, FILE_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
    // Not the parser's words, which may quote what it read.
    serde_json::from_slice(&text).map_err(|_| wrong("it is not JSON".to_owned()))
}

fn credentials(content: Option<Value>) -> Result<AccessTokenCredentials, google_cloud_auth::build_errors::Error> {
    let Some(content) = content else {
        return mds::Builder::default().with_scopes([SCOPE]).build_access_token_credentials();
    };
    match content.get("type").and_then(Value::as_str) {
        Some("service_account") => service_account::Builder::new(content)
            .with_access_specifier(service_account::AccessSpecifier::from_scopes([SCOPE]))
            .build_access_token_credentials(),
        Some("impersonated_service_account") => {
            impersonated::Builder::new(content).with_scopes([SCOPE]).build_access_token_credentials()
        }
        Some("external_account") => {
            external_account::Builder::new(content).with_scopes([SCOPE]).build_access_token_credentials()
        }
        _ => user_account::Builder::new(content).with_scopes([SCOPE]).build_access_token_credentials(),
    }
}

fn no_token(reason: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Auth, format!("no Google Cloud token could be had: {reason}"))
        .with_hint("Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_address_holds_project_and_place() {
        let project = ("GOOGLE_CLOUD_PROJECT", "p-1");
        for (pairs, base) in [
            (
                vec![project, ("GOOGLE_CLOUD_LOCATION", "europe-west4")],
                "https://europe-west4-aiplatform.googleapis.com/v1/projects/p-1/locations/europe-west4/publishers/google",
            ),
            (vec![project], "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global/publishers/google"),
            (vec![("GOOGLE_CLOUD_API_KEY", "k")], "https://aiplatform.googleapis.com/v1/publishers/google"),
        ] {
            assert_eq!(vertex_base(&env(&pairs), "google").unwrap(), base);
        }
        assert!(vertex_base(&env(&[]), "google").unwrap_err().hint.contains("GOOGLE_CLOUD_PROJECT"));
        assert!(vertex_base(&env(&[("GOOGLE_CLOUD_PROJECT", "a/../b")]), "google").is_err());
    }

    #[tokio::test]
    async fn a_file_that_is_no_use_is_named_and_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        std::fs::write(&path, "{\"private_key\": \"SECRET").unwrap();
        let mut request = crate::testing::request("vertex/gemini-3-pro");
        let path = path.display().to_string();
        request.access.identity_env.insert("GOOGLE_APPLICATION_CREDENTIALS".into(), Secret::new(path.clone()));
        let error = GoogleIdentities::default().header(&request).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Auth);
        assert!(error.message.contains(&path) && !error.message.contains("SECRET"), "{error}");
    }
}
