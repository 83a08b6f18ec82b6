//! `mcode login` and `mcode logout`.

use std::io::{self, BufRead, IsTerminal};

use clap::Args;
use mcode_client::{Client, ClientError, ErrorKind, v1};
use mcode_proto::reasons::Reason;
use mcode_text::{sanitize, sanitize_line};
use prost_types::Duration;

use crate::args::Form;
use crate::context::Context;
use crate::failure::{Failure, tell};
use crate::interrupt::{INTERRUPTED, Interrupts};
use crate::output::{stderr_line, stderr_text};
use crate::stdin;
use crate::table::table;
use crate::terminal::{self, Terminal, Typed};
use crate::times::local;
use crate::verbs::{Outcome, show_message};

/// How long one call waits for the end of a login, in seconds; then it is asked again.
const WAIT_SECONDS: i64 = 20;

/// Log in to a provider.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  mcode login                              what each provider takes\n  \
    mcode login openai                       a ChatGPT subscription, in the browser\n  \
    mcode login openai --device              the same from a machine without a browser\n  \
    pass show anthropic | mcode login anthropic --key")]
pub(crate) struct LoginArgs {
    /// The provider; without one, what each takes is listed
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
    /// Paste what the browser shows at the end: for a browser on another machine
    #[arg(long, requires = "provider", conflicts_with_all = ["device", "key"])]
    paste: bool,
    /// Type a code in on another device
    #[arg(long, requires = "provider", conflicts_with = "key")]
    device: bool,
    /// Store an API key, which is asked for or taken from what is piped in
    #[arg(long, requires = "provider")]
    key: bool,
    /// Only print the address, and open no browser
    #[arg(long, requires = "provider")]
    no_browser: bool,
}

/// Forget what is stored for a provider.
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The provider
    #[arg(value_name = "PROVIDER")]
    provider: String,
}

pub(crate) async fn run(context: &Context, args: LoginArgs) -> Outcome {
    let client = context.connect().await?;
    let listed = client.list_logins(v1::ListLoginsRequest {}).await?;
    let Some(provider) = args.provider.clone() else {
        show_message(context.form, "ListLoginsResponse", &listed, Some("logins"), || told(&listed))?;
        return Ok(0);
    };
    let offer = listed.offers.iter().find(|offer| offer.provider == provider);
    let flow = flow(&args, offer);
    let mut interrupts = Interrupts::listen()?;
    let mut api_key = String::new();
    if flow == "key" {
        if let Some(note) = offer.map(|offer| offer.note.as_str()).filter(|note| !note.is_empty()) {
            stderr_line(&sanitize(note));
        }
        api_key = key(&provider, &mut interrupts).await?;
    }
    let request = v1::StartLoginRequest {
        provider: provider.clone(),
        flow: flow.to_owned(),
        api_key,
        env: mcode_env::process::vars(),
    };
    let started = interrupts.or(client.start_login(request)).await?;
    if let Some(login) = &started.login {
        show_message(context.form, "StartLoginResponse", &started, None, || stored(login))?;
        if !started.instructions.is_empty() {
            stderr_line(&sanitize(&started.instructions));
        }
        return Ok(0);
    }
    tell_what_to_do(context, &args, &started)?;
    let done = wait(&client, &provider, &started, &mut interrupts).await?;
    show_message(context.form, "CompleteLoginResponse", &done, None, || {
        done.login.as_ref().map(stored).unwrap_or_default()
    })?;
    Ok(0)
}

pub(crate) async fn logout(context: &Context, args: LogoutArgs) -> Outcome {
    let client = context.connect().await?;
    let response = client.logout(v1::LogoutRequest { provider: args.provider.clone() }).await?;
    show_message(context.form, "LogoutResponse", &response, None, || {
        let provider = sanitize_line(&args.provider);
        if response.removed {
            format!("logged out of {provider}: nothing is stored for it any more")
        } else {
            format!("nothing was stored for {provider}")
        }
    })?;
    if !response.note.is_empty() {
        stderr_line(&sanitize(&response.note));
    }
    Ok(0)
}

