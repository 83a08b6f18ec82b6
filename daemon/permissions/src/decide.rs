//! The decision about one tool call.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use mcode_events::run::ApprovalPolicy;

use crate::access::{Access, Category, GUARDED, PLANS, Unconfined, is_plan};
use crate::command::{Parsed, Simple, parse};
use crate::matching::{CommandPattern, git_without_globals};
use crate::mode::Mode;
use crate::paths::{Places, absolute, is_secret};
use crate::readonly::{harmless_variable, only_looks, stays_inside};
use crate::rule::{Rule, RuleSet, Subject};
use crate::runners::{evaluates_text, git_alias, runs_nothing, sharp_words};
use crate::touched::{Name, raw_commands};
use crate::uncertain::unknown_part;
use crate::verdict::{DecidedBy, Decision, Verdict};
use crate::words::Word;

/// Targets of redirections that keep nothing.
const NOWHERE: [&str; 4] = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"];

/// Words that are looked at from each word on, when a command that is not understood is searched for another.
const SEARCHED_WORDS: usize = 32;

/// What is to be decided.
#[derive(Debug, Clone, Copy)]
pub struct DecideInput<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The tool's kind of effect; decides when `accesses` is empty.
    pub category: Category,
    /// What the call touches.
    pub accesses: &'a [Access],
    /// The run's mode.
    pub mode: Mode,
    /// What is done about calls that would be asked.
    pub policy: ApprovalPolicy,
    /// The project's root: absolute, resolved.
    pub project_root: &'a Path,
    /// Further folders of the run, likewise.
    pub extra_dirs: &'a [PathBuf],
    /// The user's home, likewise.
    pub home: Option<&'a Path>,
    /// The files that rules forbid are out of the reach of commands: the kernel hides them.
    pub shielded: bool,
}

impl DecideInput<'_> {
    pub(crate) fn places(&self) -> Places<'_> {
        Places { project_root: self.project_root, extra_dirs: self.extra_dirs, home: self.home }
    }
}

/// One access with what was found out about it.
pub(crate) struct Case<'a> {
    pub(crate) input: &'a DecideInput<'a>,
    access: Option<&'a Access>,
    pub(crate) parsed: Option<Parsed>,
    /// What the command names, once somebody has asked.
    pub(crate) names: OnceCell<Vec<Name>>,
}

impl RuleSet {
    /// Decides a call: the strictest decision about anything it touches.
    #[must_use]
    pub fn decide(&self, input: &DecideInput<'_>) -> Decision {
        let accesses: Vec<Option<&Access>> =
            if input.accesses.is_empty() { vec![None] } else { input.accesses.iter().map(Some).collect() };
        let mut strictest: Option<Decision> = None;
        for access in accesses {
            let decision = self.decide_access(input, access);
            let stricter = |known: &Decision| (decision.verdict, decision.firm) > (known.verdict, known.firm);
            if strictest.as_ref().is_none_or(stricter) {
                strictest = Some(decision);
            }
        }
        strictest.unwrap_or_else(|| Decision::new(Verdict::Deny, "nothing is known about this call"))
    }

    fn decide_access(&self, input: &DecideInput<'_>, access: Option<&Access>) -> Decision {
        let parsed = match access {
            Some(Access::Command { command, .. }) => parse(command),
            _ => None,
        };
        let case = Case { input, access, parsed, names: OnceCell::new() };
        if let Some(rule) = self.deny.iter().find(|rule| case.restricted_by(rule)) {
            return Decision::by(Verdict::Deny, "deny", rule);
        }
        if let Some(decision) = case.mode_denies() {
            return decision;
        }
        let asking = self.ask.iter().find(|rule| case.restricted_by(rule));
        let uncertain = self.uncertain(&case);
        let decision = if let (Some(rule), false) = (asking, uncertain.as_ref().is_some_and(|it| it.firm)) {
            Decision::by(Verdict::Ask, "ask", rule)
        } else if let Some(decision) = uncertain {
            decision
        } else if let Some(rule) = self.allowing(&case) {
            Decision::by(Verdict::Allow, "allow", rule)
        } else {
            case.default()
        };
        self.by_policy(input, &case, decision)
    }

