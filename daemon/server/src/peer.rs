//! Who asks: a person at a client, or a program that a tool call has started.
//!
//! The model's own commands can reach the socket. What is for people (answering, rules, trust) is refused to them, and a
//! run that they start may do no more than the run that they are part of.

use mcode_sandbox::{Origin, origin_of};
use mcode_threads::{Asker, Bounds};
use tonic::{Request, Status};

use crate::services::Services;
use crate::status::of_thread;

/// The number of the process at the other end, where the system tells it.
#[cfg(unix)]
fn peer_pid<T>(request: &Request<T>) -> Option<u32> {
    let info = request.extensions().get::<tonic::transport::server::UdsConnectInfo>()?;
    info.peer_cred.as_ref()?.pid().and_then(|pid| u32::try_from(pid).ok())
}

/// The number of the process at the other end, where the system tells it.
#[cfg(windows)]
fn peer_pid<T>(_request: &Request<T>) -> Option<u32> {
    None
}

impl Services {
    /// Who asks; a run that it starts is kept within that.
    pub(crate) async fn asker<T>(&self, request: &Request<T>) -> Result<Asker, Status> {
        let Some(pid) = peer_pid(request) else { return Ok(Asker::Person) };
        // No process at all has this number: it is in a place that we can not see into.
        if pid == 0 {
            return Ok(Asker::Unknown);
        }
        let origin = tokio::task::spawn_blocking(move || origin_of(pid))
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(match origin {
            Origin::Elsewhere => Asker::Person,
            Origin::Ours => Asker::Tool(Bounds::LEAST),
            Origin::Unknown => Asker::Unknown,
            Origin::ToolCalls(calls) => match self.deps.threads.caller(&calls).await.map_err(of_thread)? {
                Some(caller) => Asker::Tool(caller.run.unwrap_or(Bounds::LEAST)),
                // A tool call of another daemon: this one is nothing to it.
                None => Asker::Person,
            },
        })
    }

    /// Lets people through, and refuses programs that a tool call has started.
    pub(crate) async fn for_people<T>(&self, request: &Request<T>, what: &str) -> Result<(), Status> {
        let who = match self.asker(request).await? {
            Asker::Person => return Ok(()),
            Asker::Tool(_) => "a program of a tool call",
            Asker::Unknown => "a process that can not be looked at",
        };
        tracing::warn!(what, who, pid = peer_pid(request), "refused: this is for people");
        Err(of_thread(self.deps.threads.refuse_tool(what, who).await))
    }
}
