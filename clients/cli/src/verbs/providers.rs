//! `mcode providers`.

use clap::Subcommand;
use mcode_client::v1;

use crate::context::Context;
use crate::output::stderr_line;
use crate::verbs::{Outcome, listing, sentence, show_message};

/// What to do with providers.
#[derive(Debug, Subcommand)]
pub(crate) enum ProvidersVerb {
    /// List the providers that mcode knows and those that you have declared, and what is missing to use them
    List {
        /// Only those that can be used now, or that you have declared
        #[arg(long)]
        usable: bool,
    },
    /// Look for Ollama, LM Studio, llama.cpp and vLLM on this machine
    Scan {
        /// Write what is found into your configuration, with the windows of the models
        #[arg(long)]
        add: bool,
    },
    /// Declare a provider in your configuration
    Add(AddArgs),
    /// Remove a provider from your configuration
    Remove {
        /// Its name
        name: String,
    },
}

/// A provider to declare.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// What to call it: small letters, digits, - and _
    name: String,
    /// How it is spoken to; known providers have their own
    #[arg(long, value_parser = ["anthropic", "openai-chat", "openai-responses", "gemini", "bedrock"])]
    wire: Option<String>,
    /// Where it is, such as http://127.0.0.1:8080/v1
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    base_url: String,
    /// Where its key is, such as env:MY_KEY; leave it out where none is needed
    #[arg(long, value_name = "env:NAME", default_value = "", hide_default_value = true)]
    api_key: String,
    /// A model of it; may be repeated
    #[arg(long = "model", value_name = "ID")]
    models: Vec<String>,
    /// The window of these models in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 0, hide_default_value = true)]
    context: u32,
    /// The most output tokens of these models
    #[arg(long, value_name = "TOKENS", default_value_t = 0, hide_default_value = true)]
    max_output: u32,
}

pub(crate) async fn run(context: &Context, verb: ProvidersVerb) -> Outcome {
    match verb {
        ProvidersVerb::List { usable } => list(context, usable).await,
        ProvidersVerb::Scan { add } => scan(context, add).await,
        ProvidersVerb::Add(args) => add(context, args).await,
        ProvidersVerb::Remove { name } => {
            let client = context.connect().await?;
            let response = client.remove_provider(v1::RemoveProviderRequest { provider: name.clone() }).await?;
            show_message(context.form, "RemoveProviderResponse", &response, None, || {
                sentence(&format!("{name} is removed from {}", response.file))
            })?;
            Ok(0)
        }
    }
}

async fn list(context: &Context, usable: bool) -> Outcome {
    let client = context.connect().await?;
    let mut response = client.list_providers(v1::ListProvidersRequest { env: mcode_env::process::vars() }).await?;
    if usable {
        response.providers.retain(|row| row.usable || row.configured);
    }
    show_message(context.form, "ListProvidersResponse", &response, Some("providers"), || {
        let rows: Vec<Vec<String>> = response.providers.iter().map(row).collect();
        listing(&["PROVIDER", "USABLE", "WIRE", "MODELS", "BASE URL", "KEY, OR WHAT TO DO"], &rows, "no providers", "")
    })?;
    Ok(0)
}

fn row(provider: &v1::Provider) -> Vec<String> {
    let name = &provider.provider;
    vec![
        if provider.configured { format!("{name} (config.toml)") } else { name.clone() },
        if provider.usable { "yes" } else { "no" }.to_owned(),
        provider.wire.clone(),
        if provider.models == 0 { String::new() } else { provider.models.to_string() },
        provider.base_url.clone(),
        provider.key_source.clone(),
    ]
}

async fn scan(context: &Context, add: bool) -> Outcome {
    let client = context.connect().await?;
    let response = client.scan_providers(v1::ScanProvidersRequest { env: mcode_env::process::vars(), add }).await?;
    show_message(context.form, "ScanProvidersResponse", &response, Some("servers"), || {
        let mut lines: Vec<String> = response.servers.iter().flat_map(server).collect();
        let first = response.servers.iter().find_map(|server| Some((server, server.models.first()?)));
        match first {
            Some((server, model)) => {
                lines.push(format!("Use one with: mcode ask -m {}/{} PROMPT", server.provider, model.id));
                lines.push(match response.file.as_str() {
                    "" if add => "All of it is in your configuration already.".to_owned(),
                    "" => {
                        "Keep them and their windows in your configuration with: mcode providers scan --add".to_owned()
                    }
                    file => format!("Written into {file}."),
                });
            }
            None => lines.push(
                "No model was found. Start a server, for example: ollama serve, then: ollama pull qwen3-coder"
                    .to_owned(),
            ),
        }
        lines.iter().map(|line| sentence(line)).collect::<Vec<_>>().join("\n")
    })?;
    Ok(0)
}

fn server(server: &v1::LocalServer) -> Vec<String> {
    if !server.answers {
        return vec![format!("{}: {} ({})", server.provider, server.problem, server.base_url)];
    }
    let mut lines = vec![format!("{}: answers at {}", server.provider, server.base_url)];
    if server.models.is_empty() {
        lines.push("    it has no model".to_owned());
    }
    lines.extend(server.models.iter().map(|model| match model.context_tokens {
        0 => format!("    {}/{}", server.provider, model.id),
        tokens => format!("    {}/{}  {tokens} tokens", server.provider, model.id),
    }));
    lines
}

async fn add(context: &Context, args: AddArgs) -> Outcome {
    let client = context.connect().await?;
    let first = args.models.first().cloned();
    let model = |id: String| v1::ProviderModel { id, context_tokens: args.context, max_output_tokens: args.max_output };
    let name = args.name.clone();
    let request = v1::AddProviderRequest {
        provider: args.name,
        wire: args.wire.unwrap_or_default(),
        base_url: args.base_url,
        api_key: args.api_key,
        models: args.models.into_iter().map(model).collect(),
    };
    let response = client.add_provider(request).await?;
    show_message(context.form, "AddProviderResponse", &response, None, || {
        sentence(&format!("{name} is declared in {}", response.file))
    })?;
    if context.form == crate::args::Form::Text {
        let model = first.unwrap_or_else(|| "MODEL".to_owned());
        stderr_line(&sentence(&format!("use it with: mcode ask -m {name}/{model} PROMPT")));
    }
    Ok(0)
}
