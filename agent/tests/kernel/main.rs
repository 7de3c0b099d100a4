//! The agent on other kernels than this machine's: each boots under QEMU, without KVM, with two emulated NVMe disks, and
//! runs a job as /init, which is this test program again. What the job found comes back as JSON and is judged here.
//!
//! A new kernel is one row of `kernels!`; a new job is one function and its row of [`jobs::JOBS`].

#[path = "../support/mod.rs"]
mod support;

mod fetch;
mod guest;
mod image;
mod jobs;
mod machine;
mod passage;
mod proof;
mod stacks;

use fetch::Kernel;
use machine::answer;
use proof::Expected;

/// Debian's cloud flavour has ext4 and NVMe built in and XFS and btrfs as modules, to which no typed program can be attached.
const CLOUD_6_1: Kernel = Kernel { name: "6.1-cloud", suite: "bookworm", package: "linux-image-cloud-amd64" };
const CLOUD: Expected = Expected {
    raw: &["btrfs_sync_file", "btrfs_sync_fs", "xfs_dir_fsync", "xfs_file_fsync", "xfs_fs_sync_fs"],
    missing: &[],
    system_calls: true,
};
/// In its generic flavour all four are modules.
const GENERIC: Expected = Expected {
    raw: &[
        "btrfs_sync_file",
        "btrfs_sync_fs",
        "ext4_sync_file_enter",
        "ext4_sync_file_exit",
        "ext4_sync_fs",
        "jbd2_commit_flushing",
        "jbd2_commit_locking",
        "jbd2_commit_logging",
        "jbd2_end_commit",
        "jbd2_start_commit",
        "xfs_dir_fsync",
        "xfs_file_fsync",
        "xfs_fs_sync_fs",
    ],
    missing: &[],
    system_calls: true,
};
const CLOUD_5_10: Kernel = Kernel { name: "5.10-cloud", suite: "bullseye", package: "linux-image-cloud-amd64" };
const CLOUD_6_12: Kernel = Kernel { name: "6.12-cloud", suite: "trixie", package: "linux-image-cloud-amd64" };
/// Typed programs know the current task since 5.11, and modules have types since then.
const BEFORE_5_11: Expected = Expected {
    raw: &[
        "block_getrq",
        "block_rq_complete",
        "block_rq_issue",
        "ext4_sync_file_enter",
        "jbd2_start_commit",
        "sched_waking",
        "writeback_start",
    ],
    missing: &[
        "btrfs_sync_file",
        "btrfs_sync_fs",
        "io_uring_queue_async_work",
        "workqueue_queue_work",
        "xfs_dir_fsync",
        "xfs_file_fsync",
        "xfs_fs_sync_fs",
    ],
    system_calls: false,
};

/// One test for each kernel: it loads, attaches, and tells every sync.
macro_rules! kernels {
    ($($test:ident => $kernel:expr, $expected:expr;)*) => { $(
        #[test]
        fn $test() {
            let Some(found) = answer(&$kernel, &jobs::FEW_SYNCS) else { return };
            proof::probes_are_attached(&found, &$expected);
            proof::every_sync_is_told(&found, &$expected);
            proof::most_syncs_have_their_request(&found, &$expected);
        }
    )* };
}

kernels! {
    a_5_10_cloud_kernel => CLOUD_5_10, BEFORE_5_11;
    a_6_1_generic_kernel =>
        Kernel { name: "6.1-generic", suite: "bookworm", package: "linux-image-amd64" }, GENERIC;
    a_6_12_cloud_kernel =>
        CLOUD_6_12, CLOUD;
}

#[test]
fn a_6_1_cloud_kernel_explains_a_thousand_syncs_of_each_kind() {
    let Some(found) = answer(&CLOUD_6_1, &jobs::MANY_SYNCS) else { return };
    proof::probes_are_attached(&found, &CLOUD);
    proof::every_sync_is_told(&found, &CLOUD);
    proof::most_syncs_have_their_request(&found, &CLOUD);
    proof::little_is_unexplained(&found);
}

#[test]
fn a_6_1_cloud_kernel_counts_requests_that_merge() {
    let Some(found) = answer(&CLOUD_6_1, &jobs::REQUESTS) else { return };
    proof::every_request_is_counted_once(&found);
}

#[test]
fn a_6_1_cloud_kernel_needs_no_more_privileges() {
    let Some(found) = answer(&CLOUD_6_1, &jobs::PRIVILEGES) else { return };
    proof::privileges_suffice(&found);
}

#[test]
fn a_5_10_cloud_kernel_needs_one_privilege_more() {
    let Some(found) = answer(&CLOUD_5_10, &jobs::PRIVILEGES) else { return };
    proof::maps_need_locked_memory(&found);
}

#[test]
fn every_door_of_6_1_is_counted() {
    let Some(found) = answer(&CLOUD_6_1, &jobs::DOORS) else { return };
    proof::every_door_is_counted(&found);
}

#[test]
fn every_door_of_6_12_is_counted() {
    let Some(found) = answer(&CLOUD_6_12, &jobs::NEW_DOORS) else { return };
    proof::every_door_is_counted(&found);
}

#[test]
fn every_door_of_5_10_is_counted_or_known_to_be_unseen() {
    let Some(found) = answer(&CLOUD_5_10, &jobs::OLD_DOORS) else { return };
    proof::every_door_is_counted(&found);
}

#[test]
fn a_6_1_cloud_kernel_opens_the_device_mapper() {
    let Some(found) = answer(&CLOUD_6_1, &jobs::STACKS) else { return };
    proof::stacks_are_opened(&found);
}
