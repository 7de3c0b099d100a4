//! The agent as a library: every room of it, so that tests and the binary share one body.

pub mod kernel;
pub mod limits;
pub mod metrics;
pub mod probes;
pub mod serve;
