//! Events to and from a file: one JSON object a line, so that a person can read and shorten a recording.

use std::io::{BufRead, Write};

use crate::event::Event;
use crate::limits;

/// Writes events as they pass, up to a bound. It is never synced: the agent must not load the disk that it watches.
pub struct Recorder<W: Write> {
    out: W,
    bytes: u64,
}

/// Whether an event is in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Whole,
    /// The file is as large as it may be.
    NoRoom,
}

impl<W: Write> Recorder<W> {
    pub fn new(out: W) -> Self {
        Self { out, bytes: 0 }
    }

    pub fn write(&mut self, event: &Event) -> std::io::Result<Recorded> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        if self.bytes + line.len() as u64 > limits::RECORD_BYTES_MAX {
            return Ok(Recorded::NoRoom);
        }
        self.bytes += line.len() as u64;
        self.out.write_all(&line)?;
        Ok(Recorded::Whole)
    }
}

impl<W: Write> Recorder<W> {
    /// Hands on what a buffer still holds.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Reads a recording. A line that is no event is an error that names it; but a last line without its end was cut when
/// the recorder was killed, and is left out.
pub fn read(mut input: impl BufRead) -> impl Iterator<Item = Result<Event, String>> {
    let (mut number, mut ended) = (0, false);
    std::iter::from_fn(move || {
        while !ended {
            number += 1;
            let mut line = Vec::new();
            match input.read_until(b'\n', &mut line) {
                Ok(_) if line.is_empty() => ended = true,
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => match serde_json::from_slice(&line) {
                    Err(_) if line.last() != Some(&b'\n') && number > 1 => ended = true,
                    parsed => {
                        return Some(parsed.map_err(|e| format!("line {number} is no event of a recording: {e}")));
                    }
                },
                Err(e) => {
                    ended = true;
                    return Some(Err(format!("reading line {number} failed: {e}")));
                }
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Event = Event::ThreadExit { tid: 7, pid: 5 };

    fn recording(events: usize) -> Vec<u8> {
        let mut recorder = Recorder::new(Vec::new());
        (0..events).for_each(|_| assert_eq!(recorder.write(&EVENT).unwrap(), Recorded::Whole));
        recorder.out
    }

    #[test]
    fn a_recording_cut_anywhere_in_its_last_line_has_all_but_that() {
        let whole = recording(3);
        let last = recording(2).len();
        for cut in last + 1..whole.len() - 1 {
            let read: Vec<_> = read(&whole[..cut]).collect();
            assert_eq!(read, [Ok(EVENT), Ok(EVENT)], "cut at {cut}");
        }
        assert_eq!(read(&whole[..whole.len() - 1]).count(), 3, "only the line's end is missing");
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let mut bytes = recording(2);
        bytes.extend(b"{\"thread_exit\":{\"tid\":7\n\n");
        bytes.extend(recording(1));
        let read: Vec<_> = read(&bytes[..]).collect();
        assert_eq!(read.len(), 4);
        assert!(read[2].as_ref().unwrap_err().starts_with("line 3 is no event of a recording"), "{read:?}");
        assert_eq!(read[3], Ok(EVENT));
        assert!(super::read(&b"\xff\xfe"[..]).next().unwrap().is_err(), "one line alone is no cut recording");
    }

    #[test]
    fn a_full_recording_takes_no_more() {
        let mut recorder = Recorder { out: Vec::new(), bytes: limits::RECORD_BYTES_MAX - 5 };
        assert_eq!(recorder.write(&EVENT).unwrap(), Recorded::NoRoom);
        assert!(recorder.out.is_empty(), "no half of a line");
    }
}
