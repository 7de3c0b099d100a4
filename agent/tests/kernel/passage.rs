//! A job: every door of the matrix on each filesystem, and what of the agent's records is wrong by the clients' books.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use serde_json::{Value, json};

use super::guest::{DISKS, disk, mount_disk, unmount};
use super::support::agent::Agent;
use super::support::doors::{Asker, DOORS, Door};
use super::support::ledger::{Distance, Told};
use super::support::matrix::{self, AGENT, Found, Place};
use super::support::scratch::Format;

/// How far durations may lie apart at the median, beside 2 %, where a processor is emulated: the write and the way in and
/// out of a call took up to 2.4 ms there, on a host with a load of 13.
const APART_NS: u64 = 5_000_000;

/// What a guest goes through.
pub struct Passage {
    pub formats: &'static [Format],
    /// Operations of a door at most; prime.
    pub count: u64,
    /// Doors that this kernel does not have.
    pub closed: &'static [&'static str],
    pub unseen: &'static [&'static str],
    pub system_calls: bool,
}

impl Passage {
    pub fn go(&self) -> Value {
        let disks = DISKS.iter().filter(|(_, format)| self.formats.contains(format));
        let found: Vec<Value> = disks.flat_map(|(serial, format)| self.on(serial, *format)).collect();
        json!({ "found": found })
    }

    fn on(&self, serial: &str, format: Format) -> Vec<Value> {
        let directory = mount_disk(serial);
        let number = std::fs::metadata(disk(serial)).expect("look at the disk").rdev();
        let Self { system_calls, unseen, .. } = *self;
        let told = Told { format, system_calls, unseen };
        let place = Place { directory: &directory, number: (libc::major(number), libc::minor(number)), told };
        let flags: BTreeSet<Option<&str>> = DOORS.iter().map(|door| door.flag).collect();
        let under = |flag: Option<&str>| {
            let open = |door: &&Door| door.flag == flag && !self.closed.contains(&door.name);
            let doors: Vec<&Door> = DOORS.iter().filter(open).collect();
            let arguments: Vec<&str> = AGENT.into_iter().chain(flag).collect();
            let begun = Instant::now();
            let found = matrix::count(Agent::watch(&arguments), &doors, &place, |door| door.count.min(self.count));
            answer(serial, &found, begun.elapsed().as_secs_f64())
        };
        let found = flags.into_iter().map(under).collect();
        unmount(&directory);
        found
    }
}

fn answer(serial: &str, found: &Found, seconds: f64) -> Value {
    let Found { owed, told, wrong, distances, said } = found;
    let row = |(cell, distance): &(String, Distance)| {
        // A worker's end is the client's only when that comes to a CPU, which takes milliseconds there.
        let door = cell.split_whitespace().next().expect("a cell begins with its door");
        let late = Door::named(door).asker != Asker::Thread || distance.records == 0;
        // Seven threads wait for two emulated processors, also between the end of a call and their look at the clock.
        let quantile = if cell.ends_with("threads") { distance.quarter_ns } else { distance.median_ns };
        let allowed = late || distance.is_within(APART_NS, quantile);
        json!({ "cell": cell, "distance": distance.to_string(), "allowed": allowed })
    };
    let distances: Vec<Value> = distances.iter().map(row).collect();
    json!({
        "disk": serial, "owed": owed, "told": told, "wrong": wrong, "distances": distances, "said": said,
        "seconds": seconds,
    })
}
