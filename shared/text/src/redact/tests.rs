//! What is taken for a secret, and what is not.

use super::*;

/// Put together here, so that no scanner takes this file for a leak.
fn key(prefix: &str, rest: &str) -> String {
    format!("{prefix}{rest}")
}

#[test]
fn keys_of_known_shapes_go() {
    let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    for (secret, what) in [
        (key("sk-ant-", "api03-Abc_def-123456789012"), "Anthropic key"),
        (key("sk-proj-", long), "OpenAI key"),
        (key("sk-", long), "OpenAI key"),
        (key("sk-or-v1-", long), "OpenRouter key"),
        (key("ghp_", long), "GitHub token"),
        (key("github_pat_", "11ABCDEFG0abcdefghijkl_mnop"), "GitHub token"),
        (key("AKIA", "IOSFODNN7EXAMPLE"), "AWS key id"),
        (key("AIza", "SyA1234567890abcdefghijklmnopqrstuv"), "Google key"),
        (key("ya29.", long), "Google token"),
        (key("xoxb-", "1234567890-abcdefghij"), "Slack token"),
        (key("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_123"), "token"),
        (key("-----BEGIN RSA PRIVATE", " KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"), "private key"),
        (key("-----BEGIN PRIVATE", " KEY-----\nMIIE and no end"), "private key"),
    ] {
        let text = format!("before {secret}\n");
        let shown = redact(&text);
        assert!(shown.starts_with(&format!("before [redacted {what}]")), "{shown}");
        assert!(!shown.contains(&secret[secret.len() - 6..]) || what == "private key", "{shown}");
    }
}

#[test]
fn values_behind_their_names_go() {
    for (text, wanted) in [
        ("x-api-key: abcdef123456", "x-api-key: [redacted]"),
        ("Authorization: Bearer abc.DEF-123456", "Authorization: Bearer [redacted]"),
        ("{\"api_key\":\"abcdef123456\"}", "{\"api_key\":\"[redacted]\"}"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("see https://me:hunter22@host/x", "see https://me:[redacted]@host/x"),
        ("curl -u x 'password=correcthorse'", "curl -u x 'password=[redacted]'"),
        ("é password: très-1234567", "é password: très-1234567"),
    ] {
        assert_eq!(redact(text), wanted);
    }
}

#[test]
fn other_text_stays_as_it_is() {
    for text in [
        "",
        "a task-force of sk-learn users, 100 % fine",
        "the token is missing; set ANTHROPIC_API_KEY",
        "basic understanding of authorization: see the manual",
        "desk-ant-1234567890123456789",
        "https://example.org:8080/path@x",
        "eyJ is how they begin",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    ] {
        assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}: {}", redact(text));
    }
}

#[test]
fn the_values_of_a_run_go_wherever_they_stand() {
    let redactor = Redactor::knowing(["hunter2-and-more", "hunter2-and-more-still", "short", ""]);
    assert_eq!(redactor.values("x=hunter2-and-more-still;hunter2-and-more"), "x=[redacted];[redacted]");
    assert_eq!(redactor.values("short"), "short");
    assert!(!format!("{redactor:?}").contains("hunter2"));
    assert!(looks_like_a_key(&key("sk-ant-", "api03-Abc_def-123456789012")));
    assert!(!looks_like_a_key("see sk-learn"));
}

