//! What can go wrong between us and a model, by what can be done about it.

use std::fmt;
use std::time::Duration;

use mcode_events::usage::Usage;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// The stored login has run out and can not be renewed.
    LoginExpired,
    /// The issuer takes the stored login back.
    LoginRevoked,
    /// No credit, or a plan's limit is used up.
    Quota,
    /// Too many requests; wait.
    RateLimited,
    /// The provider has no capacity right now.
    Overloaded,
    /// The provider failed.
    Server,
    /// The connection failed, was cut, or went silent.
    Transport,
    /// What came was not what the wire promises.
    Protocol,
    /// The prompt is larger than the model's window.
    Overflow,
    /// The provider refuses the request as it is.
    InvalidRequest,
    /// The provider refuses a picture or a document of the request.
    RefusedMedia,
    /// The provider refuses a field of the request that can not be left out unasked.
    RefusedField,
    /// The provider does not know the model.
    UnknownModel,
    /// The model wrote a tool call that its own provider refused; tell it so.
    BadToolCall,
    /// We stopped it.
    Cancelled,
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded | Self::Server | Self::Transport | Self::Protocol)
    }

    /// A stable name for scripts.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Auth => "MODEL_AUTH",
            Self::LoginExpired => "LOGIN_EXPIRED",
            Self::LoginRevoked => "LOGIN_REVOKED",
            Self::Quota => "MODEL_QUOTA",
            Self::RateLimited => "MODEL_RATE_LIMITED",
            Self::Overloaded => "MODEL_OVERLOADED",
            Self::Server => "MODEL_SERVER",
            Self::Transport => "MODEL_UNREACHABLE",
            Self::Protocol => "MODEL_PROTOCOL",
            Self::Overflow => "MODEL_CONTEXT_OVERFLOW",
            Self::InvalidRequest => "MODEL_REFUSED_REQUEST",
            Self::RefusedMedia => "MODEL_REFUSED_MEDIA",
            Self::RefusedField => "MODEL_REFUSED_FIELD",
            Self::UnknownModel => "MODEL_UNKNOWN",
            Self::BadToolCall => "MODEL_BAD_TOOL_CALL",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelError {
    /// What kind.
    pub kind: ModelErrorKind,
    /// What failed, on what, in plain words; bounded, without secrets.
    pub message: String,
    /// What the user can do; may be empty.
    pub hint: String,
    /// HTTP status, when there was one.
    pub status: Option<u16>,
    /// The server's wish for a pause before the next attempt.
    pub retry_after: Option<Duration>,
    /// Whether a used-up quota is of this model alone; other models of the account can be asked then.
    pub of_model: bool,
    /// The server's word on whether to retry, over every rule of ours.
    pub should_retry: Option<bool>,
    /// Tokens that were spent all the same, when the stream said so.
    pub usage: Option<Usage>,
}

impl ModelError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: String::new(),
            status: None,
            retry_after: None,
            of_model: false,
            should_retry: None,
            usage: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Whether another attempt may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.kind.is_retryable())
    }

    /// Whether the provider takes no more requests for now.
    #[must_use]
    pub const fn is_limit(&self) -> bool {
        matches!(self.kind, ModelErrorKind::RateLimited | ModelErrorKind::Overloaded | ModelErrorKind::Quota)
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ModelError {}
