//! The set of tools a run has, by name and in the order the model is told of them.

use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

use crate::arguments;
use crate::tool::{Tool, ToolFailure, ToolSpec};

pub use crate::arguments::check_arguments;

/// Tools by name. The order is that of [`ToolSet::new`] and never changes, so that the model's prompt cache holds.
/// Cheap to share in an `Arc`.
#[derive(Debug, Default)]
pub struct ToolSet {
    entries: Vec<Entry>,
    by_name: HashMap<&'static str, usize>,
}

#[derive(Debug)]
struct Entry {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
    validator: Option<Validator>,
}

impl ToolSet {
    /// A set of these tools; of two with the same name the first stays. Schemas are compiled here, once.
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut set = Self::default();
        for tool in tools {
            let spec = tool.spec();
            if set.by_name.contains_key(spec.name) {
                tracing::warn!(name = spec.name, "two tools have the same name; the first stays");
                continue;
            }
            set.by_name.insert(spec.name, set.entries.len());
            let validator = arguments::compile(&spec);
            set.entries.push(Entry { tool, spec, validator });
        }
        set
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.entry(name).map(|entry| &entry.tool)
    }

    /// How the tool of this name is told to the model.
    #[must_use]
    pub fn spec(&self, name: &str) -> Option<&ToolSpec> {
        self.entry(name).map(|entry| &entry.spec)
    }

    /// All tools as they are told to the model, in a stable order.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.entries.iter().map(|entry| entry.spec.clone()).collect()
    }

    /// The names, in the same order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.entries.iter().map(|entry| entry.spec.name)
    }

    /// The arguments of a call of `name`, repaired where that is safe and checked against the tool's schema (compiled
    /// once); see [`check_arguments`].
    ///
    /// # Errors
    /// [`ToolFailure::BadArguments`] when there is no such tool, or when a field does not fit.
    pub fn check_arguments(&self, name: &str, given: &Value) -> Result<Value, ToolFailure> {
        let Some(entry) = self.entry(name) else {
            let names: Vec<&str> = self.names().collect();
            return Err(ToolFailure::BadArguments(format!(
                "there is no tool named '{name}'; the tools are: {}",
                names.join(", ")
            )));
        };
        arguments::check_with(&entry.spec, entry.validator.as_ref(), given)
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).and_then(|index| self.entries.get(*index))
    }
}

/// The tools that work on files: `view`, `write`, `edit`, `apply_patch`, `glob`, `grep`.
#[must_use]
pub fn file_tools() -> Vec<Arc<dyn Tool>> {
    vec![
        crate::fs::ViewTool::shared(),
        crate::fs::WriteTool::shared(),
        crate::edit::EditTool::shared(),
        crate::edit::ApplyPatchTool::shared(),
        crate::search::GlobTool::shared(),
        crate::search::GrepTool::shared(),
    ]
}
