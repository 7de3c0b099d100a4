//! Parses the command line, runs the command, and turns an error into one sentence and exit code 2.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use clap::Parser;
use clap::error::ErrorKind;
use fsyncscope::cli::{Cli, Command};
use fsyncscope::{cost, demo, disks, doctor, replay, run, watch};

const FAILED: u8 = 2;

/// Stdout was closed when the process began. Before `main`, Rust puts /dev/null in its place, and all that is printed
/// would be lost without an error.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Has the C library ask before Rust does.
#[used]
// SAFETY: the section holds pointers to functions of this type, which are called once before `main`; this one only asks
// the kernel and writes an atomic.
#[unsafe(link_section = ".init_array")]
static ASK: extern "C" fn() = {
    extern "C" fn ask() {
        // SAFETY: the call takes numbers only.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        STDOUT_CLOSED.store(flags < 0, Ordering::Relaxed);
    }
    ask
};

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
    let closed = STDOUT_CLOSED.load(Ordering::Relaxed);
    ensure!(!closed, "stdout is closed, so what is found could not be told; redirect it to a file, or to /dev/null");
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
