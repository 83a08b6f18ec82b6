//! Who asks: credentials and region of the standard AWS chain, and signatures by them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::BehaviorVersion;
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use mcode_env::Clock;
use mcode_models::{ModelError, ModelErrorKind, ModelRequest};
use mcode_text::chain;
use tokio::sync::Mutex;

use crate::exchange::Call;
use crate::http::HttpClients;

/// The host into which the region is to be put.
const HOST_WITHOUT_REGION: &str = "bedrock-runtime.amazonaws.com";
/// The service that requests are signed for.
const SERVICE: &str = "bedrock";
/// Environments whose credentials are remembered.
const KEPT_MAX: usize = 8;
/// Credentials are looked for again so long before they end.
const BEFORE_END: Duration = Duration::from_secs(5 * 60);
/// Those without an end are looked for again after this time: a file may have changed.
const KEPT_FOR: Duration = Duration::from_secs(10 * 60);
/// How long the chain may take: it asks services of the network at its end.
const FIND_MAX: Duration = Duration::from_secs(20);
/// Largest answer of a service that gives credentials, in bytes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What the chain found for one environment.
#[derive(Debug, Clone)]
struct Identity {
    credentials: Credentials,
    region: Option<String>,
    until: SystemTime,
}

/// By environment, the oldest first.
type Kept = VecDeque<(BTreeMap<String, String>, Identity)>;

/// Finds and remembers identities.
#[derive(Debug)]
pub(super) struct Identities {
    clients: Arc<HttpClients>,
    clock: Arc<dyn Clock>,
    /// Held while the chain is asked: many threads that start together ask once.
    kept: Mutex<Kept>,
}

impl Identities {
    pub(super) fn new(clients: Arc<HttpClients>, clock: Arc<dyn Clock>) -> Self {
        Self { clients, clock, kept: Mutex::default() }
    }

    fn now(&self) -> SystemTime {
        let millis = u64::try_from(self.clock.now().millis()).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    /// Fills in the region and, where the call has no token, signs it.
    pub(super) async fn sign(&self, request: &ModelRequest, mut call: Call, body: &[u8]) -> Result<Call, ModelError> {
        let env = plain(request);
        let has_token = request.access.key.is_some();
        let named = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| env.get(*name)).cloned();
        let needs_region = call.url.host_str() == Some(HOST_WITHOUT_REGION);
        if has_token && (named.is_some() || !needs_region) {
            return fill_region(call, named.as_deref());
        }
        let identity = self.find(&env, request).await?;
        let region = named.or(identity.region.clone());
        call = fill_region(call, region.as_deref())?;
        if has_token {
            return Ok(call);
        }
        let region = region.or_else(|| region_of(call.url.host_str()?)).ok_or_else(no_region)?;
        signed(call, body, &identity.credentials, &region, self.now())
    }

    async fn find(&self, env: &BTreeMap<String, String>, request: &ModelRequest) -> Result<Identity, ModelError> {
        let mut kept = self.kept.lock().await;
        let now = self.now();
        kept.retain(|(_, identity)| identity.until > now);
        if let Some((_, identity)) = kept.iter().find(|(known, _)| known == env) {
            return Ok(identity.clone());
        }
        let client = self.clients.client(&request.access.network_env)?;
        let variables: HashMap<String, String> = env.clone().into_iter().collect();
        let finding = async {
            let config = aws_config::defaults(BehaviorVersion::latest())
                .env(variables.into())
                .http_client(Client(client))
                .load()
                .await;
            let region = config.region().map(|region| region.as_ref().to_owned());
            let provider = config.credentials_provider().ok_or_else(|| "there is no way to find them".to_owned())?;
            let credentials = provider.provide_credentials().await.map_err(|error| chain(&error))?;
            Ok::<_, String>((credentials, region))
        };
        let found = tokio::time::timeout(FIND_MAX, finding).await;
        let found = found.unwrap_or_else(|_| Err(format!("nothing was found within {} s", FIND_MAX.as_secs())));
        let (credentials, region) = found.map_err(|reason| no_credentials(&reason))?;
        let until = credentials.expiry().map_or(now + KEPT_FOR, |end| (end - BEFORE_END).max(now));
        let identity = Identity { credentials, region, until };
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((env.clone(), identity.clone()));
        Ok(identity)
    }
}

fn plain(request: &ModelRequest) -> BTreeMap<String, String> {
    let env = &request.access.identity_env;
    env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
}

