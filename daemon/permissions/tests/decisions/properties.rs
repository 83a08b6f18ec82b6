//! Properties over many generated sets of rules and calls.
//!
//! The generator is a counter that is mixed (SplitMix64), so that every run makes the same sets, and a failure names the
//! one that failed.

use mcode_config::effective::{PermissionRules, RuleSource, WrittenRule};
use mcode_events::run::ApprovalPolicy;
use mcode_permissions::{Access, Below, Category, Decision, Mode, RuleSet, Verdict};

use crate::setting::{BUILD, Setting, command, decide, rules, shell};

/// Sets of rules that are made for each property.
const SETS: u64 = 400;
/// Calls that each set judges.
const CALLS: usize = 12;

struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll() % of.len() as u64).unwrap()]
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.roll() % (most as u64 + 1)).unwrap()
    }
}

const WORDS: &[&str] = &[
    "cat",
    "rm",
    "git",
    "push",
    "-rf",
    "secret",
    "./secret",
    "s*",
    "$x",
    "sh",
    "-c",
    "'cat secret'",
    "env",
    "A=b",
    "xargs",
    "find",
    "-exec",
    "{}",
    "\\;",
    "eval",
    "sudo",
    "../x",
    "/etc/passwd",
    "ls",
    "-la",
    "\"$(rm x)\"",
    "x='a[$(rm x)]'",
    "$((x))",
    "[[ x -eq 1 ]]",
    "read x",
    "export",
    "GIT_PAGER='rm x'",
    "PS4='$(rm x)'",
    "tar",
    "--to-command='rm x'",
    "-I",
    "make",
    "SHELL='rm x'",
    "rebase",
    "--exec='cat secret'",
    "show",
    "HEAD:secret",
    "log",
    "-p",
    "--",
    "mine",
    "awk",
    "'BEGIN{system(\"rm x\")}'",
    "sqlite3",
    "'.shell rm x'",
    "watch",
    "trap",
    "alias",
    "crontab",
];
const JOINTS: [&str; 10] = [" ", " ", " ", " ", " && ", "; ", " | ", " > ", " < ", "\n"];
const SUBJECTS: [&str; 10] =
    ["shell", "execute", "view", "read", "edit", "network", "web_fetch", "mcp__a__*", "tasks", "apply_patch"];
const PATTERNS: [&str; 18] = [
    "",
    "*",
    "**",
    "secret",
    "**/secret",
    "rm *",
    "rm -rf *",
    "git push *",
    "cat *",
    "cat secret",
    "src/**",
    "/etc/**",
    "~/x",
    "ls *",
    "sh *",
    "a.org",
    "*.org",
    "[",
];

fn rule(dice: &mut Dice) -> WrittenRule {
    let (subject, pattern) = (dice.one_of(&SUBJECTS), dice.one_of(&PATTERNS));
    let text = if pattern.is_empty() { subject.to_owned() } else { format!("{subject}({pattern})") };
    let source = dice.one_of(&[RuleSource::User, RuleSource::Managed, RuleSource::Project, RuleSource::Grant]);
    WrittenRule { text, file: "c.toml".to_owned(), line: 1, source }
}

fn some_rules(dice: &mut Dice) -> PermissionRules {
    let mut list = |most| (0..dice.below(most)).map(|_| rule(dice)).collect::<Vec<_>>();
    PermissionRules { allow: list(3), ask: list(2), deny: list(2) }
}

fn text(dice: &mut Dice) -> String {
    let mut text = String::from(dice.one_of(WORDS));
    for _ in 0..dice.below(7) {
        text.push_str(dice.one_of(&JOINTS));
        text.push_str(dice.one_of(WORDS));
    }
    text
}

fn path(dice: &mut Dice) -> String {
    dice.one_of(&["/p/secret", "/p/src/a.rs", "/p/.git/config", "/etc/passwd", "/h/x", "/p", "/", "/p/.env"]).to_owned()
}

