//! The command line: flags as typed, and what they mean. Every bad value ends in one sentence and exit code 2.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::limits::WORST_MAX;
use crate::probes::table::Calls;

/// Answers "why was this fsync slow?": accounts for every nanosecond of every sync of a journal disk, and names the
/// cause and the culprit of the slow ones.
#[derive(Debug, Parser)]
#[command(name = "fsyncscope", version, max_term_width = 80, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print each slow sync as it ends: its parts, the cause, the culprit
    Watch(Watch),
    /// Run as a daemon: metrics for Prometheus, one line of JSON per spike
    Run(Run),
    /// Show what the watched disks do: requests by who submits them, whose pages
    /// are written back, and why
    Disks(Disks),
    /// Say what works on this machine, what does not, and what is lost
    Doctor(Doctor),
    /// Measure what the probes cost, per run and per sync
    Cost(Cost),
    /// Show an explained spike within seconds, on a scratch disk of its own
    Demo(Demo),
    /// Explain the syncs of a recording; needs no privilege
    Explain(Explain),
    /// A process of the demo
    #[command(hide = true)]
    DemoRole(DemoRole),
}

/// Which syncs are wanted. Flags of one kind are alternatives; different kinds must all fit.
#[derive(Args, Clone, Debug, Default)]
pub struct Selectors {
    /// Process name or path of its executable, as a glob
    #[arg(long, value_name = "GLOB", help_heading = "Which syncs")]
    pub process: Vec<String>,
    /// Full thread name, as a JVM has it; the kernel's shortened forms are derived
    #[arg(long, value_name = "NAME", help_heading = "Which syncs")]
    pub thread: Vec<String>,
    /// Path of the control group, as a glob
    #[arg(long, value_name = "GLOB", help_heading = "Which syncs")]
    pub cgroup: Vec<String>,
    /// Path of the synced file, as a glob
    #[arg(long, value_name = "GLOB", help_heading = "Which syncs")]
    pub file: Vec<String>,
    /// fsync, fdatasync, o_dsync, o_sync, msync, syncfs, sync, sync_file_range
    /// or fadvise
    #[arg(long, value_name = "NAME", help_heading = "Which syncs")]
    pub operation: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct Tracing {
    /// Syncs from this duration on are shown and explained; 0 for every sync
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "10ms")]
    pub threshold: Duration,
    /// A sync that runs for this long is reported while it runs
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "1s")]
    pub open: Duration,
    /// Write all events to a file that `explain` reads
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Bytes of the ring between kernel and agent, a power of two
    #[arg(long, value_name = "BYTES", value_parser = ring_bytes, default_value = "4194304", hide_short_help = true)]
    pub ring_bytes: u32,
    /// Load the probes as raw tracepoints, as kernels do that lack types
    #[arg(long, hide_short_help = true)]
    pub raw: bool,
    /// Also trace sync_file_range, fadvise or both (all): only the tracepoints of
    /// their system calls show them, which taxes every system call of this
    /// machine; `doctor` measures how much
    #[arg(long, value_name = "CALLS", value_parser = calls, num_args = 0..=1, require_equals = true, default_missing_value = "all", hide_short_help = true)]
    pub syscall_tracepoints: Option<Calls>,
    #[command(flatten)]
    pub selectors: Selectors,
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            threshold: Duration::from_millis(10),
            open: Duration::from_secs(1),
            record: None,
            ring_bytes: fsyncscope_ebpf::limits::RING,
            raw: false,
            syscall_tracepoints: None,
            selectors: Selectors::default(),
        }
    }
}

#[derive(Args, Debug)]
pub struct Watch {
    #[command(flatten)]
    pub tracing: Tracing,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = span, allow_hyphen_values = true)]
    pub time: Option<Duration>,
    /// End after this many syncs were shown
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub count: Option<u64>,
    /// Show, at the end, this many of the slowest syncs, however fast they were
    #[arg(long, value_name = "N", value_parser = worst, allow_negative_numbers = true, conflicts_with_all = ["threshold", "count"])]
    pub worst: Option<usize>,
    /// One JSON object a line instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Run {
    #[command(flatten)]
    pub tracing: Tracing,
    /// Address of /metrics and /healthz
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, default_value = "127.0.0.1:9464", env = "FSYNCSCOPE_LISTEN")]
    pub listen: SocketAddr,
    /// Lines of spikes a second at most; more are counted, not printed
    #[arg(long, value_name = "N", value_parser = lines, default_value_t = 10, allow_negative_numbers = true)]
    pub lines: u32,
    /// Time for which a thread's series stay after its end, so that a last scrape sees them
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "60s", hide_short_help = true)]
    pub keep_series: Duration,
}

