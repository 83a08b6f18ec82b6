//! `ModelService`.

use std::collections::BTreeMap;

use mcode_models::ListedModel;
use mcode_proto::v1;
use tonic::{Request, Response, Status};

use crate::paging;
use crate::services::Services;
use crate::status::bad_field;

#[tonic::async_trait]
impl v1::model_service_server::ModelService for Services {
    async fn list_models(
        &self,
        request: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        let request = request.into_inner();
        let env: BTreeMap<String, String> = request.env;
        let models = &self.deps.threads.deps().models;
        let default = models.default_model("build", &env);
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
        Ok(Response::new(v1::ListModelsResponse { models, next_page_token }))
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
