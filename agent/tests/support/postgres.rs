//! Debian's PostgreSQL, the newest that is installed: a cluster of its own on a scratch disk, a socket instead of a port,
//! and pgbench as the load.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::eyes::{Broker, Through};
use super::process::{Process, tail};
use super::scratch::{LoopFs, Scratch};
use super::strace::Call;
use super::{missing, run, wait_for};

/// A running cluster. It refuses to run as root, so everything of it runs as the user postgres.
pub struct Postgres {
    postmaster: Process,
    programs: PathBuf,
    user: User,
    socket: PathBuf,
    data: PathBuf,
    method: &'static str,
}

#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// Why no PostgreSQL can run here, or nothing.
    pub fn missing() -> Option<String> {
        missing(&[])
            .or_else(|| programs().is_none().then(|| "needs PostgreSQL's server and pgbench".to_owned()))
            .or_else(|| user().is_none().then(|| "needs the user postgres".to_owned()))
    }

    /// Makes a cluster on a disk and starts it, with the log synced by fdatasync.
    pub fn start(scratch: &Scratch, disk: &LoopFs) -> Self {
        Self::syncing_by("fdatasync", scratch, disk)
    }

    /// The same with a `wal_sync_method`. No autovacuum: its workers would sync at times of their own.
    pub fn syncing_by(method: &'static str, scratch: &Scratch, disk: &LoopFs) -> Self {
        let programs = programs().expect("checked by missing");
        let user = user().expect("checked by missing");
        let (data, socket) = (disk.join("pg"), scratch.join("socket"));
        fs::create_dir(&socket).expect("create the socket's directory");
        std::os::unix::fs::chown(&socket, Some(user.uid), Some(user.gid)).expect("give the socket's directory away");
        run(user
            .command(&programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"])
            // The least that a segment can have, so that a short run comes through several.
            .args(["--wal-segsize=1", "-D"])
            .arg(&data));
        let mut command = user.command(&programs.join("postgres"));
        command.arg("-D").arg(&data);
        for setting in [
            "listen_addresses=",
            &format!("wal_sync_method={method}"),
            "autovacuum=off",
            "shared_buffers=16MB",
            "max_connections=20",
        ] {
            command.args(["-c", setting]);
        }
        command.arg("-c").arg(format!("unix_socket_directories={}", socket.display()));
        // SIGINT ends it at once and cleanly; SIGTERM would wait for clients.
        let postmaster = Process::start(command, scratch.join("postgres.log"), libc::SIGINT);
        let made = Self { postmaster, programs, user, socket, data, method };
        let ready = wait_for(Duration::from_secs(30), || {
            made.client("pg_isready").output().is_ok_and(|output| output.status.success()).then_some(())
        });
        assert!(ready.is_some(), "PostgreSQL is not ready:\n{}", tail(&made.postmaster.log()));
        made
    }

    fn client(&self, program: &str) -> Command {
        let mut command = self.user.command(&self.programs.join(program));
        command.arg("-h").arg(&self.socket).args(["-U", "postgres"]);
        command
    }

    pub fn pid(&self) -> u32 {
        self.postmaster.pid()
    }

    /// The postmaster and the processes that it has while no client is connected. A witness attaches to these and
    /// follows what they start.
    pub fn pids(&self) -> Vec<u32> {
        // The backend of a client that has just left is still there for a moment.
        standing_still(|| self.processes()).expect("PostgreSQL's processes do not stand still")
    }

    fn processes(&self) -> Vec<u32> {
        let postmaster = self.pid();
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
        let children = children.expect("the postmaster runs");
        let mut pids = vec![postmaster];
        pids.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().expect("a pid")));
        pids
    }

    /// The directory that holds the write-ahead log.
    pub fn wal(&self) -> PathBuf {
        self.data.join("pg_wal")
    }

    /// Makes pgbench's tables.
    pub fn prepare(&self) {
        run(self.client("pgbench").args(["-i", "-q", "-s", "1", "postgres"]));
    }

    /// Runs so many transactions in each of so many backends.
    pub fn bench(&self, clients: u32, transactions: u32) {
        run(self.client("pgbench").args([
            "-n",
            "-c",
            &clients.to_string(),
            "-t",
            &transactions.to_string(),
            "postgres",
        ]));
    }

    /// One SQL statement; gives what it returned.
    pub fn ask(&self, statement: &str) -> String {
        run(self.client("psql").args(["-X", "-A", "-t", "-c", statement, "postgres"])).trim().to_owned()
    }

    pub fn stop(mut self) {
        self.postmaster.stop();
    }
}

impl Broker for Postgres {
    fn pids(&self) -> Vec<u32> {
        self.pids()
    }

    /// Transactions over several segments of the log: first new ones, then old ones that a checkpoint renamed. To rename
    /// one takes an fsync of it, which cannot be told from the log's own if that is by fsync: then one segment is enough.
    fn load(&self) {
        if self.method == "fsync" {
            self.bench(4, 100);
            return;
        }
        for _ in 0..2 {
            for _ in 0..3 {
                self.bench(4, 20);
                self.ask("select pg_switch_wal()");
            }
            self.ask("checkpoint");
        }
    }

    /// A segment of the log that is in use. A new one is filled under another name, by plain writes and an fsync.
    fn writes_through(&self) -> Option<Through> {
        let operation = match self.method {
            "open_datasync" => "o_dsync",
            "open_sync" => "o_sync",
            _ => return None,
        };
        Some(Through { part: "/pg_wal/0", operation })
    }

    /// The syncs of the log, or its writes where these are the syncs. A process tells its own some time later.
    fn counted(&self) -> Option<u64> {
        let column = if self.writes_through().is_some() { "wal_write" } else { "wal_sync" };
        let count = || self.ask(&format!("select {column} from pg_stat_wal")).parse().expect("a count");
        Some(standing_still(count).expect("PostgreSQL's count of syncs does not stand still"))
    }

    fn counts(&self, call: &Call) -> bool {
        let of_log = call.path.as_deref().is_some_and(|path| path.contains("/pg_wal/0"));
        of_log && (self.method == "fsync" || call.name != "fsync")
    }
}

impl User {
    fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.uid(self.uid).gid(self.gid).env("HOME", "/").current_dir("/");
        command
    }
}

/// What does not change for 300 ms.
fn standing_still<T: Clone + PartialEq>(ask: impl Fn() -> T) -> Option<T> {
    let mut last = ask();
    wait_for(Duration::from_secs(10), || {
        std::thread::sleep(Duration::from_millis(300));
        let now = ask();
        let still = now == last;
        last = now;
        still.then(|| last.clone())
    })
}

/// The directory of the newest installed version that has both the server and pgbench.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions
        .map(|version| version.path().join("bin"))
        .filter(|programs| ["initdb", "postgres", "pgbench"].iter().all(|name| programs.join(name).is_file()))
        .max_by_key(|programs| {
            let version = programs.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            version.and_then(|version| version.parse::<u32>().ok()).unwrap_or(0)
        })
}

fn user() -> Option<User> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().find(|line| line.starts_with("postgres:"))?.split(':').skip(2);
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User { uid, gid })
}