#[derive(Args, Debug)]
pub struct Disks {
    /// Time that each picture is of
    #[arg(long, value_name = "DURATION", value_parser = interval, allow_hyphen_values = true, default_value = "5s")]
    pub every: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = span, allow_hyphen_values = true)]
    pub time: Option<Duration>,
    /// One JSON object a line instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Doctor {
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Measure what --syscall-tracepoints would cost, by attaching them
    #[arg(long)]
    pub syscall_tracepoints: bool,
    /// Sync a file of its own in this directory, instead of on scratch disks in
    /// memory: whoever waits for a journal on that disk may feel it
    #[arg(long, value_name = "DIRECTORY")]
    pub canary: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Cost {
    /// Time to measure
    #[arg(long = "for", value_name = "DURATION", value_parser = span, allow_hyphen_values = true, default_value = "10s")]
    pub time: Duration,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Demo {
    /// Time to wait for a spike beside the writer, at least 6 s
    #[arg(long = "for", value_name = "DURATION", value_parser = span, allow_hyphen_values = true, default_value = "30s")]
    pub time: Duration,
}

#[derive(Args, Debug)]
pub struct DemoRole {
    pub role: Actor,
    pub directory: PathBuf,
}

/// Who acts in the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Actor {
    /// Appends to a journal and syncs it.
    Journal,
    /// Writes another file on the same disk.
    Writer,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// File that `--record` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Show syncs from this duration on, instead of the recording's own threshold
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub threshold: Option<Duration>,
    /// One JSON object a line instead of text
    #[arg(long)]
    pub json: bool,
}

/// Names of system calls, separated by commas, or `all`.
fn calls(text: &str) -> Result<Calls, String> {
    Calls::named(text).ok_or_else(|| {
        format!(
            "no such call can be traced by its tracepoint; give all, or of {} one or more with commas",
            Calls::NAMES.join(", ")
        )
    })
}

/// A duration such as `1ms`, `250us`, `10s`, `2m`, or 0.
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 6] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9)];
    const HOURS_MAX_NS: f64 = 1000.0 * 3600e9;
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let advice = "write a number with a unit, such as 1ms, 250us or 10s";
    let unit =
        UNITS.iter().find(|(unit, _)| text.strip_suffix(unit).is_some_and(|number| number.parse::<f64>().is_ok()));
    let Some((unit, factor)) = unit else { return Err(format!("no duration; {advice}")) };
    let number: f64 = text.trim_end_matches(unit).parse().map_err(|_| format!("no duration; {advice}"))?;
    let ns = number * factor;
    if !(0.0..=HOURS_MAX_NS).contains(&ns) {
        return Err("a duration between 0 and 1000 hours is wanted".into());
    }
    Ok(Duration::from_nanos(ns as u64))
}

/// A duration in which something can happen.
fn span(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() { Err("more than no time is wanted".into()) } else { Ok(time) }
}

/// A duration of a second or more.
fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < Duration::from_secs(1) {
        return Err("a second or more is wanted".into());
    }
    Ok(time)
}

/// Where to listen.
fn address(text: &str) -> Result<SocketAddr, String> {
    let wanted = "an address and a port with a colon between are wanted, such as 127.0.0.1:9464 or [::1]:9464";
    text.parse().map_err(|_| wanted.to_owned())
}

/// How many.
fn count(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "a number from 1 on is wanted".into())
}

/// Lines a second; 0 for none.
fn lines(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a number from 0 to {} is wanted", u32::MAX))
}

/// Each is kept whole until the end.
fn worst(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=WORST_MAX).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {WORST_MAX} is wanted")),
    }
}

fn ring_bytes(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(bytes) if bytes.is_power_of_two() && (4096..=1 << 28).contains(&bytes) => Ok(bytes),
        _ => Err("a power of two from 4096 to 268435456 is wanted".into()),
    }
}
