//! The room of kernel facts against captured facts: cut type information of five kernels, and trees of files that stand
//! for `/proc` and `/sys`.

mod btf;
mod fixture;
mod golden;
mod layout;
mod symbols;
mod tree;
