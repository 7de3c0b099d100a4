//! Debian's MariaDB with its tables and log on a disk, and mariadb-slap as the load.

use std::process::Command;
use std::time::Duration;

use super::eyes::{Broker, Through};
use super::process::{Process, tail};
use super::scratch::{LoopFs, Scratch};
use super::strace::Call;
use super::{client, missing, run, wait_for};

/// How the engine makes its log durable, in MariaDB's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMethod {
    /// As it is installed: by fdatasync.
    Direct,
    /// By the write itself.
    Dsync,
}

/// A running server, reached through a socket.
pub struct MariaDb {
    server: Process,
    method: FlushMethod,
    socket: String,
}

impl MariaDb {
    /// Why no MariaDB can run here, or nothing.
    pub fn missing() -> Option<String> {
        missing(&["mariadbd", "mariadb-install-db", "mariadb", "mariadb-slap"])
    }

    pub fn start(method: FlushMethod, scratch: &Scratch, disk: &LoopFs) -> Self {
        let data = format!("--datadir={}", disk.join("mariadb").display());
        // Its own settings come first, and nothing of the machine's is read.
        run(Command::new("mariadb-install-db").args([
            "--no-defaults",
            "--user=root",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            &data,
        ]));
        let socket = format!("--socket={}", scratch.join("mariadb.sock").display());
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--innodb-buffer-pool-size=32M"]);
        command.args(["--innodb-log-file-size=16M", "--log-bin", "--sync-binlog=1", &data, &socket]);
        command.arg(format!("--innodb-flush-method=O_{}", format!("{method:?}").to_uppercase()));
        let server = Process::start(command, scratch.join("mariadb.log"), libc::SIGTERM);
        let made = Self { server, method, socket };
        let ready = || made.client("mariadb").args(["-e", "select 1"]).output().is_ok_and(|o| o.status.success());
        let ready = wait_for(Duration::from_secs(60), || ready().then_some(()));
        assert!(ready.is_some(), "MariaDB is not ready:\n{}", tail(&made.server.log()));
        made
    }

    fn client(&self, program: &str) -> Command {
        let mut command = client(program);
        command.args(["--no-defaults", "--user=root", &self.socket]);
        command
    }
}

impl Broker for MariaDb {
    fn pids(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn load(&self) {
        run(self.client("mariadb-slap").args([
            "--auto-generate-sql",
            "--auto-generate-sql-load-type=write",
            "--engine=innodb",
            "--concurrency=4",
            "--number-of-queries=400",
        ]));
    }

    fn writes_through(&self) -> Option<Through> {
        let through = Through { part: "/ib_logfile0", operation: "o_dsync" };
        (self.method == FlushMethod::Dsync).then_some(through)
    }

    /// The syncs of the engine, which are those of its log and tables, and those of the server: its binary log and the
    /// rest. The two together are all, but for writes that are syncs themselves.
    fn counted(&self) -> Option<u64> {
        let names = "'Innodb_data_fsyncs', 'Syncs'";
        let ask = format!("show global status where variable_name in ({names})");
        let told = run(self.client("mariadb").args(["-N", "-e", &ask]));
        let counts: Vec<u64> = told.lines().filter_map(|line| line.split_once('\t')?.1.parse().ok()).collect();
        assert_eq!(counts.len(), 2, "{told}");
        Some(counts.iter().sum())
    }

    fn counts(&self, call: &Call) -> bool {
        !call.name.contains("write")
    }
}
