//! Reading and changing files on disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

use std::path::PathBuf;
use std::time::Duration;

use mcode_config::{CONFIG_BYTES_MAX, Change, ConfigEdit, ConfigFile, ConfigHandle, EditError};
use mcode_env::Dirs;

/// Every documented key (interface.md section 2).
const DOCUMENTED: &str = r#"model = "anthropic/claude-sonnet-4-5"      # provider/model
small_model = "anthropic/claude-haiku-4-5" # titles, summaries
fallback = ["openai/gpt-5"]
approve = "ask"
[modes.plan]
model = "openai/gpt-5"
[providers.local]
wire = "openai-chat"
base_url = "http://127.0.0.1:8080/v1"
api_key = "env:LOCAL_KEY"
models = [{ id = "qwen3", context = 32768, max_output = 8192, thinking = "effort", input_price = 0.5, output_price = 2, cache_read_price = 0.1, cache_write_price = 0.6 }]
idle_timeout = "120s"
headers = { "x-team" = "a" }
omit_fields = ["stream_options"]
[limits]
max_cost_per_run = 5.0
max_cost_per_day = 50
max_tokens_per_run = 1000000
max_steps_per_run = 200
[memory]
observer_model = "a/b"
reflector_model = "a/c"
observe_tokens = 30000
reflect_tokens = 40000
[permissions]
allow = ["shell(cargo test *)", "edit(src/**)"]
ask   = ["shell(git push *)"]
deny  = ["view(**/.env)", "shell(rm -rf *)"]
[sandbox]
enabled = true
network = "ask"
hosts = ["*.example.org"]
write = ["."]
[goals]
judge_model = "a/b"
max_attempts = 50
resume = "auto"
[login.example]
authorize_url = "https://a/b"
token_url = "https://a/c"
client_id = "d"
scopes = ["e"]
flow = "loopback"
[packs.cheap]
build = "anthropic/claude-haiku-4-5"
small = "local/qwen3"
thinking = { build = "low" }
"#;

struct Home {
    _dir: tempfile::TempDir,
    dirs: Dirs,
}

impl Home {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let dirs = Dirs::under(dir.path());
        std::fs::create_dir_all(&dirs.config).unwrap();
        let home = Self { _dir: dir, dirs };
        home.write(text);
        home
    }

    fn file(&self) -> PathBuf {
        self.dirs.config_file()
    }

    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }
}

#[test]
fn all_documented_keys_are_read_without_a_word() {
    let home = Home::new(DOCUMENTED);
    let handle = ConfigHandle::open(&home.dirs);
    assert_eq!(handle.errors(), []);
    assert_eq!(handle.warnings(), []);
    let now = handle.current();
    assert_eq!(now.model.as_deref(), Some("anthropic/claude-sonnet-4-5"));
    assert_eq!(now.mode_models["plan"], "openai/gpt-5");
    let local = &now.providers["local"];
    assert_eq!(local.idle_timeout, Some(Duration::from_secs(120)));
    assert_eq!((local.models[0].id.as_str(), local.models[0].context), ("qwen3", Some(32768)));
    assert_eq!(local.headers["x-team"], "a");
    assert_eq!((local.models[0].input_price, local.models[0].cache_write_price), (Some(0.5), Some(0.6)));
    assert_eq!(local.models[0].thinking.as_deref(), Some("effort"));
    let pack = &now.packs["cheap"];
    assert_eq!((pack.models["build"].as_str(), pack.thinking["build"].as_str()), ("anthropic/claude-haiku-4-5", "low"));
    assert!(!pack.models.contains_key("thinking"));
    assert_eq!((now.limits.max_cost_per_run, now.limits.max_cost_per_day), (Some(5.0), Some(50.0)));
    assert_eq!(now.limits.max_steps_per_run, Some(200));
    let ask = &now.permissions.ask[0];
    assert_eq!((ask.text.as_str(), ask.file.as_str()), ("shell(git push *)", home.file().to_str().unwrap()));
    let line = DOCUMENTED.lines().position(|line| line.starts_with("ask ")).unwrap() + 1;
    assert_eq!(ask.line, line);
    assert_eq!(now.sandbox.network, mcode_config::SandboxNetwork::Ask);
    assert_eq!(now.logins["example"].client_id.as_deref(), Some("d"));
}

