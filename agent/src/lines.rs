//! What goes to stdout: a closed one is an error, and a reader that stalls costs the daemon lines, not its life.
//!
//! It knows a channel and a thread. It must not know what a line says.

use std::io::Write;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::limits;

/// A reader that is gone, or a file without room, is an error like any other: whoever asked did not get the answer.
pub const CLOSED: &str = "could not write to stdout; keep its reader open, or give its file more room";

/// Prints a text and sees it out.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()).context(CLOSED)
}

/// Where lines are put for the thread that writes them.
pub struct Lines {
    queue: SyncSender<String>,
    writer: std::thread::JoinHandle<std::io::Result<()>>,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Queued,
    /// The reader is behind: the line is dropped.
    Full,
    /// Nobody reads any more.
    Closed,
}

impl Lines {
    /// Starts the thread that writes to `out`.
    pub fn to(mut out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (queue, lines) = sync_channel::<String>(limits::LINES_WAITING);
        let writer = std::thread::Builder::new()
            .name("lines".into())
            .spawn(move || lines.iter().try_for_each(|line| writeln!(out, "{line}").and_then(|()| out.flush())))?;
        Ok(Self { queue, writer })
    }

    pub fn put(&self, line: String) -> Put {
        match self.queue.try_send(line) {
            Ok(()) => Put::Queued,
            Err(TrySendError::Full(_)) => Put::Full,
            Err(TrySendError::Disconnected(_)) => Put::Closed,
        }
    }

    /// Waits a moment for what is queued; a reader that stalls is left behind.
    pub fn finish(self) {
        let Self { queue, writer } = self;
        drop(queue);
        let end = Instant::now() + limits::LINES_FINISH;
        while !writer.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether nobody reads stdout any more, as after `| head -1`: a tracer should not work on until its next line.
pub fn reader_is_gone() -> bool {
    let mut stdout = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: one descriptor, and no time to wait.
    let ready = unsafe { libc::poll(&raw mut stdout, 1, 0) };
    ready == 1 && stdout.revents & libc::POLLERR != 0
}

#[cfg(test)]
mod tests {
    use super::{Lines, Put};

    /// A reader that never reads.
    struct Stalled;

    impl std::io::Write for Stalled {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            std::thread::park();
            Ok(0)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_reader_costs_lines_only() {
        let lines = Lines::to(Stalled).unwrap();
        let put: Vec<Put> = (0..10_000).map(|_| lines.put("a line".into())).collect();
        assert_eq!(put.last(), Some(&Put::Full));
        lines.finish();
    }

    #[test]
    fn a_closed_reader_is_told() {
        struct Closed;
        impl std::io::Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::to(Closed).unwrap();
        let closed = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            lines.put("a line".into()) == Put::Closed
        });
        assert!(closed);
    }
}
