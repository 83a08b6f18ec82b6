//! A project's own configuration: what it may say, and how it joins the user's.
//!
//! A project is other people's text. What it says about permissions and limits only ever tightens, and what it says
//! about providers, keys and programs is not taken at all.

use std::collections::BTreeMap;
use std::path::Path;

use crate::effective::{Effective, Limits, PermissionRules, RuleSource};
use crate::error::ConfigError;
use crate::handle::parse;

/// Keys that a project may set, with everything below them.
const TAKEN: [&str; 6] = ["model", "fallback", "modes", "limits", "approve", "permissions"];

/// What the file of a trusted project says, as far as a project may say it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProjectConfig {
    /// Its rules. Those that allow have no effect; they are kept to be shown.
    pub permissions: PermissionRules,
    /// The model of new threads.
    pub model: Option<String>,
    /// Model by mode.
    pub mode_models: BTreeMap<String, String>,
    /// Tried in order when the model can not be had.
    pub fallback: Vec<String>,
    /// Limits; the lower one counts.
    pub limits: Limits,
    /// `ask`, `deny` or `all`; the stricter one counts.
    pub approve: Option<String>,
    /// What of the file is left out of account.
    pub warnings: Vec<ConfigError>,
}

impl ProjectConfig {
    /// Reads the text of a project's file.
    ///
    /// # Errors
    /// Everything that is wrong with it, by line and key.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        let (effective, found) = parse(file, text)?;
        let mut warnings = found.warnings;
        for (key, _, line) in found.values {
            if !TAKEN.iter().any(|taken| key.split(['.', '[']).next() == Some(taken)) {
                let message = "a project may not set this; it has no effect".to_owned();
                warnings.push(ConfigError { file: file.to_path_buf(), line, key, message });
            }
        }
        Ok(Self {
            permissions: effective.permissions.from_source(RuleSource::Project),
            model: effective.model,
            mode_models: effective.mode_models,
            fallback: effective.fallback,
            limits: effective.limits,
            approve: effective.approve,
            warnings,
        })
    }
}

/// The lower of two limits.
fn lower<T: PartialOrd + Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

impl Effective {
    /// These values with those of a trusted project: what it prefers comes first, and what it limits is limited.
    #[must_use]
    pub fn with_project(&self, project: &ProjectConfig) -> Self {
        let mut joined = self.clone();
        joined.model = project.model.clone().or(joined.model);
        joined.mode_models.extend(project.mode_models.clone());
        if !project.fallback.is_empty() {
            joined.fallback.clone_from(&project.fallback);
        }
        joined.limits = Limits {
            max_cost_per_run: lower(self.limits.max_cost_per_run, project.limits.max_cost_per_run),
            max_cost_per_day: lower(self.limits.max_cost_per_day, project.limits.max_cost_per_day),
            max_tokens_per_run: lower(self.limits.max_tokens_per_run, project.limits.max_tokens_per_run),
            max_steps_per_run: lower(self.limits.max_steps_per_run, project.limits.max_steps_per_run),
        };
        joined.approve_at_most = crate::handle::stricter(joined.approve_at_most, project.approve.clone());
        joined.permissions.extend(project.permissions.clone());
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_prefers_and_tightens_and_nothing_else() {
        let text = r#"
model = "anthropic/theirs"
approve = "ask"
[limits]
max_steps_per_run = 5
max_cost_per_run = 9.0
[permissions]
allow = ["shell"]
deny = ["shell(rm *)"]
[providers.anthropic]
base_url = "http://127.0.0.1:9"
[sandbox]
enabled = false
"#;
        let project = ProjectConfig::parse(Path::new("/p/.mcode/config.toml"), text).unwrap();
        let left_out: Vec<&str> = project.warnings.iter().map(|warning| warning.key.as_str()).collect();
        assert_eq!(left_out, ["providers.anthropic.base_url", "sandbox.enabled"]);
        let user = Effective {
            model: Some("anthropic/mine".into()),
            limits: Limits { max_cost_per_run: Some(1.0), ..Limits::default() },
            ..Effective::default()
        };
        let joined = user.with_project(&project);
        assert_eq!(joined.model.as_deref(), Some("anthropic/theirs"));
        assert_eq!((joined.limits.max_cost_per_run, joined.limits.max_steps_per_run), (Some(1.0), Some(5)));
        assert_eq!(joined.approve_at_most.as_deref(), Some("ask"));
        assert!(joined.providers.is_empty() && joined.logins.is_empty() && joined.sections.is_empty());
        assert!(joined.permissions.allow.iter().all(|rule| rule.source == RuleSource::Project));
        assert!(ProjectConfig::parse(Path::new("x"), "[limits]\nmax_steps_per_run = -1\n").is_err());
    }
}
