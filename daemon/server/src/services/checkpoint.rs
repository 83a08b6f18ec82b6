//! `CheckpointService`.

use mcode_ids::CheckpointId;
use mcode_proto::v1;
use mcode_threads::{DiffBody, FileDiff, Restore, RestorePick};
use tonic::{Request, Response, Status};

use crate::convert::row;
use crate::services::Services;
use crate::status::{bad_field, of_thread};
use crate::{paging, request};

#[tonic::async_trait]
impl v1::checkpoint_service_server::CheckpointService for Services {
    async fn list_checkpoints(
        &self,
        request: Request<v1::ListCheckpointsRequest>,
    ) -> Result<Response<v1::ListCheckpointsResponse>, Status> {
        let request = request.into_inner();
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let (marks, off) = self.deps.threads.checkpoints(thread_id).await.map_err(of_thread)?;
        // The token is how many were kept before those that were given: more may be kept meanwhile.
        let end = match request.page_token.as_str() {
            "" => marks.len(),
            token => token
                .parse()
                .ok()
                .filter(|end| *end <= marks.len())
                .ok_or_else(|| bad_field("page_token", "it is not a token of this list"))?,
        };
        let start = end.saturating_sub(paging::size(request.page_size) as usize);
        let page = marks.get(start..end).unwrap_or_default();
        Ok(Response::new(v1::ListCheckpointsResponse {
            checkpoints: page.iter().rev().map(|mark| row::checkpoint(thread_id, mark)).collect(),
            next_page_token: if start > 0 { start.to_string() } else { String::new() },
            off: off.unwrap_or_default(),
        }))
    }

    async fn diff_checkpoint(
        &self,
        request: Request<v1::DiffCheckpointRequest>,
    ) -> Result<Response<v1::DiffCheckpointResponse>, Status> {
        let request = request.into_inner();
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let checkpoint_id = optional_id(&request.checkpoint_id)?;
        let found = self.deps.threads.checkpoint_diff(thread_id, checkpoint_id, request.paths).await;
        let found = found.map_err(of_thread)?;
        Ok(Response::new(v1::DiffCheckpointResponse {
            files: found.files.iter().map(file_diff).collect(),
            left_out: u32::try_from(found.left_out).unwrap_or(u32::MAX),
            checkpoint_id: found.checkpoint_id.to_string(),
        }))
    }

    async fn restore_checkpoint(
        &self,
        request: Request<v1::RestoreCheckpointRequest>,
    ) -> Result<Response<v1::RestoreCheckpointResponse>, Status> {
        self.for_people(&request, "bringing files back").await?;
        let request = request.into_inner();
        let thread_id = request::known_id("thread", &request.thread_id)?;
        let pick = |pick: v1::RestorePick| RestorePick {
            path: pick.path,
            hunks: pick.hunks.into_iter().map(|hunk| hunk as usize).collect(),
        };
        let restore = Restore {
            checkpoint_id: optional_id(&request.checkpoint_id)?,
            picks: request.picks.into_iter().map(pick).collect(),
            force: request.force,
            dry_run: request.dry_run,
        };
        let done = self.deps.threads.restore(thread_id, restore).await.map_err(of_thread)?;
        let file = |(path, action): (String, &str)| v1::RestoredFile { path, action: action.to_owned() };
        let conflict = |(path, why, forceable)| v1::RestoreConflict { path, why, forceable };
        Ok(Response::new(v1::RestoreCheckpointResponse {
            files: done.files.into_iter().map(file).collect(),
            conflicts: done.conflicts.into_iter().map(conflict).collect(),
            already: u32::try_from(done.already).unwrap_or(u32::MAX),
            checkpoint_id: done.checkpoint_id.to_string(),
        }))
    }
}

fn optional_id(text: &str) -> Result<Option<CheckpointId>, Status> {
    if text.is_empty() { Ok(None) } else { request::id("checkpoint_id", text).map(Some) }
}

fn file_diff(diff: &FileDiff) -> v1::FileDiff {
    let (note, hunks) = match &diff.body {
        DiffBody::Hunks(hunks) => ("", hunks.len()),
        DiffBody::Binary => ("binary", 0),
        DiffBody::TooLarge => ("too large to be compared", 0),
        DiffBody::NoContent => ("nothing to compare line by line", 0),
    };
    v1::FileDiff {
        path: diff.path.text().into_owned(),
        unified: diff.unified(),
        note: note.to_owned(),
        hunks: u32::try_from(hunks).unwrap_or(u32::MAX),
    }
}
