//! What several tests share. Each test binary uses a part of it.

#![allow(dead_code, reason = "each test binary compiles this module and uses a part of it")]

pub mod catalogue;
pub mod dashboard;
pub mod filled;
pub mod http;
pub mod prometheus;
pub mod tool;
