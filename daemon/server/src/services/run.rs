//! `RunService`.

use mcode_events::run::{Delivery, RunTrigger};
use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use mcode_threads::NewInput;
use tonic::{Code, Request, Response, Status};

use crate::ConfigQuestion;
use crate::convert::row;
use crate::services::Services;
use crate::status::{of_thread, refuse};
use crate::{paging, request};

#[tonic::async_trait]
impl v1::run_service_server::RunService for Services {
    async fn start_run(&self, request: Request<v1::StartRunRequest>) -> Result<Response<v1::StartRunResponse>, Status> {
        if let Some(fault) = (self.deps.config_faults)(ConfigQuestion::Blocking).first() {
            return Err(refuse(Code::FailedPrecondition, Reason::ConfigBroken, fault.clone(), None));
        }
        if request.get_ref().resend.is_some_and(|resend| !resend.fork) {
            self.for_people(&request, "going back in a thread").await?;
        }
        let asker = self.asker(&request).await?;
        let threads = self.deps.threads.deps();
        let (blobs, passed) = (threads.store.blobs(), (threads.config)().passed_env.clone());
        let run = request::new_run(request.into_inner(), asker, blobs, &passed).await?;
        let started = self.deps.threads.start_run(run).await.map_err(of_thread)?;
        Ok(Response::new(v1::StartRunResponse {
            thread_id: started.thread_id.to_string(),
            run_id: started.run_id.to_string(),
            seq: started.seq.get(),
            config_errors: (self.deps.config_faults)(ConfigQuestion::Faults),
        }))
    }

    async fn steer_run(&self, request: Request<v1::SteerRunRequest>) -> Result<Response<v1::SteerRunResponse>, Status> {
        self.for_people(&request, "telling a run what to do").await?;
        let request = request.into_inner();
        let idempotency = request::idempotency(&request.request_id, &request)?;
        let run_id = request::known_id("run", &request.run_id)?;
        let thread_id = self.deps.threads.run(run_id).await.map_err(of_thread)?.thread_id;
        let parts = request::parts(request.input, self.deps.threads.deps().store.blobs()).await?;
        let input = NewInput { delivery: Delivery::Steer, parts, run_id: Some(run_id), request: idempotency };
        let (input_id, seq) = self.deps.threads.input(thread_id, input).await.map_err(of_thread)?;
        Ok(Response::new(v1::SteerRunResponse { input_id: input_id.to_string(), seq: seq.get() }))
    }

    async fn queue_input(
        &self,
        request: Request<v1::QueueInputRequest>,
    ) -> Result<Response<v1::QueueInputResponse>, Status> {
        self.for_people(&request, "telling a run what to do").await?;
        let request = request.into_inner();
        let idempotency = request::idempotency(&request.request_id, &request)?;
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let parts = request::parts(request.input, self.deps.threads.deps().store.blobs()).await?;
        let input = NewInput { delivery: Delivery::Queue, parts, run_id: None, request: idempotency };
        let (input_id, seq) = self.deps.threads.input(thread_id, input).await.map_err(of_thread)?;
        Ok(Response::new(v1::QueueInputResponse { input_id: input_id.to_string(), seq: seq.get() }))
    }

    async fn cancel_run(
        &self,
        request: Request<v1::CancelRunRequest>,
    ) -> Result<Response<v1::CancelRunResponse>, Status> {
        let run_id = request::known_id("run", &request.get_ref().run_id)?;
        let row = self.deps.threads.run(run_id).await.map_err(of_thread)?;
        // What a tool call has started, such as an `mcode ask` in a script, it may also end.
        if !matches!(row.record.options.trigger, RunTrigger::Tool | RunTrigger::Unknown) {
            self.for_people(&request, "cancelling a run").await?;
        }
        let run = self.deps.threads.cancel_run(run_id).await.map_err(of_thread)?;
        Ok(Response::new(v1::CancelRunResponse { run: Some(row::run(&run)) }))
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        let run_id = request::known_id("run", &request.into_inner().run_id)?;
        let run = self.deps.threads.run(run_id).await.map_err(of_thread)?;
        let rows = self.deps.threads.processes(run.thread_id, Some(run_id)).await.map_err(of_thread)?;
        let processes = rows.iter().map(|process| row::process(run.thread_id, process)).collect();
        Ok(Response::new(v1::GetRunResponse { run: Some(row::run(&run)), processes }))
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        let request = request.into_inner();
        let thread_id =
            if request.thread_id.is_empty() { None } else { Some(request::known_id("thread", &request.thread_id)?) };
        let (size, token) = (paging::size(request.page_size), paging::token(request.page_token));
        let page = self.deps.threads.runs(thread_id, request.active_only, size, token).await.map_err(of_thread)?;
        Ok(Response::new(v1::ListRunsResponse {
            runs: page.rows.iter().map(row::run).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }
}
