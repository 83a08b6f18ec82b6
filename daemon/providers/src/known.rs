//! The providers that work with a key alone, as data.

use std::collections::BTreeMap;

use mcode_models::{KeyPlace, ModelError, ModelErrorKind, Wire};

use crate::google;

/// A provider we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProvider {
    /// The part of a model's full name before the slash.
    pub name: &'static str,
    /// How it is spoken to.
    pub wire: Wire,
    /// Where it is.
    pub base_url: &'static str,
    /// Variables that may hold a key; the first that is set counts.
    pub key_env: &'static [&'static str],
    /// Variables that may hold another base URL.
    pub base_url_env: &'static [&'static str],
    /// Whether it wants a key.
    pub needs_key: bool,
    /// The header for a key.
    pub key_place: KeyPlace,
    /// Who asks, where that is not said by a key.
    pub identity: Identity,
    /// The model to use when the user named none but a key is there; empty for none.
    pub default_model: &'static str,
}

/// Whose credentials stand in for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Nobody's.
    None,
    /// Those of the standard AWS chain.
    Aws,
    /// Google's application default credentials.
    Google,
}

impl KnownProvider {
    /// How a model is spoken to at this base URL. Servers that stand in for OpenAI know Chat Completions, of Responses
    /// few know all; Vertex sells Claude over its maker's wire, Copilot newer models of OpenAI over Responses.
    #[must_use]
    pub fn wire_for(&self, model: &str, base_url: &str) -> Wire {
        let at = |host: &str| base_url.split_once("://").is_some_and(|(_, rest)| rest.starts_with(host));
        match (self.name, self.wire) {
            ("openai", _) if !at("api.openai.com") => Wire::OpenaiChat,
            ("vertex", _) if model.starts_with("claude") => Wire::Anthropic,
            ("github-copilot", _) if model.starts_with("gpt-5") || model.contains("codex") => Wire::OpenaiResponses,
            (_, wire) => wire,
        }
    }

    /// Where a model is, when nobody named another place.
    pub(crate) fn base_url_for(&self, model: &str, env: &BTreeMap<String, String>) -> Result<String, ModelError> {
        if self.identity == Identity::Google {
            let publisher = if model.starts_with("claude") { "anthropic" } else { "google" };
            return google::vertex_base(env, publisher);
        }
        Ok(self.base_url.to_owned())
    }
}

const BARE: KnownProvider = KnownProvider {
    name: "",
    wire: Wire::OpenaiChat,
    base_url: "",
    key_env: &[],
    base_url_env: &[],
    needs_key: true,
    key_place: KeyPlace::Usual,
    identity: Identity::None,
    default_model: "",
};

const fn chat(
    name: &'static str,
    base_url: &'static str,
    key_env: &'static [&'static str],
    base_url_env: &'static [&'static str],
    default_model: &'static str,
) -> KnownProvider {
    KnownProvider { name, base_url, key_env, base_url_env, default_model, ..BARE }
}

const fn messages(
    name: &'static str,
    base_url: &'static str,
    key_env: &'static [&'static str],
    base_url_env: &'static [&'static str],
    default_model: &'static str,
) -> KnownProvider {
    KnownProvider { name, wire: Wire::Anthropic, base_url, key_env, base_url_env, default_model, ..BARE }
}

const fn local(
    name: &'static str,
    base_url: &'static str,
    key_env: &'static [&'static str],
    base_url_env: &'static [&'static str],
) -> KnownProvider {
    KnownProvider { name, base_url, key_env, base_url_env, needs_key: false, ..BARE }
}

