//! What can be said on the command line.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::verbs::{
    approvals, ask, checkpoint, config, daemon, demo, doctor, login, models, packs, permissions, plans, projects,
    providers, runs, threads, trust, usage, watch,
};

/// A coding agent that lives in a daemon of your own.
#[derive(Debug, Parser)]
#[command(name = "mcode", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

/// Flags of every verb; `-h` leaves them to `--help`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Work as if started in this folder
    #[arg(long, global = true, hide_short_help = true, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Talk to the daemon at this socket
    #[arg(long, global = true, hide_short_help = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Do not start a daemon when none answers
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) no_autostart: bool,
    /// Show more of what happens; may be repeated
    #[arg(short, long, global = true, hide_short_help = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Whether to use colours
    #[arg(long, global = true, hide_short_help = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: When,
    /// The form of what is printed
    #[arg(long, global = true, hide_short_help = true, value_name = "FORM")]
    pub(crate) output: Option<Form>,
    /// The same as --output jsonl
    #[arg(long, global = true, hide_short_help = true, conflicts_with = "output")]
    pub(crate) json: bool,
}

impl Global {
    /// The form that was asked for.
    pub(crate) fn output(&self) -> Form {
        if self.json { Form::Jsonl } else { self.output.unwrap_or(Form::Text) }
    }
}

/// The form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// One JSON object a line.
    Jsonl,
}

/// When to do something that terminals can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On terminals.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Ask the agent something, wait for its answer, and print it
    Ask(Box<ask::AskArgs>),
    /// Print the events of a thread as they happen
    Watch(watch::WatchArgs),
    /// List, show, search, name, fork and delete threads
    #[command(subcommand, visible_alias = "thread")]
    Threads(threads::ThreadsVerb),
    /// See and undo what the agent did to your files
    #[command(subcommand, visible_alias = "checkpoints")]
    Checkpoint(checkpoint::CheckpointVerb),
    /// List, show and compare the plans that models have submitted
    #[command(subcommand, visible_alias = "plan")]
    Plans(plans::PlansVerb),
    /// List the projects that threads belong to, and say which one a folder is of
    #[command(subcommand, visible_alias = "project")]
    Projects(projects::ProjectsVerb),
    /// List, show, cancel and steer runs
    #[command(subcommand, visible_alias = "run")]
    Runs(runs::RunsVerb),
    /// List and settle what runs wait for
    #[command(subcommand, visible_alias = "approval")]
    Approvals(approvals::ApprovalsVerb),
    /// List and choose models, and fetch a newer list of them
    #[command(subcommand, visible_alias = "model")]
    Models(models::ModelsVerb),
    /// Log in to a provider, in the browser or with an API key
    Login(login::LoginArgs),
    /// Forget what is stored for a provider
    Logout(login::LogoutArgs),
    /// See and choose which model has which role
    #[command(subcommand, visible_alias = "pack")]
    Packs(packs::PacksVerb),
    /// List, find, add and remove providers of models
    #[command(subcommand, visible_alias = "provider")]
    Providers(providers::ProvidersVerb),
    /// Tell what models have cost: tokens and money by thread, model, day, goal, provider or purpose
    Usage(usage::UsageArgs),
    /// See and change the permission rules, and try out what they decide
    #[command(subcommand, visible_alias = "permission")]
    Permissions(permissions::PermissionsVerb),
    /// See what a project's own configuration would run, and trust it or not
    #[command(subcommand)]
    Trust(trust::TrustVerb),
    /// Read and change the configuration
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// See, start and end the daemon
    #[command(subcommand)]
    Daemon(daemon::DaemonVerb),
    /// Check everything that the main job needs, and say how to mend it
    Doctor(doctor::DoctorArgs),
    /// Let a scripted model mend a failing test in a scratch repository: no key, no network
    Demo(demo::DemoArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("mcode").chain(words.iter().copied()))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_anywhere() {
        for words in [&["--output", "json", "threads", "list"][..], &["threads", "list", "--output", "json"]] {
            assert_eq!(parse(words).unwrap().global.output(), Form::Json);
        }
        assert_eq!(parse(&["ask", "--json", "hi"]).unwrap().global.output(), Form::Jsonl);
        assert!(parse(&["ask", "--json", "--output", "text", "hi"]).is_err());
    }

    #[test]
    fn the_whole_row_of_ask_is_understood() {
        let words = "ask -t thr_1 -m a/b --mode plan --think high -i p.png -i q.png --add-dir /x --title T --schema s.json \
                     --approve deny --timeout 10m --max-steps 3 --max-tokens 9 --max-cost 0.5 do it now";
        let cli = parse(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        let Some(Verb::Ask(ask)) = cli.verb else { panic!("not ask") };
        assert_eq!(ask.prompt, ["do", "it", "now"]);
        assert_eq!((ask.thread.as_deref(), ask.how.model.as_deref()), (Some("thr_1"), Some("a/b")));
        assert_eq!(ask.how.images.len(), 2);
        assert_eq!(ask.how.timeout, Some(std::time::Duration::from_secs(600)));
        assert_eq!((ask.how.max_steps, ask.how.max_tokens, ask.how.max_cost), (Some(3), Some(9), Some(0.5)));
        assert!(!ask.ephemeral && !ask.how.detach && !ask.how.yolo);
    }

    #[test]
    fn help_of_a_verb_is_there_and_leaves_the_global_flags_to_the_long_form() {
        let help = |words: &[&str]| parse(words).unwrap_err().to_string();
        let long = help(&["help", "ask"]);
        assert_eq!(long, help(&["ask", "--help"]));
        let global = long.split("Global options:").nth(1).unwrap();
        assert!(global.contains("--no-autostart") && global.contains("Examples:"), "{long}");
        let short = help(&["ask", "-h"]);
        assert!(!short.contains("--no-autostart") && short.contains("--max-tokens <TOKENS>"), "{short}");
        for words in [&["threads", "list"][..], &["models", "list"], &["approvals", "deny"], &["config", "explain"]] {
            let words: Vec<&str> = words.iter().copied().chain(["--help"]).collect();
            assert!(!help(&words).contains("[default: ]"), "{words:?}");
        }
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for words in [
            &["ask", "-c", "-t", "thr_1", "hi"][..],
            &["ask", "--ephemeral", "-t", "thr_1", "hi"],
            &["ask", "--yolo", "--approve", "ask", "hi"],
            &["ask", "--mode", "fast", "hi"],
            &["ask", "--timeout", "soon", "hi"],
            &["ask", "--max-cost", "-1", "hi"],
            &["nonsense"],
            &["help", "nonsense"],
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
