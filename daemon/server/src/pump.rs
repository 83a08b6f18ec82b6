//! Feeds one subscriber: snapshot or backlog, open items, caught up, live.
//!
//! The pump holds a cursor and nothing else. Durable events are read from the log after the cursor; live text is read
//! from the live lane after the offset that was sent. gRPC flow control stops the pump, and then simply nothing is
//! read: a slow client costs no memory and slows nobody.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mcode_events::event::{Event, EventBody};
use mcode_ids::{RunId, Seq, ThreadId};
use mcode_proto::v1;
use mcode_proto::v1::subscribe_response::Piece;
use mcode_threads::{LiveKey, Subscription, ThreadError, Threads};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::convert::{event, row};
use crate::status::of_thread;

/// Events of one batch at most.
const BATCH_EVENTS: u32 = 256;

/// Payload of one batch at most, in bytes.
const BATCH_BYTES: usize = 64 * 1024;

/// Events before the present that a snapshot brings.
const SNAPSHOT_EVENTS: u64 = 200;

/// Size of a snapshot's events at most, in bytes; the oldest are left out, the newest is always there.
const SNAPSHOT_BYTES: usize = 16 * 1024 * 1024;

/// Live text of one frame at most, in bytes.
const FRAME_BYTES: usize = 64 * 1024;

/// The shortest time between two batches of live frames: text that comes faster is sent in larger pieces.
const FRAME_PACE: Duration = Duration::from_millis(8);

/// Pieces that may wait for the transport.
pub(crate) const PIECES: usize = 4;

/// What a subscriber has been sent of an item that is being written.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    text: u64,
    thinking: u64,
}

/// A stretch of live text, copied out of the lane.
struct Stretch {
    key: LiveKey,
    run_id: RunId,
    thinking: bool,
    offset: u64,
    text: String,
}

/// Why a pump stops.
enum End {
    /// The client has gone, or the daemon ends.
    Gone,
    /// The log can not be read on.
    Failed(Status),
}

impl From<ThreadError> for End {
    fn from(error: ThreadError) -> Self {
        Self::Failed(of_thread(error))
    }
}

/// One subscriber's stream.
pub(crate) struct Pump {
    pub(crate) threads: Threads,
    pub(crate) thread_id: ThreadId,
    pub(crate) subscription: Subscription,
    pub(crate) durable_only: bool,
    pub(crate) pieces: mpsc::Sender<Result<v1::SubscribeResponse, Status>>,
    pub(crate) shutdown: CancellationToken,
    cursor: Seq,
    sent: BTreeMap<LiveKey, Sent>,
    /// Items whose end was sent while the live lane still had them: the lane drops them a moment later.
    ended: BTreeSet<LiveKey>,
}