#[test]
fn no_file_is_an_empty_one() {
    let home = Home::new("");
    std::fs::remove_file(home.file()).unwrap();
    let handle = ConfigHandle::open(&home.dirs);
    assert_eq!(handle.errors(), []);
    assert_eq!(*handle.current(), mcode_config::Effective::default());
}

#[test]
fn a_broken_file_is_named_and_the_last_good_values_stay() {
    let home = Home::new("model = \"a/b\"\n");
    let handle = ConfigHandle::open(&home.dirs);
    let file = home.file().display().to_string();
    let cases = [
        ("model = \"a/c\"\n[limits]\nmax_steps_per_run = \"many\"\n", 3, "limits.max_steps_per_run"),
        ("model = \"a/c\"\n\n\nfallback = [1]\n", 4, "fallback"),
        ("model = \"a/c\"\n[providers.x]\nidle_timeout = 5\n", 3, "providers.x.idle_timeout"),
        ("model = \"a/c\"\n[providers.x]\nmodels = [{ context = 5 }]\n", 3, "providers.x.models[0]"),
        ("[[providers.x.models]]\nid = \"m\"\ncontext = -5\n", 3, "providers.x.models[0].context"),
        ("approve = \"maybe\"\n", 1, "approve"),
        ("limits = 5\n", 1, "limits"),
        ("[limits]\nmax_cost_per_run = nan\n", 2, "limits.max_cost_per_run"),
        ("model = \"a/c\"\nsmall_model = \n", 2, ""),
        ("model = \"a\"\nmodel = \"b\"\n", 2, ""),
    ];
    for (text, line, key) in cases {
        home.write(text);
        let errors = handle.reload();
        assert_eq!((errors.len(), errors[0].line, errors[0].key.as_str()), (1, line, key), "{text}: {errors:?}");
        assert!(errors[0].to_string().starts_with(&format!("{file}:{line}: ")), "{}", errors[0]);
        assert_eq!(handle.current().model.as_deref(), Some("a/b"));
        assert_eq!(handle.errors(), errors);
    }
    home.write("model = \"a/d\"\n");
    assert_eq!(handle.reload(), []);
    assert_eq!(handle.current().model.as_deref(), Some("a/d"));
}

#[test]
fn a_slip_is_named_and_harms_nothing() {
    let home = Home::new("model = \"a/b\"\nmodle = \"x\"\n[providers.p]\nbaseurl = \"y\"\n");
    let handle = ConfigHandle::open(&home.dirs);
    assert_eq!(handle.errors(), []);
    let warnings: Vec<String> = handle.warnings().iter().map(ToString::to_string).collect();
    let file = home.file().display().to_string();
    assert_eq!(
        warnings,
        [
            format!("{file}:2: modle: unknown key 'modle'; did you mean 'model'?"),
            format!("{file}:4: providers.p.baseurl: unknown key 'baseurl'; did you mean 'base_url'?"),
        ]
    );
    assert_eq!(handle.current().model.as_deref(), Some("a/b"));
}

#[test]
fn secrets_are_never_shown() {
    let home = Home::new("[providers.p]\napi_key = \"sk-secret\"\nheaders = { x = \"sk-secret\" }\n");
    let handle = ConfigHandle::open(&home.dirs);
    assert_eq!(handle.current().providers["p"].api_key.as_deref(), Some("sk-secret"));
    assert!(handle.warnings()[0].to_string().contains("env:NAME"), "{:?}", handle.warnings());
    let file = ConfigFile::open(&home.file()).unwrap();
    let shown = format!(
        "{:?} {:?} {:?} {:?}",
        handle.current(),
        handle.explain(""),
        file.list(),
        file.get("providers.p.api_key").unwrap()
    );
    assert!(!shown.contains("sk-secret"), "{shown}");
    home.write("[providers.p]\napi_key = [\"sk-secret\"]\n");
    assert!(!format!("{:?}", handle.reload()).contains("sk-secret"));
}