    /// A command of which it can not be known whether a rule that restricts speaks of it.
    fn uncertain(&self, case: &Case<'_>) -> Option<Decision> {
        for (word, rules) in [("deny", &self.deny), ("ask", &self.ask)] {
            let decision = match case.access {
                Some(Access::Command { command, cwd }) => {
                    let (shielded, places) = (case.input.shielded, case.input.places());
                    unknown_part((command, cwd), case.parsed.as_ref(), rules, shielded, &places)
                        .map(|why| Decision::perhaps(&why, word, None))
                }
                Some(Access::Mentioned { path, below, changes }) => {
                    let meant = rules.iter().find(|rule| case.below_restricted(rule, path, below, *changes));
                    meant.map(|rule| Decision::perhaps("the command reads everything in a folder", word, Some(rule)))
                }
                _ => None,
            };
            if decision.is_some() {
                return decision;
            }
        }
        None
    }

    fn by_policy(&self, input: &DecideInput<'_>, case: &Case<'_>, decision: Decision) -> Decision {
        // What was lost with a rule that can not be read is unknown, so nothing counts as allowed.
        let harmless = matches!(case.access, Some(Access::Internal)) || input.category == Category::Internal;
        if let (Some(broken), false) = (self.broken.first(), harmless) {
            let verdict = if input.policy == ApprovalPolicy::Ask { Verdict::Ask } else { Verdict::Deny };
            let decision = Decision::new(verdict, format!("{broken}; nothing is allowed before it is mended"));
            return Decision { by: DecidedBy::Rule, ..decision };
        }
        match (decision.verdict, input.policy) {
            (Verdict::Ask, ApprovalPolicy::Deny) => {
                let why = format!("{}, and this run refuses what would be asked", decision.why);
                Decision { verdict: Verdict::Deny, why, by: DecidedBy::Policy, ..decision }
            }
            // Whoever allows everything means everything within the sandbox, and what no deny rule may mean.
            (Verdict::Ask, ApprovalPolicy::All) if case.only_a_person() || decision.firm => decision,
            (Verdict::Ask, ApprovalPolicy::All) => {
                let why = format!("this run allows everything that is not denied (otherwise: {})", decision.why);
                Decision { verdict: Verdict::Allow, why, by: DecidedBy::Policy, ..decision }
            }
            _ => decision,
        }
    }

    /// The rule that allows this access; for a command, the rule that allows its first part when all parts are allowed.
    fn allowing(&self, case: &Case<'_>) -> Option<&Rule> {
        let whole = |rule: &&Rule| rule.pattern.is_none() && case.concerns(&rule.subject, false);
        match case.access {
            Some(Access::Command { cwd, .. }) => {
                self.allow.iter().find(whole).or_else(|| self.allowing_command(case, case.parsed.as_ref()?, cwd))
            }
            Some(Access::EditPath(path)) => self
                .allow
                .iter()
                .find(|rule| case.concerns(&rule.subject, false) && edit_allowed(rule, path, case.input)),
            Some(Access::Unconfined(what)) => self.allow.iter().find(|rule| {
                let fits = case.concerns(&rule.subject, false) && case.pattern_fits(rule, false);
                match what {
                    Unconfined::Command => false,
                    Unconfined::Network => fits,
                    Unconfined::Edit(path) => fits && rule.pattern.is_some() && edit_allowed(rule, path, case.input),
                    Unconfined::Read(_) => fits && rule.pattern.is_some(),
                }
            }),
            _ => self.allow.iter().find(|rule| case.concerns(&rule.subject, false) && case.pattern_fits(rule, false)),
        }
    }

