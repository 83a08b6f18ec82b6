//! `mcode threads resend`: an earlier message, changed and said again.

use clap::Args;
use mcode_client::v1::event::Body;
use mcode_client::{Client, ClientError, v1};

use crate::context::Context;
use crate::verbs::Outcome;
use crate::verbs::ask::{self, How, Saying};
use crate::{editor, terminal};

/// What is said again, and how.
#[derive(Debug, Args)]
pub(crate) struct ResendArgs {
    /// The thread: its id, the beginning of it, or latest
    id: String,
    /// What to say instead; piped stdin is added to it, or stands in for it. Without both, your editor opens what you said
    #[arg(value_name = "PROMPT")]
    prompt: Vec<String>,
    /// The event of the message (threads show and threads search name it); your last one without
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    at: Option<u64>,
    /// Leave the thread as it is, and go on in a fork of it
    #[arg(long)]
    fork: bool,
    /// What to call the fork
    #[arg(long, value_name = "TEXT", requires = "fork")]
    title: Option<String>,
    #[command(flatten)]
    how: How,
}

pub(super) async fn resend(context: &Context, args: ResendArgs) -> Outcome {
    let ResendArgs { id, mut prompt, at, fork, title, how } = args;
    let mut resend = v1::Resend { at_seq: at.unwrap_or_default(), fork };
    let mut written = None;
    let mut thread = id;
    if prompt.iter().all(|word| word.trim().is_empty()) && terminal::is_typed_into() {
        let client = context.connect().await?;
        thread = client.thread_id(&thread).await?;
        let said = said_at(&client, &thread, at).await?;
        // What is changed is what was shown, whatever is said meanwhile.
        resend.at_seq = said.seq;
        let edited = tokio::task::spawn_blocking(move || editor::edit(&said.text)).await;
        let edited =
            edited.map_err(|error| ClientError::usage(format!("the editor can not be waited for: {error}")))??;
        (prompt, written) = (vec![edited.text], Some(edited.file));
    }
    let (thread, resend) = (Some(thread), Some(resend));
    Box::pin(ask::say(context, &Saying { prompt, cont: false, thread, title, ephemeral: false, resend, written, how }))
        .await
}

/// A message of the user's.
struct Said {
    seq: u64,
    text: String,
}

/// The user's message at an event, or the last one that counts.
async fn said_at(client: &Client, thread_id: &str, at: Option<u64>) -> Result<Said, ClientError> {
    let mut said: Vec<Said> = Vec::new();
    let mut after = 0;
    while let Some(page) = super::show::next_page(client, thread_id, &mut after).await? {
        for event in page.events {
            match event.body {
                Some(Body::MessageFinished(message)) if message.role == "user" && !ask::is_own(&message.text) => {
                    said.push(Said { seq: event.seq, text: message.text });
                }
                // What was taken back does not count.
                Some(Body::Rewound(back)) => said.retain(|said| said.seq <= back.to_seq),
                _ => {}
            }
        }
    }
    let found = said.into_iter().rev().find(|said| at.is_none_or(|at| at == said.seq));
    found.ok_or_else(|| match at {
        Some(at) => ClientError::usage(format!("event {at} of {thread_id} is no message of yours that counts"))
            .hint(format!("see them with: mcode threads show {thread_id}")),
        None => ClientError::usage(format!("nothing was said in {thread_id} yet"))
            .hint(format!("say something with: mcode ask --thread {thread_id} PROMPT")),
    })
}
