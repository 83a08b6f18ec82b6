//! How the servers of the chat wire differ, as data.

use crate::ids::IdRule;

/// In which field earlier reasoning goes back to the model that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    /// It does not go back.
    None,
    /// `reasoning_content`, as it was.
    ReasoningContent,
    /// As `ReasoningContent`, and empty when there is none: the server insists in tool loops.
    ReasoningContentAlways,
    /// `reasoning_details`, the whole array unchanged.
    Details,
    /// A content part of type `thinking` (Mistral).
    ContentPart,
}

/// Whether a server can be told the schema of the final answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// It takes none, or none in a stream.
    None,
    /// It holds every word to it, or refuses it beside tools.
    WithoutTools,
    /// The model can still call tools.
    Always,
}

/// What is special about a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Provider name.
    pub(crate) name: &'static str,
    /// Part of the host name by which a server of another name in the configuration is known; empty for none.
    pub(crate) host: &'static str,
    /// Models that think get their system text under the role `developer`.
    pub(crate) developer_role: bool,
    /// The limit of output goes under `max_completion_tokens`.
    pub(crate) max_completion_tokens: bool,
    /// Takes `stream_options: {include_usage}`.
    pub(crate) stream_options: bool,
    /// Takes `prompt_cache_key`.
    pub(crate) cache_key: bool,
    /// Takes Anthropic's cache marks in content parts, for models whose name begins so.
    pub(crate) cache_marks_for: Option<&'static str>,
    /// Which ids of calls it takes.
    pub(crate) ids: IdRule,
    /// How reasoning goes back.
    pub(crate) replay: Replay,
    /// Its count of output tokens leaves reasoning out.
    pub(crate) output_without_reasoning: bool,
    /// Its count of cached tokens includes those written by this very request.
    pub(crate) cached_includes_written: bool,
    /// Content may begin with `<think>`.
    pub(crate) think_tags: bool,
    /// The effort that means no reasoning.
    pub(crate) effort_off: &'static str,
    /// The highest effort.
    pub(crate) effort_max: &'static str,
    /// A message of the user may not follow an answer of a tool directly.
    pub(crate) assistant_after_tools: bool,
    /// Whether it is told the schema of the answer.
    pub(crate) answer: AnswerForm,
    /// Streams arguments only when `tool_stream` says so (Z.ai).
    pub(crate) tool_stream: bool,
}

/// A server that we know nothing of.
pub(crate) const GENERIC: Dialect = Dialect {
    name: "",
    host: "",
    developer_role: false,
    max_completion_tokens: false,
    stream_options: true,
    cache_key: false,
    cache_marks_for: None,
    ids: IdRule::AtMost(64),
    replay: Replay::None,
    output_without_reasoning: false,
    cached_includes_written: false,
    think_tags: true,
    effort_off: "none",
    effort_max: "high",
    assistant_after_tools: false,
    answer: AnswerForm::WithoutTools,
    tool_stream: false,
};

const HOSTED: Dialect = Dialect { think_tags: false, ..GENERIC };

const ZAI: Dialect = Dialect {
    name: "zai",
    host: "api.z.ai",
    replay: Replay::ReasoningContent,
    tool_stream: true,
    answer: AnswerForm::None,
    ..HOSTED
};

/// The servers we know.
const KNOWN: &[Dialect] = &[
    Dialect {
        name: "openai",
        host: "api.openai.com",
        developer_role: true,
        max_completion_tokens: true,
        cache_key: true,
        ids: IdRule::AtMost(40),
        effort_max: "xhigh",
        answer: AnswerForm::Always,
        ..HOSTED
    },
    Dialect {
        name: "deepseek",
        host: "api.deepseek.com",
        replay: Replay::ReasoningContentAlways,
        answer: AnswerForm::None,
        ..HOSTED
    },
    Dialect {
        name: "groq",
        host: "api.groq.com",
        max_completion_tokens: true,
        effort_off: "low",
        answer: AnswerForm::None,
        ..HOSTED
    },
    Dialect {
        name: "cerebras",
        host: "api.cerebras.ai",
        max_completion_tokens: true,
        answer: AnswerForm::None,
        ..HOSTED
    },
    Dialect {
        name: "mistral",
        host: "api.mistral.ai",
        stream_options: false,
        ids: IdRule::Mistral,
        replay: Replay::ContentPart,
        assistant_after_tools: true,
        ..HOSTED
    },
    Dialect {
        name: "xai",
        host: "api.x.ai",
        output_without_reasoning: true,
        effort_off: "low",
        answer: AnswerForm::Always,
        ..HOSTED
    },
    Dialect {
        name: "openrouter",
        host: "openrouter.ai",
        cache_marks_for: Some("anthropic/"),
        replay: Replay::Details,
        cached_includes_written: true,
        answer: AnswerForm::Always,
        ..HOSTED
    },
    Dialect { name: "vercel", host: "ai-gateway.vercel.sh", replay: Replay::Details, ..HOSTED },
    Dialect { name: "together", host: "api.together.", think_tags: true, ..HOSTED },
    Dialect { name: "fireworks", host: "api.fireworks.ai", replay: Replay::ReasoningContent, ..HOSTED },
    Dialect {
        name: "moonshot",
        host: "api.moonshot.",
        ids: IdRule::AtMost(128),
        replay: Replay::ReasoningContent,
        effort_off: "low",
        effort_max: "max",
        answer: AnswerForm::None,
        ..HOSTED
    },
    ZAI,
    Dialect { name: "zhipu", host: "open.bigmodel.cn", ..ZAI },
    Dialect { name: "dashscope", host: "dashscope", answer: AnswerForm::None, ..HOSTED },
    Dialect { name: "huggingface", host: "router.huggingface.co", think_tags: true, ..HOSTED },
];

/// The dialect of a server, by the provider's name, else by the host.
pub(crate) fn of(provider: &str, host: &str) -> &'static Dialect {
    KNOWN
        .iter()
        .find(|dialect| dialect.name == provider)
        .or_else(|| KNOWN.iter().find(|dialect| host.contains(dialect.host)))
        .unwrap_or(&GENERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_name_or_host() {
        assert_eq!(of("mistral", "proxy.example").ids, IdRule::Mistral);
        assert!(of("mine", "api.x.ai").output_without_reasoning);
        assert_eq!(of("mine", "api.z.ai").name, "zai");
        assert_eq!(*of("local", "127.0.0.1:8080"), GENERIC);
    }
}
