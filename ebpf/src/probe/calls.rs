//! Operations that no event but a system call's own shows, attached only when asked for, since that taxes every system call
//! of the node: `sync_file_range`, and `posix_fadvise` that gives pages up.

use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use fsyncscope_ebpf::event::End;
use fsyncscope_ebpf::layout::ABSENT;

use super::memory::{Memory, Object, Probed, load, offset, peek};
use super::sync;

/// Where the events of system calls have their first argument, or the result: each has 8 bytes.
const FIRST: usize = 16;
/// `POSIX_FADV_DONTNEED`.
const DONTNEED: u64 = 4;

#[tracepoint]
pub fn sys_enter_sync_file_range(context: TracePointContext) -> u32 {
    begins(argument(&context, 0))
}

#[tracepoint]
pub fn sys_exit_sync_file_range(context: TracePointContext) -> u32 {
    ends(&context)
}

#[tracepoint]
pub fn sys_enter_fadvise64(context: TracePointContext) -> u32 {
    if argument(&context, 3) == DONTNEED { begins(argument(&context, 0)) } else { 0 }
}

#[tracepoint]
pub fn sys_exit_fadvise64(context: TracePointContext) -> u32 {
    ends(&context)
}

#[inline(always)]
fn argument(context: &TracePointContext, index: usize) -> u64 {
    // SAFETY: the events have room for six arguments.
    unsafe { context.read_at(FIRST + 8 * index) }.unwrap_or(0)
}

/// The call begins on one of the task's open files.
#[inline(always)]
fn begins(descriptor: u64) -> u32 {
    let file = opened(descriptor);
    if !file.is_null() {
        sync::enter::<Probed>(peek!(file, file_inode: Object), file, 0, End::Event);
    }
    0
}

/// One of the current task's open files, null if it has none there.
#[inline(always)]
pub fn opened(descriptor: u64) -> Object {
    if offset!(task_files) == ABSENT || offset!(files_table) == ABSENT || offset!(table_files) == ABSENT {
        return core::ptr::null();
    }
    let table = peek!(peek!(Probed::current(), task_files: Object), files_table: Object);
    if descriptor >= peek!(table, table_size: u32) as u64 {
        return core::ptr::null();
    }
    let files = peek!(table, table_files: Object);
    load(files.wrapping_add(descriptor as usize * size_of::<Object>()), 0)
}

#[inline(always)]
fn ends(context: &TracePointContext) -> u32 {
    sync::leave(argument(context, 0) as i32);
    0
}
