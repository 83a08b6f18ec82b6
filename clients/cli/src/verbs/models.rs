//! `mcode models`.

use clap::Subcommand;
use mcode_client::v1;

use crate::context::Context;
use crate::verbs::{Outcome, Page, listing, show_message};

/// What to do with models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelsVerb {
    /// List the models that can be used, and what the others need
    List {
        /// Only of this provider
        #[arg(long, value_name = "NAME", default_value = "")]
        provider: String,
        /// Only those that can be used now
        #[arg(long)]
        usable: bool,
        #[command(flatten)]
        page: Page,
    },
}

pub(crate) async fn run(context: &Context, verb: ModelsVerb) -> Outcome {
    let ModelsVerb::List { provider, usable, page } = verb;
    let client = context.connect().await?;
    let request = v1::ListModelsRequest {
        page_size: page.limit,
        page_token: page.page_token,
        provider,
        env: mcode_env::process::vars(),
    };
    let mut response = client.list_models(request).await?;
    if usable {
        response.models.retain(|model| model.usable);
    }
    show_message(context.form, "ListModelsResponse", &response, Some("models"), || {
        let rows: Vec<Vec<String>> = response.models.iter().map(row).collect();
        let heading = ["MODEL", "USABLE", "CONTEXT", "$/MTOK IN", "OUT", "KEY"];
        listing(&heading, &rows, "no models", &response.next_page_token)
    })?;
    Ok(0)
}

fn row(model: &v1::Model) -> Vec<String> {
    let price = |usd: f64| if usd > 0.0 { format!("{usd:.2}") } else { String::new() };
    let name = if model.is_default { format!("{} (default)", model.model) } else { model.model.clone() };
    vec![
        name,
        if model.usable { "yes" } else { "no" }.to_owned(),
        if model.context_tokens == 0 { String::new() } else { format!("{}k", model.context_tokens / 1000) },
        price(model.input_usd_per_mtok),
        price(model.output_usd_per_mtok),
        model.key_source.clone(),
    ]
}
