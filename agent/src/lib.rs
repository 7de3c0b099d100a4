//! The agent as a library: every room of it, so that tests and the binary share one body.

pub mod aio;
pub mod attribution;
pub mod cli;
pub mod cost;
pub mod demo;
pub mod disks;
pub mod doctor;
pub mod event;
pub mod kernel;
pub mod limits;
pub mod lines;
pub mod metrics;
pub mod names;
pub mod probes;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod scratch;
pub mod select;
pub mod serve;
pub mod start;
pub mod timeline;
pub mod tracer;
pub mod watch;
pub mod worst;
