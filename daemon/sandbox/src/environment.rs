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
pub const SECRET_PARTS: [&str; 5] = ["SECRET", "PASSWORD", "PASSPHRASE", "ACCESS_TOKEN", "SESSION_TOKEN"];

/// Names that hold one of these between underscores, or are one.
pub const SECRET_WORDS: [&str; 10] =
    ["BEARER", "CREDS", "CRED", "CREDENTIAL", "CREDENTIALS", "COOKIE", "COOKIES", "DSN", "PASSWD", "WEBHOOK"];

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
        || name.split('_').any(|word| SECRET_WORDS.contains(&word))
}

/// Names of what leads a command to other running programs of the user (a terminal that it could type into, a desktop
/// that would start things for it outside the sandbox), or loads code into it. A `*` at the end stands for anything.
///
/// `SSH_AUTH_SOCK` is not among them: `git` over SSH needs the agent, its socket is out of the reach of a command in the
/// sandbox, and a person is asked about one outside. `DISPLAY` and `XDG_RUNTIME_DIR` stay too: tests of programs with
/// windows and containers need them.
pub const CONNECTED: [&str; 24] = [
    "LD_PRELOAD",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "ZELLIJ*",
    "KITTY_LISTEN_ON",
    "WEZTERM_UNIX_SOCKET",
    "ALACRITTY_SOCKET",
    "GNOME_TERMINAL_*",
    "NVIM",
    "NVIM_LISTEN_ADDRESS",
    "VIM_SERVERNAME",
    "EMACS_SOCKET_NAME",
    "VSCODE_IPC_HOOK*",
    "VSCODE_GIT_*",
    "I3SOCK",
    "SWAYSOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_STARTER_*",
    "GPG_AGENT_INFO",
    "GNOME_KEYRING_CONTROL",
    "SESSION_MANAGER",
];

/// Whether a variable of this name leads to other programs of the user. Case does not matter.
fn is_connected(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    CONNECTED.iter().any(|pattern| fits(&name, pattern))
}

fn fits(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Whether a name fits one of these patterns, in which a `*` at the end stands for anything.
fn listed(name: &str, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| fits(name, pattern))
}

/// The environment that commands get: without secrets, which are known by name ([`is_secret`]) or by value, and without
/// what leads to other programs of the user, except what the user lets through. What is the business of models and of mcode never passes.
#[must_use]
pub fn tool_environment(
    env: &BTreeMap<String, String>,
    passed: &[String],
    is_key: &dyn Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let own = |name: &str| SECRET_PREFIXES.iter().any(|prefix| name.to_ascii_uppercase().starts_with(prefix));
    let kept = |name: &str, value: &str| {
        !own(name) && (listed(name, passed) || !(is_secret(name) || is_connected(name) || is_key(value)))
    };
    env.iter().filter(|(name, value)| kept(name, value)).map(|(name, value)| (name.clone(), value.clone())).collect()
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
            "KEY_PASSPHRASE",
            "SIGNING_PASSPHRASE_FILE",
            "BEARER",
            "AUTH_BEARER_VALUE",
            "AWS_CREDS",
            "DB_CREDENTIAL",
            "SESSION_COOKIE",
            "AWS_SESSION_TOKEN_OLD",
            "DSN",
            "SENTRY_DSN",
            "SLACK_WEBHOOK",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "SSH_AUTH_SOCK",
            "LANG",
            "CARGO_HOME",
            "TOKENIZERS_PARALLELISM",
            "KEYMAP",
            "PWD",
            "COOKIECUTTER_CONFIG",
            "DSNAME",
            "DATABASE_URL",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn what_leads_to_other_programs_of_the_user_is_kept_back() {
        for name in ["TMUX", "STY", "LD_PRELOAD", "DBUS_SESSION_BUS_ADDRESS", "GPG_AGENT_INFO", "VSCODE_GIT_IPC_HANDLE"]
        {
            assert!(is_connected(name), "{name}");
        }
        for name in ["SSH_AUTH_SOCK", "DISPLAY", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH", "TMUX_PLUGIN_DIR", "NVIM_HOME"] {
            assert!(!is_connected(name), "{name}");
        }
        let env = BTreeMap::from(
            [("TMUX", "/tmp/t"), ("PATH", "/bin")].map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let kept = |passed: &[String]| tool_environment(&env, passed, &|_| false).into_keys().collect::<Vec<_>>();
        assert_eq!(kept(&[]), ["PATH"]);
        assert_eq!(kept(&["TMUX".to_owned()]), ["PATH", "TMUX"]);
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
