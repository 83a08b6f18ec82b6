//! `EventService`.

use mcode_ids::Seq;
use mcode_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::convert;
use crate::pump::{PIECES, Pump};
use crate::services::Services;
use crate::status::of_thread;
use crate::{paging, request};

/// Payload of a page of events at most, in bytes.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

#[tonic::async_trait]
impl v1::event_service_server::EventService for Services {
    type SubscribeStream = ReceiverStream<Result<v1::SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let request = request.into_inner();
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let threads = self.deps.threads.clone();
        let subscription = threads.subscribe(thread_id).await.map_err(of_thread)?;
        let (pieces, stream) = mpsc::channel(PIECES);
        let shutdown = self.deps.streams.clone();
        let pump = Pump::new(threads, thread_id, subscription, request.durable_only, pieces, shutdown);
        tokio::spawn(pump.run(request.after_seq.map(Seq::new)));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        let request = request.into_inner();
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let thread = self.deps.threads.known(thread_id).await.map_err(of_thread)?;
        let size = paging::size(request.page_size);
        let events = self
            .deps
            .threads
            .events(thread_id, Seq::new(request.after_seq), size, PAGE_BYTES)
            .await
            .map_err(of_thread)?;
        Ok(Response::new(v1::ListEventsResponse {
            events: events.iter().map(convert::event::event).collect(),
            last_seq: thread.last_seq.get(),
        }))
    }
}
