//! The agent as a library: every room of it, so that tests and the binary share one body.

pub mod cli;
pub mod cost;
pub mod doctor;
pub mod event;
pub mod kernel;
pub mod limits;
pub mod metrics;
pub mod probes;
pub mod record;
pub mod serve;
pub mod start;
pub mod timeline;
