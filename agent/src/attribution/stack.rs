//! What a blocked thread's stack says it waits for. It refines long waits; no wait is classed by it.

use crate::event::Wait;
use crate::timeline::Timeline;

/// A function on the stack, and what it means; the first that is found names the wait.
const MEANINGS: [(&str, &str); 16] = [
    ("jbd2_log_wait_commit", "its journal's commit"),
    ("jbd2_journal_wait_updates", "operations that still hold the transaction"),
    ("wait_transaction_locked", "a journal transaction to open"),
    ("start_this_handle", "a journal transaction to open"),
    ("add_transaction_credits", "space in the journal"),
    ("rq_qos_wait", "writeback throttling of the disk"),
    ("wbt_wait", "writeback throttling of the disk"),
    ("blk_mq_get_tag", "a free request of the disk"),
    ("blkdev_issue_flush", "a cache flush of the disk"),
    ("submit_bio_wait", "a request of the disk"),
    ("folio_wait_writeback", "its pages to be written"),
    ("wait_on_page_writeback", "its pages to be written"),
    ("wait_on_buffer", "a block of the filesystem to be written"),
    ("sb_start_write", "a frozen filesystem to thaw"),
    ("percpu_rwsem_wait", "a frozen filesystem to thaw"),
    ("rwsem_down", "a lock of the file"),
];

/// What functions on a stack, the innermost first, say that a thread waits for.
pub fn meaning<'a>(functions: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    let meaning = |function: &str| MEANINGS.iter().find(|(name, _)| function.contains(name)).map(|(_, word)| *word);
    functions.into_iter().find_map(meaning)
}

/// What the longest of some waits was for, by its stack.
pub fn note<'a>(waits: impl Iterator<Item = &'a Wait>, names: &Timeline) -> Option<String> {
    let longest =
        waits.filter(|wait| !wait.stack.is_empty()).max_by_key(|wait| wait.end_ns.saturating_sub(wait.start_ns))?;
    let functions: Vec<&str> = longest.stack.iter().filter_map(|address| names.symbol(*address)).collect();
    match meaning(functions.iter().copied()) {
        Some(meaning) => Some(format!("waited for {meaning}")),
        None if functions.is_empty() => None,
        // The innermost functions are the scheduler's own.
        None => {
            Some(format!("blocked in {}", functions.iter().skip(2).take(4).copied().collect::<Vec<_>>().join(" < ")))
        }
    }
}