#[test]
fn explain_names_file_and_line() {
    let home = Home::new(DOCUMENTED);
    let handle = ConfigHandle::open(&home.dirs);
    let origins = handle.explain("limits");
    assert_eq!(origins.len(), 4);
    assert_eq!((origins[0].key.as_str(), origins[0].value.as_str()), ("limits.max_cost_per_run", "5.0"));
    assert_eq!((origins[0].line, &origins[0].file), (16, &home.file()));
    assert_eq!(handle.explain("small_model")[0].line, 2);
    assert!(handle.explain("small").is_empty());
    assert_eq!(handle.explain("").len(), 45);
}

#[test]
fn size_is_bounded() {
    let home = Home::new(&format!("#{}", "x".repeat(usize::try_from(CONFIG_BYTES_MAX).unwrap() - 1)));
    let handle = ConfigHandle::open(&home.dirs);
    assert_eq!(handle.errors(), []);
    home.write(&format!("#{}", "x".repeat(usize::try_from(CONFIG_BYTES_MAX).unwrap())));
    assert!(handle.reload()[0].to_string().contains("1048576"), "{:?}", handle.errors());
    home.write(&"bad = 1\n".repeat(2));
    assert_eq!(handle.reload().len(), 1);
    std::fs::write(home.file(), [0xff, 0xfe]).unwrap();
    assert!(handle.reload()[0].to_string().contains("cannot be read"));
}

#[test]
fn changes_keep_comments_and_layout() {
    let home = Home::new(DOCUMENTED);
    let mut file = ConfigEdit::open(&home.file()).unwrap();
    file.set("model", "openai/gpt-5").unwrap();
    file.set("limits.max_cost_per_run", "7").unwrap();
    file.set("providers.local.headers.x-team", "b").unwrap();
    let expected = DOCUMENTED
        .replace("\"anthropic/claude-sonnet-4-5\"", "\"openai/gpt-5\"")
        .replace("max_cost_per_run = 5.0", "max_cost_per_run = 7")
        .replace("\"x-team\" = \"a\"", "\"x-team\" = \"b\"");
    assert_eq!(home.text(), expected);
    assert_eq!(file.get("model").unwrap().as_deref(), Some("\"openai/gpt-5\""));
    assert_eq!(file.get("limits.max_cost_per_run").unwrap().as_deref(), Some("7"));

    assert!(file.unset("limits.max_cost_per_run").unwrap());
    assert!(!file.unset("limits.max_cost_per_run").unwrap());
    assert_eq!(home.text(), expected.replace("max_cost_per_run = 7\n", ""));
    assert_eq!(file.get("limits.max_cost_per_run").unwrap(), None);
}

#[test]
fn new_keys_make_their_tables() {
    let home = Home::new("# mine\nmodel = \"a/b\"\n");
    let mut file = ConfigEdit::open(&home.file()).unwrap();
    file.set("providers.local.base_url", "http://127.0.0.1:1/v1").unwrap();
    file.set("providers.local.models", "[{ id = \"m\" }]").unwrap();
    file.set("fallback", "a/c").unwrap();
    file.set("sandbox.enabled", "true").unwrap();
    let handle = ConfigHandle::open(&home.dirs);
    assert_eq!(handle.errors(), []);
    let now = handle.current();
    assert_eq!(now.providers["local"].models[0].id, "m");
    assert_eq!(now.fallback, ["a/c"]);
    assert_eq!(now.sandbox.enabled, Some(true));
    assert!(home.text().starts_with("# mine\nmodel = \"a/b\"\n"), "{}", home.text());
    assert!(file.unset("providers.local").unwrap());
    assert_eq!(file.get("providers").unwrap(), None);
}

