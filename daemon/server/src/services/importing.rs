//! Threads from files and from the histories of other agents: `ThreadService.ImportThread`, `ListHistories`,
//! `ImportHistory`.

use mcode_proto::v1;
use mcode_threads::{Brought, Conversation, Listed, Maker, Outcome, PIECES_AHEAD, ThreadError, Threads, chosen};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::convert::row;
use crate::convert::value::time;
use crate::paging;
use crate::services::Services;
use crate::status::{bad_field, of_thread};

/// The largest piece of a file, in bytes.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// Conversations that are named in one request; of one agent no more are listed.
const NAMED_MAX: usize = 10_000;

/// What was done with each conversation.
type Done = ReceiverStream<Result<v1::ImportHistoryResponse, Status>>;

impl Services {
    pub(crate) async fn import(
        &self,
        mut stream: Streaming<v1::ImportThreadRequest>,
    ) -> Result<v1::ImportThreadResponse, Status> {
        let first = stream.message().await?.unwrap_or_default();
        let again = first.again;
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        let mut next = Some(first);
        let feed = async move {
            while let Some(piece) = next {
                if piece.chunk.len() > CHUNK_BYTES_MAX {
                    return Err(bad_field("chunk", format!("more than {CHUNK_BYTES_MAX} bytes")));
                }
                // Whoever takes the pieces has enough of them, and says why.
                if sender.send(piece.chunk).await.is_err() {
                    break;
                }
                next = stream.message().await?;
            }
            Ok(())
        };
        let threads = self.deps.threads.clone();
        // A task of its own: it ends well whatever becomes of the client.
        let import = tokio::spawn(async move { threads.import(pieces, again).await });
        let imported = async {
            let done = import.await.map_err(|error| Status::internal(error.to_string()))?;
            done.map_err(of_thread)
        };
        let both = async {
            tokio::pin!(imported);
            tokio::select! {
                fed = feed => {
                    fed?;
                    imported.await
                }
                done = &mut imported => done,
            }
        };
        let brought = tokio::select! {
            brought = both => brought?,
            () = self.deps.streams.cancelled() => return Err(of_thread(ThreadError::ShuttingDown)),
        };
        Ok(v1::ImportThreadResponse { imported: Some(imported_thread(brought)) })
    }

    pub(crate) async fn histories(
        &self,
        request: v1::ListHistoriesRequest,
    ) -> Result<v1::ListHistoriesResponse, Status> {
        let maker = maker(request.maker())?;
        let token = paging::token(request.page_token);
        let bad_token = |token: &str| bad_field("page_token", format!("'{token}' is not a token of this list"));
        let start = token.map(|token| token.parse::<usize>().map_err(|_| bad_token(&token))).transpose()?.unwrap_or(0);
        let discovery = self.deps.threads.histories(maker).await.map_err(of_thread)?;
        let (all, size) = (discovery.found.len(), paging::size(request.page_size) as usize);
        let page: Vec<Conversation> = discovery.found.into_iter().skip(start).take(size).collect();
        let end = start.saturating_add(size);
        let listed = self.deps.threads.listed(page).await.map_err(of_thread)?;
        Ok(v1::ListHistoriesResponse {
            histories: listed.into_iter().map(history).collect(),
            next_page_token: if end < all { end.to_string() } else { String::new() },
            problems: discovery.problems,
        })
    }

    pub(crate) async fn import_histories(&self, request: v1::ImportHistoryRequest) -> Result<Done, Status> {
        let maker = maker(request.maker())?;
        if request.all != request.ids.is_empty() {
            return Err(bad_field("ids", "name the conversations, or ask for all of them, and not both"));
        }
        if request.ids.len() > NAMED_MAX {
            return Err(bad_field("ids", format!("more than {NAMED_MAX}")));
        }
        let found = self.deps.threads.histories(maker).await.map_err(of_thread)?.found;
        let wanted = if request.all { found } else { chosen(maker, found, &request.ids).map_err(of_thread)? };
        let (out, stream) = mpsc::channel(1);
        let (threads, again, ending) = (self.deps.threads.clone(), request.again, self.deps.streams.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = each(&threads, wanted, again, &out) => {}
                () = ending.cancelled() => {
                    let _ = out.send(Err(of_thread(ThreadError::ShuttingDown))).await.is_ok();
                }
            }
        });
        Ok(ReceiverStream::new(stream))
    }
}

/// Imports one after the other, for as long as somebody listens. What fails of one keeps none of the others.
async fn each(
    threads: &Threads,
    wanted: Vec<Conversation>,
    again: bool,
    out: &mpsc::Sender<Result<v1::ImportHistoryResponse, Status>>,
) {
    let total = wanted.len() as u64;
    for (found, number) in wanted.into_iter().zip(1..) {
        let (id, title) = (found.id.clone(), found.title.clone());
        let done = match threads.import_history(found, again).await {
            Ok(brought) => Ok((Some(imported_thread(brought)), String::new())),
            Err(ThreadError::NotImported { cause }) => Ok((None, cause)),
            // What keeps this one keeps the others too.
            Err(error) => Err(of_thread(error)),
        };
        let failed = done.is_err();
        let done = done.map(|(imported, problem)| v1::ImportHistoryResponse {
            id,
            title,
            number,
            total,
            imported,
            problem: mcode_threads::redact(&problem).into_owned(),
        });
        if out.send(done).await.is_err() || failed {
            return;
        }
    }
}

fn maker(maker: v1::HistoryMaker) -> Result<Maker, Status> {
    match maker {
        v1::HistoryMaker::ClaudeCode => Ok(Maker::ClaudeCode),
        v1::HistoryMaker::Codex => Ok(Maker::Codex),
        v1::HistoryMaker::Opencode => Ok(Maker::Opencode),
        v1::HistoryMaker::MastraCode => Ok(Maker::MastraCode),
        v1::HistoryMaker::Unspecified => Err(bad_field("maker", "it is none that this daemon knows")),
    }
}

fn history(listed: Listed) -> v1::History {
    let Listed { found, thread_id, grown } = listed;
    v1::History {
        maker: found.maker.as_str().to_owned(),
        id: found.id,
        title: found.title,
        cwd: found.cwd,
        updated_at: Some(time(found.updated_at_ms)),
        messages: found.messages.unwrap_or_default(),
        thread_id: thread_id.map(|id| id.to_string()).unwrap_or_default(),
        changed: grown,
    }
}

fn imported_thread(brought: Brought) -> v1::ImportedThread {
    let outcome = match brought.outcome {
        Outcome::Made => "imported",
        Outcome::Known => "known",
        Outcome::Grown => "changed",
    };
    let left_out = brought.report.left_out.into_iter().map(|(what, count)| v1::LeftOut { what, count });
    v1::ImportedThread {
        outcome: outcome.to_owned(),
        thread: Some(row::thread(&brought.thread, false)),
        project: brought.project,
        folder_is_here: brought.here,
        was_at_work: brought.was_at_work,
        missing_bodies: brought.missing,
        left_out: left_out.collect(),
        damaged: brought.report.damaged,
        more_damaged: brought.report.damaged_more,
        earlier_thread_id: brought.earlier.map(|id| id.to_string()).unwrap_or_default(),
    }
}
