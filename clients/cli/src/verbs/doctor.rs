//! `mcode doctor`: whether the main job can run, and how to mend what is in its way.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use mcode_client::{Client, v1};
use mcode_config::ConfigHandle;
use mcode_text::sanitize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::Form;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{json_line, json_pretty, stdout_line};
use crate::style::Style;
use crate::times::count;
use crate::verbs::Outcome;
use crate::verbs::models::catalogue_line;
use crate::verbs::storage::StorageArgs;

/// Most models that are looked at for a usable one.
const MODELS_MAX: u32 = 500;

/// How long the daemon may take to try out its sandbox.
const SANDBOX_WAIT: Duration = Duration::from_secs(15);
/// How often it is asked meanwhile.
const SANDBOX_LOOK: Duration = Duration::from_millis(50);

/// The name of the configuration file's line; its folder has one of its own.
const CONFIG: &str = "config.toml";

/// How long a model server may take to accept a connection.
const SERVER_WAIT: Duration = Duration::from_secs(2);

/// Check everything.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    storage: StorageArgs,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    name: &'static str,
    grade: Grade,
    found: String,
    mend: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Ok, found: found.into(), mend: String::new() }
    }

    fn bad(name: &'static str, grade: Grade, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, grade, found: found.into(), mend: mend.into() }
    }

    fn to_json(&self) -> Value {
        let grade = match self.grade {
            Grade::Ok => "ok",
            Grade::Warn => "warn",
            Grade::Fail => "fail",
        };
        let mend = (!self.mend.is_empty()).then_some(&self.mend);
        json!({"check": self.name, "status": grade, "found": self.found, "hint": mend})
    }

    fn text(&self, style: Style) -> String {
        let grade = match self.grade {
            Grade::Ok => style.green("ok  "),
            Grade::Warn => style.yellow("warn"),
            Grade::Fail => style.red("FAIL"),
        };
        let mut text = format!("{grade}  {:<11} {}", self.name, sanitize(&self.found));
        if !self.mend.is_empty() {
            text.push_str(&format!("\n                   mend it: {}", sanitize(&self.mend)));
        }
        text
    }
}

pub(crate) async fn run(context: &Context, args: DoctorArgs) -> Outcome {
    if let Some(outcome) = args.storage.run(context).await {
        return outcome;
    }
    let mut checks = vec![folder("config", &context.dirs.config), folder("data", &context.dirs.data)];
    checks.push(folder("state", &context.dirs.state));
    checks.extend(config(context));
    checks.push(program("git", Grade::Warn, "install git: without it there is no project history to look at"));
    checks.push(program("bash", Grade::Warn, "install bash: the shell tool falls back to sh without it"));
    checks.extend(daemon(context).await);
    let worst = checks.iter().map(|check| check.grade).max().unwrap_or(Grade::Ok);
    show(context, &checks, worst != Grade::Fail)?;
    Ok(exit_code(&checks))
}

/// The exit status of the first thing that is in the way of the main job.
fn exit_code(checks: &[Check]) -> u8 {
    let failed = checks.iter().find(|check| check.grade == Grade::Fail);
    failed.map_or(0, |check| match check.name {
        "daemon" | "socket" => 6,
        "model" | "server" => 5,
        _ => 3,
    })
}

fn show(context: &Context, checks: &[Check], ready: bool) -> Result<(), Failure> {
    let entries: Vec<Value> = checks.iter().map(Check::to_json).collect();
    match context.form {
        Form::Text => {
            let style = Style::of_stdout(context.global.color);
            checks.iter().try_for_each(|check| stdout_line(&check.text(style)))?;
            stdout_line(if ready {
                "ready: mcode ask can run"
            } else {
                "not ready: mend what FAILs, then run this again"
            })
        }
        Form::Json => json_pretty(&json!({"ready": ready, "checks": entries})),
        Form::Jsonl => entries.iter().try_for_each(json_line),
    }
}

/// Whether a folder, or the nearest one above it that is there, can be written.
fn folder(name: &'static str, path: &Path) -> Check {
    let there = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match tempfile::Builder::new().prefix(".mcode-doctor-").tempfile_in(there) {
        Ok(_) => Check::ok(name, path.display().to_string()),
        Err(error) => Check::bad(
            name,
            Grade::Fail,
            format!("{} can not be written: {error}", path.display()),
            format!("make {} writable, or set MCODE_HOME to a folder that is", there.display()),
        ),
    }
}

