//! A journal for measurements by hand: appends 512 bytes and makes them durable, again and again, for some seconds.
//!
//! ```text
//! cargo run --release --example journal_writer -- <file> <seconds> [<pause between syncs in us>]
//! ```
//! Prints syncs, and median and 99th percentile of their duration in microseconds, as `syncs p50_us p99_us`.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(seconds)) = (arguments.next(), arguments.next()) else {
        return Err("give the file to write and the seconds".into());
    };
    let time = Duration::from_secs_f64(seconds.parse()?);
    let pause = Duration::from_micros(arguments.next().map_or(Ok(1000), |us| us.parse())?);
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let mut durations_us = Vec::new();
    let started = Instant::now();
    while started.elapsed() < time {
        file.write_all(&[b'j'; 512])?;
        let before = Instant::now();
        file.sync_data()?;
        durations_us.push(before.elapsed().as_micros());
        std::thread::sleep(pause);
    }
    durations_us.sort_unstable();
    let at = |percent: usize| durations_us.get(durations_us.len() * percent / 100).copied().unwrap_or(0);
    println!("{} {} {}", durations_us.len(), at(50), at(99));
    Ok(())
}