#[test]
fn comments_outlive_the_key_below_them() {
    let home = Home::new("# top\nmodel = \"a/b\"\nsmall_model = \"a/c\"\n# last\napprove = \"ask\"\n");
    let mut file = ConfigEdit::open(&home.file()).unwrap();
    file.unset("model").unwrap();
    file.unset("approve").unwrap();
    assert_eq!(home.text(), "# top\nsmall_model = \"a/c\"\n# last\n");
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let home = Home::new(DOCUMENTED);
    let mut file = ConfigEdit::open(&home.file()).unwrap();
    let refusals = [
        ("modle", "x", "did you mean 'model'?"),
        ("limits", "5", "section"),
        ("limits.max_steps_per_run", "many", "whole number"),
        ("limits.max_cost_per_run", "-1", "from 0 to"),
        ("approve", "maybe", "\"ask\", \"deny\", \"all\""),
        ("providers.local.idle_timeout", "soon", "120s"),
        ("sandbox.enabled", "yes", "true or false"),
        ("a..b", "x", "not a key"),
    ];
    for (key, value, hint) in refusals {
        let error = file.set(key, value).unwrap_err().to_string();
        assert!(error.contains(hint), "{key}: {error}");
    }
    assert_eq!(home.text(), DOCUMENTED);
}

#[test]
fn a_faulty_file_can_be_mended_key_by_key() {
    let home = Home::new("approve = 5\nfallback = 6\nmodle = \"x\"\n");
    let mut file = ConfigEdit::open(&home.file()).unwrap();
    assert!(matches!(file.set("model", "a/b"), Err(EditError::Config(_))));
    file.set("approve", "ask").unwrap();
    file.unset("fallback").unwrap();
    assert!(file.unset("modle").unwrap());
    file.set("model", "a/b").unwrap();
    assert_eq!(home.text(), "approve = \"ask\"\nmodel = \"a/b\"\n");
    home.write("model = \n");
    assert!(ConfigFile::open(&home.file()).unwrap_err().to_string().contains(":1: "));
}

#[cfg(unix)]
#[test]
fn a_linked_file_stays_a_link() {
    let home = Home::new("");
    let real = home.dirs.config.join("real.toml");
    std::fs::rename(home.file(), &real).unwrap();
    std::os::unix::fs::symlink(&real, home.file()).unwrap();
    ConfigEdit::open(&home.file()).unwrap().set("model", "a/b").unwrap();
    assert!(home.file().is_symlink());
    assert_eq!(std::fs::read_to_string(real).unwrap(), "model = \"a/b\"\n");
}

#[test]
fn an_edit_counts_without_anybody_telling() {
    let home = Home::new("model = \"a/b\"\n");
    let config = ConfigHandle::open(&home.dirs);
    home.write("model = \"a/b\"\n[permissions]\ndeny = [\"shell(rm *)\"]\n");
    assert_eq!(config.current().permissions.deny.len(), 1);
    home.write("model = \n");
    assert_eq!(config.errors().len(), 1);
    assert_eq!((config.current().permissions.deny.len(), config.blocking_errors().len()), (1, 0));
    home.write("model = \"c/d\" # mended\n");
    assert_eq!((config.current().model.as_deref(), config.errors().len()), (Some("c/d"), 0));
    std::fs::remove_file(home.file()).unwrap();
    assert_eq!(config.current().model, None);
}

#[test]
fn a_file_that_was_never_good_blocks_and_a_later_slip_does_not() {
    let home = tempfile::tempdir().unwrap();
    let dirs = Dirs::under(home.path());
    std::fs::create_dir_all(&dirs.config).unwrap();
    std::fs::write(dirs.config_file(), "model = 3\n").unwrap();
    let config = ConfigHandle::open(&dirs);
    assert_eq!(config.blocking_errors().len(), 1);
    std::fs::write(dirs.config_file(), "model = \"a/b\"\n").unwrap();
    assert!(config.reload().is_empty() && config.blocking_errors().is_empty());
    std::fs::write(dirs.config_file(), "model = 3\n").unwrap();
    assert_eq!((config.reload().len(), config.blocking_errors().len()), (1, 0));
    assert_eq!(config.current().model.as_deref(), Some("a/b"));
}