fn config(context: &Context) -> Vec<Check> {
    let config = ConfigHandle::open(&context.dirs);
    let file = config.file().display().to_string();
    let faults = config.errors();
    let mut checks: Vec<Check> = faults
        .iter()
        .map(|fault| Check::bad(CONFIG, Grade::Fail, fault.to_string(), "mend that line of the file"))
        .collect();
    let warnings = config.warnings();
    checks.extend(
        warnings.iter().map(|fault| Check::bad(CONFIG, Grade::Warn, fault.to_string(), "correct or remove that line")),
    );
    if checks.is_empty() {
        let found =
            if config.file().exists() { format!("{file} is fine") } else { format!("{file} is not there: defaults") };
        checks.push(Check::ok(CONFIG, found));
    }
    checks
}

fn program(name: &'static str, grade: Grade, mend: &str) -> Check {
    match find(name) {
        Some(path) => Check::ok(name, path.display().to_string()),
        None => Check::bad(name, grade, format!("{name} is not on PATH"), mend),
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = mcode_env::process::var("PATH")?;
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(&path).map(|folder| folder.join(&file)).find(|path| path.is_file())
}

async fn daemon(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    match context.socket() {
        Ok(socket) => checks.push(Check::ok("socket", socket.address().display().to_string())),
        Err(error) => {
            let mend = error.hint.clone().unwrap_or_default();
            return vec![Check::bad("socket", Grade::Fail, error.message, mend)];
        }
    }
    let asked = async {
        let client = context.connect().await?;
        let info = client.handshake().await?;
        Ok::<_, mcode_client::ClientError>((client, info))
    };
    let (client, info) = match asked.await {
        Ok(found) => found,
        Err(error) => {
            let mend = error.hint.clone().unwrap_or_default();
            checks.push(Check::bad("daemon", Grade::Fail, error.message, mend));
            return checks;
        }
    };
    let at_work = count(info.active_runs, "run");
    let found = format!("version {}, pid {}, {at_work} at work", info.version, info.pid);
    checks.push(if info.version == env!("CARGO_PKG_VERSION") {
        Check::ok("daemon", found)
    } else {
        let mend = "restart it when no run is at work: mcode daemon restart";
        let found = format!("{found}, but this is mcode {}", env!("CARGO_PKG_VERSION"));
        Check::bad("daemon", Grade::Warn, found, mend)
    });
    checks.extend(toolhost(Path::new(&info.executable)));
    checks.push(sandbox(tried(&client, info.sandbox).await));
    if let Ok(listed) = client.list_logins(v1::ListLoginsRequest {}).await {
        checks.extend(logins(&listed));
    }
    let request =
        v1::ListModelsRequest { page_size: MODELS_MAX, env: mcode_env::process::vars(), ..Default::default() };
    match client.list_models(request).await {
        Ok(response) => {
            checks.push(models(&response.models));
            checks.extend(response.catalogue.as_ref().map(catalogue));
            if let Some(model) = chosen(&response.models) {
                checks.extend(server(model).await);
            }
        }
        Err(error) => {
            let mend = error.hint.clone().unwrap_or_default();
            checks.push(Check::bad("model", Grade::Fail, error.message, mend));
        }
    }
    checks.extend(withheld(context, &client).await);
    checks
}

/// What commands are held to, once the daemon has tried it out.
async fn tried(client: &Client, first: Option<v1::SandboxInfo>) -> Option<v1::SandboxInfo> {
    let (mut found, deadline) = (first, Instant::now() + SANDBOX_WAIT);
    while found.is_none() && Instant::now() < deadline {
        tokio::time::sleep(SANDBOX_LOOK).await;
        found = client.handshake().await.ok()?.sandbox;
    }
    found
}

/// Nothing held is no failure: the main job can run, and the user is asked before commands.
fn sandbox(found: Option<v1::SandboxInfo>) -> Check {
    let Some(found) = found else {
        let mend = "run this again; mcode daemon logs may say why it takes so long";
        return Check::bad("sandbox", Grade::Warn, "not tried out yet", mend);
    };
    if found.enforced && found.lacks.is_empty() {
        return Check::ok("sandbox", found.strength);
    }
    let mend = if found.enforced {
        "provide what is named, or live with it"
    } else {
        "on Linux 6.2 or later turn Landlock on; until then allow commands with care"
    };
    Check::bad("sandbox", Grade::Warn, format!("{}; not held: {}", found.strength, found.lacks.join("; ")), mend)
}

/// The model that `mcode ask` would take.
fn chosen(models: &[v1::Model]) -> Option<&v1::Model> {
    let usable = |model: &&v1::Model| model.usable && model.provider != "demo";
    models.iter().filter(usable).find(|model| model.is_default).or_else(|| models.iter().find(usable))
}

/// Whether the server of the model accepts connections. Nothing is sent to it. Through a proxy, the connection would say
/// nothing about the server.
async fn server(model: &v1::Model) -> Option<Check> {
    let set = |name: &str| mcode_env::process::var(name).filter(|value| !value.is_empty());
    if ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .into_iter()
        .any(|name| set(name).is_some())
    {
        return None;
    }
    let (provider, url) = (&model.provider, &model.base_url);
    let variable = format!("{}_BASE_URL", provider.to_ascii_uppercase().replace('-', "_"));
    let address = authority(url)?;
    let connected = tokio::time::timeout(SERVER_WAIT, tokio::net::TcpStream::connect(&address)).await;
    let why = match connected {
        Ok(Ok(_)) => return Some(Check::ok("server", format!("{url} accepts connections"))),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", SERVER_WAIT.as_secs()),
    };
    let mend = format!("start the server, or correct {variable} or providers.{provider}.base_url");
    Some(Check::bad("server", Grade::Fail, format!("{url} can not be reached: {why}"), mend))
}

/// `host:port` of a URL.
fn authority(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty())?;
    let after_bracket = host.rsplit(']').next()?;
    if after_bracket.contains(':') {
        return Some(host.to_owned());
    }
    let port = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
    Some(format!("{host}:{port}"))
}

