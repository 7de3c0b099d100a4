//! The agent as a library: every room of it, so that tests and the binary share one body.

pub mod kernel;
pub mod probes;
