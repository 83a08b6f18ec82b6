//! One method per unary call of `mcode.v1`, with its deadline.

use mcode_proto::v1;
use mcode_proto::v1::approval_service_client::ApprovalServiceClient;
use mcode_proto::v1::checkpoint_service_client::CheckpointServiceClient;
use mcode_proto::v1::daemon_service_client::DaemonServiceClient;
use mcode_proto::v1::event_service_client::EventServiceClient;
use mcode_proto::v1::model_service_client::ModelServiceClient;
use mcode_proto::v1::permission_service_client::PermissionServiceClient;
use mcode_proto::v1::plan_service_client::PlanServiceClient;
use mcode_proto::v1::project_service_client::ProjectServiceClient;
use mcode_proto::v1::run_service_client::RunServiceClient;
use mcode_proto::v1::storage_service_client::StorageServiceClient;
use mcode_proto::v1::thread_service_client::ThreadServiceClient;
use mcode_proto::v1::trust_service_client::TrustServiceClient;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::connect::{CALL_DEADLINE, Client, LONG_CALL_DEADLINE, STORAGE_DEADLINE};
use crate::error::ClientError;

macro_rules! calls {
    ($($service:ident $method:ident($request:ident) -> $response:ident within $deadline:ident;)*) => {
        impl Client {
            $(
                #[doc = concat!("Calls `", stringify!($method), "` of `mcode.v1`.\n\n# Errors\nWhat the daemon answered, or that it did not.")]
                pub async fn $method(&self, request: v1::$request) -> Result<v1::$response, ClientError> {
                    self.unary(stringify!($method), $deadline, request, |channel, request| async move {
                        $service::new(channel)
                            .max_decoding_message_size(mcode_proto::MAX_MESSAGE_BYTES)
                            .max_encoding_message_size(mcode_proto::MAX_MESSAGE_BYTES)
                            .$method(request)
                            .await
                    })
                    .await
                }
            )*
        }
    };
}

