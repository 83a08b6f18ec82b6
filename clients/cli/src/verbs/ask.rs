//! `mcode ask`: one request to the agent, awaited and printed.

mod wait;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use mcode_client::{Client, ClientError, Follow, Piece, RunView, v1};
use mcode_text::sanitize;
use serde_json::{Value, json};

use crate::activity::Activity;
use crate::args::Form;
use crate::context::{Context, request_id};
use crate::editor;
use crate::failure::{self, Failure, STDOUT_UNUSABLE, tell_message};
use crate::input;
use crate::interrupt::Interrupts;
use crate::output::{json_line, json_pretty, stdout_line};
use crate::stdin;
use crate::terminal;
use crate::times::{parse_duration, wire_duration};
use crate::verbs::ask::wait::{Wait, print_result};
use crate::verbs::{Outcome, trust};

/// Most models of a provider that are looked through for a price.
const MODELS_MAX: u32 = 500;

/// Shown below the options of `ask`.
const EXAMPLES: &str = "Examples:
  mcode ask \"Why does the second test fail?\"
  git diff | mcode ask \"Review this\"
  mcode ask --continue --mode plan \"And how would you mend it?\"
  mcode ask --detach --approve ask \"Mend it\"      then: mcode approvals list, mcode watch latest";

/// Ask the agent something.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AskArgs {
    /// What to ask; piped stdin is added to it, or stands in for it
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
    /// Go on with the latest thread of this project
    #[arg(short, long = "continue", conflicts_with = "thread")]
    pub(crate) cont: bool,
    /// Go on with this thread: its id, the beginning of it, or latest
    #[arg(short, long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// What to call the new thread
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Keep nothing: delete the new thread when its run has ended
    #[arg(long, conflicts_with_all = ["thread", "cont"])]
    pub(crate) ephemeral: bool,
    #[command(flatten)]
    pub(crate) how: How,
}

/// How a run works, and what comes with the prompt.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// The model, as provider/model
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// How to work
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// How much to think first
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) think: Option<Think>,
    /// Show the model a picture or PDF; may be repeated
    #[arg(short, long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// Let the agent work in this folder too; may be repeated
    #[arg(long = "add-dir", value_name = "DIR")]
    pub(crate) add_dirs: Vec<PathBuf>,
    /// The answer has to satisfy the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// What to do about tool calls that no rule decides
    ///
    /// `ask` asks at this terminal. With --detach it lets the run wait for whoever uses `mcode approvals`. Without a
    /// terminal and without --detach nobody can be asked, and such calls are refused at once.
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) approve: Option<Approve>,
    /// The same as --approve all
    #[arg(long, conflicts_with = "approve")]
    pub(crate) yolo: bool,
    /// End the run after this time, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// End the run after this many model requests
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_steps: Option<u32>,
    /// End the run after this many tokens
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// End the run when it has cost this many US dollars
    #[arg(long, value_name = "USD", value_parser = parse_usd)]
    pub(crate) max_cost: Option<f64>,
    /// Do not wait: print the run and the thread, and leave
    #[arg(long)]
    pub(crate) detach: bool,
}

/// What is said, in which thread, and how.
#[derive(Debug)]
pub(crate) struct Saying {
    pub(crate) prompt: Vec<String>,
    /// Go on with the latest thread of this project.
    pub(crate) cont: bool,
    pub(crate) thread: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) ephemeral: bool,
    pub(crate) resend: Option<v1::Resend>,
    /// A file with the prompt, which goes once the daemon has it.
    pub(crate) written: Option<PathBuf>,
    pub(crate) how: How,
}

/// How the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Change things.
    Build,
    /// Make a plan.
    Plan,
    /// Look only.
    Explore,
}

/// How much the model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Think {
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as it can.
    Xhigh,
}

/// What to do about undecided tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// Ask at this terminal; with --detach, wait for `mcode approvals`; with neither, refuse at once.
    Ask,
    /// Refuse at once.
    Deny,
    /// Allow; deny rules still hold.
    All,
}

