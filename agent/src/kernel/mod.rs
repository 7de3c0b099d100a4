//! Facts about the kernel that this machine runs: types, offsets, symbols, privileges, mounts and disks.
//!
//! Knows files under `/proc` and `/sys` (always behind a prefix, so that tests show it another tree). Must not know
//! events, probes or reports. What could not be found out is a row with a reason and an advice, not a panic.

pub mod btf;
pub mod capability;
pub mod clock;
pub mod dev;
pub mod disks;
pub mod host;
pub mod layout;
mod limits;
pub mod mounts;
pub mod shortfall;
pub mod symbols;
