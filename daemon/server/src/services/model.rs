//! `ModelService`.

mod packs;
mod providers;

use std::collections::BTreeMap;

use mcode_models::{CatalogueState, ListedModel, ModelError, ModelErrorKind, ModelRef, Role, Wishes};
use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use tonic::{Code, Request, Response, Status};

use crate::convert::value::time;
use crate::services::{Services, login};
use crate::status::{bad_field, of_model, refuse};
use crate::{ConfigChange, paging, request};

/// Longest address of a catalogue, in bytes.
const FROM_BYTES_MAX: usize = 4096;

#[tonic::async_trait]
impl v1::model_service_server::ModelService for Services {
    async fn list_models(
        &self,
        request: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        let request = request.into_inner();
        let env = request.env;
        let models = &self.deps.threads.deps().models;
        let default = models.for_role(Role::Build, &Wishes::default(), &env).ok().flatten();
        let default = default.map(|assigned| assigned.model);
        let mut listed = models.list(&env);
        listed.retain(|model| request.provider.is_empty() || model.provider == request.provider);
        // What can be used comes first; the order is else as before.
        listed.sort_by_key(|model| !model.usable);
        let start: usize = match paging::token(request.page_token) {
            None => 0,
            Some(token) => {
                token.parse().map_err(|_| bad_field("page_token", format!("'{token}' is not a token of this list")))?
            }
        };
        let size = paging::size(request.page_size) as usize;
        let end = start.saturating_add(size);
        let next_page_token = if listed.len() > end { end.to_string() } else { String::new() };
        let models = listed.iter().skip(start).take(size).map(|model| model_row(model, default.as_deref())).collect();
        let catalogue = Some(catalogue(self.deps.models.catalogue()));
        Ok(Response::new(v1::ListModelsResponse { models, next_page_token, catalogue }))
    }

    async fn use_model(&self, request: Request<v1::UseModelRequest>) -> Result<Response<v1::UseModelResponse>, Status> {
        self.for_people(&request, "choosing the model").await?;
        let request = request.into_inner();
        let model = model_name("model", &request.model)?;
        // Its key may be missing yet, and its id be new; but nobody can ask a provider that is not there.
        let resolved = self.deps.threads.deps().models.resolve(&model, &BTreeMap::new());
        if let Some(error) = resolved.err().filter(|error| error.kind == ModelErrorKind::UnknownModel) {
            return Err(of_model(&error));
        }
        let key = match request::mode(&request.mode)? {
            None => "model".to_owned(),
            Some(mode) => format!("modes.{}.model", mode.as_str()),
        };
        let file = self.change(vec![ConfigChange::Set { key: key.clone(), value: model }]).await?;
        Ok(Response::new(v1::UseModelResponse { file, key }))
    }