fn parse_usd(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(usd) if usd > 0.0 && usd.is_finite() => Ok(usd),
        _ => Err(format!("'{text}' is not a number of US dollars above zero, such as 0.5")),
    }
}

fn word<T: ValueEnum>(value: Option<&T>) -> String {
    value.and_then(ValueEnum::to_possible_value).map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Whether a message of the user's role is mcode's own word to the model.
pub(crate) fn is_own(text: &str) -> bool {
    text.starts_with("[mcode] ")
}

/// What `ask` in a JSON form prints when there is no run to tell about.
pub(crate) fn failed_result(is_ask: bool, error: &ClientError) -> Value {
    if !is_ask {
        return json!({"error": error.to_json(), "exit_code": error.exit_code()});
    }
    let mut result = RunView { status: "failed".to_owned(), ..RunView::default() }.result();
    result["thread_id"] = Value::Null;
    result["run_id"] = Value::Null;
    result["error"] = error.to_json();
    result["exit_code"] = json!(error.exit_code());
    mcode_client::lines::result_line(result)
}

pub(crate) async fn run(context: &Context, args: AskArgs) -> Outcome {
    let AskArgs { prompt, cont, thread, title, ephemeral, how } = args;
    say(context, &Saying { prompt, cont, thread, title, ephemeral, resend: None, written: None, how }).await
}

/// Says something, waits for the answer, and prints it.
pub(crate) async fn say(context: &Context, saying: &Saying) -> Outcome {
    let thread = saying.thread.clone();
    match start_and_wait(context, saying).await {
        Err(Failure::Error(error)) if context.form != Form::Text && error.reason != STDOUT_UNUSABLE => {
            failure::tell(&error);
            let mut result = failed_result(true, &error);
            result["thread_id"] = json!(thread);
            print_result(context.form, &result)?;
            Err(Failure::Told(error.exit_code()))
        }
        outcome => outcome,
    }
}

async fn start_and_wait(context: &Context, saying: &Saying) -> Outcome {
    let how = &saying.how;
    // Everything that can be wrong with the request is found before a daemon is started for it.
    let request = request(context, saying)?;
    let interactive = request.context.as_ref().is_some_and(|context| context.interactive);
    let mut interrupts = Interrupts::listen()?;
    let (client, started) = interrupts.or(start(context, saying, request)).await?;
    for fault in &started.config_errors {
        tell_message(fault, Some("mend it; what the configuration said before is in force until then"));
    }
    if how.max_cost.is_some() && !has_price(&client, &started.run_id).await {
        tell_message(
            "the price of this model is not known: --max-cost will not end the run",
            Some("use --max-tokens or --max-steps"),
        );
    }
    if how.detach {
        return detached(context.form, &started);
    }
    Wait::new(context, client, &started, interactive).until_end(interrupts).await
}

/// Whether the model of a run has a price; what can not be found out is taken to be fine.
async fn has_price(client: &Client, run_id: &str) -> bool {
    let Ok(response) = client.get_run(v1::GetRunRequest { run_id: run_id.to_owned() }).await else { return true };
    let model = response.run.unwrap_or_default().model;
    let provider = model.split('/').next().unwrap_or_default().to_owned();
    let request = v1::ListModelsRequest { page_size: MODELS_MAX, provider, ..Default::default() };
    let Ok(listed) = client.list_models(request).await else { return true };
    // A model that is not listed has no price either.
    listed.models.iter().any(|known| known.model == model && known.input_usd_per_mtok + known.output_usd_per_mtok > 0.0)
}

/// The flags, then `MCODE_APPROVE`, then whatever is configured.
fn approval(how: &How) -> Result<v1::ApprovalPolicy, ClientError> {
    let approve = match (how.yolo, how.approve, mcode_env::process::var("MCODE_APPROVE")) {
        (true, ..) => Some(Approve::All),
        (false, Some(approve), _) => Some(approve),
        (false, None, None) => None,
        (false, None, Some(text)) => Some(Approve::from_str(&text, true).map_err(|_| {
            ClientError::usage(format!("MCODE_APPROVE is '{text}'")).hint("set it to ask, deny or all, or unset it")
        })?),
    };
    Ok(match approve {
        None => v1::ApprovalPolicy::Unspecified,
        Some(Approve::Ask) => v1::ApprovalPolicy::Ask,
        Some(Approve::Deny) => v1::ApprovalPolicy::Deny,
        Some(Approve::All) => v1::ApprovalPolicy::All,
    })
}

/// The flag, then `MCODE_MODEL`, then whatever the thread or the configuration says.
fn model(how: &How) -> String {
    how.model.clone().or_else(|| mcode_env::process::var("MCODE_MODEL")).unwrap_or_default()
}

fn request(context: &Context, saying: &Saying) -> Result<v1::StartRunRequest, ClientError> {
    let how = &saying.how;
    let cwd = context.cwd()?;
    let piped = stdin::read(saying.prompt.iter().any(|word| !word.trim().is_empty()))?;
    if piped.as_ref().is_some_and(|piped| piped.cut) {
        let seconds = stdin::NEXT_WAIT.as_secs();
        tell_message(&format!("standard input paused for {seconds} s; what had come by then is used"), None);
    }
    let approve = approval(how)?;
    // Detached, any client may answer, if that was asked for by name.
    let interactive = if how.detach { approve == v1::ApprovalPolicy::Ask } else { terminal::is_there() };
    let surroundings = v1::ClientContext { detached: how.detach, ..context.client_context(&cwd, interactive)? };
    let schema = how.schema.as_deref().map(input::schema).transpose()?;
    let (answer_schema, answer_schema_json) = schema.unwrap_or_default();
    Ok(v1::StartRunRequest {
        request_id: request_id(),
        thread_id: saying.thread.clone().unwrap_or_default(),
        input: input::parts(&saying.prompt, piped, &how.images)?,
        model: model(how),
        mode: word(how.mode.as_ref()),
        thinking: word(how.think.as_ref()),
        approve: approve.into(),
        limits: limits(how),
        context: Some(surroundings),
        add_dirs: how.add_dirs.iter().map(|path| input::folder(&cwd, path)).collect::<Result<_, _>>()?,
        title: saying.title.clone().unwrap_or_default(),
        answer_schema,
        answer_schema_json,
        ephemeral: saying.ephemeral,
        resend: saying.resend,
    })
}

fn limits(how: &How) -> Option<v1::RunLimits> {
    let limits = v1::RunLimits {
        max_steps: how.max_steps.unwrap_or(0),
        max_tokens: how.max_tokens.unwrap_or(0),
        max_cost_usd: how.max_cost.unwrap_or(0.0),
        timeout: how.timeout.map(wire_duration),
    };
    (limits != v1::RunLimits::default()).then_some(limits)
}

async fn start(
    context: &Context,
    saying: &Saying,
    mut request: v1::StartRunRequest,
) -> Result<(Client, v1::StartRunResponse), ClientError> {
    let client = context.connect().await?;
    if !request.thread_id.is_empty() {
        request.thread_id = client.thread_id(&request.thread_id).await?;
    }
    let cwd = request.context.as_ref().map(|context| context.cwd.clone()).unwrap_or_default();
    trust::look(&client, &cwd, !saying.how.detach && terminal::is_there()).await?;
    if saying.cont {
        request.thread_id = latest_thread(&client, &cwd).await?;
    }
    let asked_for = request.thread_id.clone();
    let started = client.start_run(request).await.map_err(|error| {
        let mut error = name_thread(error, &asked_for);
        if let Some(written) = &saying.written {
            error.message.push_str(&format!("; what you wrote is in {}", written.display()));
        }
        error
    })?;
    if let Some(written) = &saying.written {
        editor::forget(written);
    }
    Ok((client, started))
}

/// Makes sure that the message names the thread that was asked for.
fn name_thread(mut error: ClientError, thread_id: &str) -> ClientError {
    if !thread_id.is_empty() && !error.message.contains(thread_id) {
        error.message = format!("thread {thread_id}: {}", error.message);
    }
    error
}

/// The thread to go on with: never one of another work tree, in which the model would be elsewhere.
async fn latest_thread(client: &Client, cwd: &str) -> Result<String, ClientError> {
    let latest = client.get_latest_thread(v1::GetLatestThreadRequest { cwd: cwd.to_owned() }).await?;
    if let Some(thread) = latest.thread {
        return Ok(thread.thread_id);
    }
    let mut error = ClientError::usage(format!("there is no thread to continue in {cwd}"));
    error = match latest.elsewhere {
        Some(other) => error.hint(format!(
            "the project's latest thread is in {}; go on with it from here with: mcode ask --thread {}",
            other.cwd, other.thread_id
        )),
        None => error.hint("start one by leaving --continue out"),
    };
    "THREAD_NOT_FOUND".clone_into(&mut error.reason);
    Err(error)
}

fn detached(form: Form, started: &v1::StartRunResponse) -> Outcome {
    let mut value =
        json!({"thread_id": started.thread_id, "run_id": started.run_id, "seq": started.seq, "status": "running"});
    match form {
        Form::Text => stdout_line(&format!("run {}\nthread {}", started.run_id, started.thread_id))?,
        Form::Json => json_pretty(&value)?,
        Form::Jsonl => {
            value = mcode_client::lines::result_line(value);
            json_line(&value)?;
        }
    }
    Ok(0)
}

/// Runs a request as the demo does, with its activity on stderr, and gives back what came of it.
pub(crate) async fn for_demo(context: &Context, cwd: &Path, model: &str, prompt: &str) -> Result<RunView, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let work = async {
        let client = context.connect().await?;
        let request = v1::StartRunRequest {
            request_id: request_id(),
            input: vec![input::text(prompt.to_owned())],
            model: model.to_owned(),
            approve: v1::ApprovalPolicy::All.into(),
            context: Some(context.client_context(cwd, false)?),
            title: "Demo: a scripted model mends a failing test".to_owned(),
            ..Default::default()
        };
        let started = client.start_run(request).await?;
        let mut view = RunView::new(&started.thread_id, &started.run_id);
        let mut follow = Follow::new(client, &started.thread_id, Some(started.seq));
        let mut activity = Activity::new(context.stderr, true);
        while !view.is_finished() {
            match follow.next().await? {
                Piece::Event(event) => {
                    view.apply(&event);
                    activity.event(&event);
                }
                Piece::Reconnecting(why) => activity.note(&sanitize(&why)),
                Piece::Frame(_) | Piece::Snapshot(_) | Piece::CaughtUp(_) => {}
            }
        }
        Ok(view)
    };
    interrupts.or(work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_before_the_run_has_the_fields_of_a_result() {
        let error = name_thread(ClientError::usage("not a thread id"), "nope");
        let result = failed_result(true, &error);
        assert_eq!(result["type"], "result");
        assert_eq!(result["exit_code"], 2);
        assert_eq!(result["error"]["message"], "thread nope: not a thread id");
        for field in ["thread_id", "run_id", "status", "text", "structured", "usage", "tool_calls"] {
            assert!(result.get(field).is_some(), "{field}");
        }
        assert!(failed_result(false, &error).get("text").is_none());
    }

    #[test]
    fn money_is_above_zero() {
        assert_eq!(parse_usd("0.5"), Ok(0.5));
        for bad in ["0", "-1", "NaN", "inf", "x"] {
            assert!(parse_usd(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_of_the_wire_are_those_of_the_command_line() {
        assert_eq!(word(Some(&Mode::Explore)), "explore");
        assert_eq!(word(Some(&Think::Xhigh)), "xhigh");
        assert_eq!(word::<Mode>(None), "");
    }
}
