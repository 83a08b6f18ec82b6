//! Threads as files: `ThreadService.ExportThread`.

use mcode_proto::v1;
use mcode_threads::{ExportForm, PIECES_AHEAD};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::request;
use crate::services::Services;
use crate::status::{bad_field, of_thread};

/// A file in pieces.
type Pieces = ReceiverStream<Result<v1::ExportThreadResponse, Status>>;

impl Services {
    pub(crate) async fn export(&self, request: &v1::ExportThreadRequest) -> Result<Pieces, Status> {
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let form = form(request)?;
        let threads = self.deps.threads.clone();
        let thread = threads.known(thread_id).await.map_err(of_thread)?;
        let (out, stream) = mpsc::channel(1);
        let ending = self.deps.streams.clone();
        tokio::spawn(async move {
            let (pieces, mut made) = mpsc::channel(PIECES_AHEAD);
            let taker = out.clone();
            let send = async move {
                while let Some(chunk) = made.recv().await {
                    if taker.send(Ok(v1::ExportThreadResponse { chunk })).await.is_err() {
                        return;
                    }
                }
            };
            // Both end when whoever takes the pieces is gone: `made` goes with `send`, and the writer meets that.
            let (written, ()) = tokio::select! {
                both = async { tokio::join!(threads.export(thread, form, pieces), send) } => both,
                () = ending.cancelled() => (Err(mcode_threads::ThreadError::ShuttingDown), ()),
            };
            if let Err(error) = written {
                let _ = out.send(Err(of_thread(error))).await.is_ok();
            }
        });
        Ok(ReceiverStream::new(stream))
    }
}

fn form(request: &v1::ExportThreadRequest) -> Result<ExportForm, Status> {
    let redact = request.redact;
    match request.format() {
        v1::ExportFormat::Markdown => Ok(ExportForm::Markdown { redact }),
        v1::ExportFormat::Messages => Ok(ExportForm::Messages { redact }),
        v1::ExportFormat::Unspecified if request.format != 0 => {
            Err(bad_field("format", format!("{} is not a format that this daemon knows", request.format)))
        }
        v1::ExportFormat::Unspecified | v1::ExportFormat::Thread if redact => Err(bad_field(
            "redact",
            "the lossless form holds everything; secrets are taken out of markdown and json only",
        )),
        v1::ExportFormat::Unspecified | v1::ExportFormat::Thread => Ok(ExportForm::Thread),
    }
}
