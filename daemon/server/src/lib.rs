//! `mcode.v1` over tonic: requests to domain, domain to responses, errors to statuses.
//!
//! Every service is thin: it reads the request, asks `mcode-threads`, and writes the answer. Only this crate of the
//! daemon knows the proto. Health answers by itself, whatever the threads do. Absent on purpose: decisions.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod convert;
mod paging;
mod peer;
mod pump;
mod request;
mod services;
mod status;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mcode_env::Timestamp;
use mcode_models::{LoginDesk, ModelDirectory};
use mcode_proto::v1;
use mcode_threads::Threads;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// What the daemon tells about itself.
#[derive(Debug, Clone)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// When it was started.
    pub started_at: Timestamp,
    /// The database.
    pub database: PathBuf,
    /// The log.
    pub log_file: PathBuf,
    /// The executable.
    pub executable: PathBuf,
}

/// Answers questions about the configuration with its faults, one line each.
pub type ConfigFaults = Arc<dyn Fn(ConfigQuestion) -> Vec<String> + Send + Sync>;

/// What commands are held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxReport {
    /// Whether the kernel holds them to a policy.
    pub enforced: bool,
    /// By what, in one word.
    pub strength: String,
    /// What is not held, one sentence each.
    pub lacks: Vec<String>,
}

/// Tells what commands are held to; `None` while that is being tried out.
pub type TellSandbox = Arc<dyn Fn() -> Option<SandboxReport> + Send + Sync>;

/// A change of the user's configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigChange {
    /// Sets a key to a value.
    Set {
        /// The dotted key.
        key: String,
        /// The value, as it is typed.
        value: String,
    },
    /// Removes a key or a section.
    Unset {
        /// The dotted key.
        key: String,
    },
    /// Adds tables to a list, but for those that are there already.
    AddTables {
        /// The dotted key of the list.
        key: String,
        /// Each as an inline table of TOML.
        tables: Vec<String>,
    },
}

/// Makes all changes of the user's configuration file or none, and reads it again. Gives the path of the file, or why
/// it was left as it is.
pub type ChangeConfig = Arc<dyn Fn(Vec<ConfigChange>) -> Result<String, String> + Send + Sync>;

/// What is asked about the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigQuestion {
    /// Read the files again, and tell their faults.
    Reload,
    /// Tell the faults of the last reading.
    Faults,
    /// Tell the faults because of which no run may begin: there are no good values to fall back on.
    Blocking,
}

/// What the services work with. Cheap to clone.
#[derive(Clone)]
pub struct ServerDeps {
    /// Threads.
    pub threads: Threads,
    /// About the daemon.
    pub about: Arc<About>,
    /// The catalogue, providers and packs.
    pub models: Arc<dyn ModelDirectory>,
    /// The configuration's faults.
    pub config_faults: ConfigFaults,
    /// Changes the user's configuration.
    pub change_config: ChangeConfig,
    /// What commands are held to.
    pub sandbox: TellSandbox,
    /// Logs people in and out.
    pub logins: Arc<dyn LoginDesk>,
    /// No connection is accepted from here on, and the socket is given up.
    pub accepting: CancellationToken,
    /// Subscriptions end, once they have sent what is in the log.
    pub streams: CancellationToken,
}

impl std::fmt::Debug for ServerDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerDeps").field("about", &self.about).finish_non_exhaustive()
    }
}

/// The server could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the socket cannot be served")]
    Transport(#[from] tonic::transport::Error),
    /// The descriptors do not load.
    #[error("reflection cannot be set up")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves until `deps.accepting` is cancelled, and then until the open calls have ended.
pub async fn serve<S, IO, E>(deps: ServerDeps, incoming: S) -> Result<(), ServeError>
where
    S: Stream<Item = Result<IO, E>>,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<v1::run_service_server::RunServiceServer<services::Services>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(mcode_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let incoming = UntilStopped {
        incoming: Some(Box::pin(incoming)),
        stopped: Box::pin(deps.accepting.clone().cancelled_owned()),
    };
    let accepting = deps.accepting.clone();
    let services = services::Services::new(deps);
    let limit = mcode_proto::MAX_MESSAGE_BYTES;
    let router = tonic::transport::Server::builder()
        .add_service(health_service)
        .add_service(reflection)
        .add_service(v1::daemon_service_server::DaemonServiceServer::new(services.clone()))
        .add_service(v1::project_service_server::ProjectServiceServer::new(services.clone()))
        .add_service(v1::thread_service_server::ThreadServiceServer::new(services.clone()))
        .add_service(v1::plan_service_server::PlanServiceServer::new(services.clone()))
        .add_service(v1::checkpoint_service_server::CheckpointServiceServer::new(services.clone()))
        .add_service(v1::run_service_server::RunServiceServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(
            v1::event_service_server::EventServiceServer::new(services.clone()).max_encoding_message_size(limit),
        )
        .add_service(v1::permission_service_server::PermissionServiceServer::new(services.clone()))
        .add_service(v1::storage_service_server::StorageServiceServer::new(services.clone()))
        .add_service(v1::trust_service_server::TrustServiceServer::new(services.clone()))
        .add_service(v1::approval_service_server::ApprovalServiceServer::new(services.clone()))
        .add_service(v1::model_service_server::ModelServiceServer::new(services));
    router.serve_with_incoming_shutdown(incoming, accepting.cancelled_owned()).await?;
    Ok(())
}

/// A listener that is dropped as soon as no more is accepted: the socket is free for a successor while the last calls
/// of this daemon still end.
struct UntilStopped<S> {
    incoming: Option<Pin<Box<S>>>,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: Stream> Stream for UntilStopped<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopped.as_mut().poll(context).is_ready() {
            self.incoming = None;
        }
        match &mut self.incoming {
            Some(incoming) => incoming.as_mut().poll_next(context),
            None => Poll::Ready(None),
        }
    }
}
