//! How long a permission decision takes, among 40 rules: of a plain command, of a plain command as it is decided in a
//! run, and of a long chain. Prints `{"plain_us": …, "parsed_us": …, "chain_us": …}`; `cargo xtask bench` runs it.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program, not part of the product")]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use mcode_config::effective::{PermissionRules, WrittenRule};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Access, Category, DecideInput, Mode, RuleSet};

/// Decisions of each kind; the median counts.
const COUNT: usize = 2_000;
/// Rules of each kind beside those that matter.
const RULES: usize = 10;

fn rules() -> RuleSet {
    let list = |texts: Vec<String>| {
        texts
            .into_iter()
            .map(|text| WrittenRule { text, file: "c.toml".to_owned(), ..WrittenRule::default() })
            .collect()
    };
    let numbered = |what: &str| (0..RULES).map(|number| what.replace('#', &number.to_string())).collect::<Vec<_>>();
    let allow =
        [numbered("shell(tool# *)"), numbered("edit(src#/**)"), vec!["shell(cargo test *)".to_owned()]].concat();
    let deny = [numbered("view(**/.secret#)"), vec!["shell(rm -rf *)".to_owned()]].concat();
    RuleSet::parse(&PermissionRules { allow: list(allow), ask: list(numbered("shell(git push# *)")), deny: list(deny) })
        .0
}

/// The median time of a decision in microseconds.
fn median_us(rules: &RuleSet, tool: &str, category: Category, access: &Access) -> f64 {
    let accesses = std::slice::from_ref(access);
    let input = DecideInput {
        tool,
        category,
        accesses,
        mode: Mode::Build,
        policy: ApprovalPolicy::Ask,
        project_root: Path::new("/home/me/project"),
        extra_dirs: &[],
        home: Some(Path::new("/home/me")),
        shielded: false,
    };
    let mut times: Vec<f64> = (0..COUNT)
        .map(|_| {
            let start = Instant::now();
            black_box(rules.decide(black_box(&input)));
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[COUNT / 2]
}

fn main() {
    let rules = rules();
    let command = |text: &str| Access::Command { command: text.to_owned(), cwd: "/home/me/project".into() };
    let plain = median_us(&rules, "view", Category::Read, &Access::ReadPath("/home/me/project/src/a/b.rs".into()));
    let parsed = median_us(&rules, "shell", Category::Execute, &command("cargo test -p x -- --nocapture"));
    let chain = "cd sub && RUST_BACKTRACE=1 timeout 60 cargo test 2>&1 | tee out.log | grep -n \"$NAME\" && \
                 for f in a b c; do sh -c 'git -C x diff; cat f | wc -l' > \"$f.txt\"; done; find . -name x -exec ls {} +";
    let chain = median_us(&rules, "shell", Category::Execute, &command(chain));
    println!("{{\"plain_us\": {plain:.2}, \"parsed_us\": {parsed:.2}, \"chain_us\": {chain:.2}}}");
}
