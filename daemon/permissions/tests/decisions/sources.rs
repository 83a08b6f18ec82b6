//! Who made a rule, and what it may do for that.

use Verdict::{Allow, Ask, Deny};
use mcode_config::effective::{PermissionRules, RuleSource, WrittenRule};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Category, RuleSet, Verdict};

use crate::setting::{BUILD, Setting, command, decide, shell};

const ALL: Setting = Setting { policy: ApprovalPolicy::All, ..BUILD };

fn from(source: RuleSource, rules: &[&str]) -> Vec<WrittenRule> {
    let written =
        |text: &&str| WrittenRule { text: (*text).to_owned(), file: source.as_str().to_owned(), line: 3, source };
    rules.iter().map(written).collect()
}

#[test]
fn nobody_loosens_what_the_machine_says() {
    let (set, errors) = RuleSet::parse(&PermissionRules {
        allow: from(RuleSource::User, &["shell", "shell(git push *)", "shell(rm *)"]),
        ask: from(RuleSource::Managed, &["shell(git push *)"]),
        deny: from(RuleSource::Managed, &["shell(rm *)"]),
    });
    assert_eq!(errors, []);
    for (text, asked, all) in [("git push", Ask, Ask), ("rm x", Deny, Deny), ("ls", Allow, Allow)] {
        assert_eq!((shell(&set, text, BUILD), shell(&set, text, ALL)), (asked, all), "{text}");
    }
    let refuse = Setting { policy: ApprovalPolicy::Deny, ..BUILD };
    assert_eq!(shell(&set, "git push", refuse), Deny);
    let decision = decide(&set, "shell", Category::Execute, &[command("git push")], ALL);
    assert_eq!((decision.source, decision.line, decision.firm), (Some(RuleSource::Managed), 3, true));
    assert_eq!(decision.rule.as_deref(), Some("shell(git push *)"));
}

#[test]
fn a_project_only_tightens() {
    let (set, errors) = RuleSet::parse(&PermissionRules {
        allow: from(RuleSource::Project, &["shell", "edit", "not a rule("]),
        ask: from(RuleSource::Project, &["shell(a *)"]),
        deny: from(RuleSource::Project, &["shell(b *)"]),
    });
    assert_eq!(errors, [], "what has no effect can not be broken");
    assert_eq!(shell(&set, "ls", BUILD), Ask);
    assert_eq!((shell(&set, "a", ALL), shell(&set, "b", ALL)), (Allow, Deny));
}

#[test]
fn what_was_given_with_an_answer_allows_and_does_not_reach_over_a_rule_that_restricts() {
    let (set, _) = RuleSet::parse(&PermissionRules {
        allow: from(RuleSource::Grant, &["shell(npm run dev *)", "shell(rm *)", "shell(git reset *)"]),
        ask: from(RuleSource::User, &["shell(rm *)"]),
        deny: from(RuleSource::User, &["shell(git reset *)"]),
    });
    for (text, wanted) in [
        ("npm run dev", Allow),
        ("npm run evil", Ask),
        ("npm run dev; rm x", Ask),
        ("rm x", Ask),
        ("git reset --hard", Deny),
    ] {
        assert_eq!(shell(&set, text, BUILD), wanted, "{text}");
    }
}