fn fill_region(mut call: Call, region: Option<&str>) -> Result<Call, ModelError> {
    if call.url.host_str() == Some(HOST_WITHOUT_REGION) {
        let region = region.ok_or_else(no_region)?;
        let legal = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && !region.is_empty();
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let host = format!("bedrock-runtime.{region}.{domain}");
        if !legal || call.url.set_host(Some(&host)).is_err() {
            return Err(ModelError::new(ModelErrorKind::InvalidRequest, format!("'{region}' is not an AWS region"))
                .with_hint("Set AWS_REGION, such as us-east-1."));
        }
    }
    Ok(call)
}

/// The region in a host such as `bedrock-runtime.eu-west-1.amazonaws.com`.
fn region_of(host: &str) -> Option<String> {
    host.strip_prefix("bedrock-runtime.")?.split('.').next().map(str::to_owned)
}

fn signed(
    mut call: Call,
    body: &[u8],
    credentials: &Credentials,
    region: &str,
    now: SystemTime,
) -> Result<Call, ModelError> {
    let wrong = |error: &dyn std::error::Error| {
        ModelError::new(ModelErrorKind::InvalidRequest, format!("the request could not be signed: {}", chain(error)))
    };
    let identity = credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(SERVICE)
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| wrong(&error))?
        .into();
    let headers = [("content-type", "application/json")].into_iter();
    let signable = SignableRequest::new("POST", call.url.as_str(), headers, SignableBody::Bytes(body));
    let signable = signable.map_err(|error| wrong(&error))?;
    let (instructions, _) = sign(signable, &params).map_err(|error| wrong(&error))?.into_parts();
    let (headers, _) = instructions.into_parts();
    call.headers.extend(headers.iter().map(|header| (header.name().to_owned(), header.value().to_owned())));
    Ok(call)
}

fn no_region() -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, "it is not known which AWS region to ask")
        .with_hint("Set AWS_REGION, or `region` in the profile of ~/.aws/config.")
}

fn no_credentials(reason: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Auth, format!("no AWS credentials were found: {reason}")).with_hint(
        "Set AWS_BEARER_TOKEN_BEDROCK, or AWS_PROFILE (after `aws sso login`), or AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY.",
    )
}

/// Lets the chain reach services through our client, and so through the proxy and with the certificates of the user.
#[derive(Debug, Clone)]
struct Client(reqwest::Client);

impl HttpClient for Client {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Client {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let client = self.0.clone();
        HttpConnectorFuture::new(async move {
            let other = |error: Box<dyn std::error::Error + Send + Sync>| ConnectorError::other(error, None);
            let method = request.method().parse().map_err(|error| other(Box::new(error)))?;
            let mut sending = client.request(method, request.uri());
            for (name, value) in request.headers() {
                sending = sending.header(name, value);
            }
            let body = request.body().bytes().map(<[u8]>::to_vec).unwrap_or_default();
            let mut response =
                sending.body(body).send().await.map_err(|error| ConnectorError::io(Box::new(error.without_url())))?;
            let status = response.status().as_u16().try_into().map_err(|error| other(Box::new(error)))?;
            let mut bytes = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(|error| ConnectorError::io(Box::new(error)))? {
                if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                    return Err(ConnectorError::io("the answer is too large".into()));
                }
                bytes.extend_from_slice(&chunk);
            }
            let mut given = HttpResponse::new(status, SdkBody::from(bytes));
            for (name, value) in response.headers() {
                if let Ok(value) = value.to_str() {
                    given.headers_mut().append(name.as_str().to_owned(), value.to_owned());
                }
            }
            Ok(given)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(url: &str) -> Call {
        Call { url: url.parse().unwrap(), headers: Vec::new(), body: serde_json::json!({}) }
    }

    #[test]
    fn the_region_is_put_into_the_host_of_aws_only() {
        let url = "https://bedrock-runtime.amazonaws.com/model/m/converse-stream";
        let host =
            |url: &str, region| fill_region(call(url), region).map(|call| call.url.host_str().unwrap().to_owned());
        assert_eq!(host(url, Some("eu-west-1")).unwrap(), "bedrock-runtime.eu-west-1.amazonaws.com");
        assert_eq!(host(url, Some("cn-north-1")).unwrap(), "bedrock-runtime.cn-north-1.amazonaws.com.cn");
        assert_eq!(host("http://127.0.0.1:9/x", Some("eu-west-1")).unwrap(), "127.0.0.1");
        assert!(host(url, Some("evil.com/")).is_err() && host(url, None).is_err());
        assert_eq!(region_of("bedrock-runtime.eu-west-1.amazonaws.com").as_deref(), Some("eu-west-1"));
        assert_eq!(region_of("127.0.0.1"), None);
    }
}