impl Pump {
    pub(crate) fn new(
        threads: Threads,
        thread_id: ThreadId,
        subscription: Subscription,
        durable_only: bool,
        pieces: mpsc::Sender<Result<v1::SubscribeResponse, Status>>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            threads,
            thread_id,
            subscription,
            durable_only,
            pieces,
            shutdown,
            cursor: Seq::ZERO,
            sent: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    /// Runs until the client goes away or the daemon ends.
    pub(crate) async fn run(mut self, after: Option<Seq>) {
        if let Err(End::Failed(status)) = self.feed(after).await {
            // A client that has gone does not need to be told.
            let _ = self.pieces.send(Err(status)).await.is_ok();
        }
    }

    async fn feed(&mut self, after: Option<Seq>) -> Result<(), End> {
        match after {
            Some(seq) => self.cursor = seq,
            None => self.snapshot().await?,
        }
        self.drain().await?;
        let mut paced = Instant::now();
        if !self.durable_only {
            self.frames().await?;
        }
        self.send(Piece::CaughtUp(v1::CaughtUp { seq: self.cursor.get() })).await?;
        loop {
            let live_allowed = !self.durable_only;
            tokio::select! {
                () = self.pieces.closed() => return Err(End::Gone),
                () = self.shutdown.cancelled() => {
                    self.drain().await?;
                    return Err(End::Gone);
                }
                changed = self.subscription.head.changed() => {
                    // A closed channel is an actor that left memory; there is nothing to wait for until it is back.
                    if changed.is_err() {
                        self.resubscribe().await?;
                    }
                    self.drain().await?;
                }
                changed = live_changed(&mut self.subscription.live, paced), if live_allowed => {
                    if changed {
                        self.frames().await?;
                        paced = Instant::now() + FRAME_PACE;
                    } else {
                        self.resubscribe().await?;
                    }
                }
            }
        }
    }

    async fn resubscribe(&mut self) -> Result<(), End> {
        self.subscription = self.threads.subscribe(self.thread_id).await?;
        Ok(())
    }

    async fn snapshot(&mut self) -> Result<(), End> {
        let thread = self.threads.known(self.thread_id).await?;
        let seq = thread.last_seq;
        let first = Seq::new(seq.get().saturating_sub(SNAPSHOT_EVENTS));
        let mut recent = Recent::default();
        let mut at = first;
        while at < seq {
            let events = self.threads.events(self.thread_id, at, BATCH_EVENTS, BATCH_BYTES).await?;
            let Some(last) = events.last().map(|event| event.seq) else { break };
            events.iter().filter(|event| event.seq <= seq).for_each(|event| recent.push(event::event(event)));
            at = last;
        }
        let state = self.threads.state(self.thread_id).await;
        let damaged = matches!(state, Err(ThreadError::Damaged(_)));
        let tasks = state.map(|state| state.tasks.iter().map(row::task).collect()).unwrap_or_default();
        self.cursor = seq;
        let (thread, recent) = (Some(row::thread(&thread, damaged)), recent.events.into());
        self.send(Piece::Snapshot(v1::Snapshot { thread, recent, seq: seq.get(), tasks })).await
    }

    /// Sends every durable event up to the present head.
    async fn drain(&mut self) -> Result<(), End> {
        loop {
            let head = *self.subscription.head.borrow_and_update();
            if self.cursor >= head {
                return Ok(());
            }
            let events = self
                .threads
                .deps()
                .store
                .read(self.thread_id, self.cursor, BATCH_EVENTS, BATCH_BYTES)
                .await
                .map_err(ThreadError::from)?;
            let Some(last) = events.last().map(|event| event.seq) else { return Ok(()) };
            self.finish_items(&events).await?;
            let batch = v1::EventBatch { events: events.iter().map(event::event).collect() };
            self.send(Piece::Events(batch)).await?;
            self.cursor = last;
        }
    }

    /// Before the event that ends an item whose deltas were being sent: what is left of them.
    async fn finish_items(&mut self, events: &[Event]) -> Result<(), End> {
        let mut frames = Vec::new();
        for event in events {
            let run_id = event.run_id;
            match &event.body {
                EventBody::MessageFinished { message } => {
                    let key = LiveKey::Message(message.item_id);
                    self.note_end(key);
                    let Some(sent) = self.sent.remove(&key) else { continue };
                    for (text, offset, thinking) in
                        [(message.thinking(), sent.thinking, true), (message.text(), sent.text, false)]
                    {
                        let rest =
                            usize::try_from(offset).ok().and_then(|offset| text.get(offset..)).unwrap_or_default();
                        if let (false, Some(run_id)) = (rest.is_empty(), run_id) {
                            let stretch = Stretch { key, run_id, thinking, offset, text: rest.to_owned() };
                            frames.push(self.frame(stretch));
                        }
                    }
                }
                EventBody::MessageDiscarded { item_id, reason, .. } => {
                    self.note_end(LiveKey::Message(*item_id));
                    if self.sent.remove(&LiveKey::Message(*item_id)).is_some() {
                        let reset = v1::ItemReset { item_id: item_id.to_string(), reason: reason.clone() };
                        frames.push(self.frame_of(run_id, v1::frame::Body::ItemReset(reset)));
                    }
                }
                EventBody::ToolCallFinished { result, .. } => {
                    let key = LiveKey::ToolCall(result.tool_call_id);
                    self.note_end(key);
                    self.sent.remove(&key);
                }
                _ => {}
            }
        }
        self.send_frames(frames).await
    }

    /// An item that is in the lane although its end is sent must not be sent from there again.
    fn note_end(&mut self, key: LiveKey) {
        if self.subscription.live.borrow().items.contains_key(&key) {
            self.ended.insert(key);
        }
    }

    /// Sends live text beyond what was sent. The stretches are copied first and the log is drained after that, so an
    /// item's beginning is always sent before its text, and its end after it.
    async fn frames(&mut self) -> Result<(), End> {
        let stretches = self.stretches();
        self.drain().await?;
        let mut frames = Vec::new();
        for stretch in stretches {
            // An item that ended in between was finished by `drain`; one that is unknown by now has been closed.
            let open = self.subscription.live.borrow().items.contains_key(&stretch.key);
            if !open || self.ended.contains(&stretch.key) {
                continue;
            }
            let sent = self.sent.entry(stretch.key).or_default();
            let end = stretch.offset + stretch.text.len() as u64;
            if stretch.thinking {
                sent.thinking = end;
            } else {
                sent.text = end;
            }
            frames.push(self.frame(stretch));
        }
        self.send_frames(frames).await
    }

    fn stretches(&mut self) -> Vec<Stretch> {
        let state = self.subscription.live.borrow_and_update();
        self.ended.retain(|key| state.items.contains_key(key));
        let (mut stretches, mut is_more) = (Vec::new(), false);
        for (key, item) in state.items.iter().filter(|(key, _)| !self.ended.contains(key)) {
            let sent = self.sent.get(key).copied().unwrap_or_default();
            for (live, from, thinking) in [(&item.thinking, sent.thinking, true), (&item.text, sent.text, false)] {
                if let Some((offset, text)) = live.after(from) {
                    let piece = cut(text);
                    is_more |= piece.len() < text.len();
                    let (key, run_id, text) = (*key, item.run_id, piece.to_owned());
                    stretches.push(Stretch { key, run_id, thinking, offset, text });
                }
            }
        }
        drop(state);
        if is_more {
            // The rest goes with the next frames, also when nothing is written any more.
            self.subscription.live.mark_changed();
        }
        stretches
    }

    fn frame(&self, stretch: Stretch) -> v1::Frame {
        let (item_id, is_tool) = match stretch.key {
            LiveKey::Message(id) => (id.to_string(), false),
            LiveKey::ToolCall(id) => (id.to_string(), true),
        };
        let delta = v1::Delta { item_id, offset: stretch.offset, text: stretch.text };
        let body = match (is_tool, stretch.thinking) {
            (true, _) => v1::frame::Body::ToolOutputDelta(delta),
            (false, true) => v1::frame::Body::ThinkingDelta(delta),
            (false, false) => v1::frame::Body::TextDelta(delta),
        };
        self.frame_of(Some(stretch.run_id), body)
    }

    fn frame_of(&self, run_id: Option<RunId>, body: v1::frame::Body) -> v1::Frame {
        v1::Frame {
            thread_id: self.thread_id.to_string(),
            run_id: run_id.map(|id| id.to_string()).unwrap_or_default(),
            body: Some(body),
        }
    }

    async fn send_frames(&self, frames: Vec<v1::Frame>) -> Result<(), End> {
        if frames.is_empty() || self.durable_only {
            return Ok(());
        }
        self.send(Piece::Frames(v1::FrameBatch { frames })).await
    }

    async fn send(&self, piece: Piece) -> Result<(), End> {
        self.pieces.send(Ok(v1::SubscribeResponse { piece: Some(piece) })).await.map_err(|_| End::Gone)
    }
}

/// The newest events that fit into a snapshot.
#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<v1::Event>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, event: v1::Event) {
        self.bytes += event.encoded_len();
        self.events.push_back(event);
        while self.bytes > SNAPSHOT_BYTES && self.events.len() > 1 {
            self.bytes -= self.events.pop_front().map_or(0, |oldest| oldest.encoded_len());
        }
    }
}

