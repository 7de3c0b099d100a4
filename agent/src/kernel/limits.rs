//! Limits of this room, with a reason each. Input comes from the kernel or from a file that a user names: neither may
//! make the agent grow or loop.

/// Bytes of one BTF blob: vmlinux has 3 to 6 MB today; more than this is not BTF.
pub const BTF_BYTES: usize = 64 << 20;

/// Typedefs and qualifiers followed from one type to the next: real chains have fewer than ten links.
pub const TYPE_HOPS: usize = 64;

/// Anonymous structs and unions nested in one another: the deepest in 7.2 is six.
pub const ANONYMOUS_DEPTH: usize = 16;

/// Members visited in one lookup: `task_struct` has about 300; a hostile graph of anonymous members has billions.
pub const MEMBERS_VISITED: usize = 100_000;

/// Text symbols kept for stacks: distribution kernels with their modules have 60,000 to 150,000.
pub const SYMBOLS: usize = 400_000;

/// Bytes of all symbol names kept: about 25 each.
pub const SYMBOL_NAME_BYTES: usize = 16 << 20;

/// Bytes of one line of the symbol table: names end at 512, then comes the module's.
pub const SYMBOL_LINE_BYTES: u64 = 1024;

/// Distance of an address from the symbol that names it: no kernel function is longer.
pub const FUNCTION_BYTES: u64 = 1 << 20;

/// Mounts of one namespace: the kernel's own default limit (`fs.mount-max`).
pub const MOUNTS: usize = 100_000;

/// Mounts inside mounts, followed upward.
pub const MOUNT_DEPTH: usize = 64;

/// Block devices stacked on one another: loop on RAID on encrypted partitions has four.
pub const STACK_DEPTH: usize = 8;

/// Block devices in one stack: a wide RAID has some dozens.
pub const STACKED_DEVICES: usize = 256;
