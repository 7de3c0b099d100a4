//! stub
use std::process::ExitCode;
pub fn doctor(_: &crate::cli::Doctor) -> anyhow::Result<ExitCode> { anyhow::bail!("stub") }
