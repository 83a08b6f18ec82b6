//! A subscription to a thread that outlives connections: it remembers the last seq and goes on from there.

use std::collections::VecDeque;
use std::time::Duration;

use mcode_proto::v1;
use mcode_proto::v1::subscribe_response::Piece as Wire;
use tonic::Streaming;

use crate::connect::Client;
use crate::error::ClientError;
use crate::fresh::Fresh;

/// Attempts to get a broken subscription back, in a row, before it is given up.
pub const RECONNECTS_MAX: u32 = 8;

/// First pause between two of them; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What a subscription gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// The thread as it stands; only without a place to start from.
    Snapshot(Box<v1::Snapshot>),
    /// A durable event; in order, each once.
    Event(Box<v1::Event>),
    /// A live update; some may be missing.
    Frame(Box<v1::Frame>),
    /// Everything up to this seq has been given.
    CaughtUp(u64),
    /// The connection broke and a new one is being made. Live updates so far may be incomplete.
    Reconnecting(String),
}

/// A subscription to one thread.
#[derive(Debug)]
pub struct Follow {
    client: Client,
    thread_id: String,
    after: Option<u64>,
    durable_only: bool,
    stream: Option<Streaming<v1::SubscribeResponse>>,
    ready: VecDeque<Piece>,
    failures: u32,
    fresh: Fresh,
}

impl Follow {
    /// Follows a thread from after a seq on, or from a snapshot of its recent past.
    #[must_use]
    pub fn new(client: Client, thread_id: &str, after: Option<u64>) -> Self {
        Self {
            client,
            thread_id: thread_id.to_owned(),
            after,
            durable_only: false,
            stream: None,
            ready: VecDeque::new(),
            failures: 0,
            fresh: Fresh::default(),
        }
    }

    /// Leaves the live updates out.
    #[must_use]
    pub fn durable_only(mut self) -> Self {
        self.durable_only = true;
        self
    }

    /// The next piece. May be dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// When the daemon refuses the subscription, or it could not be had back in [`RECONNECTS_MAX`] attempts.
    pub async fn next(&mut self) -> Result<Piece, ClientError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(piece);
            }
            if self.stream.is_none() {
                self.open().await?;
            }
            let Some(stream) = self.stream.as_mut() else { continue };
            match stream.message().await {
                Ok(Some(response)) => {
                    self.failures = 0;
                    self.take(response);
                }
                Ok(None) => self.broken(ClientError::from(tonic::Status::unavailable("the daemon closed it")))?,
                Err(status) => self.broken(ClientError::from(status))?,
            }
        }
    }

    async fn open(&mut self) -> Result<(), ClientError> {
        if self.failures > 0 {
            let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
            tokio::time::sleep(pause).await;
            if let Err(error) = self.client.reconnect().await {
                self.failures += 1;
                return if self.failures > RECONNECTS_MAX { Err(error) } else { Ok(()) };
            }
        }
        let request = v1::SubscribeRequest {
            thread_id: self.thread_id.clone(),
            after_seq: self.after,
            durable_only: self.durable_only,
        };
        match self.client.subscribe(request).await {
            Ok(stream) => {
                self.stream = Some(stream);
                Ok(())
            }
            Err(error) => self.broken(error),
        }
    }

    /// Notes that the stream is gone; fails when that is final.
    fn broken(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.stream = None;
        self.failures += 1;
        if !error.retryable || self.failures > RECONNECTS_MAX {
            return Err(error);
        }
        if self.failures == 1 {
            self.ready.push_back(Piece::Reconnecting(error.message));
        }
        Ok(())
    }

    fn take(&mut self, response: v1::SubscribeResponse) {
        match response.piece {
            Some(Wire::Snapshot(snapshot)) => {
                self.after = Some(self.after.unwrap_or(0).max(snapshot.seq));
                self.ready.push_back(Piece::Snapshot(Box::new(snapshot)));
            }
            Some(Wire::Events(batch)) => {
                for event in batch.events {
                    // After a new connection the daemon may start a little earlier than where we were.
                    if event.seq > self.after.unwrap_or(0) {
                        self.after = Some(event.seq);
                        self.fresh.event(&event);
                        self.ready.push_back(Piece::Event(Box::new(event)));
                    }
                }
            }
            Some(Wire::Frames(batch)) => {
                let fresh = batch.frames.into_iter().filter_map(|frame| self.fresh.part(frame));
                self.ready.extend(fresh.map(|frame| Piece::Frame(Box::new(frame))));
            }
            Some(Wire::CaughtUp(caught_up)) => self.ready.push_back(Piece::CaughtUp(caught_up.seq)),
            // A piece of a newer daemon.
            None => {}
        }
    }
}