/// Which variables commands do not get.
async fn withheld(context: &Context, client: &mcode_client::Client) -> Option<Check> {
    let cwd = context.cwd().ok()?;
    let request = v1::ExplainDecisionRequest {
        context: Some(context.client_context(&cwd, false).ok()?),
        tool: "shell".to_owned(),
        subject: "true".to_owned(),
        ..Default::default()
    };
    let names = client.explain_decision(request).await.ok()?.withheld;
    let told = match names.len() {
        0 => "commands get the whole environment: nothing in it looks like a secret".to_owned(),
        count => format!("commands get all but {count} variables: {}", names.join(", ")),
    };
    Some(Check::ok("environment", told))
}

/// Whether the daemon's program for running commands is there; `None` where it needs none, or does not say where it is.
fn toolhost(daemon: &Path) -> Option<Check> {
    const NAME: &str = "mcode-toolhost";
    let beside = daemon.parent().filter(|_| cfg!(unix) && daemon.is_absolute())?.join(NAME);
    Some(match Some(beside.clone()).filter(|path| path.is_file()).or_else(|| find(NAME)) {
        Some(path) => Check::ok("commands", path.display().to_string()),
        None => Check::bad(
            "commands",
            Grade::Fail,
            format!("{} is not there: commands can not be run", beside.display()),
            "install it beside mcoded (cargo install --path daemon/toolhost), then: mcode daemon restart",
        ),
    })
}

/// What is known of models, and since when.
fn catalogue(catalogue: &v1::Catalogue) -> Check {
    let found = catalogue_line(Some(catalogue));
    if catalogue.problem.is_empty() {
        return Check::ok("catalogue", found);
    }
    Check::bad("catalogue", Grade::Warn, found, "fetch it again: mcode models refresh")
}

/// What is stored, where, and what is wrong with it. None of it is in the way of the main job: a key of the environment
/// works all the same.
fn logins(listed: &v1::ListLoginsResponse) -> Vec<Check> {
    let mut checks = Vec::new();
    if !listed.problem.is_empty() {
        let mend = "see the message; keys of the environment work meanwhile";
        checks.push(Check::bad("logins", Grade::Warn, listed.problem.clone(), mend));
    }
    for login in &listed.logins {
        let what = if login.kind == "key" { "key" } else { "login" };
        let whose = if login.account.is_empty() { String::new() } else { format!(" of {}", login.account) };
        let found = format!("{what} for {}{whose}, kept in {}", login.provider, login.kept_in);
        checks.push(if login.problem.is_empty() {
            Check::ok("logins", found)
        } else {
            let mend = format!("log in again with: mcode login {}", login.provider);
            Check::bad("logins", Grade::Warn, format!("{found}: {}", login.problem), mend)
        });
    }
    checks
}

