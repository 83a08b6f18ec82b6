//! Ends of threads: `mcode threads close|delete`.

use mcode_client::{Client, ClientError, ErrorKind, v1};
use mcode_text::sanitize_line;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{stderr_line, stderr_text};
use crate::terminal;
use crate::verbs::{Outcome, show_message};

pub(super) async fn close(context: &Context, id: &str) -> Outcome {
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    let response = client.close_thread(v1::CloseThreadRequest { thread_id: thread_id.clone() }).await?;
    show_message(context.form, "CloseThreadResponse", &response, None, || {
        format!("closed {thread_id}{}", commands(response.processes_ended))
    })?;
    Ok(0)
}

/// How many commands went with it.
fn commands(count: u32) -> String {
    match count {
        0 => String::new(),
        1 => "; its command was ended".to_owned(),
        count => format!("; its {count} commands were ended"),
    }
}

pub(super) async fn delete(context: &Context, id: &str, yes: bool) -> Outcome {
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    if !yes && !confirmed(&client, &thread_id).await? {
        stderr_line("nothing was deleted");
        return Ok(1);
    }
    let response = match client.delete_thread(v1::DeleteThreadRequest { thread_id: thread_id.clone() }).await {
        // The connection broke after it had gone, and the call was made anew.
        Err(error) if yes && error.reason == "NOT_FOUND" => v1::DeleteThreadResponse::default(),
        other => other?,
    };
    show_message(context.form, "DeleteThreadResponse", &response, None, || {
        format!("deleted {thread_id}{}", commands(response.processes_ended))
    })?;
    Ok(0)
}

/// Asks the person at the terminal; where there is none, nothing is deleted without `--yes`.
async fn confirmed(client: &Client, thread_id: &str) -> Result<bool, Failure> {
    if !terminal::is_there() {
        return Err(Failure::from(
            ClientError::new(ErrorKind::User, "NOT_CONFIRMED", format!("{thread_id} would be deleted for good"))
                .hint("say so with --yes"),
        ));
    }
    let request = v1::GetThreadRequest { thread_id: thread_id.to_owned() };
    let thread = client.get_thread(request).await?.thread.unwrap_or_default();
    let title = sanitize_line(&thread.title).into_owned();
    stderr_text(&format!("Delete {thread_id} \"{title}\" for good? y: yes, anything else: no > "));
    let line = tokio::task::spawn_blocking(terminal::line).await.unwrap_or_default();
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
