//! What has to hold for every command there is. Used by the fuzz target, and by the tests on its corpus.

use std::path::Path;
use std::sync::LazyLock;

use mcode_config::effective::{PermissionRules, WrittenRule};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::command::{SIMPLE_MAX, parse};
use mcode_permissions::mentions::{MENTIONS_MAX, mentions};
use mcode_permissions::{Access, Category, DecideInput, Mode, RuleSet, Verdict};

/// Commands of a wrapper's inside that are found beside the simple commands themselves.
const ALL_MAX: usize = 64 * (SIMPLE_MAX + 1);

fn rules(allow: &[&str], ask: &[&str], deny: &[&str]) -> RuleSet {
    let list = |rules: &[&str]| {
        rules.iter().map(|&text| WrittenRule { text: text.to_owned(), ..WrittenRule::default() }).collect()
    };
    RuleSet::parse(&PermissionRules { allow: list(allow), ask: list(ask), deny: list(deny) }).0
}

fn decide(set: &RuleSet, command: &str, mode: Mode, policy: ApprovalPolicy) -> Verdict {
    let accesses = [Access::Command { command: command.to_owned(), cwd: "/p".into() }];
    set.decide(&DecideInput {
        tool: "shell",
        category: Category::Execute,
        accesses: &accesses,
        mode,
        policy,
        project_root: Path::new("/p"),
        extra_dirs: &[],
        home: Some(Path::new("/h")),
        shielded: false,
    })
    .verdict
}

/// The sets of rules that are compared.
struct Sets {
    plain: RuleSet,
    denied: RuleSet,
    asked: RuleSet,
    everything: RuleSet,
}

static SETS: LazyLock<Sets> = LazyLock::new(|| {
    let allow = ["shell(ls *)", "shell(git *)", "shell(cargo test *)", "shell(echo *)", "shell(tar *)", "edit(out/**)"];
    Sets {
        plain: rules(&allow, &[], &[]),
        denied: rules(&allow, &[], &["shell(git push *)", "view(secret)", "edit(kept/**)"]),
        asked: rules(&allow, &["shell(git push *)", "view(secret)"], &[]),
        everything: rules(&["shell"], &[], &["shell"]),
    }
});

/// Panics when something does not hold for these bytes as a command.
pub fn check(data: &[u8]) {
    let command = String::from_utf8_lossy(data);
    if let Some(parsed) = parse(&command) {
        assert!(parsed.commands.len() <= SIMPLE_MAX + 1, "more commands than are allowed");
        assert!(parsed.all().count() <= ALL_MAX, "more inner commands than are allowed");
        assert_eq!(Some(parsed), parse(&command), "parsing is a function");
    }
    let found = mentions(&command, Path::new("/p"), Some(Path::new("/h")));
    assert!(found.paths.len() <= MENTIONS_MAX && found.paths.iter().all(|mention| mention.path.is_absolute()));

    let Sets { plain, denied, asked, everything } = &*SETS;
    for policy in [ApprovalPolicy::Ask, ApprovalPolicy::Deny, ApprovalPolicy::All] {
        for mode in [Mode::Build, Mode::Plan] {
            let before = decide(plain, &command, mode, policy);
            assert!(decide(denied, &command, mode, policy) >= before, "a deny rule widened");
            assert!(decide(asked, &command, mode, policy) >= before, "an ask rule widened");
            assert_eq!(decide(everything, &command, mode, policy), Verdict::Deny, "a denied tool ran");
        }
    }
    // What can not be read, seen or foreseen is allowed by no rule about commands, and asks where something is denied.
    if parse(&command).is_none_or(|parsed| parsed.unseen || parsed.evaluates) {
        assert_ne!(decide(plain, &command, Mode::Build, ApprovalPolicy::Ask), Verdict::Allow);
        assert_ne!(decide(denied, &command, Mode::Build, ApprovalPolicy::All), Verdict::Allow);
    }
}
