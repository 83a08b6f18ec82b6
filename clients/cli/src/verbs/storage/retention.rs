//! Which threads the policy of what is kept lets go.

use mcode_client::v1;
use mcode_text::{sanitize, sanitize_line};

use crate::context::Context;
use crate::times::local;
use crate::verbs::storage::{many, size};
use crate::verbs::{Outcome, show_message};

/// Threads that are printed; more are counted.
const PRINTED_MAX: usize = 50;

/// Shows what goes, why and when.
pub(super) async fn show(context: &Context) -> Outcome {
    let client = context.connect().await?;
    let found = client.show_retention(v1::ShowRetentionRequest {}).await?;
    show_message(context.form, "ShowRetentionResponse", &found, Some("threads"), || report(&found))?;
    Ok(0)
}

/// One line for whoever asks about everything; `None` when nothing goes.
pub(super) fn brief(found: &v1::ShowRetentionResponse) -> Option<String> {
    let threads = many(found.threads.len() as u64, "thread", "threads");
    let more = if found.more { " and more" } else { "" };
    (!found.threads.is_empty()).then(|| {
        let when = local(found.acts_at.as_ref());
        format!(
            "leaving  {threads}{more} with {} from {when} on, by {}; mcode doctor --db --retention shows them",
            size(found.bytes),
            found.policy
        )
    })
}

fn report(found: &v1::ShowRetentionResponse) -> String {
    if found.policy.is_empty() {
        return "every thread is kept: none of keep_days, max_bytes_per_project and max_body_bytes is set under [threads]"
            .to_owned();
    }
    let mut lines = vec![format!("policy   {}", found.policy)];
    for thread in found.threads.iter().take(PRINTED_MAX) {
        lines.push(format!(
            "leaving  {} {}: last used {}, {}, by {}{}",
            thread.thread_id,
            sanitize_line(&thread.title),
            local(thread.used_at.as_ref()),
            size(thread.bytes),
            thread.setting,
            if thread.root.is_empty() { String::new() } else { format!(", of {}", thread.root) },
        ));
    }
    let left_out = found.threads.len().saturating_sub(PRINTED_MAX);
    if left_out > 0 || found.more {
        let more = if found.more { " or more" } else { "" };
        lines.push(format!("         and {left_out}{more} others"));
    }
    if found.threads.is_empty() {
        lines.push("nothing is let go now".to_owned());
    } else {
        let threads = many(found.threads.len() as u64, "thread", "threads");
        lines.push(format!("{threads} with {} in all", size(found.bytes)));
        lines.push(format!("Nothing is deleted before {}.", local(found.acts_at.as_ref())));
        lines.push(
            "To keep a thread: mcode threads pin THREAD, or give it the tag 'keep'. To keep all: take the settings out of \
             [threads]. What was deleted is in: mcode permissions log"
                .to_owned(),
        );
    }
    sanitize(&lines.join("\n")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_goes_why_when_and_how_to_keep_it() {
        let mut found = v1::ShowRetentionResponse::default();
        assert!(report(&found).contains("every thread is kept") && brief(&found).is_none());
        found.policy = "keep_days = 30".into();
        assert!(report(&found).ends_with("nothing is let go now") && brief(&found).is_none());
        let thread = v1::LeavingThread {
            thread_id: "thr_1".into(),
            title: "old\u{1b}[2J".into(),
            root: "/work".into(),
            bytes: 20_000,
            setting: "threads.keep_days".into(),
            used_at: Some(prost_types::Timestamp { seconds: 86_400 * 300, nanos: 0 }),
            ..Default::default()
        };
        found.threads = vec![thread; PRINTED_MAX + 2];
        (found.bytes, found.more) = (1_040_000, true);
        found.acts_at = Some(prost_types::Timestamp { seconds: 86_400 * 800, nanos: 0 });
        let text = report(&found);
        assert!(text.contains("thr_1") && text.contains("20 kB, by threads.keep_days, of /work"), "{text}");
        assert!(
            text.contains("and 2 or more others") && text.contains("Nothing is deleted before 1972-03-1"),
            "{text}"
        );
        assert!(text.contains("'keep'") && !text.contains('\u{1b}'), "{text}");
        let line = brief(&found).unwrap();
        assert!(line.contains("52 threads and more with 1040 kB from 1972-03-1"), "{line}");
    }
}
