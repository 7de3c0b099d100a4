//! Parses the command line, runs the command, and turns an error into one sentence and exit code 2.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use fsyncscope::cli::{Cli, Command};
use fsyncscope::{cost, demo, disks, doctor, replay, run, watch};

const FAILED: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fsyncscope: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Watch(options) => runtime()?.block_on(watch::watch(&options)),
        Command::Run(options) => runtime()?.block_on(run::run(&options)),
        Command::Disks(options) => runtime()?.block_on(disks::disks(&options)),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Cost(options) => cost::cost(&options),
        Command::Demo(options) => demo::demo(&options),
        Command::DemoRole(options) => demo::act(&options),
        Command::Explain(options) => replay::replay(&options),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Help and version are no errors; of a wrong flag, the sentence and where to read on.
fn usage(error: &clap::Error) -> ExitCode {
    let asked =
        [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if asked.contains(&error.kind()) {
        let _ = error.print();
        return if error.kind() == asked[2] { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let sentence = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
    let sentence: Vec<&str> = sentence.lines().map(str::trim).collect();
    eprintln!("fsyncscope: {}; see fsyncscope --help", sentence.join(" "));
    ExitCode::from(FAILED)
}
