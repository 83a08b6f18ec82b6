//! What of a client's environment a command may see.

use std::collections::BTreeMap;

/// Names that begin with one of these are the business of models and of mcode, not of commands.
pub const SECRET_PREFIXES: [&str; 4] = ["ANTHROPIC_", "OPENAI_", "MCODE_", "AZURE_OPENAI_"];

/// Names that end with one of these hold a secret by convention.
pub const SECRET_SUFFIXES: [&str; 16] = [
    "_API_KEY",
    "_APIKEY",
    "_ACCESS_KEY",
    "_SECRET_KEY",
    "_PRIVATE_KEY",
    "_SIGNING_KEY",
    "_ENCRYPTION_KEY",
    "_TOKEN",
    "_PAT",
    "_PASS",
    "_PASSWD",
    "_PASSPHRASE",
    "_CREDENTIALS",
    "_CREDENTIAL",
    "_WEBHOOK_URL",
    "_DSN",
];

/// Names that hold one of these anywhere.
pub const SECRET_PARTS: [&str; 3] = ["SECRET", "PASSWORD", "ACCESS_TOKEN"];

/// Further names, whole.
pub const SECRET_NAMES: [&str; 11] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "API_KEY",
    "TOKEN",
    "PASSWD",
    "PGPASSWORD",
    "MYSQL_PWD",
    "NPM_CONFIG__AUTH",
];

/// Whether a variable of this name is kept from commands. Case does not matter.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.contains(&name.as_str())
        || SECRET_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SECRET_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// Whether a name fits one of these patterns, in which a `*` at the end stands for anything.
fn listed(name: &str, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    })
}

/// The environment that commands get: without secrets, which are known by name ([`is_secret`]) or by value, except those
/// that the user lets through. What is the business of models and of mcode never passes.
#[must_use]
pub fn tool_environment(
    env: &BTreeMap<String, String>,
    passed: &[String],
    is_key: &dyn Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let own = |name: &str| SECRET_PREFIXES.iter().any(|prefix| name.to_ascii_uppercase().starts_with(prefix));
    let kept = |name: &str, value: &str| !own(name) && (listed(name, passed) || !(is_secret(name) || is_key(value)));
    env.iter().filter(|(name, value)| kept(name, value)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The environment without the variables that [`is_secret`] names. `SSH_AUTH_SOCK` stays: it is a path to an agent
/// that asks for itself, and `git` over SSH needs it.
#[must_use]
pub fn strip_secrets(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    env.iter().filter(|(name, _)| !is_secret(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_BASE_URL",
            "GEMINI_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "AWS_SESSION_TOKEN",
            "GITHUB_TOKEN",
            "GH_TOKEN",
            "DB_PASSWORD",
            "PGPASSWORD",
            "my_secret_thing",
            "MCODE_HOME",
            "NPM_TOKEN",
            "npm_config__auth",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["PATH", "HOME", "SSH_AUTH_SOCK", "LANG", "CARGO_HOME", "TOKENIZERS_PARALLELISM", "KEYMAP", "PWD"] {
            assert!(!is_secret(name), "{name}");
        }
        let env = BTreeMap::from([("PATH".into(), "/bin".into()), ("X_TOKEN".into(), "t".into())]);
        assert_eq!(strip_secrets(&env).into_keys().collect::<Vec<String>>(), ["PATH"]);
    }

    #[test]
    fn what_the_user_lets_through_passes_except_the_keys_of_models() {
        let names =
            ["PATH", "GH_TOKEN", "NPM_TOKEN", "NPM_CONFIG__AUTH", "ANTHROPIC_API_KEY", "INNOCENT", "DB_PASSWORD"];
        let env: BTreeMap<String, String> = names
            .iter()
            .map(|&name| (name.to_owned(), if name == "INNOCENT" { "key!" } else { "v" }.to_owned()))
            .collect();
        let is_key = |value: &str| value == "key!";
        let kept = |passed: &[&str]| {
            let passed: Vec<String> = passed.iter().map(|&name| name.to_owned()).collect();
            tool_environment(&env, &passed, &is_key).into_keys().collect::<Vec<String>>()
        };
        assert_eq!(kept(&[]), ["PATH"]);
        assert_eq!(kept(&["NPM_*", "GH_TOKEN"]), ["GH_TOKEN", "NPM_CONFIG__AUTH", "NPM_TOKEN", "PATH"]);
        assert_eq!(kept(&["*"]), ["DB_PASSWORD", "GH_TOKEN", "INNOCENT", "NPM_CONFIG__AUTH", "NPM_TOKEN", "PATH"]);
    }
}