fn call(dice: &mut Dice) -> (&'static str, Category, Vec<Access>) {
    match dice.below(6) {
        0 | 1 => ("shell", Category::Execute, vec![command(&text(dice))]),
        2 => {
            let below = match dice.below(2) {
                0 => Below::Nothing,
                1 => Below::Unknown,
                _ => Below::Files(vec![path(dice).into()]),
            };
            let changes = dice.below(1) == 0;
            let named = Access::Mentioned { path: path(dice).into(), below, changes };
            ("shell", Category::Execute, vec![command(&text(dice)), named])
        }
        3 => (dice.one_of(&["view", "grep", "glob"]), Category::Read, vec![Access::ReadPath(path(dice).into())]),
        4 => {
            ("apply_patch", Category::Edit, (0..=dice.below(2)).map(|_| Access::EditPath(path(dice).into())).collect())
        }
        5 => ("web_fetch", Category::Network, vec![Access::Host("a.org".to_owned())]),
        _ => (dice.one_of(&["mcp__a__b", "tasks"]), dice.one_of(&[Category::Execute, Category::Internal]), Vec::new()),
    }
}

fn setting(dice: &mut Dice) -> Setting {
    Setting {
        mode: dice.one_of(&[Mode::Build, Mode::Build, Mode::Plan, Mode::Explore]),
        policy: dice.one_of(&[ApprovalPolicy::Ask, ApprovalPolicy::Deny, ApprovalPolicy::All]),
    }
}

/// Makes sets and calls and gives each pair of decisions, before and after one more rule.
fn compare(seed: u64, add: impl Fn(&mut PermissionRules, WrittenRule), check: impl Fn(&Decision, &Decision, &str)) {
    let mut told = 0;
    for number in 0..SETS {
        let mut dice = Dice(seed ^ (number << 20));
        let before = some_rules(&mut dice);
        let mut after = before.clone();
        add(&mut after, rule(&mut dice));
        let (old, new) = (RuleSet::parse(&before).0, RuleSet::parse(&after).0);
        for _ in 0..CALLS {
            let ((tool, category, accesses), setting) = (call(&mut dice), setting(&mut dice));
            let was = decide(&old, tool, category, &accesses, setting);
            let is = decide(&new, tool, category, &accesses, setting);
            let what = format!("set {number}: {after:?}\n{tool} {accesses:?} {:?} {:?}", setting.mode, setting.policy);
            told += usize::from(was != is);
            check(&was, &is, &what);
        }
    }
    assert!(told > 20, "only {told} decisions differed: the generator says nothing");
}

#[test]
fn adding_a_deny_never_widens() {
    compare(
        1,
        |rules, rule| rules.deny.push(rule),
        |was, is, what| {
            assert!(is.verdict >= was.verdict, "{what}\n{was:?}\n{is:?}");
        },
    );
}

#[test]
fn adding_an_ask_never_widens() {
    compare(
        2,
        |rules, rule| rules.ask.push(rule),
        |was, is, what| {
            assert!(is.verdict >= was.verdict, "{what}\n{was:?}\n{is:?}");
        },
    );
}

#[test]
fn adding_an_allow_never_turns_a_deny_into_anything_else() {
    compare(
        3,
        |rules, rule| rules.allow.push(rule),
        |was, is, what| {
            // Without a person, what would be asked is refused as well; an allow rule is there to change that.
            let by_policy = was.why.ends_with("this run refuses what would be asked");
            assert!(
                was.verdict != Verdict::Deny || by_policy || is.verdict == Verdict::Deny,
                "{what}\n{was:?}\n{is:?}"
            );
            assert!(is.verdict <= was.verdict, "{what}\n{was:?}\n{is:?}");
        },
    );
}

