//! `mcode trust`: what a project's own configuration would run, and whether that is trusted.

use clap::Subcommand;
use mcode_client::{Client, ClientError, v1};
use mcode_text::sanitize_line;

use crate::context::Context;
use crate::failure::tell_message;
use crate::output::{stderr_line, stderr_text};
use crate::table::table;
use crate::terminal;
use crate::times::local;
use crate::verbs::{Outcome, show_message};

/// What to do about the trust in the project of this folder.
#[derive(Debug, Subcommand)]
pub(crate) enum TrustVerb {
    /// Show what the project's own configuration would run or use, and whether it is trusted
    Status,
    /// Trust it as it now is; any change of it asks again
    Allow {
        /// Only if it is still what was shown (the fingerprint of `trust status`)
        #[arg(long, value_name = "FINGERPRINT")]
        fingerprint: Option<String>,
    },
    /// Trust it no longer
    Revoke,
}

/// Who trusts, for the record.
const BY: &str = "mcode trust";

pub(crate) async fn run(context: &Context, verb: TrustVerb) -> Outcome {
    let cwd = context.cwd()?.to_string_lossy().into_owned();
    let client = context.connect().await?;
    match verb {
        TrustVerb::Status => {
            let response = client.get_trust(v1::GetTrustRequest { cwd }).await?;
            show_message(context.form, "GetTrustResponse", &response, None, || {
                response.trust.as_ref().map(told).unwrap_or_default()
            })?;
        }
        TrustVerb::Allow { fingerprint } => {
            let seen = client.get_trust(v1::GetTrustRequest { cwd: cwd.clone() }).await?.trust.unwrap_or_default();
            let fingerprint = fingerprint.unwrap_or(seen.fingerprint);
            let request = v1::AllowTrustRequest { cwd, fingerprint, by: BY.to_owned() };
            let response = client.allow_trust(request).await?;
            show_message(context.form, "AllowTrustResponse", &response, None, || {
                response.trust.as_ref().map(told).unwrap_or_default()
            })?;
        }
        TrustVerb::Revoke => {
            let response = client.revoke_trust(v1::RevokeTrustRequest { cwd, by: BY.to_owned() }).await?;
            show_message(context.form, "RevokeTrustResponse", &response, None, || {
                let root = sanitize_line(&response.project_root);
                if response.was_trusted {
                    format!("{root} is trusted no longer")
                } else {
                    format!("{root} was not trusted")
                }
            })?;
        }
    }
    Ok(0)
}

/// Everything about the trust in a project, for people.
fn told(trust: &v1::Trust) -> String {
    let state = match trust.state.as_str() {
        "nothing" => "nothing to be trusted",
        "untrusted" => "not trusted: nothing of it is used",
        "changed" => "changed since it was trusted: nothing of it is used",
        "trusted" => "trusted",
        other => other,
    };
    let mut lines = vec![format!("{}: {state}", trust.project_root)];
    if let (true, Some(_)) = (trust.state == "trusted", trust.trusted_at.as_ref()) {
        lines.push(format!("since {} ({})", local(trust.trusted_at.as_ref()), trust.trusted_by));
    }
    let mut lines: Vec<String> = lines.iter().map(|line| sanitize_line(line).into_owned()).collect();
    if !trust.items.is_empty() {
        let rows: Vec<Vec<String>> = trust.items.iter().map(row).collect();
        lines.push(table(&["KIND", "WHERE", "WHAT", "HASH", ""], &rows));
    }
    lines.extend(trust.problems.iter().map(|problem| sanitize_line(&format!("not usable: {problem}")).into_owned()));
    if !trust.items.is_empty() {
        lines.push(format!("fingerprint {}", trust.fingerprint));
    }
    lines.join("\n")
}

fn row(item: &v1::TrustItem) -> Vec<String> {
    let place = if item.name.is_empty() { item.path.clone() } else { format!("{} {}", item.path, item.name) };
    let hash: String = item.hash.chars().take(12).collect();
    vec![item.kind.clone(), place, item.what.clone(), hash, item.change.clone()]
}

/// How many of each kind there are that would be used.
fn counted(trust: &v1::Trust) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for item in trust.items.iter().filter(|item| item.kind != "env file") {
        match counts.iter_mut().find(|(kind, _)| *kind == item.kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((&item.kind, 1)),
        }
    }
    counts
        .iter()
        .map(|(kind, count)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" }))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Before a run: shows a person what an untrusted project brings along and asks; tells everybody else that it is not
/// used. Nothing of it is used before there is a yes.
pub(crate) async fn look(client: &Client, cwd: &str, interactive: bool) -> Result<(), ClientError> {
    let trust = match client.get_trust(v1::GetTrustRequest { cwd: cwd.to_owned() }).await {
        Ok(response) => response.trust.unwrap_or_default(),
        // An older daemon uses nothing of a project anyway; a folder that can not be used is told by the run itself.
        Err(_) => return Ok(()),
    };
    if !matches!(trust.state.as_str(), "untrusted" | "changed") {
        return Ok(());
    }
    let changed = if trust.state == "changed" { "has changed since it was trusted" } else { "is not trusted" };
    if !interactive {
        let message =
            format!("the project's own configuration {changed}, so nothing of it is used ({})", counted(&trust));
        tell_message(&message, Some("see it with: mcode trust status, and trust it with: mcode trust allow"));
        return Ok(());
    }
    stderr_line(&told(&trust));
    stderr_text("Trust this project's own configuration as it is? y: yes, anything else: go on without it > ");
    let line = tokio::task::spawn_blocking(terminal::line).await.unwrap_or_default();
    let yes = matches!(line.to_ascii_lowercase().as_str(), "y" | "yes");
    if yes {
        let request =
            v1::AllowTrustRequest { cwd: cwd.to_owned(), fingerprint: trust.fingerprint, by: "mcode ask".to_owned() };
        client.allow_trust(request).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_would_run_is_told() {
        let item =
            |kind: &str, what: &str| v1::TrustItem { kind: kind.into(), what: what.into(), ..Default::default() };
        let trust = v1::Trust {
            project_root: "/p".into(),
            state: "untrusted".into(),
            items: vec![
                item("MCP server", "runs: sh -c evil"),
                item("hook", "runs: \u{1b}[2Jx"),
                item("env file", "sets A"),
            ],
            ..Default::default()
        };
        let text = told(&trust);
        assert!(text.contains("not trusted") && text.contains("runs: sh -c evil"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(counted(&trust), "1 MCP server, 1 hook");
    }
}
