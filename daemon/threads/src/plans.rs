//! Plans for people: kept as files where they are looked for, listed, shown, compared.
//!
//! The log and its bodies have each plan; the file is a copy for people, made after it was recorded and made again when it is
//! looked for and missing. A file that is there is left as it is.

use std::io;
use std::path::{Path, PathBuf};

use mcode_env::{Timestamp, files};
use mcode_events::plan::Plan;
use mcode_ids::{ProjectId, ThreadId, ToolCallId};
use mcode_store::{Page, PlanFilter, PlanRow};

use crate::actor::Actor;
use crate::error::ThreadError;
use crate::registry::Threads;

/// Longest part of a file's name that is made from what people call something, in bytes.
const SLUG_BYTES_MAX: usize = 60;

/// Hex digits that tell projects of the same name apart.
const PROJECT_DIGITS: usize = 8;

/// Plans whose files are looked for when a daemon begins: an earlier one may have ended before it had made them.
const LOOKED_AT_MAX: u32 = 50;

/// The folder for plans.
#[derive(Debug, Clone)]
pub struct PlanShelf {
    folder: PathBuf,
}

impl PlanShelf {
    /// Plans are kept below this folder.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The file of a plan: always the same one.
    #[must_use]
    pub fn file(&self, (project_id, root): (ProjectId, &str), at_ms: i64, plan: &Plan) -> PathBuf {
        let project = project_id.to_string();
        let digits = project.get(project.len().saturating_sub(PROJECT_DIGITS)..).unwrap_or_default();
        let name = slug(&crate::project::name_of(Path::new(root)), "project");
        let moment = Timestamp::from_millis(at_ms).to_string().replace(':', "-");
        self.folder.join(format!("{name}-{digits}")).join(format!("{moment}-{}.md", slug(&plan.title, "plan")))
    }

    /// Makes the file unless it is there. Blocking.
    fn save(&self, file: &Path, text: &[u8]) -> io::Result<()> {
        if file.symlink_metadata().is_ok() {
            return Ok(());
        }
        files::create_private_dir(&self.folder)?;
        files::create_private_dir(file.parent().unwrap_or(&self.folder))?;
        files::write_atomic(file, text)
    }
}

/// What people call something as a part of a file's name on every system.
fn slug(text: &str, none: &str) -> String {
    let mut slug = String::new();
    for char in text.chars().flat_map(char::to_lowercase) {
        if slug.len() + char.len_utf8() > SLUG_BYTES_MAX {
            break;
        }
        if char.is_alphanumeric() {
            slug.push(char);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { none.to_owned() } else { slug.to_owned() }
}

/// A plan with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPlan {
    /// Which.
    pub row: PlanRow,
    /// Its text.
    pub text: String,
    /// The copy for people; `None` where it can not be made.
    pub file: Option<PathBuf>,
    /// The plan that was submitted from the same file before it.
    pub before: Option<ToolCallId>,
    /// What differs from that, as a unified diff; empty without one.
    pub diff: String,
}

impl Actor {
    /// Keeps a plan as a file, which is on record already.
    pub(crate) async fn keep_plan(&self, plan: &Plan) {
        let (Some(project_id), at_ms) = (self.state.project_id, self.state.updated_at_ms) else { return };
        let file = self.deps.plans.file((project_id, &self.state.root), at_ms, plan);
        save(&self.deps, file, plan.content.hash.clone()).await;
    }
}

/// Makes the file of a plan unless it is there; `None` when it can not be made, which is told in the daemon's log.
async fn save(deps: &crate::deps::Deps, file: PathBuf, hash: String) -> Option<PathBuf> {
    let (shelf, blobs, path) = (deps.plans.clone(), deps.store.blobs(), file.clone());
    let saved = tokio::task::spawn_blocking(move || {
        let text = blobs.get(&hash).map_err(io::Error::other)?;
        shelf.save(&path, &text)
    })
    .await;
    match saved {
        Ok(Ok(())) => Some(file),
        Ok(Err(error)) => {
            tracing::warn!(file = %file.display(), %error, "a plan could not be kept as a file; mcode plans show has it");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "a plan could not be kept as a file");
            None
        }
    }
}