    async fn refresh_catalogue(
        &self,
        request: Request<v1::RefreshCatalogueRequest>,
    ) -> Result<Response<v1::RefreshCatalogueResponse>, Status> {
        self.for_people(&request, "fetching a catalogue").await?;
        let request = request.into_inner();
        if request.from.len() > FROM_BYTES_MAX {
            return Err(bad_field("from", format!("has more than {FROM_BYTES_MAX} bytes")));
        }
        let refreshed = self.deps.models.refresh_catalogue(&request.from, &request.env).await.map_err(not_fetched)?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Response::new(v1::RefreshCatalogueResponse {
            catalogue: Some(catalogue(refreshed.state)),
            added: count(refreshed.added),
            changed: count(refreshed.changed),
            left_out: count(refreshed.left_out),
        }))
    }

    async fn list_providers(
        &self,
        request: Request<v1::ListProvidersRequest>,
    ) -> Result<Response<v1::ListProvidersResponse>, Status> {
        Ok(Response::new(self.listed_providers(&request.into_inner())))
    }

    async fn scan_providers(
        &self,
        request: Request<v1::ScanProvidersRequest>,
    ) -> Result<Response<v1::ScanProvidersResponse>, Status> {
        self.for_people(&request, "looking for model servers").await?;
        self.scanned(request.into_inner()).await.map(Response::new)
    }

    async fn add_provider(
        &self,
        request: Request<v1::AddProviderRequest>,
    ) -> Result<Response<v1::AddProviderResponse>, Status> {
        self.for_people(&request, "adding a provider").await?;
        self.added(request.into_inner()).await.map(Response::new)
    }

    async fn remove_provider(
        &self,
        request: Request<v1::RemoveProviderRequest>,
    ) -> Result<Response<v1::RemoveProviderResponse>, Status> {
        self.for_people(&request, "removing a provider").await?;
        self.removed(request.into_inner()).await.map(Response::new)
    }

    async fn list_packs(
        &self,
        request: Request<v1::ListPacksRequest>,
    ) -> Result<Response<v1::ListPacksResponse>, Status> {
        Ok(Response::new(self.listed_packs(&request.into_inner())))
    }

    async fn create_pack(
        &self,
        request: Request<v1::CreatePackRequest>,
    ) -> Result<Response<v1::CreatePackResponse>, Status> {
        self.for_people(&request, "making a pack").await?;
        let file = self.written_pack(request.into_inner().pack.unwrap_or_default(), true).await?;
        Ok(Response::new(v1::CreatePackResponse { file }))
    }

    async fn update_pack(
        &self,
        request: Request<v1::UpdatePackRequest>,
    ) -> Result<Response<v1::UpdatePackResponse>, Status> {
        self.for_people(&request, "changing a pack").await?;
        let file = self.written_pack(request.into_inner().pack.unwrap_or_default(), false).await?;
        Ok(Response::new(v1::UpdatePackResponse { file }))
    }

    async fn delete_pack(
        &self,
        request: Request<v1::DeletePackRequest>,
    ) -> Result<Response<v1::DeletePackResponse>, Status> {
        self.for_people(&request, "deleting a pack").await?;
        let file = self.deleted_pack(&request.into_inner().name).await?;
        Ok(Response::new(v1::DeletePackResponse { file }))
    }

    async fn use_pack(&self, request: Request<v1::UsePackRequest>) -> Result<Response<v1::UsePackResponse>, Status> {
        self.for_people(&request, "choosing a pack").await?;
        self.used_pack(request.into_inner()).await.map(Response::new)
    }

    async fn get_usage(&self, request: Request<v1::GetUsageRequest>) -> Result<Response<v1::GetUsageResponse>, Status> {
        self.usage(request.into_inner()).await.map(Response::new)
    }

    async fn start_login(
        &self,
        request: Request<v1::StartLoginRequest>,
    ) -> Result<Response<v1::StartLoginResponse>, Status> {
        self.for_people(&request, "logging in").await?;
        login::start(self.deps.logins.as_ref(), request.into_inner()).await.map(Response::new)
    }

    async fn complete_login(
        &self,
        request: Request<v1::CompleteLoginRequest>,
    ) -> Result<Response<v1::CompleteLoginResponse>, Status> {
        self.for_people(&request, "logging in").await?;
        login::complete(self.deps.logins.as_ref(), request.into_inner()).await.map(Response::new)
    }

    async fn cancel_login(
        &self,
        request: Request<v1::CancelLoginRequest>,
    ) -> Result<Response<v1::CancelLoginResponse>, Status> {
        self.for_people(&request, "cancelling a login").await?;
        let cancelled = self.deps.logins.cancel(&request.into_inner().login_id);
        Ok(Response::new(v1::CancelLoginResponse { cancelled }))
    }

    async fn logout(&self, request: Request<v1::LogoutRequest>) -> Result<Response<v1::LogoutResponse>, Status> {
        self.for_people(&request, "logging out").await?;
        let provider = request.into_inner().provider;
        let done = self.deps.logins.logout(&provider).await.map_err(login::refused)?;
        Ok(Response::new(v1::LogoutResponse { removed: done.removed, note: done.note }))
    }

    async fn list_logins(
        &self,
        request: Request<v1::ListLoginsRequest>,
    ) -> Result<Response<v1::ListLoginsResponse>, Status> {
        self.for_people(&request, "listing logins").await?;
        Ok(Response::new(login::list(self.deps.logins.list())))
    }
}

impl Services {
    /// Makes changes of the user's configuration; gives the path of the file.
    async fn change(&self, changes: Vec<ConfigChange>) -> Result<String, Status> {
        let change = std::sync::Arc::clone(&self.deps.change_config);
        let done = tokio::task::spawn_blocking(move || change(changes));
        let done = done.await.map_err(|error| Status::internal(error.to_string()))?;
        done.map_err(|why| refuse(Code::FailedPrecondition, Reason::ConfigBroken, why, None))
    }
}

/// A name that can stand in a key of the configuration and in a command line.
fn plain_name(field: &'static str, name: &str) -> Result<String, Status> {
    const BYTES_MAX: usize = 64;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if (1..=BYTES_MAX).contains(&name.len()) && name.chars().all(fits) {
        return Ok(name.to_owned());
    }
    Err(bad_field(field, format!("has to be 1 to {BYTES_MAX} small letters, digits, - or _")))
}

/// The full name of a model.
fn model_name(field: &'static str, name: &str) -> Result<String, Status> {
    const BYTES_MAX: usize = 300;
    let name = name.trim();
    let fits = name.len() <= BYTES_MAX && name.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if fits && name.parse::<ModelRef>().is_ok() {
        return Ok(name.to_owned());
    }
    Err(bad_field(field, "has to be provider/model, such as anthropic/claude-sonnet-5"))
}

fn not_fetched(error: ModelError) -> Status {
    let code = match error.kind {
        ModelErrorKind::Transport => Code::Unavailable,
        _ => Code::FailedPrecondition,
    };
    refuse(code, Reason::CatalogueRefused, error.message.clone(), Some(&error.hint))
}

fn catalogue(state: CatalogueState) -> v1::Catalogue {
    v1::Catalogue {
        source: state.source,
        fetched_at: state.fetched_at_ms.map(time),
        models: u32::try_from(state.models).unwrap_or(u32::MAX),
        problem: state.problem,
    }
}

fn model_row(model: &ListedModel, default: Option<&str>) -> v1::Model {
    let pricing = model.info.pricing.unwrap_or_default();
    v1::Model {
        model: model.info.id.clone(),
        name: model.info.name.clone(),
        provider: model.provider.clone(),
        wire: model.wire.clone(),
        context_tokens: model.info.context_tokens,
        max_output_tokens: model.info.max_output_tokens,
        images: model.info.images,
        input_usd_per_mtok: pricing.input,
        output_usd_per_mtok: pricing.output,
        usable: model.usable,
        key_source: model.key_source.clone(),
        base_url: model.base_url.clone(),
        is_default: default == Some(model.info.id.as_str()),
    }
}
