//! The contract between the probes and the agent: what crosses the border, and nothing else.
//!
//! It knows no logic and has no dependency. Everything is `repr(C)` without padding; sizes are asserted here.
#![no_std]

pub mod event;
pub mod layout;
pub mod limits;
pub mod part;
pub mod settings;
pub mod slot;
