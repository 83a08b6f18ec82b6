//! `StorageService`.

use std::path::PathBuf;

use mcode_proto::v1;
use mcode_threads::{ArchiveError, Fault, SpaceRow, ThreadError};
use tonic::{Request, Response, Status};

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
        let mut projects: Vec<v1::StorageUse> =
            space.projects.into_iter().map(|(project_id, row)| used(project_id.to_string(), row)).collect();
        projects.sort_by_key(|row| std::cmp::Reverse(row.log_bytes.saturating_add(row.body_bytes)));
        projects.truncate(PROJECTS_TOLD_MAX);
        Ok(Response::new(v1::CheckStorageResponse {
            threads: check.threads,
            events: check.events,
            bodies: check.bodies,
            faults: check.faults.into_iter().map(fault).collect(),
            more_faults: check.more,
            orphans: check.orphans,
            orphan_bytes: check.orphan_bytes,
            set_aside: check.set_aside,
            r#use: projects,
            database_bytes: space.database_bytes,
            free_bytes: space.free_bytes,
            index_bytes: space.index_bytes,
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

fn used(project_id: String, row: SpaceRow) -> v1::StorageUse {
    let SpaceRow { root, threads, log_bytes, body_bytes } = row;
    v1::StorageUse { project_id, root, threads, log_bytes, body_bytes }
}