/// At most [`FRAME_BYTES`] of a text; the rest is sent with the next frames.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(FRAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

/// Waits for more live text, but not before `not_before`; false when the lane is closed.
async fn live_changed(live: &mut tokio::sync::watch::Receiver<mcode_threads::LiveState>, not_before: Instant) -> bool {
    // In this order: `changed` takes note of the change, so one that is dropped while it still waits would lose it.
    tokio::time::sleep_until(not_before).await;
    live.changed().await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(seq: u64, bytes: usize) -> v1::Event {
        let message = v1::MessageFinished { text: "x".repeat(bytes), ..Default::default() };
        v1::Event { seq, body: Some(v1::event::Body::MessageFinished(message)), ..Default::default() }
    }

    #[test]
    fn a_snapshot_leaves_out_the_oldest_beyond_its_size() {
        let mut recent = Recent::default();
        for seq in 1..=9 {
            recent.push(said(seq, SNAPSHOT_BYTES / 4));
        }
        assert_eq!(recent.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [7, 8, 9]);
        recent.push(said(10, SNAPSHOT_BYTES * 2));
        assert_eq!(recent.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [10]);
    }

    #[tokio::test]
    async fn a_change_that_is_not_waited_for_to_its_end_is_not_lost() {
        let (sender, mut live) = tokio::sync::watch::channel(mcode_threads::LiveState::default());
        let paced = Instant::now() + Duration::from_millis(300);
        sender.send_modify(|_| {});
        tokio::select! {
            biased;
            _ = live_changed(&mut live, paced) => panic!("too early"),
            () = std::future::ready(()) => {}
        }
        let changed = tokio::time::timeout(Duration::from_secs(10), live_changed(&mut live, paced)).await;
        assert_eq!(changed.ok(), Some(true));
    }
}
