//! Lines of `strace -f -Y -yy -T -ttt` into one record per finished system call. Knows text, starts nothing.

use std::collections::{BTreeMap, HashMap};

/// One system call as strace saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub tid: u32,
    /// The name of the thread when strace first printed it; a thread that renames itself later keeps the old one here.
    pub comm: String,
    pub name: String,
    /// The file behind the first argument; none for msync, which names an address.
    pub path: Option<String>,
    /// The first argument of msync.
    pub address: Option<u64>,
    pub start_unix_ns: u64,
    pub duration_ns: u64,
    pub result: i64,
    /// `EIO` and the like, where the call failed.
    pub error: Option<String>,
}

/// What one run of strace saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Finished calls in the order of their starts.
    pub calls: Vec<Call>,
    /// Calls whose end was not seen, because the thread or the trace ended first: without duration and result.
    pub unfinished: Vec<Call>,
}

/// What one call of many is counted under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub comm: String,
    pub name: String,
    pub path: String,
}

impl Trace {
    /// Reads a whole output; a line of an unknown form panics, for an oracle that skips lines is none.
    pub fn parse(text: &str) -> Self {
        let mut open: HashMap<u32, Started> = HashMap::new();
        let mut calls = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let line = Line::parse(line).unwrap_or_else(|| panic!("not a line of strace: {line}"));
            match line.what {
                What::Nothing => {}
                What::Start(started) => drop(open.insert(line.tid, started)),
                What::Resumed(end) => {
                    if let Some(started) = open.remove(&line.tid) {
                        calls.push(started.ended(line.tid, end));
                    }
                }
                What::Whole(started, end) => calls.push(started.ended(line.tid, end)),
                What::Lost(Some(started)) => drop(open.insert(line.tid, started)),
                What::Lost(None) => {}
            }
        }
        calls.sort_by_key(|call| call.start_unix_ns);
        let no_end = || End { duration_ns: 0, result: 0, error: None };
        let unfinished = open.into_iter().map(|(tid, started)| started.ended(tid, no_end())).collect();
        Self { calls, unfinished }
    }

    /// The calls of one name by threads of one name on files whose path ends like this.
    pub fn select<'a>(&'a self, comm: &'a str, name: &'a str, path_end: &'a str) -> impl Iterator<Item = &'a Call> {
        self.calls.iter().filter(move |call| {
            call.comm == comm && call.name == name && call.path.as_deref().is_some_and(|path| path.ends_with(path_end))
        })
    }

    /// How many calls each thread name made of each kind on each file.
    pub fn counts(&self) -> BTreeMap<Key, usize> {
        let mut counts = BTreeMap::new();
        for call in &self.calls {
            let key =
                Key { comm: call.comm.clone(), name: call.name.clone(), path: call.path.clone().unwrap_or_default() };
            *counts.entry(key).or_insert(0) += 1;
        }
        counts
    }
}

/// A call that began.
#[derive(Clone, Debug, PartialEq)]
struct Started {
    comm: String,
    name: String,
    path: Option<String>,
    address: Option<u64>,
    start_unix_ns: u64,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
struct End {
    duration_ns: u64,
    result: i64,
    error: Option<String>,
}

impl Started {
    fn ended(self, tid: u32, end: End) -> Call {
        let Self { comm, name, path, address, start_unix_ns } = self;
        let End { duration_ns, result, error } = end;
        Call { tid, comm, name, path, address, start_unix_ns, duration_ns, result, error }
    }
}

enum What {
    /// A signal, or the end of a thread.
    Nothing,
    Start(Started),
    Resumed(End),
    Whole(Started, End),
    /// A call whose end strace will not show: the thread died inside it, or strace let go of it.
    Lost(Option<Started>),
}

struct Line {
    tid: u32,
    what: What,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let (tid, rest) = line.split_once('<')?;
        // strace writes the angle brackets of a name as octal escapes.
        let (comm, rest) = rest.split_once('>')?;
        let (time, rest) = rest.trim_start().split_once(' ')?;
        let tid = tid.trim().parse().ok()?;
        let rest = rest.trim_start();
        let what = if rest.starts_with("+++") || rest.starts_with("---") {
            What::Nothing
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let (_, tail) = resumed.split_once(" resumed>")?;
            if lost(tail) { What::Lost(None) } else { What::Resumed(end(tail)?.1) }
        } else {
            began(comm, decimal_ns(time)?, rest)?
        };
        Some(Self { tid, what })
    }
}

