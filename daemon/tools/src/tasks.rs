//! The `tasks` tool: the model's own list of what is to be done.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use mcode_events::tool::{TaskItem, TaskStatus};
use mcode_permissions::access::{Access, Category};
use serde_json::{Value, json};

use crate::output::counted;
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Most entries of a list.
pub const ITEMS_MAX: usize = 100;
/// Most characters of an entry.
pub const CONTENT_CHARS_MAX: usize = 500;
/// Most characters of an id.
const ID_CHARS_MAX: usize = 64;

/// Replaces the task list.
#[derive(Debug, Clone, Copy, Default)]
pub struct TasksTool;

/// Reads the entries. Without an id, an entry keeps the id that its content has in `present`, or gets a free number.
fn parse(arguments: &Value, present: &[TaskItem]) -> Result<Vec<TaskItem>, ToolFailure> {
    let bad = |text: String| Err(ToolFailure::BadArguments(text));
    let Some(given) = arguments["items"].as_array() else { return bad("items: give the list of tasks".into()) };
    if given.len() > ITEMS_MAX {
        return bad(format!("items: {} are given, at most {ITEMS_MAX} are possible; join small ones", given.len()));
    }
    let mut taken = BTreeSet::new();
    for (at, item) in given.iter().enumerate() {
        if let Some(id) = item["id"].as_str().filter(|id| !id.is_empty()) {
            if id.chars().count() > ID_CHARS_MAX {
                return bad(format!("items[{at}].id: at most {ID_CHARS_MAX} characters"));
            }
            if !taken.insert(id.to_owned()) {
                return bad(format!("items[{at}].id: '{id}' is used twice; give every task its own id or none"));
            }
        }
    }
    let mut items = Vec::with_capacity(given.len());
    for (at, item) in given.iter().enumerate() {
        let content = item["content"].as_str().unwrap_or_default().trim();
        if content.is_empty() || content.chars().count() > CONTENT_CHARS_MAX {
            return bad(format!("items[{at}].content: give a text of 1 to {CONTENT_CHARS_MAX} characters"));
        }
        let active_form = item["active_form"].as_str().map(str::trim).filter(|text| !text.is_empty());
        if active_form.is_some_and(|text| text.chars().count() > CONTENT_CHARS_MAX) {
            return bad(format!("items[{at}].active_form: at most {CONTENT_CHARS_MAX} characters"));
        }
        let status = match item["status"].as_str().unwrap_or_default() {
            "pending" => TaskStatus::Pending,
            "in_progress" => TaskStatus::InProgress,
            "completed" => TaskStatus::Completed,
            "cancelled" => TaskStatus::Cancelled,
            _ => return bad(format!("items[{at}].status: use pending, in_progress, completed or cancelled")),
        };
        let id = match item["id"].as_str().filter(|id| !id.is_empty()) {
            Some(id) => id.to_owned(),
            None => free_id(content, present, &mut taken),
        };
        items.push(TaskItem { id, content: content.to_owned(), status, active_form: active_form.map(str::to_owned) });
    }
    Ok(items)
}

fn free_id(content: &str, present: &[TaskItem], taken: &mut BTreeSet<String>) -> String {
    let kept = present.iter().find(|item| item.content == content && !taken.contains(&item.id));
    // A number that the present list uses stays with its task, even when that comes later.
    let id = kept.map(|item| item.id.clone()).unwrap_or_else(|| {
        (1..)
            .map(|number: usize| number.to_string())
            .find(|id| !taken.contains(id) && present.iter().all(|item| item.id != *id))
            .unwrap_or_default()
    });
    taken.insert(id.clone());
    id
}

fn shown(items: &[TaskItem]) -> String {
    let line = |item: &TaskItem| {
        let mark = match item.status {
            TaskStatus::Pending => ' ',
            TaskStatus::InProgress => '>',
            TaskStatus::Completed => 'x',
            TaskStatus::Cancelled => '-',
        };
        format!("[{mark}] {}: {}\n", item.id, item.content)
    };
    items.iter().map(line).collect()
}

fn count(items: &[TaskItem], status: TaskStatus) -> usize {
    items.iter().filter(|item| item.status == status).count()
}

impl Tool for TasksTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "tasks",
            description:
                "Replaces your task list, which the user sees. Use it for work of three or more steps: give the \
                          whole list each time, keep one task in_progress, and mark a task completed as soon as it is \
                          done. An empty list clears it."
                    .into(),
            schema: json!({
                "type": "object",
                "properties": {"items": {"type": "array", "maxItems": ITEMS_MAX, "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string", "description": "Keeps a task the same task when its text changes"},
                        "content": {"type": "string", "description": "What is to be done"},
                        "status": {"type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"]},
                        "active_form": {"type": "string", "description": "The same while it is done: \"Running the tests\""}
                    },
                    "required": ["content", "status"],
                    "additionalProperties": false
                }}},
                "required": ["items"],
                "additionalProperties": false
            }),
            category: Category::Internal,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let items = parse(arguments, &context.tasks)?;
        Ok(CallPlan { access: vec![Access::Internal], preview: counted(items.len(), "task", "tasks"), parallel: false })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let items = parse(&arguments, &context.tasks)?;
            context.port.set_tasks(items.clone()).await;
            if items.is_empty() {
                return Ok(ToolOutput::text("The task list is empty now.", "no tasks"));
            }
            let (done, active) = (count(&items, TaskStatus::Completed), count(&items, TaskStatus::InProgress));
            let mut text = shown(&items);
            if active > 1 {
                text.push_str(&format!("[{active} tasks are in_progress; keep only the one you are working on]\n"));
            }
            Ok(ToolOutput::text(text, format!("{done} of {} done", counted(items.len(), "task", "tasks"))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, content: &str) -> TaskItem {
        TaskItem { id: id.into(), content: content.into(), status: TaskStatus::Pending, active_form: None }
    }

    fn ids(arguments: &Value, present: &[TaskItem]) -> Vec<String> {
        parse(arguments, present).unwrap().into_iter().map(|item| item.id).collect()
    }

    #[test]
    fn ids_stay_with_their_content() {
        let present = [item("1", "a"), item("2", "b"), item("x", "c")];
        let list = json!({"items": [
            {"content": "new", "status": "pending"},
            {"content": "b", "status": "in_progress"},
            {"id": "1", "content": "renamed", "status": "pending"},
            {"content": "c", "status": "completed"},
            {"content": "c", "status": "completed"},
        ]});
        assert_eq!(ids(&list, &present), ["3", "2", "1", "x", "4"]);
    }

    #[test]
    fn limits_are_named() {
        let many: Vec<Value> =
            (0..=ITEMS_MAX).map(|at| json!({"content": format!("{at}"), "status": "pending"})).collect();
        for (list, wanted) in [
            (json!({"items": many}), "items: 101 are given, at most 100"),
            (
                json!({"items": [{"content": "a".repeat(501), "status": "pending"}]}),
                "items[0].content: give a text of 1 to 500",
            ),
            (json!({"items": [{"content": "a", "status": "done"}]}), "items[0].status: use pending"),
            (
                json!({"items": [{"id": "1", "content": "a", "status": "pending"}, {"id": "1", "content": "b", "status": "pending"}]}),
                "items[1].id: '1' is used twice",
            ),
            (json!({}), "items: give the list"),
        ] {
            let error = parse(&list, &[]).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{error}");
        }
        let longest = json!({"items": [{"content": "a".repeat(500), "status": "pending"}]});
        assert_eq!(ids(&longest, &[]), ["1"]);
    }
}
