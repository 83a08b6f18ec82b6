//! `StorageService`.

use std::path::PathBuf;

use mcode_proto::v1;
use mcode_threads::{ArchiveError, Fault, Leaving, Part, ProjectUse, ThreadError};
use tonic::{Request, Response, Status};

use crate::convert::value::time;
use crate::services::Services;
use crate::status::{bad_field, of_thread};

/// Projects whose use of space is told, the largest first.
const PROJECTS_TOLD_MAX: usize = 200;

#[tonic::async_trait]
impl v1::storage_service_server::StorageService for Services {
    async fn check_storage(
        &self,
        _: Request<v1::CheckStorageRequest>,
    ) -> Result<Response<v1::CheckStorageResponse>, Status> {
        let check = self.deps.threads.check().await.map_err(of_thread)?;
        let space = self.deps.threads.space().await.map_err(of_thread)?;
        let projects = space.projects.into_iter().take(PROJECTS_TOLD_MAX);
        let (database_bytes, free_bytes, index_bytes) = space.database;
        Ok(Response::new(v1::CheckStorageResponse {
            threads: check.threads,
            events: check.events,
            bodies: check.bodies,
            faults: check.faults.into_iter().map(fault).collect(),
            more_faults: check.more,
            orphans: check.orphans,
            orphan_bytes: check.orphan_bytes,
            set_aside: check.set_aside,
            r#use: projects.map(|(project_id, used)| self::used(project_id.to_string(), used)).collect(),
            database_bytes,
            free_bytes,
            index_bytes,
            places: space.parts.into_iter().map(place).collect(),
        }))
    }

    async fn mend_storage(
        &self,
        request: Request<v1::MendStorageRequest>,
    ) -> Result<Response<v1::MendStorageResponse>, Status> {
        self.for_people(&request, "mending what is damaged").await?;
        let mended = self.deps.threads.mend(request.into_inner().bodies_are_lost).await.map_err(of_thread)?;
        Ok(Response::new(v1::MendStorageResponse {
            set_aside: mended.events,
            lost_bodies: mended.lost.values().sum(),
            thread_ids: mended.threads.iter().map(ToString::to_string).collect(),
            orphans: mended.orphans,
            orphan_bytes: mended.orphan_bytes,
            index_rebuilt: mended.index,
        }))
    }

    async fn show_retention(
        &self,
        _: Request<v1::ShowRetentionRequest>,
    ) -> Result<Response<v1::ShowRetentionResponse>, Status> {
        let found = self.deps.threads.retention().await.map_err(of_thread)?;
        Ok(Response::new(v1::ShowRetentionResponse {
            policy: found.policy,
            noted_at: found.noted_ms.map(time),
            acts_at: found.acts_ms.map(time),
            bytes: found.due.leaving.iter().map(|leaving| leaving.bytes).sum(),
            more: found.due.more,
            threads: found.due.leaving.into_iter().map(leaving).collect(),
        }))
    }

    async fn back_up(&self, request: Request<v1::BackUpRequest>) -> Result<Response<v1::BackUpResponse>, Status> {
        self.for_people(&request, "copying everything that is kept").await?;
        let path = PathBuf::from(request.into_inner().path);
        if !path.is_absolute() || path.file_name().is_none() {
            return Err(bad_field("path", "it has to be an absolute path of a file"));
        }
        let copy = self.deps.threads.back_up(path).await.map_err(|error| match &error {
            ArchiveError::Path { .. } if !error.is_disk_full() => bad_field("path", error.to_string()),
            _ => of_thread(ThreadError::from(error)),
        })?;
        Ok(Response::new(v1::BackUpResponse {
            bytes: copy.bytes,
            threads: copy.threads,
            bodies: copy.bodies,
            missing_bodies: copy.missing,
        }))
    }
}

fn fault(fault: Fault) -> v1::StorageFault {
    v1::StorageFault {
        kind: fault.kind.as_str().to_owned(),
        thread_id: fault.thread_id.map(|id| id.to_string()).unwrap_or_default(),
        seq: fault.seq.map_or(0, mcode_ids::Seq::get),
        what: fault.what,
    }
}

fn used(project_id: String, used: ProjectUse) -> v1::StorageUse {
    let ProjectUse { row, checkpoint_bytes, temporary_bytes } = used;
    v1::StorageUse {
        project_id,
        root: row.root,
        threads: row.threads,
        log_bytes: row.log_bytes,
        body_bytes: row.body_bytes,
        checkpoint_bytes,
        temporary_bytes,
    }
}

fn place(part: Part) -> v1::StoragePlace {
    let path = part.path.display().to_string();
    v1::StoragePlace { what: part.what.to_owned(), path, bytes: part.bytes, more: part.more }
}

fn leaving(leaving: Leaving) -> v1::LeavingThread {
    v1::LeavingThread {
        thread_id: leaving.thread_id.to_string(),
        project_id: leaving.project_id.to_string(),
        root: leaving.root,
        title: leaving.title,
        used_at: Some(time(leaving.updated_at_ms)),
        bytes: leaving.bytes,
        setting: leaving.why.key().to_owned(),
    }
}
