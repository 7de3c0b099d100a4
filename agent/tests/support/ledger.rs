//! Holds what the agent told against a client's book: one record for each call and file, of the right thread, operation,
//! file, device and result, and how far the durations lie apart. Only compares; it neither runs nor asserts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::agent::field;
use super::client::{Client, Entry, Shape};
use super::doors::{About, Asker, Call, Door, Span};
use super::means::Known;
use super::scratch::Format;
use super::verdict::is_whole;

/// A client that has ended, and its book.
pub struct Account {
    pub client: Client,
    pub pid: u32,
    pub book: Vec<Entry>,
}

/// What a kernel tells of a filesystem's syncs.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub format: Format,
    /// In which system call a sync runs. Without it there are only two words for syncs of files.
    pub system_calls: bool,
    /// Doors whose syncs are not seen there.
    pub unseen: &'static [&'static str],
}

impl Told {
    /// By kernels that tell all.
    pub fn by_newest(format: Format) -> Self {
        Self { format, system_calls: true, unseen: &[] }
    }

    fn word(self, call: &Call) -> &'static str {
        match call.word {
            "o_dsync" | "msync" if !self.system_calls => "fdatasync",
            "o_sync" | "sync_file_range" | "fadvise" if !self.system_calls => "fsync",
            word => word,
        }
    }
}

/// What a record must say, beside what its entry says.
struct Owed<'a> {
    entry: &'a Entry,
    call: &'static Call,
    known: Option<&'a Known>,
}

/// What is wrong with the records of one client: each kind of it, how often, and once in full.
#[derive(Default)]
pub struct Faults(BTreeMap<String, (usize, String)>);

impl Faults {
    fn add(&mut self, kind: impl Into<String>, example: impl FnOnce() -> String) {
        self.0.entry(kind.into()).or_insert_with(|| (0, example())).0 += 1;
    }

    pub fn sentences(&self, cell: &str) -> Vec<String> {
        let one =
            |(kind, (count, example)): (&String, &(usize, String))| format!("{cell}: {count} x {kind}: {example}");
        self.0.iter().map(one).collect()
    }
}

/// How far the agent's durations of one kind of call lie from the book's, over all calls whose end it saw.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    pub word: &'static str,
    pub span: Span,
    pub calls: usize,
    /// Of one call.
    pub records: usize,
    /// Calls of which the agent did not see the end.
    pub unseen: usize,
    pub quarter_ns: u64,
    pub median_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// The median of what a call took by the book.
    pub book_ns: u64,
}

impl Distance {
    /// Within 20 us and 2 % at the median, and seen to their ends as a rule.
    pub fn is_allowed(&self) -> bool {
        self.is_within(20_000, self.median_ns)
    }

    /// The same of another quantile, within another time and 2 %.
    pub fn is_within(&self, ns: u64, quantile_ns: u64) -> bool {
        let Self { span, calls, unseen, book_ns, .. } = self;
        let seen = unseen * 2 < *calls;
        seen && (*span == Span::Within || quantile_ns <= ns + book_ns / 50)
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { word, span: _, calls, records, unseen, quarter_ns, median_ns, p99_ns, max_ns, book_ns } = self;
        let numbers = [quarter_ns, median_ns, p99_ns, max_ns, book_ns];
        let [quarter, median, p99, max, book] = numbers.map(|ns| *ns as f64 / 1e3);
        write!(formatter, "{calls} {word} of {records}, {unseen} without an end; {book:.1} us by the book; ")?;
        write!(formatter, "apart {quarter:.1} us, median {median:.1}, p99 {p99:.1}, max {max:.1}")
    }
}

impl Account {
    /// The door and the shape, for people.
    pub fn name(&self) -> String {
        format!("{} {}", self.client.door, self.client.shape.name())
    }

    /// How many records are owed.
    pub fn owed(&self, told_by: Told) -> usize {
        self.book.iter().map(|entry| self.owed_for(entry, told_by).len()).sum()
    }

