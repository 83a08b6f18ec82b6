//! `mcode threads`.

mod changing;
mod ending;
mod export;
mod import;
mod resend;
mod search;
mod show;
mod tree;

use clap::Subcommand;
use mcode_client::v1;

use crate::context::Context;
use crate::times::local;
use crate::verbs::{Outcome, Page, listing, show_message};
use changing::{Back, Change};

/// What to do with threads.
#[derive(Debug, Subcommand)]
pub(crate) enum ThreadsVerb {
    /// List threads: pinned ones first, then newest activity first
    List {
        /// Only those of the project that this folder belongs to
        #[arg(long)]
        here: bool,
        /// Archived ones too
        #[arg(long)]
        archived: bool,
        /// Only those with this tag
        #[arg(long, value_name = "TAG", default_value = "", hide_default_value = true)]
        tag: String,
        /// Only those with a title or tags about like this, best first
        #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
        filter: String,
        #[command(flatten)]
        page: Page,
    },
    /// Show threads with their forks: each under the one it left, with the event it left at
    Tree {
        /// Only those that share a beginning with this thread: its id, the beginning of it, or latest
        id: Option<String>,
        /// Only those of the project that this folder belongs to
        #[arg(long, conflicts_with = "id")]
        here: bool,
        /// Archived ones too
        #[arg(long, conflicts_with = "id")]
        archived: bool,
        #[command(flatten)]
        page: Page,
    },
    /// Show a thread: what was said, and what was done
    Show {
        /// The thread: its id, the beginning of it, or latest
        id: String,
    },
    /// Find threads by what they are called, and where something was said, by you, the model or what tools gave back
    #[command(
        after_help = "Examples:\n  mcode threads search parser error\n  mcode threads search '\"exit code 101\"' --here"
    )]
    Search {
        /// Words that all have to be there; in quotes, next to each other. In titles and tags letters may be missing
        #[arg(required = true)]
        query: Vec<String>,
        /// Only in the project that this folder belongs to
        #[arg(long)]
        here: bool,
        /// In archived threads too
        #[arg(long)]
        archived: bool,
        /// Only in this thread
        #[arg(long, short, value_name = "ID")]
        thread: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Call a thread something else
    Rename {
        /// The thread: its id, the beginning of it, or latest
        id: String,
        /// What to call it
        title: String,
    },
    /// Give a thread tags to find it by, and take them away
    Tag {
        /// The thread: its id, the beginning of it, or latest
        id: String,
        /// Tags to add; with a minus sign before it, one to take away
        #[arg(allow_hyphen_values = true)]
        tags: Vec<String>,
    },
    /// Keep a thread at the top of lists
    Pin {
        /// The thread: its id, the beginning of it, or latest
        id: String,
    },
    /// Do not keep a thread at the top of lists any more
    Unpin {
        /// The thread: its id, the beginning of it, or latest
        id: String,
    },
    /// Put a thread away: lists do not show it
    Archive {
        /// The thread: its id, the beginning of it, or latest
        id: String,
    },
    /// Bring an archived thread back
    Unarchive {
        /// The thread: its id, the beginning of it, or latest
        id: String,
    },
    /// Make a thread that shares the beginning of another and goes its own way
    Fork {
        /// The thread: its id, the beginning of it, or latest
        id: String,
        /// The last event that both share (threads search and watch name them); the latest without
        #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
        at: Option<u64>,
        /// What to call it
        #[arg(long)]
        title: Option<String>,
    },
    /// Go back in a thread: the model forgets what was said since. Files are not touched
    Rewind {
        /// The thread: its id, the beginning of it, or latest
        id: String,
        /// The last event that counts
        #[arg(long, value_name = "SEQ", conflicts_with = "turns", value_parser = clap::value_parser!(u64).range(1..))]
        to: Option<u64>,
        /// How many of your last prompts are taken back
        #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        turns: u32,
    },
    /// Change what you said and say it again: the thread goes back to before it, or is forked there
    #[command(
        after_help = "Examples:\n  mcode threads resend latest                       opens your editor\n  mcode threads resend latest \"The same, but in Rust\"\n  mcode threads resend latest --at 12 --fork < prompt.txt"
    )]
    Resend(Box<resend::ResendArgs>),
    /// Write a thread to a file: whole, for another machine, or to read
    #[command(
        after_help = "Examples:\n  mcode threads export latest -o thread.jsonl\n  mcode threads export latest --format markdown --redact > thread.md"
    )]
    Export {
        /// The thread: its id, the beginning of it, or latest
        id: String,
        #[command(flatten)]
        how: export::How,
    },
    /// Make a thread of a file that was exported, or of what another coding agent has left on this machine
    #[command(
        after_help = "Examples:\n  mcode threads import thread.jsonl\n  mcode threads import --from claude-code --list\n  mcode threads import --from codex --all"
    )]
    Import {
        #[command(flatten)]
        what: import::What,
    },
    /// End everything of a thread: its run, what waits for an answer, its commands; it can be gone on with
    Close {
        /// The thread: its id, the beginning of it, or latest
        id: String,
    },
    /// End everything of a thread, and forget it for good
    Delete {
        /// The thread: its id, the beginning of it, or latest
        id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(context: &Context, verb: ThreadsVerb) -> Outcome {
    let change = |id: String, change: Change, done: &'static str| async move {
        changing::change(context, &id, change, done).await
    };
    match verb {
        ThreadsVerb::List { here, archived, tag, filter, page } => {
            list(context, (here, archived), tag, filter, page).await
        }
        ThreadsVerb::Tree { id, here, archived, page } => {
            tree::tree(context, id.as_deref(), here, archived, page).await
        }
        ThreadsVerb::Resend(args) => resend::resend(context, *args).await,
        ThreadsVerb::Show { id } => show::show(context, &id).await,
        ThreadsVerb::Search { query, here, archived, thread, page } => {
            search::search(context, &query, search::Where { here, archived, thread }, page).await
        }
        ThreadsVerb::Rename { id, title } => {
            change(id, Change { title: Some(title), ..Change::default() }, "renamed").await
        }
        ThreadsVerb::Tag { id, tags } => changing::tag(context, &id, &tags).await,
        ThreadsVerb::Pin { id } => change(id, Change { pinned: Some(true), ..Change::default() }, "pinned").await,
        ThreadsVerb::Unpin { id } => change(id, Change { pinned: Some(false), ..Change::default() }, "unpinned").await,
        ThreadsVerb::Archive { id } => {
            change(id, Change { archived: Some(true), ..Change::default() }, "archived").await
        }
        ThreadsVerb::Unarchive { id } => {
            change(id, Change { archived: Some(false), ..Change::default() }, "brought back").await
        }
        ThreadsVerb::Fork { id, at, title } => changing::fork(context, &id, at, title).await,
        ThreadsVerb::Rewind { id, to, turns } => {
            changing::rewind(context, &id, to.map_or(Back::Turns(turns), Back::To)).await
        }
        ThreadsVerb::Export { id, how } => export::export(context, &id, how).await,
        ThreadsVerb::Import { what } => import::import(context, what).await,
        ThreadsVerb::Close { id } => ending::close(context, &id).await,
        ThreadsVerb::Delete { id, yes } => ending::delete(context, &id, yes).await,
    }
}

