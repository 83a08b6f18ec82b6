//! Rules and calls in few words.

use std::path::{Path, PathBuf};

use mcode_config::effective::{PermissionRules, WrittenRule};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Access, Category, DecideInput, Decision, Mode, RuleSet, Verdict};

pub fn listed(rules: &[&str]) -> Vec<WrittenRule> {
    rules
        .iter()
        .map(|&rule| WrittenRule {
            text: rule.to_owned(),
            file: "c.toml".to_owned(),
            line: 1,
            ..WrittenRule::default()
        })
        .collect()
}

pub fn rules(allow: &[&str], ask: &[&str], deny: &[&str]) -> RuleSet {
    let (set, errors) = RuleSet::parse(&PermissionRules { allow: listed(allow), ask: listed(ask), deny: listed(deny) });
    assert_eq!(errors, []);
    set
}

#[derive(Clone, Copy)]
pub struct Setting {
    pub mode: Mode,
    pub policy: ApprovalPolicy,
}

pub const BUILD: Setting = Setting { mode: Mode::Build, policy: ApprovalPolicy::Ask };

pub fn decide(set: &RuleSet, tool: &str, category: Category, accesses: &[Access], setting: Setting) -> Decision {
    let extra_dirs = [PathBuf::from("/extra")];
    set.decide(&DecideInput {
        tool,
        category,
        accesses,
        mode: setting.mode,
        policy: setting.policy,
        project_root: Path::new("/p"),
        extra_dirs: &extra_dirs,
        home: Some(Path::new("/h")),
        shielded: false,
    })
}

pub fn command(text: &str) -> Access {
    Access::Command { command: text.into(), cwd: "/p".into() }
}

pub fn shell(set: &RuleSet, text: &str, setting: Setting) -> Verdict {
    decide(set, "shell", Category::Execute, &[command(text)], setting).verdict
}

pub fn edit(set: &RuleSet, path: &str, setting: Setting) -> Verdict {
    decide(set, "edit", Category::Edit, &[Access::EditPath(path.into())], setting).verdict
}

pub fn read(set: &RuleSet, tool: &str, path: &str, setting: Setting) -> Verdict {
    decide(set, tool, Category::Read, &[Access::ReadPath(path.into())], setting).verdict
}