/// Commands that can not be known before they run, and those of which an option runs another.
const UNKNOWN: [&str; 16] = [
    "eval \"$x\"",
    "cat 'unfinished",
    "x='a[$(id)]'; echo $((x))",
    "[[ -v 'a[$(id)]' ]]",
    "read x < f; [[ $x -gt 1 ]]",
    "unset 'a[$(id)]'",
    "tar -xf a --to-command=\"$x\"",
    "tar -cf a --checkpoint-action=exec=id b",
    "split --filter=id f",
    "git rebase -x id main",
    "git -c core.pager=id log",
    "GIT_PAGER=id git log",
    "LD_PRELOAD=x ls",
    "make SHELL=id",
    "awk 'BEGIN{system(\"id\")}'",
    "sqlite3 a '.shell id'",
];

#[test]
fn adding_an_allow_for_another_command_never_allows_what_is_not_known() {
    let patterns = ["ls *", "cargo test *", "echo *", "id", "cat *", "git log *", "git status", "npm run x", "a * b"];
    for text in UNKNOWN {
        let none = RuleSet::default();
        assert_eq!(decide(&none, "shell", Category::Execute, &[command(text)], BUILD).verdict, Verdict::Ask, "{text}");
        for pattern in patterns {
            let rule = format!("shell({pattern})");
            let verdict = shell(&rules(&[&rule], &[], &[]), text, BUILD);
            assert_eq!(verdict, Verdict::Ask, "{rule} | {text}");
        }
        // Nor does a rule about the program, beside one that denies something.
        let program = text.split([' ', ';']).find(|word| !word.contains('=')).unwrap();
        let both = rules(&[&format!("shell({program} *)"), "shell(id)"], &[], &["shell(rm *)"]);
        assert!(shell(&both, text, BUILD) >= Verdict::Ask, "{program} | {text}");
    }
}

/// Ways to run a command, with `{}` in its place and `[]` where it stands as one word.
const WRAPPERS: [&str; 34] = [
    "sudo {}",
    "env A=b {}",
    "nice -n 5 {}",
    "timeout 5 {}",
    "sh -c []",
    "bash -lc []",
    "eval []",
    "xargs {}",
    "find . -exec {} \\;",
    "flock f {}",
    "flock f -c []",
    "watch []",
    "setsid {}",
    "taskset 1 {}",
    "chrt 1 {}",
    "strace -f {}",
    "unshare -r {}",
    "systemd-run {}",
    "su -c []",
    "script -qc [] f",
    "ssh h []",
    "trap [] EXIT",
    "split --filter=[] f",
    "tar -xf a --to-command=[]",
    "tar -cf a --checkpoint-action=exec=[] b",
    "git rebase -x [] main",
    "git submodule foreach []",
    "git bisect run {}",
    "git -c core.pager=[] log",
    "git -c alias.x=!\"\"[] x",
    "GIT_PAGER=[] git log",
    "rsync -e [] a b",
    "unknown-wrapper --flag sh -c []",
    "unknown-wrapper {}",
];

#[test]
fn a_wrapper_never_widens() {
    let commands = ["rm -rf x", "git push", "cat secret", "ls", "cargo test", "touch out", "curl a.org"];
    let sets = [
        rules(&["shell"], &[], &["shell(rm *)", "shell(git push *)", "view(secret)"]),
        rules(&["shell(ls *)", "shell(cargo test *)"], &["shell(curl *)"], &["shell(rm *)"]),
        rules(&["shell(ls *)", "shell(git log *)", "shell(tar *)", "shell(git *)"], &[], &[]),
    ];
    for (number, set) in sets.iter().enumerate() {
        for text in commands {
            let bare = shell(set, text, BUILD);
            for wrapper in WRAPPERS {
                let wrapped = wrapper.replace("{}", text).replace("[]", &format!("'{text}'"));
                // What a rule allows by the wrapper's own name it allows: `git *` speaks of `git bisect` itself.
                let is = shell(set, &wrapped, BUILD);
                assert!(is >= bare, "set {number}: {text} is {bare:?}, {wrapped} is {is:?}");
                let twice = format!("sh -c \"{}\"", wrapped.replace('"', "\\\""));
                let is = shell(set, &twice, BUILD);
                assert!(is >= bare, "set {number}: {text} is {bare:?}, {twice} is {is:?}");
            }
        }
    }
}
