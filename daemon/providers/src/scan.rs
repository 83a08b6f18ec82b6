//! Looks for model servers on this machine, when a person asks: at the addresses where Ollama, LM Studio, llama.cpp and
//! vLLM usually are, and nowhere else.
//!
//! Whatever answers there may be anything: answers are bounded in time and size, and a name that could not stand in a
//! command line is left out. No proxy is used and no key is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use mcode_models::{FoundModel, FoundServer, ModelError};
use reqwest::{Client, Url};
use serde_json::{Value, json};

use crate::http::{self, HttpClients};

/// The servers that are looked for, by their provider's name.
pub const SERVERS: &[&str] = &["ollama", "lmstudio", "llamacpp", "vllm"];
/// Ends one question to a server.
pub const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Ends all questions to a server.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Most models that are taken from one server.
pub const MODELS_MAX: usize = 100;
/// Longest name of a model, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Asks the servers at these base URLs, all at the same time; `servers` are provider names with base URLs.
pub(crate) async fn scan(clients: &HttpClients, servers: Vec<(&'static str, String)>) -> Vec<FoundServer> {
    let client = clients.client(&BTreeMap::new());
    let looked = servers.into_iter().map(|(provider, base_url)| {
        let client = client.clone();
        async move {
            let mut found = FoundServer {
                provider: provider.to_owned(),
                base_url,
                answers: false,
                problem: String::new(),
                models: Vec::new(),
            };
            let asked = async {
                let server = Server::at(client.map_err(|error| error.message)?, &found.base_url)?;
                server.models(provider).await
            };
            match tokio::time::timeout(SERVER_TIMEOUT, Box::pin(asked)).await {
                Ok(Ok(models)) => (found.answers, found.models) = (true, models),
                Ok(Err(problem)) => found.problem = problem,
                Err(_) => found.problem = format!("no whole answer within {} s", SERVER_TIMEOUT.as_secs()),
            }
            found
        }
    });
    join_all(looked).await
}

/// A server at its root, without the `/v1` of the base URL.
struct Server {
    client: Client,
    root: Url,
}

impl Server {
    fn at(client: Client, base_url: &str) -> Result<Self, String> {
        let mut root = http::base(base_url, "").map_err(|error: ModelError| error.message)?;
        let path = root.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        root.set_path(&path);
        root.set_query(None);
        Ok(Self { client, root })
    }

    /// What the server has; the error says why this is not such a server.
    async fn models(&self, provider: &str) -> Result<Vec<FoundModel>, String> {
        match provider {
            "ollama" => {
                let tags = self.ask("api/tags", None).await?;
                let mut models = named(&tags, "/models", &["model", "name"], &[])?;
                for model in &mut models {
                    // What it serves is what its file says; what the model could hold would be cut off silently.
                    let shown = self.ask("api/show", Some(json!({ "model": model.id }))).await.unwrap_or_default();
                    model.context_tokens = shown.get("parameters").and_then(Value::as_str).and_then(num_ctx);
                }
                Ok(models)
            }
            "lmstudio" => match self.ask("api/v0/models", None).await {
                Ok(listed) => named(&listed, "/data", &["id"], &["loaded_context_length", "max_context_length"]),
                Err(_) => self.listed(&[]).await,
            },
            "llamacpp" => {
                let mut models = self.listed(&[]).await?;
                let props = self.ask("props", None).await.unwrap_or_default();
                let context = props.pointer("/default_generation_settings/n_ctx").or_else(|| props.get("n_ctx"));
                let context = context.and_then(tokens);
                models.iter_mut().for_each(|model| model.context_tokens = context);
                Ok(models)
            }
            _ => self.listed(&["max_model_len"]).await,
        }
    }

    /// The list that all servers like OpenAI's give.
    async fn listed(&self, context: &[&str]) -> Result<Vec<FoundModel>, String> {
        named(&self.ask("v1/models", None).await?, "/data", &["id"], context)
    }

    async fn ask(&self, path: &str, body: Option<Value>) -> Result<Value, String> {
        let mut url = self.root.clone();
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        let host = http::host(&url);
        let asking = async {
            let request = match body {
                Some(body) => self.client.post(url).header("content-type", "application/json").body(body.to_string()),
                None => self.client.get(url),
            };
            let mut response = request.send().await.map_err(|error| http::transport(&error, &host).message)?;
            if !response.status().is_success() {
                return Err(format!("something else answers at {host} (status {})", response.status().as_u16()));
            }
            let mut answer = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(|error| http::transport(&error, &host).message)? {
                if answer.len() + chunk.len() > ANSWER_BYTES_MAX {
                    return Err(format!("something else answers at {host}: more than {ANSWER_BYTES_MAX} bytes"));
                }
                answer.extend_from_slice(&chunk);
            }
            serde_json::from_slice(&answer).map_err(|_| format!("something else answers at {host}: no JSON"))
        };
        let late = || Err(format!("no answer from {host} within {} s", QUESTION_TIMEOUT.as_secs()));
        tokio::time::timeout(QUESTION_TIMEOUT, Box::pin(asking)).await.unwrap_or_else(|_| late())
    }
}

/// The models of a list, by the first of `names` that each has; `context` are the fields that may hold the window.
fn named(answer: &Value, list: &str, names: &[&str], context: &[&str]) -> Result<Vec<FoundModel>, String> {
    let Some(rows) = answer.pointer(list).and_then(Value::as_array) else {
        return Err("something else answers there: no list of models".to_owned());
    };
    let models = rows.iter().filter(|row| is_chat(row)).filter_map(|row| {
        let id = names.iter().find_map(|name| row.get(*name)?.as_str())?;
        let context_tokens = context.iter().find_map(|field| row.get(*field).and_then(tokens));
        is_name(id).then(|| FoundModel { id: id.to_owned(), context_tokens })
    });
    Ok(models.take(MODELS_MAX).collect())
}

/// Not one that makes vectors (LM Studio says so).
fn is_chat(row: &Value) -> bool {
    row.get("type").is_none_or(|kind| kind != "embeddings")
}

/// Whether a name can stand in a command line and in a file.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '`' | '$');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(fits)
}

fn tokens(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0)
}

/// The window in Ollama's list of parameters, one a line.
fn num_ctx(parameters: &str) -> Option<u32> {
    let mut lines = parameters.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    lines
        .find(|(name, _)| *name == "num_ctx")
        .and_then(|(_, value)| value.trim().parse().ok())
        .filter(|tokens| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_odd_names_left_out() {
        let answer = json!({"data": [{"id": "a", "max_model_len": 4096}, {"id": "b\u{1b}[31m"}, {"id": "c d"}, {"no": 1},
            {"id": "x".repeat(201)}, {"id": "$(x)"}, {"id": "e", "type": "embeddings"}, {"id": "n", "max_model_len": -1}]});
        let models = named(&answer, "/data", &["id"], &["max_model_len"]).unwrap();
        let told: Vec<(&str, Option<u32>)> =
            models.iter().map(|model| (model.id.as_str(), model.context_tokens)).collect();
        assert_eq!(told, [("a", Some(4096)), ("n", None)]);
        let many = json!({"data": vec![json!({"id": "m"}); MODELS_MAX + 5]});
        assert_eq!(named(&many, "/data", &["id"], &[]).unwrap().len(), MODELS_MAX);
        assert!(named(&json!({"data": {}}), "/data", &["id"], &[]).is_err());
    }

    #[test]
    fn the_window_is_read_from_ollamas_parameters() {
        assert_eq!(num_ctx("temperature   1\nnum_ctx    8192\n"), Some(8192));
        assert_eq!(num_ctx("temperature 1"), None);
    }
}
