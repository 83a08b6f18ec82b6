//! `mcode threads search`.

use mcode_client::v1;
use mcode_text::sanitize_line;

use crate::context::Context;
use crate::style::Style;
use crate::times::local;
use crate::verbs::{Outcome, Page, show_message};

/// Where to look.
#[derive(Debug, Default)]
pub(super) struct Where {
    pub(super) here: bool,
    pub(super) archived: bool,
    pub(super) thread: Option<String>,
}

pub(super) async fn search(context: &Context, query: &[String], place: Where, page: Page) -> Outcome {
    let cwd = if place.here { context.cwd()?.to_string_lossy().into_owned() } else { String::new() };
    let client = context.connect().await?;
    let thread_id = match &place.thread {
        Some(id) => client.thread_id(id).await?,
        None => String::new(),
    };
    let request = v1::SearchThreadsRequest {
        query: query.join(" "),
        page_size: page.limit,
        page_token: page.page_token,
        project_id: String::new(),
        cwd,
        include_archived: place.archived,
        thread_id,
    };
    let response = client.search_threads(request).await?;
    let style = Style::of_stdout(context.global.color);
    show_message(context.form, "SearchThreadsResponse", &response, Some("hits"), || text(&response, style))?;
    Ok(0)
}

fn text(response: &v1::SearchThreadsResponse, style: Style) -> String {
    let mut lines: Vec<String> = response.hits.iter().map(|hit| one(hit, style)).collect();
    if lines.is_empty() {
        lines.push("nothing was found".to_owned());
    }
    if response.unindexed_threads > 0 {
        let count = response.unindexed_threads;
        lines.push(format!("(not all of {count} threads was looked through yet; ask again in a moment)"));
    }
    if !response.next_page_token.is_empty() {
        lines.push(format!("more with: --page-token {}", response.next_page_token));
    }
    lines.join("\n")
}

fn one(hit: &v1::SearchHit, style: Style) -> String {
    let thread = hit.thread.clone().unwrap_or_default();
    let place = if hit.seq > 0 { format!(" event {}", hit.seq) } else { String::new() };
    let heading = format!("{}{place}  {}  {}", thread.thread_id, local(hit.at.as_ref()), sanitize_line(&thread.title));
    let mut shown = String::new();
    let mut from = 0;
    for part in &hit.matches {
        let (start, end) = (part.start as usize, part.end as usize);
        let (Some(before), Some(fits)) = (hit.snippet.get(from..start), hit.snippet.get(start..end)) else { break };
        shown.push_str(&sanitize_line(before));
        shown.push_str(&style.bold(&sanitize_line(fits)));
        from = end;
    }
    shown.push_str(&sanitize_line(hit.snippet.get(from..).unwrap_or_default()));
    format!("{}\n    {}: {shown}", style.dim(&heading), sanitize_line(&hit.role))
}
