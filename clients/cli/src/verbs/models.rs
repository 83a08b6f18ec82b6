//! `mcode models`.

use clap::Subcommand;
use mcode_client::{Client, ClientError, v1};
use mcode_text::sanitize_line;

use crate::context::Context;
use crate::times::{count, local};
use crate::verbs::{Outcome, Page, listing, sentence, show_message};

/// What to do with models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelsVerb {
    /// List the models that can be used, and what the others need
    List {
        /// Only of this provider
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        provider: String,
        /// Only those that can be used now
        #[arg(long)]
        usable: bool,
        #[command(flatten)]
        page: Page,
    },
    /// Take a model for new threads, or for one mode: writes it into your configuration
    #[command(visible_alias = "choose")]
    Use {
        /// Such as anthropic/claude-sonnet-5
        #[arg(value_name = "PROVIDER/MODEL")]
        model: String,
        /// Only for this mode
        #[arg(long, value_name = "MODE", value_parser = ["build", "plan", "explore"])]
        mode: Option<String>,
    },
    /// Fetch a newer list of models and prices; nothing is ever fetched without being asked for
    Refresh {
        /// Another source: an http or https address, or a file, in the form of models.dev's api.json
        #[arg(long, value_name = "URL|FILE", default_value = "", hide_default_value = true)]
        from: String,
    },
}

pub(crate) async fn run(context: &Context, verb: ModelsVerb) -> Outcome {
    match verb {
        ModelsVerb::List { provider, usable, page } => list(context, provider, usable, page).await,
        ModelsVerb::Use { model, mode } => {
            let client = context.connect().await?;
            let response =
                client.use_model(v1::UseModelRequest { model: model.clone(), mode: mode.unwrap_or_default() }).await?;
            show_message(context.form, "UseModelResponse", &response, None, || {
                sentence(&format!("{model} is set as {} in {}", response.key, response.file))
            })?;
            Ok(0)
        }
        ModelsVerb::Refresh { from } => refresh(context, &from).await,
    }
}

async fn refresh(context: &Context, from: &str) -> Outcome {
    // What is no address is a file, seen from where the user stands.
    let from = if from.is_empty() || from.contains("://") {
        from.to_owned()
    } else {
        context.cwd()?.join(from).to_string_lossy().into_owned()
    };
    let client = context.connect().await?;
    let request = v1::RefreshCatalogueRequest { from, env: mcode_env::process::vars() };
    let response = client.refresh_catalogue(request).await?;
    show_message(context.form, "RefreshCatalogueResponse", &response, None, || {
        let mut text = format!("{} new, {} changed", count(response.added, "model"), response.changed);
        if response.left_out > 0 {
            text.push_str(&format!("; {} left out: what the list says of them can not be", response.left_out));
        }
        format!("{text}\n{}", catalogue_line(response.catalogue.as_ref()))
    })?;
    Ok(0)
}

/// Where what is known of models is from.
pub(crate) fn catalogue_line(catalogue: Option<&v1::Catalogue>) -> String {
    let Some(catalogue) = catalogue else { return String::new() };
    let models = count(catalogue.models, "model");
    let mut text = match catalogue.fetched_at.as_ref() {
        Some(at) => format!("{models}, fetched {} from {}", local(Some(at)), catalogue.source),
        None => format!("{models}, as mcode {} came with them", env!("CARGO_PKG_VERSION")),
    };
    if !catalogue.problem.is_empty() {
        text.push_str(&format!("; not used: {}", catalogue.problem));
    }
    sentence(&text)
}

async fn list(context: &Context, provider: String, usable: bool, page: Page) -> Outcome {
    let client = context.connect().await?;
    let request = v1::ListModelsRequest {
        page_size: page.limit,
        page_token: page.page_token,
        provider,
        env: mcode_env::process::vars(),
    };
    let mut response = client.list_models(request.clone()).await?;
    if usable {
        only_usable(&client, request, &mut response).await?;
    }
    show_message(context.form, "ListModelsResponse", &response, Some("models"), || {
        let rows: Vec<Vec<String>> = response.models.iter().map(row).collect();
        let heading = ["MODEL", "USABLE", "CONTEXT", "$/MTOK IN", "OUT", "KEY"];
        let mut text = listing(&heading, &rows, "no models", &response.next_page_token);
        for line in needs(&response.models) {
            text.push('\n');
            text.push_str(&sanitize_line(&line));
        }
        text.push_str(&format!("\nCatalogue: {}", catalogue_line(response.catalogue.as_ref())));
        text
    })?;
    Ok(0)
}

/// Leaves out what can not be used. The daemon lists what can be used first, so a list goes on only as long as the
/// next page begins with such a model.
async fn only_usable(
    client: &Client,
    request: v1::ListModelsRequest,
    response: &mut v1::ListModelsResponse,
) -> Result<(), ClientError> {
    let listed = response.models.len();
    response.models.retain(|model| model.usable);
    let mut ends = response.models.len() < listed;
    if !ends && !response.next_page_token.is_empty() {
        let page_token = response.next_page_token.clone();
        let next = client.list_models(v1::ListModelsRequest { page_size: 1, page_token, ..request }).await?;
        ends = !next.models.iter().any(|model| model.usable);
    }
    if ends {
        response.next_page_token.clear();
    }
    Ok(())
}

/// What the models that can not be used need, once for each provider.
fn needs(models: &[v1::Model]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for model in models.iter().filter(|model| !model.usable && !model.key_source.is_empty()) {
        let need = model.key_source.as_str();
        let line = if need.contains(&model.provider) { need.to_owned() } else { format!("{}: {need}", model.provider) };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if !lines.is_empty() {
        lines.insert(0, "To use the others:".to_owned());
    }
    lines
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
        // What is missing stands below the list: once, and not on every line.
        if model.usable { model.key_source.clone() } else { String::new() },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_once_for_each_provider() {
        let model = |provider: &str, usable: bool| v1::Model {
            model: format!("{provider}/m"),
            provider: provider.into(),
            usable,
            key_source: "Set A_KEY for a".into(),
            ..Default::default()
        };
        let lines = needs(&[model("b", true), model("a", false), model("a", false), model("zz", false)]);
        assert_eq!(lines, ["To use the others:", "Set A_KEY for a", "zz: Set A_KEY for a"]);
        assert!(needs(&[model("b", true)]).is_empty());
        assert_eq!(row(&model("a", false))[5], "");
    }
}
