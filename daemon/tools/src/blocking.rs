//! Running the blocking body of a tool beside the async ones, and reading its arguments.

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::tool::{ToolFailure, ToolOutput};

/// Runs `body` on a thread that may wait for the disk.
pub(crate) fn blocking<F>(body: F) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>>
where
    F: FnOnce() -> Result<ToolOutput, ToolFailure> + Send + 'static,
{
    Box::pin(async move {
        match tokio::task::spawn_blocking(body).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_cancelled() => Err(ToolFailure::Cancelled),
            Err(error) => {
                tracing::error!(%error, "a tool broke off");
                Err(ToolFailure::Failed("the tool broke off because of a fault of its own; try another way".into()))
            }
        }
    })
}

/// The arguments of tool `name` as its own type.
pub(crate) fn parsed<T: DeserializeOwned>(name: &str, arguments: &Value) -> Result<T, ToolFailure> {
    T::deserialize(arguments).map_err(|error| ToolFailure::BadArguments(format!("{name}: {error}")))
}