/// A usable model, other than the scripted one of the demo, which can not do the main job.
fn models(models: &[v1::Model]) -> Check {
    let usable: Vec<&v1::Model> = models.iter().filter(|model| model.usable && model.provider != "demo").collect();
    let default = usable.iter().find(|model| model.is_default);
    if let Some(model) = default {
        return Check::ok("model", format!("{} ({})", model.model, model.key_source));
    }
    if let Some(model) = models.iter().find(|model| model.is_default && model.provider != "demo") {
        let found = format!("the configured model {} can not be used", model.model);
        return Check::bad("model", Grade::Fail, found, model.key_source.clone());
    }
    match usable.first() {
        Some(model) => {
            Check::ok("model", format!("{} usable, such as {} ({})", usable.len(), model.model, model.key_source))
        }
        None => Check::bad(
            "model",
            Grade::Fail,
            "no model can be used: no key was found",
            "log in with: mcode login; or set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY; or look for a model on \
             this machine with: mcode providers scan; to see mcode work without any, run: mcode demo",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(provider: &str, usable: bool, is_default: bool) -> v1::Model {
        let key_source = "set X_API_KEY".to_owned();
        v1::Model {
            model: format!("{provider}/m"),
            provider: provider.into(),
            usable,
            is_default,
            key_source,
            ..Default::default()
        }
    }

    #[test]
    fn the_scripted_model_is_not_enough() {
        assert_eq!(models(&[model("demo", true, false)]).grade, Grade::Fail);
        assert_eq!(models(&[model("demo", true, false), model("x", true, false)]).grade, Grade::Ok);
        assert_eq!(models(&[model("y", true, false), model("x", false, true)]).mend, "set X_API_KEY");
    }

    #[cfg(unix)]
    #[test]
    fn a_missing_host_of_commands_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let check = toolhost(&dir.path().join("mcoded")).unwrap();
        assert!(check.grade == Grade::Fail && check.found.contains("mcode-toolhost"), "{check:?}");
        std::fs::write(dir.path().join("mcode-toolhost"), "").unwrap();
        assert_eq!(toolhost(&dir.path().join("mcoded")).unwrap().grade, Grade::Ok);
        assert_eq!(toolhost(Path::new("")), None);
    }

    #[test]
    fn what_the_sandbox_lacks_is_named_and_stops_nobody() {
        let info = |enforced, lacks: &[&str]| {
            let lacks = lacks.iter().map(|&lack| lack.to_owned()).collect();
            Some(v1::SandboxInfo { enforced, strength: "landlock-7".into(), lacks })
        };
        assert_eq!(sandbox(info(true, &[])), Check::ok("sandbox", "landlock-7"));
        for check in [sandbox(info(true, &["the network"])), sandbox(info(false, &["the network"]))] {
            assert!(check.grade == Grade::Warn && check.found.contains("the network"), "{check:?}");
        }
        assert_eq!(sandbox(None).grade, Grade::Warn);
    }

    #[test]
    fn the_address_of_a_server_is_read_from_its_url() {
        for (url, address) in [
            ("http://127.0.0.1:8080/v1", Some("127.0.0.1:8080")),
            ("https://api.example.org/v1", Some("api.example.org:443")),
            ("http://user:secret@host?x", Some("host:80")),
            ("http://[::1]:11434", Some("[::1]:11434")),
            ("https://[::1]/v1", Some("[::1]:443")),
            ("no url", None),
            ("http:///v1", None),
        ] {
            assert_eq!(authority(url).as_deref(), address, "{url}");
        }
    }

    #[test]
    fn stored_logins_are_told_with_their_place_and_stop_nobody() {
        let login = |problem: &str| v1::Login {
            provider: "example".into(),
            kind: "login".into(),
            kept_in: "keyring".into(),
            problem: problem.into(),
            ..Default::default()
        };
        let listed = v1::ListLoginsResponse {
            logins: vec![login(""), login("it has expired")],
            problem: "auth.json is damaged".into(),
            ..Default::default()
        };
        let checks = logins(&listed);
        assert_eq!(checks.iter().map(|check| check.grade).collect::<Vec<_>>(), [Grade::Warn, Grade::Ok, Grade::Warn]);
        assert!(checks[1].found.contains("keyring") && checks[2].mend.contains("mcode login example"));
    }

    #[test]
    fn the_exit_status_is_that_of_what_is_in_the_way() {
        assert_eq!(exit_code(&[Check::ok("git", "x"), Check::bad("bash", Grade::Warn, "x", "y")]), 0);
        assert_eq!(exit_code(&[Check::bad("daemon", Grade::Fail, "x", "y")]), 6);
        assert_eq!(exit_code(&[Check::bad("model", Grade::Fail, "x", "y")]), 5);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_judged_by_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(folder("data", &dir.path().join("a/b")).grade, Grade::Ok);
        assert!(!dir.path().join("a").exists());
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let check = folder("data", &file.join("below"));
        assert_eq!(check.grade, Grade::Fail);
        assert!(check.mend.contains("MCODE_HOME"));
    }
}