calls! {
    DaemonServiceClient get_info(GetInfoRequest) -> GetInfoResponse within CALL_DEADLINE;
    DaemonServiceClient shutdown(ShutdownRequest) -> ShutdownResponse within LONG_CALL_DEADLINE;
    DaemonServiceClient reload_config(ReloadConfigRequest) -> ReloadConfigResponse within CALL_DEADLINE;
    ProjectServiceClient resolve_project(ResolveProjectRequest) -> ResolveProjectResponse within CALL_DEADLINE;
    ProjectServiceClient list_projects(ListProjectsRequest) -> ListProjectsResponse within CALL_DEADLINE;
    ProjectServiceClient set_resource(SetResourceRequest) -> SetResourceResponse within CALL_DEADLINE;
    ThreadServiceClient create_thread(CreateThreadRequest) -> CreateThreadResponse within CALL_DEADLINE;
    ThreadServiceClient get_thread(GetThreadRequest) -> GetThreadResponse within CALL_DEADLINE;
    ThreadServiceClient list_threads(ListThreadsRequest) -> ListThreadsResponse within CALL_DEADLINE;
    ThreadServiceClient list_thread_tree(ListThreadTreeRequest) -> ListThreadTreeResponse within CALL_DEADLINE;
    ThreadServiceClient get_latest_thread(GetLatestThreadRequest) -> GetLatestThreadResponse within CALL_DEADLINE;
    ThreadServiceClient search_threads(SearchThreadsRequest) -> SearchThreadsResponse within CALL_DEADLINE;
    ThreadServiceClient update_thread(UpdateThreadRequest) -> UpdateThreadResponse within CALL_DEADLINE;
    ThreadServiceClient fork_thread(ForkThreadRequest) -> ForkThreadResponse within CALL_DEADLINE;
    ThreadServiceClient rewind_thread(RewindThreadRequest) -> RewindThreadResponse within CALL_DEADLINE;
    ThreadServiceClient close_thread(CloseThreadRequest) -> CloseThreadResponse within LONG_CALL_DEADLINE;
    ThreadServiceClient delete_thread(DeleteThreadRequest) -> DeleteThreadResponse within LONG_CALL_DEADLINE;
    ThreadServiceClient list_histories(ListHistoriesRequest) -> ListHistoriesResponse within LONG_CALL_DEADLINE;
    CheckpointServiceClient list_checkpoints(ListCheckpointsRequest) -> ListCheckpointsResponse within CALL_DEADLINE;
    CheckpointServiceClient diff_checkpoint(DiffCheckpointRequest) -> DiffCheckpointResponse within LONG_CALL_DEADLINE;
    CheckpointServiceClient restore_checkpoint(RestoreCheckpointRequest) -> RestoreCheckpointResponse within LONG_CALL_DEADLINE;
    PlanServiceClient list_plans(ListPlansRequest) -> ListPlansResponse within CALL_DEADLINE;
    PlanServiceClient get_plan(GetPlanRequest) -> GetPlanResponse within CALL_DEADLINE;
    RunServiceClient start_run(StartRunRequest) -> StartRunResponse within CALL_DEADLINE;
    RunServiceClient steer_run(SteerRunRequest) -> SteerRunResponse within CALL_DEADLINE;
    RunServiceClient queue_input(QueueInputRequest) -> QueueInputResponse within CALL_DEADLINE;
    RunServiceClient cancel_run(CancelRunRequest) -> CancelRunResponse within LONG_CALL_DEADLINE;
    RunServiceClient get_run(GetRunRequest) -> GetRunResponse within CALL_DEADLINE;
    RunServiceClient list_runs(ListRunsRequest) -> ListRunsResponse within CALL_DEADLINE;
    EventServiceClient list_events(ListEventsRequest) -> ListEventsResponse within CALL_DEADLINE;
    ApprovalServiceClient list_pending_approvals(ListPendingApprovalsRequest) -> ListPendingApprovalsResponse within CALL_DEADLINE;
    ApprovalServiceClient resolve_approval(ResolveApprovalRequest) -> ResolveApprovalResponse within CALL_DEADLINE;
    ApprovalServiceClient answer_question(AnswerQuestionRequest) -> AnswerQuestionResponse within CALL_DEADLINE;
    PermissionServiceClient list_rules(ListRulesRequest) -> ListRulesResponse within CALL_DEADLINE;
    PermissionServiceClient create_rule(CreateRuleRequest) -> CreateRuleResponse within CALL_DEADLINE;
    PermissionServiceClient delete_rule(DeleteRuleRequest) -> DeleteRuleResponse within CALL_DEADLINE;
    PermissionServiceClient explain_decision(ExplainDecisionRequest) -> ExplainDecisionResponse within CALL_DEADLINE;
    PermissionServiceClient list_decisions(ListDecisionsRequest) -> ListDecisionsResponse within CALL_DEADLINE;
    PermissionServiceClient check_decisions(CheckDecisionsRequest) -> CheckDecisionsResponse within LONG_CALL_DEADLINE;
    StorageServiceClient check_storage(CheckStorageRequest) -> CheckStorageResponse within STORAGE_DEADLINE;
    StorageServiceClient mend_storage(MendStorageRequest) -> MendStorageResponse within STORAGE_DEADLINE;
    StorageServiceClient show_retention(ShowRetentionRequest) -> ShowRetentionResponse within STORAGE_DEADLINE;
    StorageServiceClient back_up(BackUpRequest) -> BackUpResponse within STORAGE_DEADLINE;
    TrustServiceClient get_trust(GetTrustRequest) -> GetTrustResponse within CALL_DEADLINE;
    TrustServiceClient allow_trust(AllowTrustRequest) -> AllowTrustResponse within CALL_DEADLINE;
    TrustServiceClient revoke_trust(RevokeTrustRequest) -> RevokeTrustResponse within CALL_DEADLINE;
    ModelServiceClient list_models(ListModelsRequest) -> ListModelsResponse within CALL_DEADLINE;
    ModelServiceClient use_model(UseModelRequest) -> UseModelResponse within CALL_DEADLINE;
    ModelServiceClient refresh_catalogue(RefreshCatalogueRequest) -> RefreshCatalogueResponse within LONG_CALL_DEADLINE;
    ModelServiceClient list_providers(ListProvidersRequest) -> ListProvidersResponse within CALL_DEADLINE;
    ModelServiceClient scan_providers(ScanProvidersRequest) -> ScanProvidersResponse within LONG_CALL_DEADLINE;
    ModelServiceClient add_provider(AddProviderRequest) -> AddProviderResponse within CALL_DEADLINE;
    ModelServiceClient remove_provider(RemoveProviderRequest) -> RemoveProviderResponse within CALL_DEADLINE;
    ModelServiceClient list_packs(ListPacksRequest) -> ListPacksResponse within CALL_DEADLINE;
    ModelServiceClient create_pack(CreatePackRequest) -> CreatePackResponse within CALL_DEADLINE;
    ModelServiceClient update_pack(UpdatePackRequest) -> UpdatePackResponse within CALL_DEADLINE;
    ModelServiceClient delete_pack(DeletePackRequest) -> DeletePackResponse within CALL_DEADLINE;
    ModelServiceClient use_pack(UsePackRequest) -> UsePackResponse within CALL_DEADLINE;
    ModelServiceClient get_usage(GetUsageRequest) -> GetUsageResponse within CALL_DEADLINE;
    ModelServiceClient start_login(StartLoginRequest) -> StartLoginResponse within LONG_CALL_DEADLINE;
    ModelServiceClient complete_login(CompleteLoginRequest) -> CompleteLoginResponse within LONG_CALL_DEADLINE;
    ModelServiceClient cancel_login(CancelLoginRequest) -> CancelLoginResponse within CALL_DEADLINE;
    ModelServiceClient logout(LogoutRequest) -> LogoutResponse within LONG_CALL_DEADLINE;
    ModelServiceClient list_logins(ListLoginsRequest) -> ListLoginsResponse within CALL_DEADLINE;
}

