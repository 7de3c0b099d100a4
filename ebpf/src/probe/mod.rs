//! The probes: one program of each kind per tracepoint, from one body.
//!
//! Programs end in `_raw` if they are raw tracepoints; the agent loads one of the two.

use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use fsyncscope_ebpf::event::End;

mod asker;
mod block;
mod calls;
mod clock;
mod journal;
mod link;
mod maps;
mod memory;
mod names;
mod page;
mod request;
mod result;
mod sched;
mod sync;
mod whole;
mod writeback;

use memory::{Arguments, Memory, Object, Probed, Typed, argument_behind, current_tid, field, offset, setting};

macro_rules! probe {
    ($($(#[$doc:meta])* $name:ident, $raw:ident => |$memory:ident, $context:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        #[btf_tracepoint]
        pub fn $name($context: BtfTracePointContext) -> i32 {
            type $memory = Typed;
            let _ = core::marker::PhantomData::<$memory>;
            $body;
            0
        }
        $(#[$doc])*
        #[raw_tracepoint]
        pub fn $raw($context: RawTracePointContext) -> i32 {
            type $memory = Probed;
            let _ = core::marker::PhantomData::<$memory>;
            $body;
            0
        }
    )* };
}

probe! {
    sched_switch, sched_switch_raw => |M, context| sched::switched::<M>(&context);
    sched_waking, sched_waking_raw => |M, context| sched::woken::<M>(context.argument(0));
    sched_process_exit, sched_process_exit_raw => |M, context| {
        let task: Object = context.argument(0);
        names::exit(field!(M, task, task_pid: u32))
    };
    rseq_update, rseq_update_raw => |M, context| { let _ = &context; returned::<M>() };
    ext4_sync_file_enter, ext4_sync_file_enter_raw => |M, context| {
        let file: Object = context.argument(0);
        let inode = field!(M, file, file_inode: Object);
        sync::enter::<M>(inode, file, context.argument::<u32>(1), End::Event)
    };
    ext4_sync_file_exit, ext4_sync_file_exit_raw => |M, context| sync::leave(context.argument::<i32>(1));
    xfs_file_fsync, xfs_file_fsync_raw => |M, context| {
        xfs_sync::<M>(context.argument(0));
        result::of_xfs_file::<M>(context.argument(0))
    };
    xfs_dir_fsync, xfs_dir_fsync_raw => |M, context| xfs_sync::<M>(context.argument(0));
    block_io_start, block_io_start_raw => |M, context| block::started::<M>(context.argument(0));
    block_getrq, block_getrq_raw => |M, context| {
        block::started_with::<M>(argument_behind(&context, setting!(getrq_has_queue: u32)))
    };
    block_rq_issue, block_rq_issue_raw => |M, context| {
        block::issued::<M>(argument_behind(&context, setting!(issue_has_queue: u32)))
    };
    block_rq_complete, block_rq_complete_raw => |M, context| block::completed::<M>(context.argument(0));
    block_rq_merge, block_rq_merge_raw => |M, context| block::absorbed::<M>(context.argument(0));
    task_rename, task_rename_raw => |M, context| {
        let task: Object = context.argument(0);
        names::renamed(field!(M, task, task_pid: u32))
    };
    jbd2_start_commit, jbd2_start_commit_raw => |M, context| journal::started::<M>(context.argument(0), context.argument(1));
    jbd2_commit_locking, jbd2_locking_raw => |M, context| { let _ = &context; journal::entered(journal::Phase::Locking) };
    jbd2_commit_flushing, jbd2_flushing_raw => |M, context| { let _ = &context; journal::entered(journal::Phase::Flushing) };
    jbd2_commit_logging, jbd2_logging_raw => |M, context| { let _ = &context; journal::entered(journal::Phase::Logging) };
    jbd2_end_commit, jbd2_end_commit_raw => |M, context| journal::ended(context.argument(0), context.argument(1));
    io_uring_queue_async_work, io_uring_queued_raw => |M, context| asker::queued_by_io_uring::<M>(context.argument(0));
    workqueue_queue_work, workqueue_queued_raw => |M, context| asker::queued_as_work::<M>(context.argument(2));
    btrfs_sync_file, btrfs_sync_file_raw => |M, context| {
        let file: Object = context.argument(0);
        let inode = field!(M, file, file_inode: Object);
        sync::enter::<M>(inode, file, context.argument::<u32>(1), End::Return)
    };
    writeback_queue, writeback_queue_raw => |M, context| {
        let work: Object = context.argument(1);
        whole::wanted::<M>(field!(M, work, writeback_super: Object))
    };
    ext4_sync_fs, ext4_sync_fs_raw => |M, context| {
        whole::visited::<M>(context.argument(0), Some(context.argument::<u32>(1) != 0))
    };
    xfs_fs_sync_fs, xfs_fs_sync_fs_raw => |M, context| {
        let mount: Object = context.argument(0);
        // The kernel says of this argument that it may be null.
        if !mount.is_null() {
            whole::visited::<M>(field!(M, mount, xfs_super: Object), None)
        }
    };
    btrfs_sync_fs, btrfs_sync_fs_raw => |M, context| {
        let filesystem: Object = context.argument(0);
        whole::visited::<M>(field!(M, filesystem, btrfs_super: Object), Some(context.argument::<u32>(1) != 0))
    };
    writeback_start, writeback_start_raw => |M, context| writeback::started::<M>(context.argument(1));
    /// Nothing: what a program costs before it does anything. Only the measurement of cost loads these.
    floor_switch, floor_switch_raw => |M, context| { let _ = &context; };
    /// The same beside the block layer's programs.
    floor_issue, floor_issue_raw => |M, context| { let _ = &context; };
}

#[inline(always)]
fn xfs_sync<M: Memory>(inode: Object) {
    let inode = inode.wrapping_add(offset!(xfs_inode_vfs) as usize);
    sync::enter::<M>(inode, core::ptr::null(), 0, End::Return)
}

#[inline(always)]
fn returned<M: Memory>() {
    sync::returned(current_tid())
}
