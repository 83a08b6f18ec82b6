//! `ThreadService`.

use std::collections::BTreeMap;

use mcode_models::{Role, Wishes};
use mcode_proto::v1;
use mcode_threads::{NewThread, ThreadError, ThreadFilter};
use tonic::{Request, Response, Status};

use crate::convert::row;
use crate::services::Services;
use crate::status::{bad_field, of_thread};
use crate::{paging, request};

#[tonic::async_trait]
impl v1::thread_service_server::ThreadService for Services {
    async fn create_thread(
        &self,
        request: Request<v1::CreateThreadRequest>,
    ) -> Result<Response<v1::CreateThreadResponse>, Status> {
        let request = request.into_inner();
        let idempotency = request::idempotency(&request.request_id, &request)?;
        if !std::path::Path::new(&request.cwd).is_absolute() {
            return Err(bad_field("cwd", format!("'{}' is not an absolute path", request.cwd)));
        }
        let mode = request::mode(&request.mode)?.unwrap_or_default();
        let model = if request.model.is_empty() {
            let deps = self.deps.threads.deps();
            // What only a client's environment leads to is found by the thread's first run.
            let assigned = deps.models.for_role(Role::of_mode(mode.as_str()), &Wishes::default(), &BTreeMap::new());
            assigned.ok().flatten().map(|assigned| assigned.model).unwrap_or_default()
        } else {
            request.model
        };
        let title = if request.title.is_empty() { "Untitled".to_owned() } else { request.title };
        let thread = NewThread { cwd: request.cwd, title, model, mode, ephemeral: false };
        let (thread_id, seq) = self.deps.threads.create(thread, idempotency).await.map_err(of_thread)?;
        Ok(Response::new(v1::CreateThreadResponse { thread_id: thread_id.to_string(), seq: seq.get() }))
    }

    async fn get_thread(
        &self,
        request: Request<v1::GetThreadRequest>,
    ) -> Result<Response<v1::GetThreadResponse>, Status> {
        let thread_id = request::known_id("thread", &request.into_inner().thread_id)?;
        let thread = self.deps.threads.known(thread_id).await.map_err(of_thread)?;
        match self.deps.threads.state(thread_id).await {
            Ok(state) => Ok(Response::new(v1::GetThreadResponse {
                thread: Some(row::thread(&thread, false)),
                runs: state.runs.iter().map(|record| row::record(thread_id, record)).collect(),
                tasks: state.tasks.iter().map(row::task).collect(),
                processes: {
                    let rows = self.deps.threads.processes(thread_id, None).await.map_err(of_thread)?;
                    rows.iter().map(|process| row::process(thread_id, process)).collect()
                },
            })),
            Err(ThreadError::Damaged(_)) => Ok(Response::new(v1::GetThreadResponse {
                thread: Some(row::thread(&thread, true)),
                runs: Vec::new(),
                tasks: Vec::new(),
                processes: Vec::new(),
            })),
            Err(error) => Err(of_thread(error)),
        }
    }

    async fn list_threads(
        &self,
        request: Request<v1::ListThreadsRequest>,
    ) -> Result<Response<v1::ListThreadsResponse>, Status> {
        let request = request.into_inner();
        let project_id = if !request.project_id.is_empty() {
            Some(request::id("project_id", &request.project_id)?)
        } else if !request.cwd.is_empty() {
            Some(self.deps.threads.project_of(request.cwd).await.map_err(of_thread)?.project_id)
        } else {
            None
        };
        let filter = ThreadFilter {
            project_id,
            include_archived: request.include_archived,
            page_size: paging::size(request.page_size),
            page_token: paging::token(request.page_token),
        };
        let page = self.deps.threads.list(filter).await.map_err(of_thread)?;
        Ok(Response::new(v1::ListThreadsResponse {
            threads: page.rows.iter().map(|thread| row::thread(thread, false)).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn close_thread(
        &self,
        request: Request<v1::CloseThreadRequest>,
    ) -> Result<Response<v1::CloseThreadResponse>, Status> {
        self.for_people(&request, "closing a thread").await?;
        let thread_id = request::known_id("thread", &request.into_inner().thread_id)?;
        let processes_ended = self.deps.threads.close(thread_id).await.map_err(of_thread)?;
        let thread = self.deps.threads.known(thread_id).await.map_err(of_thread)?;
        let thread = Some(row::thread(&thread, false));
        Ok(Response::new(v1::CloseThreadResponse { thread, processes_ended }))
    }

    async fn delete_thread(
        &self,
        request: Request<v1::DeleteThreadRequest>,
    ) -> Result<Response<v1::DeleteThreadResponse>, Status> {
        self.for_people(&request, "deleting a thread").await?;
        let thread_id = request::known_id("thread", &request.into_inner().thread_id)?;
        let processes_ended = self.deps.threads.delete(thread_id).await.map_err(of_thread)?;
        Ok(Response::new(v1::DeleteThreadResponse { processes_ended }))
    }
}
