//! What the sandbox keeps commands from is a person's to allow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::Path;

use Verdict::{Allow, Ask, Deny};
use mcode_config::effective::{PermissionRules, RuleSource, WrittenRule};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Access, Category, DecideInput, Mode, RuleSet, Unconfined, Verdict, propose_rule};

fn verdict(allow: &[&str], deny: &[&str], what: &Unconfined, mode: Mode, policy: ApprovalPolicy) -> Verdict {
    let written = |text: &str| WrittenRule {
        text: text.to_owned(),
        file: "c.toml".to_owned(),
        line: 1,
        source: RuleSource::User,
    };
    let listed = |rules: &[&str]| rules.iter().map(|&rule| written(rule)).collect();
    let (set, errors) = RuleSet::parse(&PermissionRules { allow: listed(allow), ask: Vec::new(), deny: listed(deny) });
    assert_eq!(errors, []);
    let (tool, category) = match what {
        Unconfined::Command | Unconfined::Network => ("shell", Category::Execute),
        Unconfined::Edit(_) => ("write", Category::Edit),
        Unconfined::Read(_) => ("view", Category::Read),
    };
    let decision = set.decide(&DecideInput {
        tool,
        category,
        accesses: &[Access::Unconfined(what.clone())],
        mode,
        policy,
        project_root: Path::new("/p"),
        extra_dirs: &[],
        home: Some(Path::new("/h")),
        shielded: false,
    });
    decision.verdict
}

fn all() -> [Unconfined; 4] {
    [Unconfined::Command, Unconfined::Network, Unconfined::Edit("/etc/x".into()), Unconfined::Read("/h/.ssh/id".into())]
}

#[test]
fn a_run_that_allows_everything_gives_the_network_and_nothing_else_beyond_the_sandbox() {
    for what in all() {
        assert_eq!(verdict(&[], &[], &what, Mode::Build, ApprovalPolicy::Ask), Ask, "{what:?}");
        let given = if what == Unconfined::Network { Allow } else { Ask };
        assert_eq!(verdict(&[], &[], &what, Mode::Build, ApprovalPolicy::All), given, "{what:?}");
        assert_eq!(verdict(&[], &[], &what, Mode::Build, ApprovalPolicy::Deny), Deny, "{what:?}");
    }
}

#[test]
fn modes_that_look_do_not_go_beyond_it() {
    for mode in [Mode::Plan, Mode::Explore] {
        for what in all() {
            let wanted = if matches!(what, Unconfined::Read(_)) { Ask } else { Deny };
            assert_eq!(
                verdict(&["network", "edit(/etc/**)"], &[], &what, mode, ApprovalPolicy::All),
                wanted,
                "{what:?}"
            );
        }
    }
}

#[test]
fn a_rule_must_name_what_lies_beyond_it() {
    let [command, network, edit, read] = all();
    for (rule, what, wanted) in [
        ("shell", &command, Ask),
        ("shell(*)", &command, Ask),
        ("*", &command, Ask),
        ("network", &network, Allow),
        ("network(*.example.org)", &network, Ask),
        ("edit", &edit, Ask),
        ("edit(/etc/**)", &edit, Allow),
        ("edit(/usr/**)", &edit, Ask),
        ("view", &read, Ask),
        ("view(~/.ssh/**)", &read, Allow),
    ] {
        assert_eq!(verdict(&[rule], &[], what, Mode::Build, ApprovalPolicy::Ask), wanted, "{rule}: {what:?}");
    }
    let git = Unconfined::Edit("/p/.git/hooks/x".into());
    assert_eq!(verdict(&["edit(**)"], &[], &git, Mode::Build, ApprovalPolicy::Ask), Ask);
    assert_eq!(verdict(&["edit(.git/hooks/x)"], &[], &git, Mode::Build, ApprovalPolicy::Ask), Allow);
}

#[test]
fn a_host_that_is_denied_takes_the_whole_network() {
    let network = Unconfined::Network;
    for rule in ["network", "network(evil.example)"] {
        assert_eq!(verdict(&["network"], &[rule], &network, Mode::Build, ApprovalPolicy::All), Deny, "{rule}");
    }
}

#[test]
fn no_rule_is_proposed_for_it() {
    for what in all() {
        assert_eq!(propose_rule("shell", &[Access::Unconfined(what)], Path::new("/p")), None);
    }
}
