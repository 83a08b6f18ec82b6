//! `mcode runs`.

use clap::Subcommand;
use mcode_client::v1;
use mcode_text::{sanitize, sanitize_line};

use crate::context::{Context, request_id};
use crate::input;
use crate::times::{local, span};
use crate::verbs::{Outcome, Page, listing, show_message};

/// What to do with runs.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsVerb {
    /// List runs, newest first
    List {
        /// Only of this thread
        #[arg(long, short, value_name = "ID", default_value = "", hide_default_value = true)]
        thread: String,
        /// Only those at work
        #[arg(long)]
        active: bool,
        #[command(flatten)]
        page: Page,
    },
    /// Show one run
    Show {
        /// The run: its id, the beginning of it, or latest
        id: String,
    },
    /// Cancel a run and everything it started
    Cancel {
        /// The run: its id, the beginning of it, or latest
        id: String,
    },
    /// Give a run at work more to consider before its next step
    Steer {
        /// The run: its id, the beginning of it, or latest
        id: String,
        /// What to say
        #[arg(required = true, value_name = "TEXT")]
        text: Vec<String>,
    },
}

pub(crate) async fn run(context: &Context, verb: RunsVerb) -> Outcome {
    let client = context.connect().await?;
    match verb {
        RunsVerb::List { thread, active, page } => {
            let thread_id = if thread.is_empty() { thread } else { client.thread_id(&thread).await? };
            let request = v1::ListRunsRequest {
                page_size: page.limit,
                page_token: page.page_token,
                thread_id,
                active_only: active,
            };
            let response = client.list_runs(request).await?;
            show_message(context.form, "ListRunsResponse", &response, Some("runs"), || {
                let rows: Vec<Vec<String>> = response.runs.iter().map(row).collect();
                let heading = ["RUN", "STATUS", "STARTED", "MODEL", "THREAD"];
                listing(&heading, &rows, "no runs", &response.next_page_token)
            })?;
        }
        RunsVerb::Show { id } => {
            let run_id = client.run_id(&id).await?;
            let response = client.get_run(v1::GetRunRequest { run_id }).await?;
            show_message(context.form, "GetRunResponse", &response, None, || {
                let run = response.run.as_ref().map(describe).unwrap_or_default();
                let processes = response.processes.iter().map(process_line);
                std::iter::once(run).chain(processes).collect::<Vec<_>>().join("\n")
            })?;
        }
        RunsVerb::Cancel { id } => {
            let run_id = client.run_id(&id).await?;
            let response = client.cancel_run(v1::CancelRunRequest { run_id }).await?;
            show_message(context.form, "CancelRunResponse", &response, None, || {
                response.run.as_ref().map(|run| sanitize(&run.status).into_owned()).unwrap_or_default()
            })?;
        }
        RunsVerb::Steer { id, text } => {
            let input = vec![input::text(text.join(" "))];
            let run_id = client.run_id(&id).await?;
            let request = v1::SteerRunRequest { request_id: request_id(), run_id, input };
            let response = client.steer_run(request).await?;
            show_message(context.form, "SteerRunResponse", &response, None, || "taken".to_owned())?;
        }
    }
    Ok(0)
}

fn row(run: &v1::Run) -> Vec<String> {
    vec![
        run.run_id.clone(),
        run.status.clone(),
        local(run.started_at.as_ref()),
        run.model.clone(),
        run.thread_id.clone(),
    ]
}

/// A run in a few lines.
pub(crate) fn describe(run: &v1::Run) -> String {
    let mut lines = vec![
        format!("run     {}", run.run_id),
        format!("thread  {}", run.thread_id),
        format!("status  {}", run.status),
        format!("model   {} ({})", run.model, run.mode),
        format!("key     {}", if run.key_source.is_empty() { "not known" } else { &run.key_source }),
        format!("time    {}", span(run.started_at.as_ref(), run.ended_at.as_ref())),
    ];
    if let Some(usage) = &run.usage {
        lines.push(format!("usage   {}", usage_text(usage)));
    }
    if let Some(error) = &run.error {
        lines.push(format!("error   {}", error.message));
        if !error.hint.is_empty() {
            lines.push(format!("hint    {}", error.hint));
        }
    }
    sanitize(&lines.join("\n")).into_owned()
}

/// A running command in one line.
pub(crate) fn process_line(process: &v1::Process) -> String {
    let (age, cpu, megabytes) = (process.age_seconds, process.cpu_seconds, process.rss_bytes as f64 / 1e6);
    let ended = process.exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
    let line = format!(
        "process {} pid {} {}{ended} for {age:.0} s, {cpu:.1} s of CPU, {megabytes:.0} MB: {}",
        process.process_id, process.pid, process.state, process.command
    );
    sanitize_line(&line).into_owned()
}

/// Tokens and money in a few words.
pub(crate) fn usage_text(usage: &v1::Usage) -> String {
    let input = usage.input_tokens.saturating_add(usage.cache_read_tokens).saturating_add(usage.cache_write_tokens);
    let price = price(usage);
    format!("{input} tokens in ({} from the cache), {} out{price}", usage.cache_read_tokens, usage.output_tokens)
}

/// What it cost, after a comma; nothing when nothing was used.
pub(crate) fn price(usage: &v1::Usage) -> String {
    let used = usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    match (usage.cost_usd > 0.0, used) {
        (true, _) => format!(", ${:.4}", usage.cost_usd),
        (false, 0) => String::new(),
        (false, _) => ", price unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_that_is_not_known_is_not_zero() {
        let usage = v1::Usage { input_tokens: 7, output_tokens: 2, ..Default::default() };
        assert_eq!(usage_text(&usage), "7 tokens in (0 from the cache), 2 out, price unknown");
        assert_eq!(usage_text(&v1::Usage { cost_usd: 0.5, ..usage }), "7 tokens in (0 from the cache), 2 out, $0.5000");
        assert_eq!(usage_text(&v1::Usage::default()), "0 tokens in (0 from the cache), 0 out");
    }
}
