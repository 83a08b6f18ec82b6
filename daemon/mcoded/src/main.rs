//! The per-user daemon.
//!
//! Reading order: [`startup`] (what must be in place before anything runs), [`wiring`] (the parts and how they are put
//! together), [`sandbox`] (what commands are held to), [`key_command`] (keys that a command gives), [`signals`] (how it
//! ends), [`logging`].

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

mod failure;
mod key_command;
mod logging;
mod sandbox;
mod signals;
mod startup;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let options = startup::Options::parse();
    match startup::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