/// The flow that the words ask for; empty for the provider's usual one.
fn flow(args: &LoginArgs, offer: Option<&v1::LoginOffer>) -> &'static str {
    let only_key = offer.is_some_and(|offer| offer.flows.first().is_some_and(|first| first == "key"));
    match args {
        LoginArgs { key: true, .. } => "key",
        LoginArgs { paste: true, .. } => "paste",
        LoginArgs { device: true, .. } => "device",
        _ if only_key => "key",
        _ => "",
    }
}

/// The key, from a prompt that does not show it or from what is piped in; never from an argument, which others can see.
async fn key(provider: &str, interrupts: &mut Interrupts) -> Result<String, Failure> {
    if !io::stdin().is_terminal() {
        // A writer that takes its time (a password manager that asks) is waited for.
        let piped = interrupts.or(async { blocking(|| stdin::read(false)).await? }).await?;
        let key = piped.map(|piped| piped.text.trim().to_owned()).unwrap_or_default();
        return if key.is_empty() { Err(no_key(provider).into()) } else { Ok(key) };
    }
    if !terminal::is_there() {
        return Err(no_key(provider).into());
    }
    let shown = terminal::hide_typing();
    stderr_text(&format!("API key of {} (it is not shown): ", sanitize_line(provider)));
    let typed = interrupts.or(blocking(terminal::line)).await;
    drop(shown);
    stderr_line("");
    let typed = typed?;
    if typed.is_empty() { Err(no_key(provider).into()) } else { Ok(typed) }
}

fn no_key(provider: &str) -> ClientError {
    ClientError::usage(format!("no key was given for {provider}"))
        .hint(format!("pipe it in, such as: pass show {provider} | mcode login {provider} --key"))
}

/// Work that blocks, on a thread that ends with us.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ClientError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        ClientError::new(ErrorKind::Internal, "INTERNAL", format!("standard input can not be read: {error}"))
    })
}

fn tell_what_to_do(context: &Context, args: &LoginArgs, started: &v1::StartLoginResponse) -> Result<(), Failure> {
    if context.form == Form::Jsonl {
        show_message(context.form, "StartLoginResponse", started, None, String::new)?;
    }
    stderr_line(&sanitize(&started.instructions));
    stderr_line(&format!("\n  {}\n", sanitize_line(&started.url)));
    if !started.user_code.is_empty() {
        stderr_line(&format!("  code: {}\n", context.stderr.bold(&sanitize_line(&started.user_code))));
    }
    if !args.no_browser && started.flow != "paste" && may_open() {
        // What could not be opened stands above.
        drop(open::that_detached(&started.url));
    }
    Ok(())
}

/// Whether somebody sits at this machine in front of a browser, as far as that can be told.
fn may_open() -> bool {
    let set = |name: &str| mcode_env::process::var(name).is_some();
    let far = set("SSH_CONNECTION") || set("SSH_TTY");
    let screen = !cfg!(target_os = "linux") || set("DISPLAY") || set("WAYLAND_DISPLAY");
    terminal::is_there() && screen && !far
}

/// Lines in which a code may come.
enum Lines {
    Terminal(Terminal),
    /// A script at the other end of a pipe.
    Piped,
    None,
}

impl Lines {
    fn of(started: &v1::StartLoginResponse) -> Self {
        match started.flow.as_str() {
            "paste" if !io::stdin().is_terminal() => Self::Piped,
            "paste" | "loopback" if terminal::is_there() => Self::Terminal(Terminal::open()),
            _ => Self::None,
        }
    }

    async fn next(&mut self) -> Typed {
        match self {
            Self::Terminal(terminal) => terminal.next().await,
            Self::Piped => match blocking(piped_line).await {
                Ok(line) if !line.is_empty() => Typed::Line(line),
                _ => Typed::End,
            },
            Self::None => std::future::pending().await,
        }
    }
}

