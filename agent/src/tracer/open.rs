//! Syncs that still run: the slots of watched threads, read once a second.

use fsyncscope_ebpf::event::End;
use fsyncscope_ebpf::part::{BLOCKED, Part};
use fsyncscope_ebpf::slot::{Door, Slot, Stage};

use super::{Outcome, Tracer};
use crate::event::{Event, Open, Thread, asked};
use crate::report::open_sync;

impl Tracer {
    pub(super) fn look_for_open(
        &mut self,
        now: u64,
        hand_out: &mut impl FnMut(Outcome) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.oldest_open_ns = 0;
        let threads: Vec<Thread> = self.threads.values().cloned().collect();
        for thread in threads {
            let Some(slot) = self.probes.slot(thread.slot).filter(|slot| slot.tid == thread.tid) else { continue };
            if slot.stage != Stage::Inside as u32 || slot.start_ns > now {
                continue;
            }
            // Where only the return is seen, one that runs may have returned long ago.
            if slot.end != End::Event as u32 && slot.class == Part::OnCpu as u32 {
                continue;
            }
            let age = now - began_ns(&slot);
            self.oldest_open_ns = self.oldest_open_ns.max(age);
            if age < self.open_ns {
                continue;
            }
            let open = self.open_of(&slot, thread.thread, now);
            self.take(Event::Open(open.clone()))?;
            let open = open_sync(&open, &self.timeline);
            if self.selectors.wants_sync(&open.sync) {
                hand_out(Outcome::Open(Box::new(open)))?;
            }
        }
        Ok(())
    }

    fn open_of(&self, slot: &Slot, thread: String, now_ns: u64) -> Open {
        let stack = self.names.stack_of(slot.tid);
        let waits_for_journal = stack.iter().any(|function| function.contains("jbd2_log_wait_commit"));
        let journal = self.probes.journal_of(slot).filter(|_| waits_for_journal);
        let asked = if is_asked(slot) { asked(&slot.asker, slot.tid, slot.start_ns) } else { None };
        let (tid, pid) = if asked.is_some() { (slot.asker.tid, slot.asker.tgid) } else { (slot.tid, slot.tgid) };
        Open {
            tid,
            pid,
            thread,
            dev: slot.dev,
            inode: slot.inode,
            datasync: slot.datasync != 0,
            syscall: slot.syscall,
            start_ns: began_ns(slot),
            now_ns,
            hands: slot.hands,
            class: if slot.class == BLOCKED { BLOCKED } else { slot.class },
            since_ns: slot.since_ns,
            in_flight: slot.disk.checked_sub(1).map(|disk| self.probes.in_flight(disk)),
            directory: slot.directory != 0,
            asked,
            stack,
            journal_stack: journal.map(|tid| self.names.stack_of(tid)).unwrap_or_default(),
        }
    }
}

/// When a slot's sync was asked for.
fn began_ns(slot: &Slot) -> u64 {
    if is_asked(slot) && slot.asker.asked_ns != 0 { slot.asker.asked_ns.min(slot.start_ns) } else { slot.start_ns }
}

/// Whether a worker does it for another task.
fn is_asked(slot: &Slot) -> bool {
    slot.door != Door::Call as u32
}