    fn allowing_command(&self, case: &Case<'_>, parsed: &Parsed, cwd: &Path) -> Option<&Rule> {
        if parsed.opaque || parsed.evaluates || !self.redirects_allowed(case, parsed, cwd) {
            return None;
        }
        let mut first = None;
        for simple in &parsed.commands {
            let rule = self.allowing_simple(case, simple, cwd)?;
            first = first.or(rule);
        }
        first
    }

    /// `None`: not allowed. `Some(None)`: nothing that needs a rule.
    fn allowing_simple(&self, case: &Case<'_>, simple: &Simple, cwd: &Path) -> Option<Option<&Rule>> {
        if !simple.assigned.iter().all(|name| harmless_variable(name)) {
            return None;
        }
        let Some(program) = simple.words.first() else { return Some(None) };
        let Some(Access::Command { command: whole, .. }) = case.access else { return None };
        let sharp = sharp_words(&simple.words, whole);
        let fits = |words: &[Word]| {
            self.allow.iter().find(|rule| {
                let command = rule.pattern.as_ref().and_then(|pattern| pattern.command.as_ref());
                // An option that runs or writes something else must be named by the rule.
                let named = |pattern: &CommandPattern| sharp.iter().all(|word| pattern.names(word));
                let command = command.filter(|pattern| pattern.strict(words) && named(pattern));
                case.concerns(&rule.subject, false) && command.is_some()
            })
        };
        if let Some(rule) = fits(&simple.words) {
            return Some(Some(rule));
        }
        let places = case.input.places();
        if let Some((plain, true, folders)) = git_without_globals(&simple.words)
            && folders.iter().all(|folder| places.inside(&absolute(cwd, folder, places.home)))
            && let Some(rule) = fits(&plain)
        {
            return Some(Some(rule));
        }
        let inner = simple.inner.as_ref().filter(|inner| inner.transparent && !program.text.contains('/'))?;
        let mut first = None;
        for command in &inner.commands {
            first = first.or(self.allowing_simple(case, command, cwd)?);
        }
        Some(first)
    }

    fn redirects_allowed(&self, case: &Case<'_>, parsed: &Parsed, cwd: &Path) -> bool {
        let places = case.input.places();
        let moves = parsed.all().any(|simple| {
            simple
                .words
                .first()
                .is_some_and(|word| matches!(word.text.as_str(), "cd" | "pushd" | "popd" | "env" | "sudo"))
        });
        parsed.redirects.iter().all(|redirect| {
            let Some(text) = redirect.target.known() else { return false };
            if NOWHERE.contains(&text) {
                return true;
            }
            let path = absolute(cwd, text, places.home);
            // After `cd` it is not known where a relative path leads.
            if moves && !Path::new(text).is_absolute() {
                return false;
            }
            if redirect.write {
                let edits =
                    |rule: &&Rule| matches!(rule.subject, Subject::Edit) && edit_allowed(rule, &path, case.input);
                self.allow.iter().any(|rule| edits(&rule))
                    && !self.ask.iter().any(|rule| case.path_restricted(rule, &path, true))
            } else {
                places.inside(&path) && !is_secret(&path, places.home)
            }
        })
    }
}

/// Whether an allow rule covers a change of this path. What is guarded must be named.
fn edit_allowed(rule: &Rule, path: &Path, input: &DecideInput<'_>) -> bool {
    let places = input.places();
    let guarded = GUARDED.iter().find(|name| {
        path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(name))
            && !path.starts_with(input.project_root.join(PLANS))
    });
    if guarded.is_some_and(|name| !rule.text.contains(*name)) {
        return false;
    }
    match &rule.pattern {
        None => true,
        Some(pattern) => pattern.path.as_ref().is_some_and(|pattern| pattern.matches(path, &places, false)),
    }
}

