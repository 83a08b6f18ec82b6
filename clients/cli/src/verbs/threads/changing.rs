//! Threads called otherwise, gone other ways, gone back: `mcode threads rename|tag|pin|archive|fork|rewind`.

use mcode_client::{ClientError, v1};
use mcode_text::sanitize_line;
use prost_types::FieldMask;

use crate::context::{Context, request_id};
use crate::verbs::{Outcome, show_message};

/// What of a thread is changed.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) title: Option<String>,
    pub(super) archived: Option<bool>,
    pub(super) pinned: Option<bool>,
    pub(super) tags: Option<Vec<String>>,
}

pub(super) async fn change(context: &Context, id: &str, change: Change, done: &str) -> Outcome {
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    let paths = [
        ("title", change.title.is_some()),
        ("archived", change.archived.is_some()),
        ("pinned", change.pinned.is_some()),
        ("tags", change.tags.is_some()),
    ];
    let paths = paths.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name.to_owned()).collect();
    let request = v1::UpdateThreadRequest {
        thread_id: thread_id.clone(),
        update_mask: Some(FieldMask { paths }),
        title: change.title.unwrap_or_default(),
        archived: change.archived.unwrap_or_default(),
        pinned: change.pinned.unwrap_or_default(),
        tags: change.tags.unwrap_or_default(),
        expected_seq: 0,
    };
    let response = client.update_thread(request).await?;
    show_message(context.form, "UpdateThreadResponse", &response, None, || {
        let title = response.thread.as_ref().map(|thread| thread.title.as_str()).unwrap_or_default();
        sanitize_line(&format!("{done} {thread_id} \"{title}\"")).into_owned()
    })?;
    Ok(0)
}

/// Adds and takes away tags; `-tag` takes one away, none at all shows them.
pub(super) async fn tag(context: &Context, id: &str, tags: &[String]) -> Outcome {
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    let thread =
        client.get_thread(v1::GetThreadRequest { thread_id: thread_id.clone() }).await?.thread.unwrap_or_default();
    let mut now = thread.tags;
    for tag in tags {
        match tag.strip_prefix('-') {
            Some(gone) => now.retain(|tag| tag != gone),
            None if now.contains(tag) => {}
            None => now.push(tag.clone()),
        }
    }
    let done = if now.is_empty() { "no tags:".to_owned() } else { format!("tags {}:", now.join(", ")) };
    change(context, &thread_id, Change { tags: Some(now), ..Change::default() }, &done).await
}

pub(super) async fn fork(context: &Context, id: &str, at: Option<u64>, title: Option<String>) -> Outcome {
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    let request = v1::ForkThreadRequest {
        request_id: request_id(),
        thread_id: thread_id.clone(),
        at_seq: at.unwrap_or_default(),
        title: title.unwrap_or_default(),
    };
    let response = client.fork_thread(request).await?;
    show_message(context.form, "ForkThreadResponse", &response, None, || {
        let next = format!("go on in it with: mcode ask --thread {} PROMPT", response.thread_id);
        format!("{} shares {thread_id} up to event {}\n{next}", response.thread_id, response.seq)
    })?;
    Ok(0)
}

/// Where to go back to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Back {
    /// To an event.
    To(u64),
    /// Before this many of the user's last messages.
    Turns(u32),
}

pub(super) async fn rewind(context: &Context, id: &str, back: Back) -> Outcome {
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    let to_seq = match back {
        Back::To(seq) => seq,
        Back::Turns(turns) => before_turns(&client, &thread_id, turns).await?,
    };
    let response = client.rewind_thread(v1::RewindThreadRequest { thread_id: thread_id.clone(), to_seq }).await?;
    show_message(context.form, "RewindThreadResponse", &response, None, || {
        let dropped = response.dropped;
        format!(
            "{thread_id} is back at event {to_seq}: {dropped} messages and results are not given to the model any more"
        )
    })?;
    Ok(0)
}

/// The event before the run with which the user's last so many messages began.
async fn before_turns(client: &mcode_client::Client, thread_id: &str, turns: u32) -> Result<u64, ClientError> {
    let mut said = Vec::new();
    let mut after = 0;
    while let Some(page) = super::show::next_page(client, thread_id, &mut after).await? {
        for event in page.events {
            match event.body {
                Some(v1::event::Body::TurnStarted(_)) => said.push(event.seq),
                // What was taken back does not count.
                Some(v1::event::Body::Rewound(back)) => said.retain(|seq| *seq <= back.to_seq),
                _ => {}
            }
        }
    }
    let at = said.len().checked_sub(turns as usize).ok_or_else(|| {
        ClientError::usage(format!("{thread_id} has only {} turns, and {turns} were to be taken back", said.len()))
    })?;
    Ok(said.get(at).map_or(0, |seq| seq.saturating_sub(1)).max(1))
}