#[test]
fn a_text_is_added_to_a_list_once_whatever_it_holds() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.toml");
    std::fs::write(&path, "[permissions]\nallow = [\"view\"] # mine\n").unwrap();
    let odd = "shell(printf '\u{7f}\"\\\\' *)";
    for text in ["view", odd, odd] {
        ConfigEdit::open(&path).unwrap().push("permissions.allow", text).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let read: toml::Table = text.parse().unwrap();
    let allow: Vec<&str> =
        read["permissions"]["allow"].as_array().unwrap().iter().filter_map(|rule| rule.as_str()).collect();
    assert_eq!(allow, ["view", odd]);
    assert!(text.contains("# mine"), "{text}");
}

#[test]
fn of_changes_at_once_none_is_lost() {
    let home = Home::new("");
    let config = ConfigHandle::open(&home.dirs);
    let add = |number: usize| {
        // One handle is a daemon's; another one, and a file that is opened for itself, are of other processes.
        let (handle, path, rule) = (config.clone(), home.file(), format!("shell(make {number})"));
        let other = ConfigHandle::open(&home.dirs);
        move || match number % 3 {
            0 => handle.change(|file| file.push("permissions.allow", &rule)).unwrap().0,
            1 => other.change(|file| file.push("permissions.allow", &rule)).unwrap().0,
            _ => ConfigEdit::open(&path).unwrap().push("permissions.allow", &rule).unwrap(),
        }
    };
    let (begin, count) = (std::sync::Barrier::new(8), 8);
    std::thread::scope(|scope| {
        for number in 0..count {
            let (add, begin) = (add(number), &begin);
            scope.spawn(move || {
                begin.wait();
                assert!(add());
            });
        }
    });
    assert_eq!(config.current().permissions.allow.len(), count, "{}", home.text());
}

#[test]
fn several_changes_are_made_together_or_not_at_all() {
    let home = Home::new("# top\nmodel = \"a/b\" # mine\n[[providers.x.models]]\nid = \"one\" # first\n");
    let mut file = ConfigEdit::open(&home.file()).unwrap();
    let set = |key: &str, value: &str| Change::Set { key: key.to_owned(), value: value.to_owned() };
    let add = |key: &str, tables: &[&str]| Change::AddTables {
        key: key.to_owned(),
        tables: tables.iter().map(|table| (*table).to_owned()).collect(),
    };
    let tables = ["{ id = \"one\", context = 5 }", "{ id = \"two\", context = 7 }"];
    let changes = [set("packs.p.build", "a/b"), add("providers.x.models", &tables), add("providers.y.models", &tables)];
    assert!(file.change(&changes).unwrap());
    assert!(!file.change(&changes).unwrap(), "all of it is there already");
    let text = home.text();
    assert!(
        text.starts_with("# top\nmodel = \"a/b\" # mine\n[[providers.x.models]]\nid = \"one\" # first\n"),
        "{text}"
    );
    let now = ConfigHandle::open(&home.dirs).current();
    let ids = |name: &str| now.providers[name].models.iter().map(|model| model.id.clone()).collect::<Vec<_>>();
    assert_eq!(
        (ids("x"), ids("y")),
        (vec!["one".to_owned(), "two".to_owned()], vec!["one".to_owned(), "two".to_owned()])
    );
    assert_eq!(now.providers["x"].models[1].context, Some(7));
    for bad in
        [set("limits.max_cost_per_run", "-1"), add("providers.x.models", &["{ context = 5 }"]), add("model", &["{}"])]
    {
        assert!(file.change(&[set("model", "c/d"), bad]).is_err());
        assert_eq!(home.text(), text);
    }
}