fn piped_line() -> String {
    let mut line = String::new();
    // What can not be read is the end.
    let _ended = io::stdin().lock().read_line(&mut line);
    line.trim().to_owned()
}

/// Waits for the end of a login; Ctrl+C and a code that can not be had cancel it.
async fn wait(
    client: &Client,
    provider: &str,
    started: &v1::StartLoginResponse,
    interrupts: &mut Interrupts,
) -> Result<v1::CompleteLoginResponse, Failure> {
    let mut lines = Lines::of(started);
    let ask = |code: String| {
        let wait = Some(Duration { seconds: WAIT_SECONDS, nanos: 0 });
        client.complete_login(v1::CompleteLoginRequest { login_id: started.login_id.clone(), code, wait })
    };
    let cancel = || client.cancel_login(v1::CancelLoginRequest { login_id: started.login_id.clone() });
    let (mut code, mut given) = (String::new(), false);
    loop {
        let can_repeat = matches!(lines, Lines::Terminal(_));
        let outcome = tokio::select! {
            outcome = ask(std::mem::take(&mut code)) => outcome,
            typed = lines.next() => match typed {
                Typed::Line(line) => {
                    (code, given) = (line, true);
                    // A script gives one code, and what follows it is the end.
                    if matches!(lines, Lines::Piped) {
                        lines = Lines::None;
                    }
                    continue;
                }
                Typed::End if started.flow == "paste" && !given => Err(ClientError::usage("no code was given")
                    .hint("paste the address that the browser shows at the end, or the code")),
                Typed::End => {
                    lines = Lines::None;
                    continue;
                }
            },
            () = interrupts.next() => {
                drop(cancel().await);
                return Err(Failure::Told(INTERRUPTED));
            }
        };
        match outcome {
            Ok(response) if response.done => return Ok(response),
            Ok(_) => {}
            Err(error) if can_repeat && is_about_the_code(&error) => tell(&error),
            Err(error) => {
                if is_about_the_code(&error) {
                    drop(cancel().await);
                }
                return Err(cut(error, provider).into());
            }
        }
    }
}

/// A daemon that does not know a login that we have begun is another one than that which began it.
fn cut(error: ClientError, provider: &str) -> ClientError {
    if error.reason != Reason::LoginNotFound.as_str() {
        return error;
    }
    let message = format!("the login to '{provider}' was cut by a restart of the daemon");
    ClientError::new(ErrorKind::Daemon, Reason::LoginCut.as_str(), message)
        .hint(format!("run it again: mcode login {provider}"))
}

/// Whether the login goes on in spite of this error.
fn is_about_the_code(error: &ClientError) -> bool {
    matches!(error.reason.as_str(), "LOGIN_WRONG_STATE" | "INVALID_ARGUMENT")
}

/// What is stored now, in a sentence.
fn stored(login: &v1::Login) -> String {
    let what = if login.kind == "key" { "the key of" } else { "logged in to" };
    let whose = if login.account.is_empty() { String::new() } else { format!(" as {}", login.account) };
    let verb = if login.kind == "key" { " is" } else { "," };
    sanitize_line(&format!("{what} {}{whose}{verb} kept in {}", login.provider, place(&login.kept_in))).into_owned()
}

fn place(kept_in: &str) -> &str {
    if kept_in == "keyring" { "the system's keyring" } else { kept_in }
}

/// What is stored and what could be.
fn told(listed: &v1::ListLoginsResponse) -> String {
    let of = |provider: &str| listed.logins.iter().find(|login| login.provider == provider);
    let rows: Vec<Vec<String>> = listed
        .offers
        .iter()
        .map(|offer| {
            let title = if offer.title == offer.provider { "" } else { offer.title.as_str() };
            let takes: Vec<&str> = offer.flows.iter().map(|flow| takes(flow)).collect();
            vec![
                offer.provider.clone(),
                of(&offer.provider).map(state).unwrap_or_default(),
                if takes.is_empty() { "see below".to_owned() } else { takes.join(", ") },
                title.to_owned(),
            ]
        })
        .collect();
    let mut lines = vec![table(&["PROVIDER", "STORED", "TAKES", ""], &rows)];
    let notes = listed.offers.iter().filter(|offer| !offer.note.is_empty());
    lines.extend(notes.map(|offer| format!("{}: {}", offer.provider, sanitize_line(&offer.note))));
    let problems = listed.logins.iter().filter(|login| !login.problem.is_empty()).map(|login| &login.problem);
    let problems = problems.chain(Some(&listed.problem).filter(|problem| !problem.is_empty()));
    lines.extend(problems.map(|problem| format!("problem: {}", sanitize_line(problem))));
    lines.push("log in with: mcode login PROVIDER".to_owned());
    lines.join("\n")
}

