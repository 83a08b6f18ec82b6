//! The parts of the daemon and how they are put together.

use std::time::Duration;

use mcode_config::ConfigHandle;
use mcode_endpoint::Incoming;
use mcode_env::Dirs;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

/// How long calls may go on after the daemon was told to end.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What the parts are made from.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The configuration in force.
    #[allow(dead_code, reason = "the services are made from it")]
    pub(crate) config: ConfigHandle,
    /// Where the files are.
    #[allow(dead_code, reason = "the services are made from it")]
    pub(crate) dirs: Dirs,
}

/// Serves until `shutdown`, then lets calls end, for at most [`DRAIN_MAX`].
pub(crate) async fn serve(_parts: Parts, incoming: Incoming, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(mcode_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let serving = Server::builder()
        .add_service(health)
        .add_service(reflection)
        .serve_with_incoming_shutdown(incoming, shutdown.clone().cancelled_owned());
    let drained = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN_MAX).await;
    };
    tokio::select! {
        result = serving => result?,
        () = drained => tracing::warn!("calls were cut off at the end"),
    }
    Ok(())
}
