//! `mcode plans`.

use clap::Subcommand;
use mcode_client::v1;
use mcode_text::{sanitize, sanitize_line};

use crate::context::Context;
use crate::output::foreign_text;
use crate::times::local;
use crate::verbs::{Outcome, Page, listing, show_message};

/// What to do with plans.
#[derive(Debug, Subcommand)]
pub(crate) enum PlansVerb {
    /// List the plans that were submitted, newest first
    List {
        /// The project, by its id or a folder of it; this folder's without
        project: Option<String>,
        /// Of all projects
        #[arg(long, conflicts_with = "project")]
        all: bool,
        /// Only of this thread
        #[arg(long, short, value_name = "ID")]
        thread: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Show a plan
    Show {
        /// The plan (plans list names it); the newest of this project without
        id: Option<String>,
    },
    /// Show what is new in a plan since it was submitted before
    Diff {
        /// The plan (plans list names it); the newest of this project without
        id: Option<String>,
    },
}

pub(crate) async fn run(context: &Context, verb: PlansVerb) -> Outcome {
    match verb {
        PlansVerb::List { project, all, thread, page } => list(context, project, all, thread, page).await,
        PlansVerb::Show { id } => {
            let response = get(context, id).await?;
            show(context, &response, &response.text, "the plan is empty")
        }
        PlansVerb::Diff { id } => {
            let response = get(context, id).await?;
            let none = if response.before_plan_id.is_empty() {
                "it was submitted once: there is nothing to compare it with"
            } else {
                "nothing is new in it"
            };
            show(context, &response, &response.diff, none)
        }
    }
}

async fn list(context: &Context, project: Option<String>, all: bool, thread: Option<String>, page: Page) -> Outcome {
    let (mut project_id, mut cwd) = (String::new(), String::new());
    match project {
        Some(id) if id.starts_with("prj_") => project_id = id,
        Some(folder) => cwd = context.cwd()?.join(folder).to_string_lossy().into_owned(),
        // A thread is of one project.
        None if all || thread.is_some() => {}
        None => cwd = context.cwd()?.to_string_lossy().into_owned(),
    }
    let client = context.connect().await?;
    let thread_id = match thread {
        Some(id) => client.thread_id(&id).await?,
        None => String::new(),
    };
    let request =
        v1::ListPlansRequest { page_size: page.limit, page_token: page.page_token, project_id, cwd, thread_id };
    let response = client.list_plans(request).await?;
    show_message(context.form, "ListPlansResponse", &response, Some("plans"), || {
        let row = |plan: &v1::Plan| {
            let said = if plan.comment.is_empty() { String::new() } else { format!(": {}", plan.comment) };
            vec![
                plan.plan_id.clone(),
                local(plan.submitted_at.as_ref()),
                format!("{}{said}", plan.status),
                plan.path.clone(),
                plan.title.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = response.plans.iter().map(row).collect();
        let none = "no plans yet: ask for one with: mcode ask --mode plan PROMPT";
        listing(&["PLAN", "SUBMITTED", "STATUS", "FILE", "TITLE"], &rows, none, &response.next_page_token)
    })?;
    Ok(0)
}

async fn get(context: &Context, id: Option<String>) -> Result<v1::GetPlanResponse, crate::failure::Failure> {
    let id = id.filter(|id| id != "latest");
    let cwd = match id {
        Some(_) => String::new(),
        None => context.cwd()?.to_string_lossy().into_owned(),
    };
    let request = v1::GetPlanRequest { plan_id: id.unwrap_or_default(), cwd, ..Default::default() };
    Ok(context.connect().await?.get_plan(request).await?)
}

/// The text on stdout, so that it can be piped on; what it is on stderr.
fn show(context: &Context, response: &v1::GetPlanResponse, text: &str, none: &str) -> Outcome {
    if context.form != crate::args::Form::Text {
        show_message(context.form, "GetPlanResponse", response, None, String::new)?;
        return Ok(0);
    }
    let plan = response.plan.clone().unwrap_or_default();
    let said = if plan.comment.is_empty() { String::new() } else { format!(": {}", plan.comment) };
    let heading = format!("{} of {}, {}{said}", plan.plan_id, plan.thread_id, plan.status);
    crate::output::stderr_text(&format!("{}\n", context.stderr.dim(&sanitize_line(&heading))));
    if !response.file.is_empty() {
        crate::output::stderr_text(&format!("{}\n", context.stderr.dim(&sanitize(&response.file))));
    }
    foreign_text(if text.is_empty() { none } else { text })?;
    Ok(0)
}