async fn list(
    context: &Context,
    (here, include_archived): (bool, bool),
    tag: String,
    query: String,
    page: Page,
) -> Outcome {
    let narrowed = !tag.is_empty() || !query.is_empty();
    let cwd = if here { context.cwd()?.to_string_lossy().into_owned() } else { String::new() };
    let client = context.connect().await?;
    let request = v1::ListThreadsRequest {
        page_size: page.limit,
        page_token: page.page_token,
        project_id: String::new(),
        cwd,
        include_archived,
        tag,
        query,
        by_activity: false,
    };
    let response = client.list_threads(request).await?;
    show_message(context.form, "ListThreadsResponse", &response, Some("threads"), || {
        let rows: Vec<Vec<String>> = response.threads.iter().map(row).collect();
        let heading = ["THREAD", "STATE", "ACTIVE", "TOKENS", "COST", "FOLDER", "TITLE"];
        let none = if narrowed { "no thread fits" } else { "no threads yet: start one with: mcode ask PROMPT" };
        listing(&heading, &rows, none, &response.next_page_token)
    })?;
    Ok(0)
}

/// What a thread is called, with what lists mark it by.
fn titled(thread: &v1::Thread) -> String {
    let marks = [(thread.pinned, "pinned"), (thread.archived, "archived")];
    let marks = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark.to_owned());
    let marks: Vec<String> = marks.chain(thread.tags.iter().map(|tag| format!("#{tag}"))).collect();
    if marks.is_empty() { thread.title.clone() } else { format!("{} ({})", thread.title, marks.join(" ")) }
}

fn row(thread: &v1::Thread) -> Vec<String> {
    let usage = thread.usage.unwrap_or_default();
    let tokens = usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    vec![
        thread.thread_id.clone(),
        thread.state.clone(),
        local(thread.updated_at.as_ref()),
        tokens.to_string(),
        // Tokens without a cost are those of a model whose price is not known.
        if usage.cost_usd > 0.0 || tokens == 0 { format!("${:.2}", usage.cost_usd) } else { "?".to_owned() },
        thread.cwd.clone(),
        titled(thread),
    ]
}
