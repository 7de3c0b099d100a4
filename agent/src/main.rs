//! Entry of the agent: parse, run, exit code; nothing else.

use std::process::ExitCode;

use clap::Parser;
use fsyncscope::cli::{Cli, Command};

/// Exit code of bad input, and of a machine on which nothing can be traced.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Doctor(options) => fsyncscope::doctor::doctor(&options),
        Command::Cost(options) => fsyncscope::cost::cost(&options),
        _ => Err(anyhow::anyhow!("this command is not built yet")),
    };
    done.unwrap_or_else(|error| {
        eprintln!("fsyncscope: {error:#}");
        ExitCode::from(REFUSED)
    })
}
