//! The matrix: doors in all shapes on one filesystem under one agent, and what of its records is wrong. It counts and
//! compares; the caller mounts, starts the agent and judges.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::agent::{Agent, field};
use super::child::{Child, Role};
use super::client::{Client, Shape, book};
use super::doors::{About, Door};
use super::ledger::{Account, Distance, Told};
use super::rings;
use super::scratch::Scratch;
use super::wait_for;

/// At a threshold of zero every wait is told with the queue around it: seven threads fill the usual 4 MiB in 200 ms,
/// which is two polls of an agent that itself waits for a CPU.
pub const AGENT: [&str; 4] = ["--threshold", "0", "--ring-bytes", "67108864"];

const SHAPES: [Shape; 3] = [Shape::Main, Shape::Threads(7), Shape::Exits];
/// Of one client. A slow disk under the scratch directory takes seconds, and so does an emulated processor.
const LIMIT: Duration = Duration::from_secs(120);
/// An emulated processor writes some hundred records a second.
const LAST_RECORDS_TAKE_AT_MOST: Duration = Duration::from_secs(60);

/// Where the clients work.
pub struct Place<'a> {
    pub directory: &'a Path,
    /// Major and minor number of its disk.
    pub number: (u32, u32),
    pub told: Told,
}

/// What came of it.
pub struct Found {
    /// How many records are owed and were told.
    pub owed: usize,
    pub told: usize,
    /// A sentence each.
    pub wrong: Vec<String>,
    /// Of each call of each door and shape.
    pub distances: Vec<(String, Distance)>,
    pub said: Vec<String>,
}

/// Lets clients go through the doors, each as often as is said, one client after the other.
pub fn count(agent: Agent, doors: &[&'static Door], place: &Place, times: impl Fn(&Door) -> u64) -> Found {
    let scratch = Scratch::new("books");
    let _aio = rings::context();
    let cells = doors.iter().flat_map(|door| SHAPES.map(|shape| (*door, shape)));
    let go = |(door, shape)| {
        let (client, child) = ready(door, shape, times(door), &scratch, place.directory);
        gone(client, child)
    };
    let accounts: Vec<Account> = cells.map(go).collect();
    let owed: usize = accounts.iter().map(|account| account.owed(place.told)).sum();
    let all = wait_for(LAST_RECORDS_TAKE_AT_MOST, || (agent.printed() >= owed).then_some(()));
    let ended = agent.interrupt();
    let mut wrong = strangers(&ended.syncs, &accounts, place.number);
    wrong.extend(wrong_directories(&ended.syncs, &accounts));
    let mut distances = Vec::new();
    for account in &accounts {
        let (faults, own) = account.compare(&ended.syncs, place.number, place.told);
        wrong.extend(faults.sentences(&account.name()));
        distances.extend(own.into_iter().map(|distance| (account.name(), distance)));
    }
    if all.is_none() {
        wrong.push(format!("{} records of {owed}", ended.syncs.len()));
    }
    if !ended.status.success() {
        wrong.push(format!("the agent ended with {}", ended.status));
    }
    Found { owed, told: ended.syncs.len(), wrong, distances, said: ended.said }
}

/// A process that stands before a door.
pub fn ready(door: &Door, shape: Shape, count: u64, scratch: &Scratch, directory: &Path) -> (Client, Child) {
    let client = Client { door: door.name.to_owned(), shape, count, directory: directory.to_owned() };
    let log = scratch.join(&format!("{}.{}.book", door.name, shape.name()));
    let child = Child::start(Role::Client(client.clone()), door.name, log);
    (client, child)
}

/// Lets it go, and gives its book.
pub fn gone(client: Client, child: Child) -> Account {
    let pid = child.worker_tid();
    let book = book(&child.stop_within(LIMIT));
    let calls = Door::named(&client.door).calls.len() as u64;
    assert_eq!(book.len() as u64, client.count * calls, "the book of {} is not whole", client.door);
    Account { client, pid, book }
}

/// Nobody else syncs on a disk of our own.
fn strangers(syncs: &[Value], accounts: &[Account], (major, minor): (u32, u32)) -> Vec<String> {
    let ours =
        |sync: &Value| accounts.iter().any(|account| field::number(sync, "/process/pid") == u64::from(account.pid));
    let on_disk = |sync: &&Value| sync["device"]["major"] == major && sync["device"]["minor"] == minor;
    syncs.iter().filter(on_disk).filter(|sync| !ours(sync)).map(|sync| format!("of nobody: {sync}")).collect()
}

/// Records that take a directory for a file, or a file for a directory.
fn wrong_directories(syncs: &[Value], accounts: &[Account]) -> Vec<String> {
    let of_directories =
        |account: &&Account| Door::named(&account.client.door).calls.iter().any(|call| call.about == About::Directory);
    let pids: BTreeSet<u64> = accounts.iter().filter(of_directories).map(|account| account.pid.into()).collect();
    let wrong = syncs.iter().filter(|sync| {
        let is_directory = pids.contains(&field::number(sync, "/process/pid"));
        !sync["file"].is_null() && sync["file"]["directory"] != Value::Bool(is_directory)
    });
    wrong.take(1).map(|sync| format!("not told from a file: {sync}")).collect()
}
