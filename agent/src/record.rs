//! Events to and from a file: one JSON object a line, so that a person can read and shorten a recording.

use std::io::{BufRead, Write};

use crate::event::Event;

/// Writes events as they pass. It is never synced: the agent must not load the disk that it watches.
pub struct Recorder<W: Write> {
    out: W,
}

impl<W: Write> Recorder<W> {
    pub fn new(out: W) -> Self {
        Self { out }
    }

    pub fn write(&mut self, event: &Event) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.out, event)?;
        self.out.write_all(b"\n")
    }
}

/// Reads a recording. A line that is no event is an error that names it.
pub fn read(input: impl BufRead) -> impl Iterator<Item = Result<Event, String>> {
    // A file that cannot be read fails for ever: the first failure ends it.
    let mut failed = false;
    let lines = input.lines().enumerate().take_while(move |(_, line)| !std::mem::replace(&mut failed, line.is_err()));
    lines.filter_map(|(index, line)| match line {
        Ok(line) if line.trim().is_empty() => None,
        Ok(line) => {
            Some(serde_json::from_str(&line).map_err(|e| format!("line {} is no event of a recording: {e}", index + 1)))
        }
        Err(e) => Some(Err(format!("reading line {} failed: {e}", index + 1))),
    })
}
