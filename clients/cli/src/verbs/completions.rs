//! `mcode completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::stdout_line;
use crate::verbs::Outcome;

pub(crate) fn run(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mcode", &mut script);
    stdout_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(0)
}