#[test]
fn keys_of_many_providers_go() {
    let hex = "0123456789abcdef0123456789abcdef";
    let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    for (secret, what) in [
        (key("glpat-", "a1B2c3D4e5F6g7H8i9J0"), "GitLab token"),
        (key("npm_", long), "npm token"),
        (key("pypi-", &format!("AgEIcHlwaS5vcmc{long}")), "PyPI token"),
        (key("sk_live_", long), "Stripe key"),
        (key("rk_test_", long), "Stripe key"),
        (key("SG.", &format!("a1B2c3D4e5F6g7H8i9J0kl.{long}abc")), "SendGrid key"),
        (key("SK", hex), "Twilio key"),
        (key("hf_", long), "Hugging Face token"),
        (key("xapp-", "1-A0123456789-abcdef"), "Slack token"),
        (key("123456789", ":AAa1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q"), "Telegram token"),
        (key("dapi", hex), "Databricks token"),
        (key("shpat_", hex), "Shopify token"),
        (key("dckr_pat_", "a1B2c3D4e5F6g7H8i9J0k1L"), "Docker token"),
        (key("AccountKey=", &format!("{long}{long}==")), "Azure key"),
        (key("hooks.slack.com/services/", "T000/B000/a1B2c3D4e5F6g7H8"), "webhook"),
        (key("discord.com/api/webhooks/", "123456789012345678/a1B2c3D4e5F6"), "webhook"),
        (key("webhook.office.com/webhookb2/", "1f2e-3d@4c/IncomingWebhook/a1B2/5e6f"), "webhook"),
        (key("AGE-SECRET-KEY-1", "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789ABCDEFGHJK"), "age key"),
    ] {
        let shown = redact(&secret).into_owned();
        assert_eq!(shown, format!("[redacted {what}]"), "{secret}");
        assert!(looks_like_a_key(&format!("x={secret}")), "{secret}");
    }
}

#[test]
fn headers_and_addresses_with_secrets_go() {
    for (text, wanted) in [
        ("postgres://app:s3cr3t@db:5432/x?sslmode=off", "postgres://app:[redacted]@db:5432/x?sslmode=off"),
        ("redis://:s3cr3t@cache/0", "redis://:[redacted]@cache/0"),
        ("amqp+ssl://u:p%40q@h", "amqp+ssl://u:[redacted]@h"),
        ("mongodb+srv://u:p@ss@h/x", "mongodb+srv://u:[redacted]@h/x"),
        ("authorization: token abcdef123456", "authorization: token [redacted]"),
        ("Authorization: Negotiate YIIabcdef123456", "Authorization: Negotiate [redacted]"),
        ("Proxy-Authorization: Basic dXNlcjpwYXNz", "Proxy-Authorization: Basic [redacted]"),
        ("X-Api-Key: abcdef123456", "X-Api-Key: [redacted]"),
        ("Cookie: session=abcdef; theme=dark\nnext", "Cookie: [redacted]\nnext"),
        ("curl -H 'Cookie: session=abcdef' x", "curl -H 'Cookie: [redacted]' x"),
        ("DB_PASSWORD=correcthorse", "DB_PASSWORD=[redacted]"),
        ("export MY_API_KEY='abcdef123456'", "export MY_API_KEY='[redacted]'"),
        ("Key passphrase: correct-horse", "Key passphrase: [redacted]"),
    ] {
        assert_eq!(redact(text), wanted);
        assert!(looks_like_a_key(text), "{text}");
    }
}

#[test]
fn what_only_resembles_a_secret_stays() {
    for text in [
        "3f2c1b0a9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a",
        "commit e83c5163316f89bfbde7d9ab23ca2e25604af290",
        "SHA256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "123e4567-e89b-12d3-a456-426614174000",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "postgres://app@db:5432/x",
        "https://example.org:8443/a?b=c@d",
        "git@github.com:me/project.git",
        "ssh://git@host:22/x",
        "10:20:30 12345678:ABCDEF",
        "SKU0123456789abcdef and SK_BUFF and skip-this-one-long-word-here",
        "dapifying 0123456789abcdef0123456789abcdef",
        "hooks.slack.com/docs and discord.com/api/webhooks/",
        "cookies: none; cookie: yes",
        "unix:path=/run/user/1000/bus",
        "npm_config_cache=/home/me/.npm",
        "pypi-server and hf_hub and ghp_short",
        "PASSWORD_STORE_DIR=/home/me/.password-store",
        "rs=0:di=01;34:ln=01;36:*.tar=01;31",
        "xterm-256color",
        "/usr/local/bin:/usr/bin:/bin",
    ] {
        assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}: {}", redact(text));
    }
}
