//! `PlanService`.

use mcode_ids::{ProjectId, ThreadId};
use mcode_proto::v1;
use mcode_threads::PlanFilter;
use tonic::{Request, Response, Status};

use crate::convert::row;
use crate::services::Services;
use crate::status::of_thread;
use crate::{paging, request};

impl Services {
    /// Of which project and thread plans are asked for; both have to be there.
    async fn plans_meant(
        &self,
        project_id: &str,
        cwd: String,
        thread_id: &str,
    ) -> Result<(Option<ProjectId>, Option<ThreadId>), Status> {
        let thread_id = match thread_id {
            "" => None,
            id => Some(self.deps.threads.known(request::known_id("thread", id)?).await.map_err(of_thread)?.thread_id),
        };
        Ok((self.project_meant(project_id, cwd).await?, thread_id))
    }
}

#[tonic::async_trait]
impl v1::plan_service_server::PlanService for Services {
    async fn list_plans(
        &self,
        request: Request<v1::ListPlansRequest>,
    ) -> Result<Response<v1::ListPlansResponse>, Status> {
        let request = request.into_inner();
        let (project_id, thread_id) = self.plans_meant(&request.project_id, request.cwd, &request.thread_id).await?;
        let filter = PlanFilter {
            project_id,
            thread_id,
            page_size: paging::size(request.page_size),
            page_token: paging::token(request.page_token),
        };
        let page = self.deps.threads.plans(filter).await.map_err(of_thread)?;
        for row in &page.rows {
            self.deps.threads.saved(row).await;
        }
        Ok(Response::new(v1::ListPlansResponse {
            plans: page.rows.iter().map(row::plan).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn get_plan(&self, request: Request<v1::GetPlanRequest>) -> Result<Response<v1::GetPlanResponse>, Status> {
        let request = request.into_inner();
        let plan_id = match request.plan_id.as_str() {
            "" => {
                let meant = self.plans_meant(&request.project_id, request.cwd, &request.thread_id).await?;
                self.deps.threads.latest_plan(meant.0, meant.1).await.map_err(of_thread)?.plan.tool_call_id
            }
            id => request::known_id("plan", id)?,
        };
        let shown = self.deps.threads.plan(plan_id).await.map_err(of_thread)?;
        Ok(Response::new(v1::GetPlanResponse {
            plan: Some(row::plan(&shown.row)),
            text: shown.text,
            before_plan_id: shown.before.map(|id| id.to_string()).unwrap_or_default(),
            diff: shown.diff,
            file: shown.file.map(|file| file.to_string_lossy().into_owned()).unwrap_or_default(),
        }))
    }
}
