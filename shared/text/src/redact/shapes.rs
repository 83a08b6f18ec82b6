//! The shapes of secrets: data only.

/// Kinds of characters of a token.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// Letters and digits.
    Plain,
    /// Also `-` and `_`.
    Url,
    /// Also `.`, `/`, `+` and `=`.
    Any,
    /// Also what parts the rest of an address.
    Path,
    /// Capitals and digits.
    Upper,
    /// Digits and `a` to `f`.
    Hex,
}

impl Of {
    pub(super) fn has(self, byte: u8) -> bool {
        match self {
            Self::Plain => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Self::Any => byte.is_ascii_alphanumeric() || b"-_./+=~".contains(&byte),
            Self::Path => byte.is_ascii_alphanumeric() || b"-_./+=~@?&%:".contains(&byte),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'),
        }
    }
}

/// What a token begins with, what follows, how many of that at least, and what it is called.
pub(super) const SHAPES: &[(&str, Of, usize, &str)] = &[
    ("sk-ant-", Of::Url, 12, "Anthropic key"),
    ("sk-or-", Of::Url, 16, "OpenRouter key"),
    ("sk-", Of::Url, 20, "OpenAI key"),
    ("github_pat_", Of::Url, 20, "GitHub token"),
    ("ghp_", Of::Plain, 20, "GitHub token"),
    ("gho_", Of::Plain, 20, "GitHub token"),
    ("ghu_", Of::Plain, 20, "GitHub token"),
    ("ghs_", Of::Plain, 20, "GitHub token"),
    ("ghr_", Of::Plain, 20, "GitHub token"),
    ("glpat-", Of::Url, 16, "GitLab token"),
    ("gldt-", Of::Url, 16, "GitLab token"),
    ("glrt-", Of::Url, 16, "GitLab token"),
    ("glptt-", Of::Url, 16, "GitLab token"),
    ("glcbt-", Of::Url, 16, "GitLab token"),
    ("glsoat-", Of::Url, 16, "GitLab token"),
    ("AKIA", Of::Upper, 16, "AWS key id"),
    ("ASIA", Of::Upper, 16, "AWS key id"),
    ("ABIA", Of::Upper, 16, "AWS key id"),
    ("AIza", Of::Url, 30, "Google key"),
    ("ya29.", Of::Any, 20, "Google token"),
    ("GOCSPX-", Of::Url, 16, "Google secret"),
    ("AccountKey=", Of::Any, 40, "Azure key"),
    ("SharedAccessKey=", Of::Any, 40, "Azure key"),
    ("SharedAccessSignature=", Of::Path, 40, "Azure signature"),
    ("sig=", Of::Path, 30, "signature"),
    ("X-Amz-Signature=", Of::Hex, 64, "AWS signature"),
    ("xoxa-", Of::Url, 10, "Slack token"),
    ("xoxb-", Of::Url, 10, "Slack token"),
    ("xoxc-", Of::Url, 10, "Slack token"),
    ("xoxd-", Of::Any, 10, "Slack token"),
    ("xoxe-", Of::Url, 10, "Slack token"),
    ("xoxp-", Of::Url, 10, "Slack token"),
    ("xoxr-", Of::Url, 10, "Slack token"),
    ("xoxs-", Of::Url, 10, "Slack token"),
    ("xapp-", Of::Url, 10, "Slack token"),
    ("gsk_", Of::Plain, 20, "Groq key"),
    ("xai-", Of::Url, 20, "xAI key"),
    ("pplx-", Of::Plain, 30, "Perplexity key"),
    ("nvapi-", Of::Url, 30, "NVIDIA key"),
    ("r8_", Of::Plain, 30, "Replicate token"),
    ("hf_", Of::Plain, 20, "Hugging Face token"),
    ("npm_", Of::Plain, 30, "npm token"),
    ("pypi-", Of::Url, 50, "PyPI token"),
    ("rubygems_", Of::Hex, 40, "RubyGems key"),
    ("dckr_pat_", Of::Url, 20, "Docker token"),
    ("dop_v1_", Of::Hex, 40, "DigitalOcean token"),
    ("shpat_", Of::Hex, 32, "Shopify token"),
    ("shpss_", Of::Hex, 32, "Shopify token"),
    ("dapi", Of::Hex, 32, "Databricks token"),
    ("hvs.", Of::Url, 20, "Vault token"),
    ("glsa_", Of::Url, 30, "Grafana token"),
    ("lin_api_", Of::Plain, 30, "Linear key"),
    ("tskey-", Of::Url, 20, "Tailscale key"),
    ("ATATT3", Of::Any, 40, "Atlassian token"),
    ("PMAK-", Of::Url, 40, "Postman key"),
    ("AGE-SECRET-KEY-1", Of::Upper, 40, "age key"),
    ("sk_live_", Of::Plain, 16, "Stripe key"),
    ("rk_live_", Of::Plain, 16, "Stripe key"),
    ("sk_test_", Of::Plain, 16, "Stripe key"),
    ("rk_test_", Of::Plain, 16, "Stripe key"),
    ("whsec_", Of::Any, 20, "Stripe secret"),
    ("SG.", Of::Any, 50, "SendGrid key"),
    ("SK", Of::Hex, 32, "Twilio key"),
    ("hooks.slack.com/services/", Of::Path, 20, "webhook"),
    ("hooks.slack.com/workflows/", Of::Path, 20, "webhook"),
    ("hooks.slack.com/triggers/", Of::Path, 20, "webhook"),
    ("discord.com/api/webhooks/", Of::Path, 20, "webhook"),
    ("discordapp.com/api/webhooks/", Of::Path, 20, "webhook"),
    ("webhook.office.com/webhookb2/", Of::Path, 20, "webhook"),
    ("outlook.office.com/webhook/", Of::Path, 20, "webhook"),
    ("hooks.zapier.com/hooks/catch/", Of::Path, 10, "webhook"),
];

/// Names after which a value is a secret, in headers (`x-api-key: …`), assignments and JSON. Lower case.
pub(super) const NAMES: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "x-api-token",
    "x-auth-token",
    "x-access-token",
    "x-goog-api-key",
    "x-vault-token",
    "x-amz-security-token",
    "ocp-apim-subscription-key",
    "private-token",
    "api-key",
    "api_key",
    "apikey",
    "access_token",
    "auth_token",
    "refresh_token",
    "session_token",
    "id_token",
    "client_secret",
    "secret_key",
    "aws_secret_access_key",
    "secretaccesskey",
    "aws_session_token",
    "password",
    "passphrase",
    "passwd",
];

/// Headers of which the whole line is a secret.
pub(super) const LINES: &[&str] = &["cookie", "set-cookie"];
