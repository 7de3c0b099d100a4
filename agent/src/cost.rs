//! stub
use std::process::ExitCode;
pub fn cost(_: &crate::cli::Cost) -> anyhow::Result<ExitCode> { anyhow::bail!("stub") }