/// Reads a line that shows the start of a call, and perhaps its end.
fn began(comm: &str, start_unix_ns: u64, text: &str) -> Option<What> {
    let (name, arguments) = text.split_once('(')?;
    let started = Started {
        comm: comm.to_owned(),
        name: name.to_owned(),
        path: path(arguments),
        address: address(arguments),
        start_unix_ns,
    };
    if arguments.ends_with("<unfinished ...>") {
        return Some(if arguments.contains("= ?") { What::Lost(Some(started)) } else { What::Start(started) });
    }
    if lost(arguments) {
        return Some(What::Lost(Some(started)));
    }
    Some(What::Whole(started, end(arguments)?.1))
}

/// True for the end of a call that strace did not see to its end.
fn lost(tail: &str) -> bool {
    tail.ends_with("<detached ...>") || tail.ends_with("= ?")
}

/// Splits `ARGUMENTS) = RESULT [ERROR (words)] <SECONDS>`.
fn end(text: &str) -> Option<(&str, End)> {
    let (arguments, result) = text.rsplit_once(" = ")?;
    let (result, duration) = result.rsplit_once(" <")?;
    let duration_ns = decimal_ns(duration.strip_suffix('>')?)?;
    let mut words = result.split_whitespace();
    let number = words.next()?;
    let result = match number.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    let error = words.next().filter(|_| result < 0).map(str::to_owned);
    Some((arguments, End { duration_ns, result, error }))
}

/// The path in `45</path/of/file>, …`, or in `0</dev/null<char 1:3>>`.
fn path(arguments: &str) -> Option<String> {
    let after_number = arguments.trim_start_matches(|character: char| character.is_ascii_digit());
    if after_number.len() == arguments.len() {
        return None;
    }
    let inside = after_number.strip_prefix('<')?;
    inside.split(['<', '>']).next().map(str::to_owned)
}

fn address(arguments: &str) -> Option<u64> {
    let hex = arguments.strip_prefix("0x")?;
    let end = hex.find(|character: char| !character.is_ascii_hexdigit())?;
    u64::from_str_radix(&hex[..end], 16).ok()
}

/// `12.000345` seconds in nanoseconds, without a detour through floating point.
fn decimal_ns(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = fraction.parse().ok()?;
    Some(whole * 1_000_000_000 + fraction * 10u64.pow(9 - digits))
}

#[test]
fn recorded_lines_become_calls() {
    let trace = Trace::parse(include_str!("strace.txt"));
    let shown: Vec<String> = trace
        .calls
        .iter()
        .map(|call| {
            let Call { tid, comm, name, path, address, start_unix_ns, duration_ns, result, error } = call;
            let path = path.as_deref().unwrap_or("-");
            let address = address.map_or("-".to_owned(), |address| format!("{address:x}"));
            let error = error.as_deref().unwrap_or("-");
            format!("{tid} {comm} {name} {path} {address} {start_unix_ns} {duration_ns} {result} {error}")
        })
        .collect();
    let expected: Vec<&str> = include_str!("strace.expected.txt").lines().collect();
    assert_eq!(shown, expected);
    assert_eq!(trace.unfinished.len(), 2, "one thread was let go of inside a call, one died in it");
}

#[test]
fn calls_are_counted_by_thread_call_and_file() {
    let trace = Trace::parse(include_str!("strace.txt"));
    let key = Key { comm: "ForceWriteThrea".into(), name: "fdatasync".into(), path: "/j/current/19b.txn".into() };
    assert_eq!(trace.counts()[&key], 2);
    assert_eq!(trace.select("ForceWriteThrea", "fdatasync", ".txn").count(), 2);
    assert_eq!(trace.select("ForceWriteThrea", "fsync", ".txn").count(), 0);
}
