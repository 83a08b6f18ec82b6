//! A daemon that plays a script over a real socket: what clients do with every answer, the odd ones included.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use mcode_proto::v1;
use mcode_proto::v1::event::Body;
use mcode_proto::v1::event_service_server::{EventService, EventServiceServer};
use mcode_proto::v1::run_service_server::{RunService, RunServiceServer};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

pub const THREAD: &str = "thr_00000000000000000000000000000001";
pub const RUN: &str = "run_00000000000000000000000000000001";

/// What the daemon knows; outlives its connections as a log does.
#[derive(Clone, Default)]
pub struct Script {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Inner {
    events: Vec<v1::Event>,
    on_start: Vec<Body>,
    started: Vec<v1::StartRunRequest>,
    subscribed_after: Vec<Option<u64>>,
    cancelled: u32,
}

impl Script {
    /// A daemon whose run does this.
    pub fn run(bodies: Vec<Body>) -> Self {
        let script = Self::default();
        script.inner.lock().unwrap().on_start = bodies;
        script
    }

    pub fn append(&self, bodies: impl IntoIterator<Item = Body>) {
        let mut inner = self.inner.lock().unwrap();
        for body in bodies {
            let seq = inner.events.len() as u64 + 1;
            inner.events.push(v1::Event {
                thread_id: THREAD.into(),
                seq,
                run_id: RUN.into(),
                body: Some(body),
                ..Default::default()
            });
        }
        let last = inner.events.len() as u64;
        drop(inner);
        self.changed.send_replace(last);
    }

    pub fn started(&self) -> Vec<v1::StartRunRequest> {
        self.inner.lock().unwrap().started.clone()
    }

    pub fn subscribed_after(&self) -> Vec<Option<u64>> {
        self.inner.lock().unwrap().subscribed_after.clone()
    }

    pub fn cancelled(&self) -> u32 {
        self.inner.lock().unwrap().cancelled
    }

    /// Serves on a socket until the server is stopped or dropped.
    pub async fn serve(&self, socket: &Path) -> Server {
        // A runtime of its own, since ending it cuts the connections as the death of a process does.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (_reporter, health) = tonic_health::server::health_reporter();
        let router = tonic::transport::Server::builder()
            .add_service(health)
            .add_service(RunServiceServer::new(self.clone()))
            .add_service(EventServiceServer::new(self.clone()));
        let guard = runtime.enter();
        let listener = UnixListener::bind(socket).unwrap();
        drop(guard);
        runtime.spawn(router.serve_with_incoming(UnixListenerStream::new(listener)));
        Server { runtime: Some(runtime), socket: socket.to_path_buf() }
    }
}

pub struct Server {
    runtime: Option<tokio::runtime::Runtime>,
    socket: PathBuf,
}

impl Server {
    /// Ends as a daemon that is killed: connections are cut and nobody listens any more.
    pub fn stop(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        std::fs::remove_file(&self.socket).unwrap();
        self.runtime.take().unwrap().shutdown_background();
    }
}

pub fn said(text: &str) -> Body {
    Body::MessageFinished(v1::MessageFinished { role: "assistant".into(), text: text.into(), ..Default::default() })
}

pub fn call_started(id: &str, command: &str) -> Body {
    let kind = prost_types::value::Kind::StringValue(command.into());
    let command = prost_types::Value { kind: Some(kind) };
    let fields = prost_types::Struct { fields: [("command".to_owned(), command)].into() };
    let arguments = prost_types::Value { kind: Some(prost_types::value::Kind::StructValue(fields)) };
    Body::ToolCallStarted(v1::ToolCallStarted {
        tool_call_id: id.into(),
        name: "shell".into(),
        arguments: Some(arguments),
        ..Default::default()
    })
}

pub fn call_finished(id: &str, status: &str, preview: &str) -> Body {
    Body::ToolCallFinished(v1::ToolCallFinished {
        tool_call_id: id.into(),
        name: "shell".into(),
        status: status.into(),
        result_preview: preview.into(),
        ..Default::default()
    })
}

pub fn finished(status: &str, exit_code: i32) -> Body {
    Body::RunFinished(v1::RunFinished { status: status.into(), exit_code, ..Default::default() })
}

#[tonic::async_trait]
impl RunService for Script {
    async fn start_run(&self, request: Request<v1::StartRunRequest>) -> Result<Response<v1::StartRunResponse>, Status> {
        let request = request.into_inner();
        if !request.thread_id.is_empty() && request.thread_id != THREAD {
            return Err(Status::not_found("no such thread"));
        }
        let bodies = {
            let mut inner = self.inner.lock().unwrap();
            inner.started.push(request);
            std::mem::take(&mut inner.on_start)
        };
        let seq = self.inner.lock().unwrap().events.len() as u64;
        self.append(bodies);
        Ok(Response::new(v1::StartRunResponse {
            thread_id: THREAD.into(),
            run_id: RUN.into(),
            seq,
            config_errors: Vec::new(),
        }))
    }

    async fn cancel_run(&self, _: Request<v1::CancelRunRequest>) -> Result<Response<v1::CancelRunResponse>, Status> {
        self.inner.lock().unwrap().cancelled += 1;
        self.append([finished("cancelled", 130)]);
        Ok(Response::new(v1::CancelRunResponse::default()))
    }

    async fn steer_run(&self, _: Request<v1::SteerRunRequest>) -> Result<Response<v1::SteerRunResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }

    async fn queue_input(&self, _: Request<v1::QueueInputRequest>) -> Result<Response<v1::QueueInputResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }

    async fn get_run(&self, _: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }

    async fn list_runs(&self, _: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        Ok(Response::new(v1::ListRunsResponse::default()))
    }
}

#[tonic::async_trait]
impl EventService for Script {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<v1::SubscribeResponse, Status>> + Send>>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let request = request.into_inner();
        self.inner.lock().unwrap().subscribed_after.push(request.after_seq);
        let (sender, receiver) = mpsc::channel(1);
        let script = self.clone();
        let mut changed = self.changed.subscribe();
        tokio::spawn(async move {
            let mut after = request.after_seq.unwrap_or(0);
            loop {
                changed.borrow_and_update();
                let events: Vec<v1::Event> = script.inner.lock().unwrap().events[after as usize..].to_vec();
                after += events.len() as u64;
                let batch = v1::subscribe_response::Piece::Events(v1::EventBatch { events });
                if sender.send(Ok(v1::SubscribeResponse { piece: Some(batch) })).await.is_err()
                    || changed.changed().await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn list_events(&self, _: Request<v1::ListEventsRequest>) -> Result<Response<v1::ListEventsResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }
}
