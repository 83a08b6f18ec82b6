//! Ending everything of a thread, and forgetting it.

use std::sync::Arc;

use mcode_store::StoreError;
use mcode_tools::shell::Stage;

use crate::actor::Actor;
use crate::command::Reply;
use crate::run::Cause;

/// Somebody who waits for everything of the thread to have ended.
pub(crate) struct End {
    delete: bool,
    /// How many commands ran when it was asked for.
    running: u32,
    reply: Reply<u32>,
}

impl Actor {
    /// Begins the end of everything of the thread.
    pub(crate) fn end(&mut self, delete: bool, reply: Reply<u32>) {
        let processes = self.deps.processes.list(self.thread_id);
        let running = processes.iter().filter(|process| process.stage() < Stage::Gone).count();
        self.ends.push(End { delete, running: u32::try_from(running).unwrap_or(u32::MAX), reply });
        self.closing = true;
        if let Some(active) = &mut self.active {
            active.end(Cause::User);
        }
    }

    /// Forgets the thread, and removes its temporary files.
    pub(crate) async fn forget(&self) -> Result<(), StoreError> {
        self.deps.store.delete_thread(self.thread_id).await?;
        self.deps.rules.forget(self.thread_id);
        self.deps.depots.held.left(crate::checkpoints::root_of(&self.state));
        let (bounds, thread_id) = (Arc::clone(&self.deps.bounds), self.thread_id);
        if let Err(error) = tokio::task::spawn_blocking(move || bounds.forget(thread_id)).await {
            tracing::warn!(%thread_id, %error, "the temporary files of a thread could not be removed");
        }
        Ok(())
    }

    /// Everything has ended: the thread is forgotten if that was asked for, and those who wait are told.
    pub(crate) async fn ended(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let deleted = if self.ends.iter().any(|end| end.delete) {
            // What looks at it from here on finds no thread.
            self.forget().await.map_err(|error| Arc::new(error.to_string()))
        } else {
            Ok(())
        };
        for End { delete, running, reply } in self.ends.drain(..) {
            let result = match &deleted {
                Err(cause) if delete => Err(crate::error::ThreadError::NotDeleted {
                    thread_id: self.thread_id,
                    cause: cause.as_ref().clone(),
                }),
                _ => Ok(running),
            };
            let _ = reply.send(result).is_ok();
        }
    }
}
