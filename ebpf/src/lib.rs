//! The contract between the kernel side and the agent: no dependencies, no logic.
#![no_std]

pub mod layout;
