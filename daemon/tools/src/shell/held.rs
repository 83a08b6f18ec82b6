//! What a command is held to, and what is said of it afterwards.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use mcode_sandbox::Policy;

use super::watched::{Watched, words};
use crate::bounds::{Hold, Lack, Wish, summary};
use crate::fs::path::shown;
use crate::tool::{CallContext, ToolFailure};

/// Words by which programs say that the system refused them something.
const REFUSALS: [&str; 16] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "network is unreachable",
    "could not resolve",
    "name resolution",
    "name or service not known",
    "unknown host",
    "no such host",
    "eacces",
    "eperm",
    "erofs",
    "enetunreach",
    "eai_again",
    "enotfound",
    "file size limit exceeded",
];
/// Bytes of the end of the output in which they are looked for.
const SEARCHED_BYTES: usize = 16 * 1024;

/// The sandbox of one command.
#[derive(Debug)]
pub(super) struct Held {
    policy: Option<Arc<Policy>>,
    watched: Option<Arc<Watched>>,
    /// What is not held, and why; said once per thread.
    unheld: Option<String>,
}

impl Held {
    /// Makes the policy of a command whose wish was granted, and looks at what it might plant.
    pub(super) async fn begin(context: &CallContext, wish: Wish, cwd: &Path) -> Result<Self, ToolFailure> {
        Ok(match context.bounds.command(wish, context.shielded).await.map_err(ToolFailure::Failed)? {
            Hold::Held { policy, watch, temp, lacks } => {
                if !policy.may_read(&cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf())) {
                    return Err(ToolFailure::Failed(format!(
                        "{}: a deny rule, or the sandbox, hides this folder from commands; nothing was run",
                        shown(context, cwd)
                    )));
                }
                let told = !lacks.is_empty() && context.bounds.first_time(Lack::Rules);
                let unheld = told.then(|| lacks.join("; "));
                let watched = Watched::new(*watch, context.bounds.aside(), temp);
                Self { policy: Some(Arc::from(policy)), watched: Some(Arc::new(watched)), unheld }
            }
            Hold::LetOut => Self { policy: None, watched: None, unheld: None },
            Hold::Nothing(why) => {
                let said = || format!("no sandbox: this command could touch whatever its user may; {why}");
                Self { policy: None, watched: None, unheld: context.bounds.first_time(Lack::Sandbox).then(said) }
            }
        })
    }

    /// What the kernel is to hold it to.
    pub(super) fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.clone()
    }

    /// What it is watched by.
    pub(super) fn watched(&self) -> Option<Arc<Watched>> {
        self.watched.clone()
    }

    /// Lines for the model and the user after the command's output: what may have failed because of the sandbox, and
    /// what was found so far of what the command changed that would run outside it.
    pub(super) fn remarks(&self, context: &CallContext, failed: bool, output: &str) -> String {
        let mut text = String::new();
        if let Some(what) = &self.unheld {
            let _ = write!(text, "\n[{what}]");
        }
        if let Some(policy) = self.policy.as_deref().filter(|_| failed && refused(output)) {
            let _ = write!(
                text,
                "\n[if the sandbox was in the way: {}. Do without, or ask the user for more by calling this again with \
                 sandbox: \"network\" or sandbox: \"off\"]",
                summary(policy)
            );
        }
        if let Some(found) = self.watched.as_deref().and_then(Watched::found) {
            let _ = write!(text, "\n[while this ran, {} Tell the user]", words(&found, |path| shown(context, path)));
        }
        text
    }
}

/// Whether the end of the output holds words of a refusal.
fn refused(output: &str) -> bool {
    let from = crate::output::ceil_boundary(output, output.len().saturating_sub(SEARCHED_BYTES));
    let end = output.get(from..).unwrap_or_default().to_lowercase();
    REFUSALS.iter().any(|words| end.contains(words))
}
