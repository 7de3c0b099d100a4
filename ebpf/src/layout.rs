//! The table of kernel facts: every field, enumerator and function address that a probe uses, as one row each.
//!
//! The table yields the structs that the agent fills from the running kernel's BTF and symbol table before the probes
//! are loaded, and the lists that it resolves. No offset and no version stands anywhere else.

/// Offset of a field, or value of an enumerator, that this kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// One row: a struct member whose byte offset is wanted, or an enumerator whose value is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the struct or enum as BTF has it.
    pub owner: &'static str,
    /// Name of the member (anonymous structs and unions inside the owner are searched) or of the enumerator.
    pub name: &'static str,
    /// Bytes that the probes read there; 0 for an embedded struct (only its offset is wanted) and for an enumerator.
    pub size: u32,
    /// A kernel without it cannot be traced at all; otherwise the probes branch on [`ABSENT`].
    pub required: bool,
}

macro_rules! layout {
    ($($(#[$doc:meta])* $id:ident = $owner:ident . $field:ident : $size:literal $need:ident),* $(,)?) => {
        /// Offsets in bytes, filled by the agent; [`ABSENT`] where this kernel lacks the field.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct Layout { $($(#[$doc])* pub $id: u32),* }
        impl Layout {
            /// What the object file holds before the agent fills it.
            pub const UNRESOLVED: Self = Self { $($id: ABSENT),* };
            /// The rows, in the order of the struct's members.
            pub const FIELDS: &'static [Field] = &[$(Field {
                owner: stringify!($owner), name: stringify!($field), size: $size, required: layout!(@ $need),
            }),*];
        }
    };
    (@ required) => { true };
    (@ optional) => { false };
}