    fn owed_for<'a>(&self, entry: &'a Entry, told_by: Told) -> Vec<Owed<'a>> {
        if told_by.unseen.contains(&self.client.door.as_str()) {
            return Vec::new();
        }
        let call = &Door::named(&self.client.door).calls[entry.call];
        match call.about {
            About::Files | About::Directory => {
                entry.known.iter().map(|known| Owed { entry, call, known: Some(known) }).collect()
            }
            About::Filesystem | About::Machine => vec![Owed { entry, call, known: None }],
        }
    }

    /// Compares all records of the client's process with its book.
    pub fn compare(&self, syncs: &[Value], device: (u32, u32), told_by: Told) -> (Faults, Vec<Distance>) {
        let mut faults = Faults::default();
        for entry in self.book.iter().filter(|entry| entry.error != 0) {
            faults.add("calls of the client that failed", || format!("{entry:?}"));
        }
        // Each thread has files of its own.
        let asker = Door::named(&self.client.door).asker;
        let by_file = asker == Asker::Process;
        let teller = |sync: &Value| field::number(sync, if by_file { "/file/inode" } else { "/thread/tid" });
        let writer = |entry: &Entry| if by_file { entry.known[0].inode } else { u64::from(entry.tid) };
        let mut told: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for sync in syncs.iter().filter(|sync| field::number(sync, "/process/pid") == u64::from(self.pid)) {
            told.entry(teller(sync)).or_default().push(sync);
        }
        let mut took = Vec::new();
        let keys: BTreeSet<u64> = self.book.iter().map(writer).chain(told.keys().copied()).collect();
        for key in keys {
            let mut told = told.remove(&key).unwrap_or_default();
            told.sort_by_key(|sync| field::number(sync, "/time_unix_ns"));
            let entries: Vec<&Entry> = self.book.iter().filter(|entry| writer(entry) == key).collect();
            let owed: Vec<Owed> = entries.iter().flat_map(|entry| self.owed_for(entry, told_by)).collect();
            if owed.len() != told.len() {
                let last = || told.last().map_or_else(|| "none is told".to_owned(), ToString::to_string);
                faults.add(format!("{} records of {} in a thread", told.len(), owed.len()), last);
                continue;
            }
            for (owed, sync) in owed.iter().zip(&told) {
                self.check(owed, sync, device, told_by, &mut faults);
            }
            let mut told = told.into_iter();
            for entry in entries {
                let records = self.owed_for(entry, told_by).len();
                // All of them first: a sum ends at the first whose end was not seen.
                let ends = Door::named(&self.client.door).calls[entry.call].tells_end(told_by.format);
                // One that is followed by another of the same call ends where that begins.
                let seen = |(number, sync)| seen_ns(sync, ends || number + 1 < records, asker);
                let own: Vec<Option<u64>> = told.by_ref().take(records).enumerate().map(seen).collect();
                let told_ns = own.into_iter().sum();
                took.push(Took { call: entry.call, records, book_ns: entry.duration_ns(), told_ns });
            }
        }
        let calls = Door::named(&self.client.door).calls.iter().enumerate();
        let of_call = |number: usize| took.iter().filter(|took| took.call == number).copied().collect::<Vec<_>>();
        // What a worker has done, its client learns when it comes to a CPU itself: seven of them wait for that in turn.
        let crowded = asker != Asker::Thread && matches!(self.client.shape, Shape::Threads(_));
        let span = |call: &Call| if crowded { Span::Within } else { call.span };
        let of = |(number, call)| Distance { span: span(call), ..distance(call, &of_call(number)) };
        // Calls of which too few or too many records were told have no durations to compare.
        (faults, calls.map(of).filter(|distance| distance.calls > 0).collect())
    }

    fn check(&self, owed: &Owed, sync: &Value, device: (u32, u32), told_by: Told, faults: &mut Faults) {
        let format = told_by.format;
        let Owed { entry, call, known } = owed;
        let mut demand = |holds: bool, kind: &str| {
            if !holds {
                faults.add(kind, || format!("{sync} against {entry:?}"));
            }
        };
        demand(is_whole(sync), "parts that do not sum to the whole");
        demand(sync["open"] == Value::Bool(false), "a sync that still runs");
        demand(field::text(sync, "/process/name") == self.client.door, "another process's name");
        let asker = Door::named(&self.client.door).asker;
        let name = field::text(sync, "/thread/name");
        let of_kernel = asker == Asker::Process && name.starts_with("iou-sqp-");
        demand(name == entry.thread || of_kernel, "another thread's name");
        let word = field::text(sync, "/operation");
        // The event of XFS does not say whether only data must be durable, which tells the two kinds of writes apart.
        let unsure = format == Format::Xfs && call.word == "o_dsync" && word == "o_sync";
        demand(word == told_by.word(call) || unsure, &format!("called {word}"));
        let has_file = matches!(call.about, About::Files | About::Directory);
        let ok = sync["result"] == 0;
        let unknown = sync["result"].is_null();
        let right = if call.tells_end(format) && has_file {
            ok
        } else if asker != Asker::Thread {
            // A worker's registers are not its asker's.
            unknown
        } else if !sync["after_ns"].is_null() {
            // A return is also seen of a thread that slept in the call, and not after its sync had begun.
            ok || unknown && field::parts(sync).iter().all(|(name, _)| *name == "on_cpu")
        } else {
            // The first of two files of one call, or the end of one that never slept.
            unknown || ok && call.word == "msync"
        };
        demand(right, "another result");
        // Where the end has no event, a worker's is seen when it goes on to something else.
        let late = asker != Asker::Thread && !call.tells_end(format);
        demand(late || field::duration_ns(sync) <= entry.duration_ns(), "longer than the call");
        if call.about != About::Machine {
            let (major, minor) = device;
            demand(sync["device"]["major"] == major && sync["device"]["minor"] == minor, "another device");
        }
        match known {
            Some(Known { inode, path }) => {
                demand(sync["file"]["inode"] == *inode, "another inode");
                // Of XFS the path is told with slow syncs only.
                let unnamed = format == Format::Xfs && sync["file"]["path"].is_null();
                demand(unnamed || sync["file"]["path"].as_str().map(Path::new) == Some(path), "another path");
            }
            None => demand(has_no_file(sync), "a file of a sync that has none"),
        }
    }
}