impl Client {
    /// Opens the stream of a thread's events. No deadline: it lasts as long as somebody listens.
    ///
    /// # Errors
    /// What the daemon answered, or that it did not.
    pub async fn subscribe(
        &self,
        request: v1::SubscribeRequest,
    ) -> Result<tonic::Streaming<v1::SubscribeResponse>, ClientError> {
        let call = async {
            EventServiceClient::new(self.channel())
                .max_decoding_message_size(mcode_proto::MAX_MESSAGE_BYTES)
                .subscribe(request)
                .await
        };
        // The stream is open once the headers are there; only that is bounded.
        match tokio::time::timeout(CALL_DEADLINE, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(status.into()),
            Err(_) => Err(ClientError::deadline("subscribe", CALL_DEADLINE.as_secs())),
        }
    }

    /// Opens the stream of a thread as a file. No deadline: it lasts as long as somebody takes the pieces.
    ///
    /// # Errors
    /// What the daemon answered, or that it did not.
    pub async fn export_thread(
        &self,
        request: v1::ExportThreadRequest,
    ) -> Result<tonic::Streaming<v1::ExportThreadResponse>, ClientError> {
        let call = async {
            ThreadServiceClient::new(self.channel())
                .max_decoding_message_size(mcode_proto::MAX_MESSAGE_BYTES)
                .export_thread(request)
                .await
        };
        match tokio::time::timeout(CALL_DEADLINE, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(status.into()),
            Err(_) => Err(ClientError::deadline("export_thread", CALL_DEADLINE.as_secs())),
        }
    }

    /// Sends a file in pieces, and gives the thread that was made of it. No deadline: it lasts as long as pieces come.
    ///
    /// # Errors
    /// What the daemon answered, or that it did not. Then nothing of the file was kept, unless the connection broke: a
    /// second try tells.
    pub async fn import_thread(
        &self,
        pieces: mpsc::Receiver<v1::ImportThreadRequest>,
    ) -> Result<v1::ImportThreadResponse, ClientError> {
        let response = ThreadServiceClient::new(self.channel()).import_thread(ReceiverStream::new(pieces)).await;
        Ok(response?.into_inner())
    }

    /// Has conversations of another agent imported; tells of each. No deadline: it lasts as long as there are some.
    ///
    /// # Errors
    /// What the daemon answered, or that it did not.
    pub async fn import_history(
        &self,
        request: v1::ImportHistoryRequest,
    ) -> Result<tonic::Streaming<v1::ImportHistoryResponse>, ClientError> {
        let call = async { ThreadServiceClient::new(self.channel()).import_history(request).await };
        match tokio::time::timeout(LONG_CALL_DEADLINE, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(status.into()),
            Err(_) => Err(ClientError::deadline("import_history", LONG_CALL_DEADLINE.as_secs())),
        }
    }
}