layout! {
    task_pid = task_struct.pid: 4 required,
    task_tgid = task_struct.tgid: 4 required,
    task_comm = task_struct.comm: 16 required,
    task_flags = task_struct.flags: 4 required,
    task_group_leader = task_struct.group_leader: 8 required,
    task_start_time = task_struct.start_time: 8 required,
    /// Since 5.14 the state has two underscores and 4 bytes.
    task_state = task_struct.__state: 4 optional,
    task_state_before_5_14 = task_struct.state: 8 optional,
    /// Since 5.17 a kernel thread's private data hangs off this member.
    task_worker_private = task_struct.worker_private: 8 optional,
    /// Until 5.16 a kernel thread kept it here.
    task_set_child_tid = task_struct.set_child_tid: 8 optional,
    kthread_data = kthread.data: 8 optional,
    worker_function = worker.current_func: 8 optional,
    worker_work = worker.current_work: 8 optional,
    work_function = work_struct.func: 8 optional,
    /// io_uring's workers are threads of the process since 5.12.
    io_worker_queue = io_worker.wq: 8 optional,
    /// Until 6.3 a worker knows its NUMA node, and that the queue.
    io_worker_node = io_worker.wqe: 8 optional,
    io_node_queue = io_wqe.wq: 8 optional,
    io_worker_work = io_worker.cur_work: 8 optional,
    io_queue_task = io_wq.task: 8 optional,
    io_request_work = io_kiocb.work: 0 optional,
    io_request_opcode = io_kiocb.opcode: 1 optional,
    io_request_command = io_kiocb.cmd: 0 optional,
    io_sync_flags = io_sync.flags: 4 optional,
    aio_work = fsync_iocb.work: 0 optional,
    aio_datasync = fsync_iocb.datasync: 1 optional,
    /// System call number of the interrupted user context, x86-64.
    regs_syscall = pt_regs.orig_ax: 8 optional,
    /// System call number of the interrupted user context, arm64.
    regs_syscall_arm64 = pt_regs.syscallno: 4 optional,
    /// Of the same context, x86-64: what the call returns once it is over, where it returns to, its first arguments.
    regs_result = pt_regs.ax: 8 optional,
    regs_place = pt_regs.ip: 8 optional,
    regs_first = pt_regs.di: 8 optional,
    regs_second = pt_regs.si: 8 optional,
    /// Calls that write: each counts as it ends. Not in a kernel that was built without accounting by task.
    task_accounting = task_struct.ioac: 0 optional,
    accounting_writes = task_io_accounting.syscw: 8 optional,

    task_files = task_struct.files: 8 optional,
    files_table = files_struct.fdt: 8 optional,
    table_size = fdtable.max_fds: 4 optional,
    table_files = fdtable.fd: 8 optional,
    file_inode = file.f_inode: 8 required,
    file_path = file.f_path: 0 required,
    /// The last error of the file's pages that its syncs have told.
    file_error = file.f_wb_err: 4 optional,
    path_dentry = path.dentry: 8 required,
    dentry_name = dentry.d_name: 0 required,
    dentry_parent = dentry.d_parent: 8 required,
    qstr_hash_len = qstr.hash_len: 8 required,
    qstr_name = qstr.name: 8 required,
    inode_number = inode.i_ino: 8 required,
    inode_super = inode.i_sb: 8 required,
    inode_mode = inode.i_mode: 2 required,
    inode_mapping = inode.i_mapping: 8 optional,
    super_dev = super_block.s_dev: 4 required,
    super_bdev = super_block.s_bdev: 8 required,
    super_magic = super_block.s_magic: 8 required,
    super_private = super_block.s_fs_info: 8 required,
    btrfs_super = btrfs_fs_info.sb: 8 optional,
    btrfs_devices = btrfs_fs_info.fs_devices: 8 optional,
    btrfs_latest = btrfs_fs_devices.latest_dev: 8 optional,
    btrfs_block_device = btrfs_device.bdev: 8 optional,
    xfs_inode_vfs = xfs_inode.i_vnode: 0 optional,
    xfs_inode_mount = xfs_inode.i_mount: 8 optional,
    xfs_super = xfs_mount.m_super: 8 optional,
    /// Since 5.15.
    xfs_state = xfs_mount.m_opstate: 8 optional,

    block_device_dev = block_device.bd_dev: 4 required,
    block_device_disk = block_device.bd_disk: 8 required,
    disk_major = gendisk.major: 4 required,
    disk_first_minor = gendisk.first_minor: 4 required,
    request_queue = request.q: 8 required,
    /// Since 5.16 the disk hangs off the queue.
    queue_disk = request_queue.disk: 8 optional,
    /// Until 5.15 the disk hung off the request.
    request_disk = request.rq_disk: 8 optional,
    request_sector = request.__sector: 8 required,
    request_bytes = request.__data_len: 4 required,
    request_command = request.cmd_flags: 4 required,
    request_bio = request.bio: 8 required,
    /// Since 5.12 a bio has a block device.
    bio_device = bio.bi_bdev: 8 optional,
    /// Until 5.11 it had the whole disk.
    bio_disk = bio.bi_disk: 8 optional,
    bio_command = bio.bi_opf: 4 optional,
    bio_place = bio.bi_iter: 0 optional,
    place_sector = bvec_iter.bi_sector: 8 optional,
    place_bytes = bvec_iter.bi_size: 4 optional,
    bio_next = bio.bi_next: 8 required,
    bio_vectors = bio.bi_io_vec: 8 required,
    vector_page = bio_vec.bv_page: 8 required,
    page_flags = page.flags: 0 required,
    /// Until 7.0 a tail page points to its head here, with bit 0 set.
    page_compound_head = page.compound_head: 8 optional,
    /// Since 7.1 the same place may hold a mask instead: then bit 0 is set in a tail page, and the tail's address and
    /// the mask give the head. The kernel uses masks where struct page has a power of two of bytes and it was built to
    /// free the memory map of huge pages; a mask clears 30 bits at most, so it is above every pointer to a page.
    page_compound_info = page.compound_info: 8 optional,
    page_mapping = page.mapping: 8 required,
    mapping_host = address_space.host: 8 required,
    /// The last error of the file's pages: since 4.13.
    mapping_error = address_space.wb_err: 4 optional,
    flag_writeback = pageflags.PG_writeback: 0 required,

    journal_device = journal_s.j_dev: 8 optional,
    journal_fs_device = journal_s.j_fs_dev: 8 optional,
    /// The next free block of the log, and the blocks between which it goes round.
    journal_head = journal_s.j_head: 8 optional,
    journal_first = journal_s.j_first: 8 optional,
    journal_last = journal_s.j_last: 8 optional,
    transaction_number = transaction_s.t_tid: 4 optional,
    transaction_log_start = transaction_s.t_log_start: 8 optional,
    transaction_operations = transaction_s.t_handle_count: 0 optional,

    writeback_bdi = bdi_writeback.bdi: 8 optional,
    bdi_device = backing_dev_info.dev: 8 optional,
    device_number = device.devt: 4 optional,
    writeback_super = wb_writeback_work.sb: 8 optional,
    writeback_reason = wb_writeback_work.reason: 4 optional,
}

const _: () = assert!(size_of::<Layout>() == 4 * Layout::FIELDS.len());

macro_rules! functions {
    ($($(#[$doc:meta])* $id:ident = $symbol:ident),* $(,)?) => {
        /// Addresses of the work functions whose workers are told apart; 0 where the symbol is absent or hidden.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct Functions { $($(#[$doc])* pub $id: u64),* }
        impl Functions {
            /// What the object file holds before the agent fills it.
            pub const UNRESOLVED: Self = Self { $($id: 0),* };
            /// Symbols, in the order of the struct's members.
            pub const SYMBOLS: &'static [&'static str] = &[$(stringify!($symbol)),*];
        }
    };
}

functions! {
    /// The flusher: page-cache writeback of one device.
    flusher = wb_workfn,
    /// Dispatches what a block throttle (io.max, blkio.throttle) held back.
    throttle_dispatch = blk_throtl_dispatch_work_fn,
    /// A loop device's worker.
    loop_worker = loop_workfn,
    loop_worker_root = loop_rootcg_workfn,
    /// Does a sync that was asked for through Linux AIO.
    aio_sync = aio_fsync_work,
}

const _: () = assert!(size_of::<Functions>() == 8 * Functions::SYMBOLS.len());