/// True of a sync that is not of one file.
fn has_no_file(sync: &Value) -> bool {
    sync["file"].is_null() || sync["file"]["inode"].as_u64().is_none_or(|inode| inode == 0)
}

/// The duration of a sync whose end was seen: by its event, else by the return to user mode, or by what a worker did next.
fn seen_ns(sync: &Value, ends: bool, asker: Asker) -> Option<u64> {
    let seen = ends || asker != Asker::Thread || !sync["after_ns"].is_null();
    seen.then(|| field::duration_ns(sync))
}

/// What one call took, by the book and by the sum of its records where all their ends were seen.
#[derive(Clone, Copy)]
struct Took {
    call: usize,
    records: usize,
    book_ns: u64,
    told_ns: Option<u64>,
}

fn distance(call: &'static Call, all: &[Took]) -> Distance {
    let seen: Vec<(u64, u64)> = all.iter().filter_map(|took| Some((took.book_ns, took.told_ns?))).collect();
    let sorted = |mut numbers: Vec<u64>| {
        numbers.sort_unstable();
        numbers
    };
    let apart = sorted(seen.iter().map(|(book, told)| book.abs_diff(*told)).collect());
    let book = sorted(seen.iter().map(|(book, _)| *book).collect());
    let at = |sorted: &[u64], percent: usize| sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default();
    Distance {
        word: call.word,
        span: call.span,
        calls: all.len(),
        records: all.first().map_or(0, |took| took.records),
        unseen: all.len() - seen.len(),
        quarter_ns: at(&apart, 25),
        median_ns: at(&apart, 50),
        p99_ns: at(&apart, 99),
        max_ns: apart.last().copied().unwrap_or_default(),
        book_ns: at(&book, 50),
    }
}
