//! Threads with their forks: `mcode threads tree`.

use mcode_client::v1;

use crate::context::Context;
use crate::times::local;
use crate::verbs::{Outcome, Page, listing, show_message};

/// Deepest place that is shown by its distance from the margin.
const DEPTH_SHOWN_MAX: u32 = 16;

pub(super) async fn tree(
    context: &Context,
    id: Option<&str>,
    here: bool,
    include_archived: bool,
    page: Page,
) -> Outcome {
    let cwd = if here { context.cwd()?.to_string_lossy().into_owned() } else { String::new() };
    let client = context.connect().await?;
    let thread_id = match id {
        Some(id) => client.thread_id(id).await?,
        None => String::new(),
    };
    let request = v1::ListThreadTreeRequest {
        page_size: page.limit,
        page_token: page.page_token,
        thread_id,
        project_id: String::new(),
        cwd,
        include_archived,
    };
    let response = client.list_thread_tree(request).await?;
    show_message(context.form, "ListThreadTreeResponse", &response, Some("nodes"), || {
        let rows: Vec<Vec<String>> = response.nodes.iter().map(row).collect();
        let heading = ["THREAD", "LEFT AT", "STATE", "ACTIVE", "TITLE"];
        listing(&heading, &rows, "no threads yet: start one with: mcode ask PROMPT", &response.next_page_token)
    })?;
    Ok(0)
}

fn row(node: &v1::ThreadNode) -> Vec<String> {
    let thread = node.thread.clone().unwrap_or_default();
    let branch = match node.depth {
        0 => String::new(),
        depth => format!("{}└ ", "  ".repeat(depth.min(DEPTH_SHOWN_MAX) as usize - 1)),
    };
    let left_at =
        if thread.parent_thread_id.is_empty() { String::new() } else { format!("event {}", thread.parent_seq) };
    vec![
        format!("{branch}{}", thread.thread_id),
        left_at,
        thread.state.clone(),
        local(thread.updated_at.as_ref()),
        super::titled(&thread),
    ]
}
