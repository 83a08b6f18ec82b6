//! `mcode`: the command line. Every verb is a thin use of `mcode.v1`, in a file of its own under `verbs/`.
//!
//! Stdout carries what was asked for and nothing else; all else goes to stderr. With `--output json` or `jsonl` only
//! JSON reaches stdout, errors included.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

mod activity;
mod answer;
mod args;
mod context;
mod deltas;
mod editor;
mod failure;
mod input;
mod interrupt;
mod live;
mod output;
mod stdin;
mod style;
mod table;
mod terminal;
mod times;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::context::Context;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // Asked so often by scripts that it does not even parse the rest.
    if let [_, only] = words.as_slice()
        && (only == "--version" || only == "-V")
    {
        return finish(output::stdout_line(concat!("mcode ", env!("CARGO_PKG_VERSION"))).map(|()| 0));
    }
    match Cli::try_parse_from(&words) {
        Ok(cli) => run(cli),
        Err(error) => ExitCode::from(failure::usage(&error, &words)),
    }
}

fn run(cli: Cli) -> ExitCode {
    let mode = cli.global.output();
    let Some(verb) = cli.verb else {
        failure::report(&failure::nothing_to_do().into(), mode);
        return ExitCode::from(2);
    };
    let outcome = Context::new(cli.global).and_then(|context| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure::runtime)?;
        let outcome = runtime.block_on(verbs::run(verb, &context));
        // A thread may still wait for a line of the terminal; the process does not wait for it.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Err(failure) => {
            failure::report(&failure, mode);
            ExitCode::from(failure.exit_code())
        }
        Ok(code) => ExitCode::from(code),
    }
}

fn finish(outcome: Result<u8, failure::Failure>) -> ExitCode {
    ExitCode::from(outcome.unwrap_or_else(|failure| failure.exit_code()))
}
