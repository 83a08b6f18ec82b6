//! `mcode projects`.

use clap::Subcommand;
use mcode_client::v1;
use mcode_text::sanitize_line;

use crate::context::Context;
use crate::times::local;
use crate::verbs::{Outcome, Page, listing, show_message};

/// What to do with projects.
#[derive(Debug, Subcommand)]
pub(crate) enum ProjectsVerb {
    /// List the projects that threads belong to
    List {
        #[command(flatten)]
        page: Page,
    },
    /// Show the project of this folder, and what it is known by
    Show,
    /// Have the threads of this work tree belong to a name of your own, with those of all others that do
    Resource {
        /// The name; "" for the project as it is found
        name: String,
    },
}

pub(crate) async fn run(context: &Context, verb: ProjectsVerb) -> Outcome {
    match verb {
        ProjectsVerb::List { page } => list(context, page).await,
        ProjectsVerb::Show => {
            let cwd = context.cwd()?.to_string_lossy().into_owned();
            let response = context.connect().await?.resolve_project(v1::ResolveProjectRequest { cwd }).await?;
            show_message(context.form, "ResolveProjectResponse", &response, None, || {
                format!("{}\nwork tree   {}", told(response.project.as_ref()), sanitize_line(&response.root))
            })?;
            Ok(0)
        }
        ProjectsVerb::Resource { name } => {
            let cwd = context.cwd()?.to_string_lossy().into_owned();
            let request = v1::SetResourceRequest { cwd, resource: name };
            let response = context.connect().await?.set_resource(request).await?;
            show_message(context.form, "SetResourceResponse", &response, None, || told(response.project.as_ref()))?;
            Ok(0)
        }
    }
}

async fn list(context: &Context, page: Page) -> Outcome {
    let request = v1::ListProjectsRequest { page_size: page.limit, page_token: page.page_token };
    let response = context.connect().await?.list_projects(request).await?;
    show_message(context.form, "ListProjectsResponse", &response, Some("projects"), || {
        let row = |it: &v1::Project| {
            vec![
                it.project_id.clone(),
                it.name.clone(),
                local(it.created_at.as_ref()),
                it.root.clone(),
                it.identities.join(", "),
            ]
        };
        let rows: Vec<Vec<String>> = response.projects.iter().map(row).collect();
        let heading = ["PROJECT", "NAME", "SINCE", "FOLDER", "KNOWN BY"];
        listing(&heading, &rows, "no projects yet: they come with threads", &response.next_page_token)
    })?;
    Ok(0)
}

fn told(project: Option<&v1::Project>) -> String {
    let Some(project) = project else { return String::new() };
    let mut lines = vec![
        format!("project     {}", project.project_id),
        format!("name        {}", sanitize_line(&project.name)),
        format!("first seen  {} in {}", local(project.created_at.as_ref()), sanitize_line(&project.root)),
    ];
    lines.extend(project.identities.iter().map(|identity| format!("known by    {}", sanitize_line(identity))));
    lines.join("\n")
}