fn takes(flow: &str) -> &str {
    match flow {
        "loopback" => "browser",
        "paste" => "--paste",
        "device" => "--device",
        "key" => "--key",
        other => other,
    }
}

fn state(login: &v1::Login) -> String {
    let kind = if login.kind == "key" { "key" } else { "login" };
    let whose = if login.account.is_empty() { String::new() } else { format!(" of {}", login.account) };
    let until = match login.expires_at.as_ref() {
        _ if !login.problem.is_empty() => " (of no use)".to_owned(),
        Some(_) if !login.renewable => format!(" until {}", local(login.expires_at.as_ref())),
        _ => String::new(),
    };
    format!("{kind}{whose}{until}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(kind: &str, account: &str) -> v1::Login {
        v1::Login {
            provider: "example".into(),
            account: account.into(),
            kind: kind.into(),
            kept_in: "keyring".into(),
            renewable: true,
            ..Default::default()
        }
    }

    #[test]
    fn what_is_stored_is_said_in_a_sentence() {
        assert_eq!(stored(&login("login", "a@b.c")), "logged in to example as a@b.c, kept in the system's keyring");
        assert_eq!(stored(&login("key", "")), "the key of example is kept in the system's keyring");
    }

    #[test]
    fn a_login_that_the_next_daemon_does_not_know_was_cut() {
        let unknown = ClientError::new(ErrorKind::User, "LOGIN_NOT_FOUND", "no login 'login_0123' is at work");
        let told = cut(unknown, "example");
        assert_eq!((told.exit_code(), told.reason.as_str()), (6, "LOGIN_CUT"));
        assert!(told.message.contains("cut by a restart of the daemon") && !told.message.contains("login_0123"));
        assert_eq!(told.hint.as_deref(), Some("run it again: mcode login example"));
        let denied = ClientError::new(ErrorKind::Model, "LOGIN_DENIED", "no");
        assert_eq!(cut(denied.clone(), "example"), denied);
    }

    #[test]
    fn what_providers_take_and_what_is_wrong_is_listed() {
        let offer = |provider: &str, flows: &[&str], note: &str| v1::LoginOffer {
            provider: provider.into(),
            title: provider.into(),
            flows: flows.iter().map(|&flow| flow.to_owned()).collect(),
            note: note.into(),
        };
        let listed = v1::ListLoginsResponse {
            logins: vec![login("login", "a@b.c")],
            offers: vec![offer("example", &["loopback", "key"], ""), offer("other", &["key"], "A note.")],
            problem: "auth.json is damaged".into(),
            ..Default::default()
        };
        let text = told(&listed);
        for words in ["browser, --key", "login of a@b.c", "other: A note.", "problem: auth.json is damaged"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn the_usual_way_is_the_providers() {
        let args = |words: &[&str]| {
            use clap::Parser;
            #[derive(Parser)]
            struct Words {
                #[command(flatten)]
                login: LoginArgs,
            }
            Words::try_parse_from(["x", "p"].iter().chain(words)).unwrap().login
        };
        let only_key = v1::LoginOffer { flows: vec!["key".into()], ..Default::default() };
        assert_eq!(flow(&args(&[]), Some(&only_key)), "key");
        assert_eq!(flow(&args(&[]), None), "");
        assert_eq!(flow(&args(&["--device"]), Some(&only_key)), "device");
    }
}
