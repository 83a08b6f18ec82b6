//! `mcode usage`.

use clap::{Args, ValueEnum};
use mcode_client::v1;
use mcode_env::{Clock, SystemClock, Zone};
use prost_types::Timestamp;

use crate::context::Context;
use crate::times::past;
use crate::verbs::{Outcome, Page, listing, show_message};

/// What usage is to be told.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mcode usage --since 7d\n  mcode usage --by model --since 2026-01-01 --output json"
)]
pub(crate) struct UsageArgs {
    /// From when on: a span of time before now (7d, 12h), a day (2026-01-31) or a moment (2026-01-31T18:00Z)
    #[arg(long, value_name = "WHEN", value_parser = past)]
    since: Option<Timestamp>,
    /// Until when, in the same forms; a day is left out itself
    #[arg(long, value_name = "WHEN", value_parser = past)]
    until: Option<Timestamp>,
    /// What to sum by
    #[arg(long, value_name = "WHAT", default_value = "day")]
    by: By,
    /// Only of this thread
    #[arg(long, short, value_name = "ID")]
    thread: Option<String>,
    /// Only of the project of this folder
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    page: Page,
}

/// What usage is summed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Threads.
    Thread,
    /// Models.
    Model,
    /// Days.
    Day,
    /// Goals.
    Goal,
    /// Providers.
    Provider,
    /// What the requests were for.
    Purpose,
}

impl By {
    const fn group(self) -> v1::UsageGroup {
        match self {
            Self::Thread => v1::UsageGroup::Thread,
            Self::Model => v1::UsageGroup::Model,
            Self::Day => v1::UsageGroup::Day,
            Self::Goal => v1::UsageGroup::Goal,
            Self::Provider => v1::UsageGroup::Provider,
            Self::Purpose => v1::UsageGroup::Purpose,
        }
    }

    const fn heading(self) -> &'static str {
        match self {
            Self::Thread => "THREAD",
            Self::Model => "MODEL",
            Self::Day => "DAY",
            Self::Goal => "GOAL",
            Self::Provider => "PROVIDER",
            Self::Purpose => "PURPOSE",
        }
    }
}

pub(crate) async fn run(context: &Context, args: UsageArgs) -> Outcome {
    let client = context.connect().await?;
    let thread_id = match &args.thread {
        // One that was deleted is not found any more, but has cost what it has: its whole id is taken as it is.
        Some(id) if id.len() > 36 => id.clone(),
        Some(id) => client.thread_id(id).await?,
        None => String::new(),
    };
    let project_id = if args.here {
        let cwd = context.cwd()?.to_string_lossy().into_owned();
        let response = client.resolve_project(v1::ResolveProjectRequest { cwd }).await?;
        response.project.unwrap_or_default().project_id
    } else {
        String::new()
    };
    let request = v1::GetUsageRequest {
        group_by: args.by.group().into(),
        since: args.since,
        until: args.until,
        project_id,
        thread_id,
        page_size: args.page.limit,
        page_token: args.page.page_token,
        time_zone: Zone::system().name(SystemClock.now()),
    };
    let response = client.get_usage(request).await?;
    show_message(context.form, "GetUsageResponse", &response, Some("rows"), || text(args.by, &response))?;
    Ok(0)
}

fn text(by: By, response: &v1::GetUsageResponse) -> String {
    let heading = [by.heading(), "REQUESTS", "IN", "CACHE READ", "CACHE WRITE", "OUT", "COST", ""];
    let mut rows: Vec<Vec<String>> = response.rows.iter().map(|row| cells(by, row)).collect();
    if !rows.is_empty() {
        let total = v1::UsageRow {
            key: "total".to_owned(),
            usage: response.usage,
            requests: response.requests,
            cost_nano_usd: response.cost_nano_usd,
            unpriced_tokens: response.unpriced_tokens,
            ..Default::default()
        };
        rows.push(cells(by, &total));
    }
    let mut text = listing(&heading, &rows, "nothing was used", &response.next_page_token);
    if response.unpriced_tokens > 0 {
        text.push_str(&format!("\nno price known for {} tokens; their cost is in no sum", response.unpriced_tokens));
    }
    text
}

fn cells(by: By, row: &v1::UsageRow) -> Vec<String> {
    let usage = row.usage.unwrap_or_default();
    let name = match (row.key.is_empty(), by) {
        (false, _) => row.key.clone(),
        (true, By::Goal) => "(no goal)".to_owned(),
        (true, _) => "(not known)".to_owned(),
    };
    let note = if row.deleted { "(deleted)".to_owned() } else { row.title.clone() };
    vec![
        name,
        row.requests.to_string(),
        usage.input_tokens.to_string(),
        usage.cache_read_tokens.to_string(),
        usage.cache_write_tokens.to_string(),
        usage.output_tokens.to_string(),
        cost(&usage, row.unpriced_tokens),
        note,
    ]
}

/// What it cost: `?` for what has no known price.
fn cost(usage: &v1::Usage, unpriced_tokens: u64) -> String {
    match (usage.cost_usd > 0.0, unpriced_tokens > 0) {
        (false, true) => "?".to_owned(),
        (true, true) => format!("${:.4} + ?", usage.cost_usd),
        (_, false) => format!("${:.4}", usage.cost_usd),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, cost_usd: f64, unpriced_tokens: u64) -> v1::UsageRow {
        let usage = v1::Usage { input_tokens: 7, output_tokens: 2, cost_usd, ..Default::default() };
        v1::UsageRow { key: key.into(), usage: Some(usage), requests: 1, unpriced_tokens, ..Default::default() }
    }

    #[test]
    fn a_table_ends_with_its_total_and_says_what_has_no_price() {
        let response = v1::GetUsageResponse {
            rows: vec![row("a/b", 0.5, 0), row("c/d", 0.0, 9)],
            usage: Some(v1::Usage { input_tokens: 14, output_tokens: 4, cost_usd: 0.5, ..Default::default() }),
            requests: 2,
            unpriced_tokens: 9,
            ..Default::default()
        };
        let text = text(By::Model, &response);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a/b", "1", "7", "0", "0", "2", "$0.5000"]);
        assert_eq!(lines[2], ["c/d", "1", "7", "0", "0", "2", "?"]);
        assert_eq!(lines[3], ["total", "2", "14", "0", "0", "4", "$0.5000", "+", "?"]);
        assert_eq!(text.lines().last(), Some("no price known for 9 tokens; their cost is in no sum"));
        assert_eq!(super::text(By::Day, &v1::GetUsageResponse::default()), "nothing was used");
    }
}