impl Threads {
    /// Plans, newest first.
    pub async fn plans(&self, filter: PlanFilter) -> Result<Page<PlanRow>, ThreadError> {
        Ok(self.deps().store.plans(filter).await?)
    }

    /// A plan with its text, and with what differs from the one before it.
    pub async fn plan(&self, tool_call_id: ToolCallId) -> Result<ShownPlan, ThreadError> {
        let missing = || ThreadError::NotFound { what: "plan", id: tool_call_id.to_string() };
        let row = self.deps().store.plan(tool_call_id).await?.ok_or_else(missing)?;
        let text = self.text_of(row.plan.content.hash.clone()).await?;
        let before = self.before(&row).await;
        let diff = match &before {
            Some(before) => {
                let before = self.text_of(before.content.hash.clone()).await.unwrap_or_default();
                mcode_agent::plans::diff(&before, &text)
            }
            None => String::new(),
        };
        let file = self.saved(&row).await;
        Ok(ShownPlan { row, text, file, before: before.map(|plan| plan.tool_call_id), diff })
    }

    /// The plan that was submitted from the same file before; a thread that can not be read has none.
    async fn before(&self, row: &PlanRow) -> Option<Plan> {
        let state = self.deps().store.load_to(row.thread_id, Some(row.seq)).await.ok()??.state;
        state.plan_before(&row.plan).cloned()
    }

    async fn text_of(&self, hash: String) -> Result<String, ThreadError> {
        let blobs = self.deps().store.blobs();
        let text = tokio::task::spawn_blocking(move || blobs.get(&hash)).await;
        let text = text.map_err(|error| ThreadError::Store(Box::new(error)))?;
        Ok(String::from_utf8_lossy(&text.map_err(|error| ThreadError::Store(Box::new(error)))?).into_owned())
    }

    /// The file of a plan, made again if it is missing.
    pub async fn saved(&self, row: &PlanRow) -> Option<PathBuf> {
        let file = self.deps().plans.file((row.project_id, &row.root), row.at_ms, &row.plan);
        save(self.deps(), file, row.plan.content.hash.clone()).await
    }

    /// Makes the files of the newest plans that an earlier daemon has recorded and not come to keep.
    pub async fn keep_plans(&self) {
        let newest = PlanFilter { page_size: LOOKED_AT_MAX, ..PlanFilter::default() };
        match self.plans(newest).await {
            Ok(page) => {
                for row in &page.rows {
                    self.saved(row).await;
                }
            }
            Err(error) => tracing::warn!(%error, "plans can not be looked for"),
        }
    }

    /// The newest plan of a project or thread.
    pub async fn latest_plan(
        &self,
        project_id: Option<ProjectId>,
        thread_id: Option<ThreadId>,
    ) -> Result<PlanRow, ThreadError> {
        let filter = PlanFilter { project_id, thread_id, page_size: 1, page_token: None };
        let newest = self.plans(filter).await?.rows.pop();
        newest.ok_or_else(|| ThreadError::NotFound { what: "plan", id: "latest".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use mcode_events::BlobRef;

    use super::*;

    #[test]
    fn a_plan_has_one_file_whose_name_is_one_everywhere() {
        assert_eq!(slug("Mend: the/parser (again)!", "x"), "mend-the-parser-again");
        assert_eq!((slug("../..", "x"), slug("", "x")), ("x".into(), "x".into()));
        assert!(slug(&"é".repeat(100), "x").len() <= SLUG_BYTES_MAX);
        let shelf = PlanShelf::new("/plans".into());
        let project: ProjectId = "prj_019000000000700080000000aabbccdd".parse().unwrap();
        let plan = Plan {
            tool_call_id: "tc_01900000000070008000000000000001".parse().unwrap(),
            path: ".mcode/plans/a.md".into(),
            title: "Mend it".into(),
            content: BlobRef { hash: String::new(), size_bytes: 0, media_type: String::new() },
        };
        let file = shelf.file((project, "/home/me/My Repo"), 978_307_200_123, &plan);
        assert_eq!(file, Path::new("/plans/my-repo-aabbccdd/2001-01-01T00-00-00.123Z-mend-it.md"));
    }
}
