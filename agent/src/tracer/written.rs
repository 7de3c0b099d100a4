//! What the probes add up of writeback, as what came since the last look.

use std::collections::HashMap;

use fsyncscope_ebpf::slot::{Written, WrittenKey};

use crate::event::WrittenBack;
use crate::limits;
use crate::probes::Probes;

/// What was told of each entry so far.
#[derive(Debug, Default)]
pub struct WrittenSoFar(HashMap<WrittenKey, Written>);

impl WrittenSoFar {
    /// What came since the last look, most bytes first. Entries that have been idle give their place to others.
    pub fn take(&mut self, probes: &mut Probes, now_ns: u64) -> Vec<WrittenBack> {
        let mut news = Vec::new();
        for (key, now) in probes.written_back() {
            let former = self.0.insert(key, now).unwrap_or_default();
            // Fewer bytes than before are an entry that was made anew.
            let former = if now.bytes < former.bytes { Written::default() } else { former };
            if now.bytes > former.bytes {
                news.push(WrittenBack::gained(&key, &now, &former));
            } else if now_ns.saturating_sub(now.last_ns) > limits::WRITTEN_IDLE_NS {
                probes.forget_written_back(&key);
                self.0.remove(&key);
            }
        }
        news.sort_by_key(|written| std::cmp::Reverse(written.bytes));
        news
    }
}
