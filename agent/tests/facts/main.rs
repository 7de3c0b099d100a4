//! The room of kernel facts against captured facts: cut type information of five kernels, and trees of files that stand
//! for `/proc` and `/sys`.

mod btf;
mod clock;
mod disks;
mod fixture;
mod golden;
mod host;
mod layout;
mod mounts;
mod symbols;
mod tree;
