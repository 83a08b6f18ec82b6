//! `ProjectService`.

use mcode_proto::v1;
use tonic::{Request, Response, Status};

use crate::convert::row;
use crate::paging;
use crate::services::Services;
use crate::status::of_thread;

#[tonic::async_trait]
impl v1::project_service_server::ProjectService for Services {
    async fn resolve_project(
        &self,
        request: Request<v1::ResolveProjectRequest>,
    ) -> Result<Response<v1::ResolveProjectResponse>, Status> {
        let place = self.deps.threads.project_of(request.into_inner().cwd).await.map_err(of_thread)?;
        Ok(Response::new(v1::ResolveProjectResponse { project: Some(row::project(&place.project)), root: place.root }))
    }

    async fn set_resource(
        &self,
        request: Request<v1::SetResourceRequest>,
    ) -> Result<Response<v1::SetResourceResponse>, Status> {
        self.for_people(&request, "moving threads to another project").await?;
        let v1::SetResourceRequest { cwd, resource } = request.into_inner();
        let place = self.deps.threads.set_resource(cwd, &resource).await.map_err(of_thread)?;
        Ok(Response::new(v1::SetResourceResponse { project: Some(row::project(&place.project)) }))
    }

    async fn list_projects(
        &self,
        request: Request<v1::ListProjectsRequest>,
    ) -> Result<Response<v1::ListProjectsResponse>, Status> {
        let request = request.into_inner();
        let (size, token) = (paging::size(request.page_size), paging::token(request.page_token));
        let page = self.deps.threads.projects(size, token).await.map_err(of_thread)?;
        Ok(Response::new(v1::ListProjectsResponse {
            projects: page.rows.iter().map(row::project).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }
}
