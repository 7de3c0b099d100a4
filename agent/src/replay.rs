//! `explain`: the syncs of a recording, explained as they were when they happened. Needs no privilege.

use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use crate::attribution::explain;
use crate::cli::Explain;
use crate::event::Event;
use crate::lines::CLOSED;
use crate::timeline::Timeline;
use crate::{record, report};

/// Reads a recording and prints its slow syncs.
pub fn replay(options: &Explain) -> anyhow::Result<ExitCode> {
    let path = options.file.display();
    let file = File::open(&options.file)
        .with_context(|| format!("could not open the recording {path}; name a file that --record wrote"))?;
    let cut = is_cut(&file);
    let mut events = record::read(BufReader::new(file)).peekable();
    if !matches!(events.peek(), Some(Ok(Event::Start(_)) | Err(_))) {
        anyhow::bail!("could not read {path}: it does not begin as a recording does; name a file that --record wrote");
    }
    let mut out = std::io::stdout().lock();
    let threshold = options.threshold.map(|threshold| threshold.as_nanos() as u64);
    let mut shown = 0;
    for text in explanations(events, threshold, options.json) {
        let text = text.map_err(|e| anyhow!("could not read {path}: {e}; name a file that --record wrote"))?;
        writeln!(out, "{text}").context(CLOSED)?;
        shown += 1;
    }
    if cut {
        writeln!(
            std::io::stderr(),
            "fsyncscope: the recording ends inside a line, and that event is missing: whoever wrote it was killed, or had no room"
        )?;
    }
    if shown == 0 {
        writeln!(
            std::io::stderr(),
            "fsyncscope: the recording holds no sync over its threshold; lower it with --threshold"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the last line has no end. Of what cannot be read, reading says more.
fn is_cut(file: &File) -> bool {
    let length = file.metadata().map_or(0, |about| about.len());
    let mut last = [b'\n'];
    length > 0 && file.read_exact_at(&mut last, length - 1).is_ok() && last != *b"\n"
}

/// The text of each slow sync and each open one, in the order of the recording.
pub fn explanations(
    events: impl Iterator<Item = Result<Event, String>>,
    threshold: Option<u64>,
    json: bool,
) -> impl Iterator<Item = Result<String, String>> {
    let mut events: Vec<Result<Event, String>> = events.collect();
    // Names that came with or after a sync were known when it was explained.
    let mut names = Timeline::default();
    for event in events.iter().flatten().filter(|event| {
        matches!(event, Event::Path { .. } | Event::Task { .. } | Event::Disk(_) | Event::Filesystem { .. })
    }) {
        names.add(event.clone());
    }
    if let (Some(threshold), Some(Ok(Event::Start(start)))) = (threshold, events.first_mut()) {
        start.threshold_ns = threshold;
    }
    let mut timeline = names;
    events.into_iter().filter_map(move |event| {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Some(Err(error)),
        };
        if let Event::Open(open) = &event {
            timeline.add(event.clone());
            let open = report::open_sync(open, &timeline);
            let offset = timeline.start().unix_offset_ns;
            return Some(Ok(if json {
                report::open_json(&open, offset).to_string()
            } else {
                report::open_block(&open, offset)
            }));
        }
        let sync = timeline.add(event)?;
        if sync.duration_ns() < timeline.start().threshold_ns {
            return None;
        }
        let explained = explain(sync, &timeline);
        let offset = timeline.start().unix_offset_ns;
        Some(Ok(if json { report::json(&explained, offset).to_string() } else { report::block(&explained, offset) }))
    })
}