/// All of them; those before are preferred when a default model is looked for.
pub const KNOWN: &[KnownProvider] = &[
    messages(
        "anthropic",
        "https://api.anthropic.com",
        &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        &["ANTHROPIC_BASE_URL"],
        "claude-sonnet-5",
    ),
    KnownProvider {
        wire: Wire::OpenaiResponses,
        ..chat("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"], &["OPENAI_BASE_URL"], "gpt-5.5")
    },
    KnownProvider {
        wire: Wire::Gemini,
        ..chat(
            "google",
            "https://generativelanguage.googleapis.com/v1beta",
            &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"],
            &["GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"],
            "",
        )
    },
    KnownProvider {
        name: "bedrock",
        wire: Wire::Bedrock,
        // The region goes in between.
        base_url: "https://bedrock-runtime.amazonaws.com",
        key_env: &["AWS_BEARER_TOKEN_BEDROCK"],
        base_url_env: &["AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "BEDROCK_BASE_URL"],
        needs_key: false,
        identity: Identity::Aws,
        ..BARE
    },
    KnownProvider {
        name: "vertex",
        wire: Wire::Gemini,
        // Project and location go in between.
        base_url: "https://aiplatform.googleapis.com",
        key_env: &["GOOGLE_CLOUD_API_KEY"],
        base_url_env: &["GOOGLE_VERTEX_BASE_URL"],
        needs_key: false,
        identity: Identity::Google,
        ..BARE
    },
    KnownProvider {
        name: "azure",
        wire: Wire::OpenaiResponses,
        key_env: &["AZURE_OPENAI_API_KEY", "AZURE_API_KEY"],
        base_url_env: &["AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT", "AZURE_RESOURCE_NAME"],
        key_place: KeyPlace::Header("api-key"),
        ..BARE
    },
    chat(
        "openrouter",
        "https://openrouter.ai/api/v1",
        &["OPENROUTER_API_KEY"],
        &["OPENROUTER_BASE_URL"],
        "anthropic/claude-sonnet-5",
    ),
    chat("deepseek", "https://api.deepseek.com", &["DEEPSEEK_API_KEY"], &["DEEPSEEK_BASE_URL"], "deepseek-v4-pro"),
    chat("xai", "https://api.x.ai/v1", &["XAI_API_KEY"], &["XAI_BASE_URL"], "grok-4.7"),
    chat("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"], &["MISTRAL_BASE_URL"], "devstral-latest"),
    chat(
        "moonshot",
        "https://api.moonshot.ai/v1",
        &["MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"],
        &["MOONSHOT_BASE_URL"],
        "kimi-k3",
    ),
    chat("zai", "https://api.z.ai/api/paas/v4", &["ZAI_API_KEY", "ZHIPU_API_KEY"], &["ZAI_BASE_URL"], "glm-5.3"),
    messages("minimax", "https://api.minimax.io/anthropic", &["MINIMAX_API_KEY"], &[], "MiniMax-M3"),
    messages("kimi-for-coding", "https://api.kimi.com/coding", &["KIMI_API_KEY"], &[], "k2p7"),
    // Its SDK's GROQ_BASE_URL names the host without the path, so it is not read here.
    chat("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"], &[], "openai/gpt-oss-120b"),
    chat("cerebras", "https://api.cerebras.ai/v1", &["CEREBRAS_API_KEY"], &["CEREBRAS_BASE_URL"], "gpt-oss-120b"),
    chat(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        &["DASHSCOPE_API_KEY", "ALIBABA_API_KEY"],
        &["DASHSCOPE_BASE_URL"],
        "qwen3-coder-plus",
    ),
    chat("together", "https://api.together.xyz/v1", &["TOGETHER_API_KEY"], &["TOGETHER_BASE_URL"], ""),
    chat("fireworks", "https://api.fireworks.ai/inference/v1", &["FIREWORKS_API_KEY"], &["FIREWORKS_BASE_URL"], ""),
    chat("huggingface", "https://router.huggingface.co/v1", &["HF_TOKEN"], &[], ""),
    chat("vercel", "https://ai-gateway.vercel.sh/v1", &["AI_GATEWAY_API_KEY"], &[], ""),
    local("ollama", "http://localhost:11434/v1", &["OLLAMA_API_KEY"], &["OLLAMA_BASE_URL", "OLLAMA_HOST"]),
    local("lmstudio", "http://127.0.0.1:1234/v1", &["LMSTUDIO_API_KEY"], &["LMSTUDIO_BASE_URL"]),
    local("llamacpp", "http://localhost:8080/v1", &["LLAMACPP_API_KEY"], &["LLAMACPP_BASE_URL"]),
    local("vllm", "http://localhost:8000/v1", &["VLLM_API_KEY"], &["VLLM_BASE_URL"]),
    // Its login gives the token; a token for GitHub itself is no key.
    chat("github-copilot", "https://api.githubcopilot.com", &[], &[], ""),
    KnownProvider { name: "demo", wire: Wire::Scripted, needs_key: false, ..BARE },
];

/// The known provider of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static KnownProvider> {
    KNOWN.iter().find(|known| known.name == name)
}

/// The variable that names an account of the provider; the address that comes of it is the provider's own.
const RESOURCE_NAME: &str = "AZURE_RESOURCE_NAME";
/// Longest name of such an account, in bytes: it is part of a host's name.
const RESOURCE_NAME_MAX: usize = 63;

/// Whether what comes of a variable is an address of the provider itself, whatever its value.
pub(crate) fn names_own_address(variable: &str) -> bool {
    variable == RESOURCE_NAME
}

/// The base URL that a variable asks for. `OLLAMA_HOST` may be a bare host, and the address to listen at; Azure's name
/// the account.
///
/// # Errors
/// When the name of an account is none: it must not lead anywhere else.
pub(crate) fn base_url_of(variable: &str, value: &str) -> Result<String, ModelError> {
    match variable {
        "OLLAMA_HOST" => {}
        "AZURE_OPENAI_ENDPOINT" if !value.contains("/openai") => {
            return Ok(format!("{}/openai/v1", value.trim_end_matches('/')));
        }
        RESOURCE_NAME => {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let is_name = value.len() <= RESOURCE_NAME_MAX && value.chars().all(plain) && !value.starts_with('-');
            let error = || {
                let message = format!("{RESOURCE_NAME} of your environment is not the name of a resource");
                ModelError::new(ModelErrorKind::InvalidRequest, message).with_hint(
                    "Set it to letters, digits and - alone, or set AZURE_OPENAI_ENDPOINT to the whole address.",
                )
            };
            let address = is_name.then(|| format!("https://{value}.openai.azure.com/openai/v1"));
            return address.ok_or_else(error);
        }
        _ => return Ok(value.to_owned()),
    }
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    let rest = rest.trim_end_matches('/').replacen("0.0.0.0", "127.0.0.1", 1);
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { format!("{scheme}://{rest}/v1") } else { format!("{scheme}://{rest}:11434/v1") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_models_are_in_the_catalogue() {
        for known in KNOWN.iter().filter(|known| !known.default_model.is_empty()) {
            let model = format!("{}/{}", known.name, known.default_model).parse().unwrap();
            assert!(mcode_models::Catalogue::bundled().listed(&model).is_some(), "{}", known.name);
        }
    }

    #[test]
    fn catalogue_providers_are_known() {
        for info in mcode_models::Catalogue::bundled().models() {
            let model: mcode_models::ModelRef = info.id.parse().unwrap();
            assert!(find(&model.provider).is_some(), "{}", info.id);
        }
    }

    #[test]
    fn ollama_host_is_made_a_base_url() {
        for (value, expected) in [
            ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            ("http://box:9/", "http://box:9/v1"),
        ] {
            assert_eq!(base_url_of("OLLAMA_HOST", value).unwrap(), expected);
        }
    }
}
