//! What a command is held to, and what is said of it afterwards.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use mcode_sandbox::{Policy, Watch};

use crate::bounds::{Hold, Wish, summary};
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
    watch: Option<Box<Watch>>,
    /// Why nothing holds it; said once per thread.
    nothing: Option<String>,
}

impl Held {
    /// Makes the policy of a command whose wish was granted, and looks at what it might plant.
    pub(super) async fn begin(context: &CallContext, wish: Wish) -> Result<Self, ToolFailure> {
        Ok(match context.bounds.command(wish).await.map_err(ToolFailure::Failed)? {
            Hold::Held(policy, watch) => Self { policy: Some(Arc::from(policy)), watch: Some(watch), nothing: None },
            Hold::LetOut => Self { policy: None, watch: None, nothing: None },
            Hold::Nothing(why) => {
                Self { policy: None, watch: None, nothing: context.bounds.first_time().then_some(why) }
            }
        })
    }

    /// What the kernel is to hold it to.
    pub(super) fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.clone()
    }

    /// Lines for the model and the user after the command's output: what may have failed because of the sandbox, and
    /// what the command changed that will run outside it. Blocking.
    pub(super) fn remarks(&self, context: &CallContext, failed: bool, output: &str) -> String {
        let mut text = String::new();
        if let Some(why) = &self.nothing {
            let _ = write!(text, "\n[no sandbox: this command could touch whatever its user may; {why}]");
        }
        if let Some(policy) = self.policy.as_deref().filter(|_| failed && refused(output)) {
            let _ = write!(
                text,
                "\n[if the sandbox was in the way: {}. Do without, or ask the user for more by calling this again with \
                 sandbox: \"network\" or sandbox: \"off\"]",
                summary(policy)
            );
        }
        let changes = self.watch.as_deref().map(Watch::changes).unwrap_or_default();
        if !changes.is_empty() {
            let names: Vec<String> = changes.iter().map(|path: &PathBuf| shown(context, path)).collect();
            let _ = write!(
                text,
                "\n[while this ran, files changed that git or mcode will run or obey outside the sandbox: {}. Tell the \
                 user to look at them before git is used there]",
                names.join(", ")
            );
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
