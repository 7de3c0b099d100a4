//! The agent as a library: the binary, the tests and the tools are thin callers of it.

pub mod limits;
pub mod metrics;
pub mod serve;
