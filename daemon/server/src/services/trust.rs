//! `TrustService`.

use mcode_proto::v1;
use mcode_threads::ProjectTrust;
use tonic::{Request, Response, Status};

use crate::convert::value::time;
use crate::request;
use crate::services::Services;
use crate::status::of_thread;

#[tonic::async_trait]
impl v1::trust_service_server::TrustService for Services {
    async fn get_trust(&self, request: Request<v1::GetTrustRequest>) -> Result<Response<v1::GetTrustResponse>, Status> {
        let cwd = request::absolute("cwd", &request.into_inner().cwd)?;
        let trust = self.deps.threads.trust(cwd).await.map_err(of_thread)?;
        Ok(Response::new(v1::GetTrustResponse { trust: Some(told(trust)) }))
    }

    async fn allow_trust(
        &self,
        request: Request<v1::AllowTrustRequest>,
    ) -> Result<Response<v1::AllowTrustResponse>, Status> {
        self.for_people(&request, "trusting a project").await?;
        let request = request.into_inner();
        let cwd = request::absolute("cwd", &request.cwd)?;
        let by = request::by(request.by);
        let trust = self.deps.threads.allow_trust(cwd, &request.fingerprint, by).await.map_err(of_thread)?;
        Ok(Response::new(v1::AllowTrustResponse { trust: Some(told(trust)) }))
    }

    async fn revoke_trust(
        &self,
        request: Request<v1::RevokeTrustRequest>,
    ) -> Result<Response<v1::RevokeTrustResponse>, Status> {
        self.for_people(&request, "changing the trust in a project").await?;
        let request = request.into_inner();
        let cwd = request::absolute("cwd", &request.cwd)?;
        let (root, was_trusted) =
            self.deps.threads.revoke_trust(cwd, request::by(request.by)).await.map_err(of_thread)?;
        let project_root = root.to_string_lossy().into_owned();
        Ok(Response::new(v1::RevokeTrustResponse { project_root, was_trusted }))
    }
}

fn told(trust: ProjectTrust) -> v1::Trust {
    let items = trust.items.into_iter().map(|(item, change)| v1::TrustItem {
        kind: item.kind,
        path: item.path,
        name: item.name,
        what: item.what,
        hash: item.hash,
        change: change.to_owned(),
    });
    v1::Trust {
        project_root: trust.root.to_string_lossy().into_owned(),
        state: trust.state.as_str().to_owned(),
        items: items.collect(),
        fingerprint: trust.fingerprint,
        problems: trust.problems,
        trusted_at: trust.given.as_ref().map(|(at_ms, _)| time(*at_ms)),
        trusted_by: trust.given.map(|(_, by)| by).unwrap_or_default(),
    }
}
