//! `ThreadService`.

use std::collections::BTreeMap;

use mcode_ids::Seq;
use mcode_models::{Role, Wishes};
use mcode_proto::v1;
use mcode_threads::{Change, NewFork, NewThread, ThreadError, ThreadFilter, ThreadRow, TreeFilter, TreeRow};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::convert::row;
use crate::services::{Services, search};
use crate::status::{bad_field, of_thread};
use crate::{paging, request};

#[tonic::async_trait]
impl v1::thread_service_server::ThreadService for Services {
    type ExportThreadStream = ReceiverStream<Result<v1::ExportThreadResponse, Status>>;
    type ImportHistoryStream = ReceiverStream<Result<v1::ImportHistoryResponse, Status>>;

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
        let forks = self.deps.threads.forks(thread_id).await.map_err(of_thread)?;
        let forks: Vec<v1::Thread> = forks.iter().map(|fork| row::thread(fork, false)).collect();
        match self.deps.threads.state(thread_id).await {
            Ok(state) => Ok(Response::new(v1::GetThreadResponse {
                thread: Some(row::thread(&thread, false)),
                runs: state.runs.iter().map(|record| row::record(thread_id, record)).collect(),
                tasks: state.tasks.iter().map(row::task).collect(),
                processes: {
                    let rows = self.deps.threads.processes(thread_id, None).await.map_err(of_thread)?;
                    rows.iter().map(|process| row::process(thread_id, process)).collect()
                },
                forks,
            })),
            Err(ThreadError::Damaged(_)) => Ok(Response::new(v1::GetThreadResponse {
                thread: Some(row::thread(&thread, true)),
                runs: Vec::new(),
                tasks: Vec::new(),
                processes: Vec::new(),
                forks,
            })),
            Err(error) => Err(of_thread(error)),
        }
    }

    async fn list_threads(
        &self,
        request: Request<v1::ListThreadsRequest>,
    ) -> Result<Response<v1::ListThreadsResponse>, Status> {
        let request = request.into_inner();
        let filter = ThreadFilter {
            project_id: self.project_meant(&request.project_id, request.cwd).await?,
            root: None,
            tag: Some(request.tag).filter(|tag| !tag.is_empty()),
            parent: None,
            query: search::query(request.query)?,
            by_activity: request.by_activity,
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

    async fn list_thread_tree(
        &self,
        request: Request<v1::ListThreadTreeRequest>,
    ) -> Result<Response<v1::ListThreadTreeResponse>, Status> {
        let request = request.into_inner();
        let thread_id = match request.thread_id.as_str() {
            "" => None,
            id => Some(self.deps.threads.known(request::known_id("thread", id)?).await.map_err(of_thread)?.thread_id),
        };
        let filter = TreeFilter {
            thread_id,
            project_id: self.project_meant(&request.project_id, request.cwd).await?,
            include_archived: request.include_archived,
            page_size: paging::size(request.page_size),
            page_token: paging::token(request.page_token),
        };
        let page = self.deps.threads.tree(filter).await.map_err(of_thread)?;
        let node = |row: &TreeRow| v1::ThreadNode { thread: Some(row::thread(&row.thread, false)), depth: row.depth };
        Ok(Response::new(v1::ListThreadTreeResponse {
            nodes: page.rows.iter().map(node).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn get_latest_thread(
        &self,
        request: Request<v1::GetLatestThreadRequest>,
    ) -> Result<Response<v1::GetLatestThreadResponse>, Status> {
        let latest = self.deps.threads.latest(request.into_inner().cwd).await.map_err(of_thread)?;
        let shown = |row: Option<ThreadRow>| row.map(|thread| row::thread(&thread, false));
        Ok(Response::new(v1::GetLatestThreadResponse {
            thread: shown(latest.here),
            elsewhere: shown(latest.elsewhere),
        }))
    }

    async fn search_threads(
        &self,
        request: Request<v1::SearchThreadsRequest>,
    ) -> Result<Response<v1::SearchThreadsResponse>, Status> {
        self.search(request.into_inner()).await.map(Response::new)
    }

    async fn update_thread(
        &self,
        request: Request<v1::UpdateThreadRequest>,
    ) -> Result<Response<v1::UpdateThreadResponse>, Status> {
        let request = request.into_inner();
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let mut change = Change {
            expected: (request.expected_seq > 0).then(|| Seq::new(request.expected_seq)),
            ..Change::default()
        };
        for path in request.update_mask.map(|mask| mask.paths).unwrap_or_default() {
            match path.as_str() {
                "title" => change.title = Some(request.title.clone()),
                "archived" => change.archived = Some(request.archived),
                "pinned" => change.pinned = Some(request.pinned),
                "tags" => change.tags = Some(request.tags.clone()),
                other => {
                    return Err(bad_field(
                        "update_mask",
                        format!("'{other}' is not one of title, archived, pinned, tags"),
                    ));
                }
            }
        }
        let thread = self.deps.threads.change(thread_id, change).await.map_err(of_thread)?;
        Ok(Response::new(v1::UpdateThreadResponse { thread: Some(row::thread(&thread, false)) }))
    }

    async fn fork_thread(
        &self,
        request: Request<v1::ForkThreadRequest>,
    ) -> Result<Response<v1::ForkThreadResponse>, Status> {
        let message = request.into_inner();
        let fork = NewFork {
            parent_id: request::known_id("thread", &message.thread_id)?,
            at: (message.at_seq > 0).then(|| Seq::new(message.at_seq)),
            request: request::idempotency(&message.request_id, &message)?,
            title: message.title,
        };
        let (thread_id, seq) = self.deps.threads.fork(fork).await.map_err(of_thread)?;
        Ok(Response::new(v1::ForkThreadResponse { thread_id: thread_id.to_string(), seq: seq.get() }))
    }

    async fn rewind_thread(
        &self,
        request: Request<v1::RewindThreadRequest>,
    ) -> Result<Response<v1::RewindThreadResponse>, Status> {
        self.for_people(&request, "going back in a thread").await?;
        let request = request.into_inner();
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let dropped = self.deps.threads.rewind(thread_id, Seq::new(request.to_seq)).await.map_err(of_thread)?;
        let thread = self.deps.threads.known(thread_id).await.map_err(of_thread)?;
        Ok(Response::new(v1::RewindThreadResponse { thread: Some(row::thread(&thread, false)), dropped }))
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

    async fn export_thread(
        &self,
        request: Request<v1::ExportThreadRequest>,
    ) -> Result<Response<Self::ExportThreadStream>, Status> {
        // A file holds every body that a text names: more than a thread shows.
        self.for_people(&request, "exporting a thread").await?;
        self.export(&request.into_inner()).await.map(Response::new)
    }

    async fn import_thread(
        &self,
        request: Request<Streaming<v1::ImportThreadRequest>>,
    ) -> Result<Response<v1::ImportThreadResponse>, Status> {
        self.for_people(&request, "importing a thread").await?;
        self.import(request.into_inner()).await.map(Response::new)
    }

    async fn list_histories(
        &self,
        request: Request<v1::ListHistoriesRequest>,
    ) -> Result<Response<v1::ListHistoriesResponse>, Status> {
        self.for_people(&request, "looking at the histories of other agents").await?;
        self.histories(request.into_inner()).await.map(Response::new)
    }

    async fn import_history(
        &self,
        request: Request<v1::ImportHistoryRequest>,
    ) -> Result<Response<Self::ImportHistoryStream>, Status> {
        self.for_people(&request, "importing the history of another agent").await?;
        self.import_histories(request.into_inner()).await.map(Response::new)
    }
}
