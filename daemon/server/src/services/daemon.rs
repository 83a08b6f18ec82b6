//! `DaemonService`.

use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use tonic::{Code, Request, Response, Status};

use crate::ConfigQuestion;
use crate::convert::value::moment;
use crate::services::Services;
use crate::status::{of_thread, refuse};

#[tonic::async_trait]
impl v1::daemon_service_server::DaemonService for Services {
    async fn get_info(&self, _: Request<v1::GetInfoRequest>) -> Result<Response<v1::GetInfoResponse>, Status> {
        let about = &self.deps.about;
        Ok(Response::new(v1::GetInfoResponse {
            version: about.version.clone(),
            api_level: mcode_proto::API_LEVEL,
            api_compatible: mcode_proto::API_COMPATIBLE,
            capabilities: Vec::new(),
            pid: std::process::id(),
            started_at: Some(moment(about.started_at)),
            active_runs: self.deps.threads.active_runs().await.map_err(of_thread)?,
            loaded_threads: self.deps.threads.loaded(),
            database: about.database.to_string_lossy().into_owned(),
            log_file: about.log_file.to_string_lossy().into_owned(),
            config_errors: (self.deps.config_faults)(ConfigQuestion::Faults),
            executable: about.executable.to_string_lossy().into_owned(),
            sandbox: (self.deps.sandbox)().map(|report| v1::SandboxInfo {
                enforced: report.enforced,
                strength: report.strength,
                lacks: report.lacks,
            }),
        }))
    }

    async fn shutdown(&self, request: Request<v1::ShutdownRequest>) -> Result<Response<v1::ShutdownResponse>, Status> {
        self.for_people(&request, "ending the daemon").await?;
        let v1::ShutdownRequest { force, keep_processes } = request.into_inner();
        let cut = self.deps.threads.runs_to_cut(keep_processes).await.map_err(of_thread)?;
        if cut > 0 && !force {
            let text = match (cut, keep_processes) {
                (1, true) => "a run is at work that would be cut".to_owned(),
                (cut, true) => format!("{cut} runs are at work that would be cut"),
                (1, false) => "a run is at work".to_owned(),
                (cut, false) => format!("{cut} runs are at work"),
            };
            return Err(refuse(Code::FailedPrecondition, Reason::RunsActive, text, None));
        }
        self.deps.threads.keep_processes(keep_processes);
        self.deps.accepting.cancel();
        self.deps.threads.shut_down().await;
        self.deps.streams.cancel();
        Ok(Response::new(v1::ShutdownResponse { interrupted_runs: cut }))
    }

    async fn reload_config(
        &self,
        request: Request<v1::ReloadConfigRequest>,
    ) -> Result<Response<v1::ReloadConfigResponse>, Status> {
        self.for_people(&request, "reading the configuration again").await?;
        let faults = std::sync::Arc::clone(&self.deps.config_faults);
        let errors = tokio::task::spawn_blocking(move || faults(ConfigQuestion::Reload))
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(v1::ReloadConfigResponse { errors }))
    }
}