impl Case<'_> {
    /// Whether rules on this subject speak of this access. Rules that restrict speak of more.
    fn concerns(&self, subject: &Subject, restricting: bool) -> bool {
        let (tool, category) = (self.input.tool, self.input.category);
        match subject {
            Subject::Tool(name) => name.is_match(tool),
            Subject::View => match self.access {
                Some(Access::ReadPath(_) | Access::Unconfined(Unconfined::Read(_))) => restricting || tool == "view",
                // Whoever changes a file is shown what it held.
                Some(Access::EditPath(_) | Access::Unconfined(Unconfined::Edit(_))) => restricting,
                _ => false,
            },
            Subject::Read => {
                matches!(self.access, Some(Access::ReadPath(_) | Access::Unconfined(Unconfined::Read(_))))
                    || self.bare(category, Category::Read)
            }
            Subject::Edit => {
                matches!(self.access, Some(Access::EditPath(_) | Access::Unconfined(Unconfined::Edit(_))))
                    || self.bare(category, Category::Edit)
            }
            Subject::Shell => {
                matches!(self.access, Some(Access::Command { .. } | Access::Unconfined(Unconfined::Command)))
                    || self.bare(category, Category::Execute)
            }
            Subject::Network => {
                matches!(self.access, Some(Access::Host(_) | Access::Unconfined(Unconfined::Network)))
                    || self.bare(category, Category::Network)
            }
        }
    }

    /// Whether a run that allows everything leaves this to a person.
    fn only_a_person(&self) -> bool {
        matches!(self.access, Some(Access::Unconfined(what)) if *what != Unconfined::Network)
    }

    /// A call that names nothing it touches is known by its category alone.
    fn bare(&self, category: Category, wanted: Category) -> bool {
        self.access.is_none() && category == wanted
    }

    fn pattern_fits(&self, rule: &Rule, wide: bool) -> bool {
        let Some(pattern) = &rule.pattern else { return true };
        let places = self.input.places();
        match self.access {
            Some(
                Access::ReadPath(path)
                | Access::EditPath(path)
                | Access::Unconfined(Unconfined::Edit(path) | Unconfined::Read(path)),
            ) => pattern.path.as_ref().is_some_and(|pattern| pattern.matches(path, &places, wide)),
            Some(Access::Host(host)) => {
                pattern.host.as_ref().is_some_and(|pattern| pattern.is_match(host.to_lowercase()))
            }
            // Every host is within reach then, so a rule that restricts any of them speaks of it, and one that allows
            // some does not.
            Some(Access::Unconfined(Unconfined::Network)) => wide && pattern.host.is_some(),
            Some(
                Access::Command { .. }
                | Access::Mentioned { .. }
                | Access::Unconfined(Unconfined::Command)
                | Access::Internal,
            )
            | None => false,
        }
    }

    /// Whether a deny or ask rule speaks of this access.
    fn restricted_by(&self, rule: &Rule) -> bool {
        if self.concerns(&rule.subject, true) {
            if rule.pattern.is_none() {
                return true;
            }
            match self.access {
                Some(Access::Command { command, .. }) => {
                    let pattern = rule.pattern.as_ref().and_then(|pattern| pattern.command.as_ref());
                    return pattern.is_some_and(|pattern| self.command_fits(command, &|words| pattern.loose(words)));
                }
                _ => return self.pattern_fits(rule, true),
            }
        }
        match (self.access, &rule.subject) {
            (Some(Access::Command { command, cwd }), Subject::View | Subject::Read) => {
                rule.pattern.is_some() && self.names_path(rule, command, cwd, false)
            }
            (Some(Access::Command { command, cwd }), Subject::Edit) => {
                rule.pattern.is_some() && self.names_path(rule, command, cwd, true)
            }
            (Some(Access::Mentioned { path, changes, .. }), _) => self.mention_restricted(rule, path, *changes),
            _ => false,
        }
    }

    /// Whether any simple command fits, in any of the ways to look at it.
    fn command_fits(&self, command: &str, fits: &dyn Fn(&[Word]) -> bool) -> bool {
        let suffixes = |words: &[Word]| {
            // Among arguments, what is not known says nothing.
            let begins = |from: usize| from == 0 || words[from].known().is_some();
            (0..words.len()).any(|from| begins(from) && fits(&words[from..words.len().min(from + SEARCHED_WORDS)]))
        };
        let raw = || raw_commands(command).iter().any(|words| suffixes(words));
        let Some(parsed) = &self.parsed else { return raw() };
        parsed.all().any(|simple| {
            let aliased = git_alias(&simple.words);
            let git = git_without_globals(&simple.words);
            fits(&simple.words)
                || git.is_some_and(|(plain, _, _)| fits(&plain))
                || aliased.is_some_and(|plain| fits(&plain))
                // What could not be unwrapped is searched for the command anywhere in it.
                || (!runs_nothing(&simple.words) && suffixes(&simple.words))
                || (evaluates_text(&simple.words) && raw())
        }) || (parsed.opaque && raw())
    }

    /// Plan and explore mode refuse what changes things, whatever the policy.
    fn mode_denies(&self) -> Option<Decision> {
        let mode = self.input.mode;
        if mode == Mode::Build {
            return None;
        }
        let deny = |what: &str| {
            let decision = Decision::new(Verdict::Deny, format!("{} mode {what}", mode.as_str()));
            Some(Decision { by: DecidedBy::Mode, ..decision })
        };
        match self.access {
            Some(Access::EditPath(path)) => match mode {
                Mode::Plan if is_plan(path, self.input.project_root) => None,
                Mode::Plan => deny("changes no files but plans: Markdown files in .mcode/plans/"),
                Mode::Build | Mode::Explore => deny("changes no files"),
            },
            Some(Access::Unconfined(what)) if !matches!(what, Unconfined::Read(_)) => {
                deny(&format!("does without {}", what.words()))
            }
            Some(Access::Command { .. }) => match &self.parsed {
                Some(parsed) if only_looks(parsed) => None,
                _ => deny("runs only commands that look (such as ls, cat, rg, find, git log), without redirections"),
            },
            None if matches!(self.input.category, Category::Edit | Category::Execute) => deny("changes nothing"),
            _ => None,
        }
    }

    /// What holds without a rule.
    fn default(&self) -> Decision {
        let places = self.input.places();
        let default = |verdict, why: &str| Decision::new(verdict, format!("the default: {why}"));
        match self.access {
            Some(Access::ReadPath(path)) if is_secret(path, places.home) => {
                default(Verdict::Ask, "reading a file that may hold secrets is asked")
            }
            Some(Access::ReadPath(path)) if places.inside(path) => {
                default(Verdict::Allow, "reading in the project is allowed")
            }
            Some(Access::ReadPath(_)) => default(Verdict::Ask, "reading outside the project is asked"),
            Some(Access::EditPath(path)) if self.input.mode == Mode::Plan && is_plan(path, self.input.project_root) => {
                default(Verdict::Allow, "plan mode writes plans")
            }
            Some(Access::EditPath(_)) => default(Verdict::Ask, "changing files is asked"),
            Some(Access::Command { cwd, .. }) => match &self.parsed {
                Some(parsed) if self.input.mode != Mode::Build && stays_inside(parsed, cwd, &places) => {
                    default(Verdict::Allow, "looking in the project is allowed")
                }
                _ => default(Verdict::Ask, "running commands is asked"),
            },
            Some(Access::Mentioned { .. }) => default(Verdict::Allow, "a name in a command is judged with the command"),
            Some(Access::Host(_)) => default(Verdict::Ask, "reaching the network is asked"),
            Some(Access::Unconfined(what)) => default(Verdict::Ask, &format!("{} is asked", what.words())),
            Some(Access::Internal) => default(Verdict::Allow, "it touches nothing outside the conversation"),
            None if self.input.category == Category::Internal => {
                default(Verdict::Allow, "it touches nothing outside the conversation")
            }
            None => default(Verdict::Ask, "it is not known what it touches, so it is asked"),
        }
    }
}
