//! The host of one command: starts it, keeps its output and its end, and lives as long as anything of it does.
//!
//! The daemon starts one for each command, with the folder to use as its argument and a socket as its standard input,
//! and sends what is to be run over that. When the daemon ends, the host goes on; the next daemon finds it by its
//! folder. It is a reaper: whatever the command starts, and wherever that goes, is a descendant of the host, so nothing
//! escapes and the host knows exactly when all of it is gone.
//!
//! Two threads: [`tend`] waits for everything that can happen, [`reaper`] for children. (A command that reaches the network
//! by a proxy only has a third, which carries its connections there.) Reading order: [`begin`],
//! [`tend`].

#[cfg(unix)]
mod begin;
#[cfg(unix)]
mod bounds;
#[cfg(unix)]
mod clock;
#[cfg(unix)]
mod input;
#[cfg(unix)]
mod line;
#[cfg(unix)]
mod peer;
#[cfg(unix)]
mod reaper;
#[cfg(unix)]
mod tend;

use std::process::ExitCode;

/// What is said to somebody who starts this by hand; wrong usage.
const USAGE: &str = "mcode-toolhost is started by mcoded, for each command that mcode runs\n";
const WRONG_USAGE: u8 = 2;

#[cfg(unix)]
fn main() -> ExitCode {
    begin::name();
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else { return usage() };
    match begin::begin(std::path::Path::new(&folder)) {
        Ok(Some(host)) => {
            host.tend();
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::FAILURE,
        Err(_) => usage(),
    }
}

/// Commands are tended within the daemon here; this only starts them, with fewer rights.
#[cfg(windows)]
fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_none_or(|mode| mode != mcode_sandbox::restricted::RESTRICTED) {
        return usage();
    }
    match mcode_sandbox::restricted::run() {
        Ok(code) => std::process::exit(code.cast_signed()),
        Err(error) => {
            use std::io::Write;
            writeln!(std::io::stderr(), "mcode-toolhost: the command could not be started: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    use std::io::Write;
    std::io::stderr().write_all(USAGE.as_bytes()).ok();
    ExitCode::from(WRONG_USAGE)
}
