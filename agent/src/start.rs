//! The way from nothing to attached probes, the same for every command that traces, and the claim that keeps a command
//! from running twice on one host.
//!
//! It knows what a command needs from the kernel room and from the probes. It must not know what is done with events.

use std::io::ErrorKind;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, anyhow, bail};

use crate::kernel::btf::{self, Btf};
use crate::kernel::capability::Capability;
use crate::kernel::host::{Host, Roots, UserNamespace};
use crate::kernel::layout::{self, Resolved};
use crate::kernel::shortfall::{Felt, Need, Shortfall};
use crate::kernel::symbols::Symbols;
use crate::probes::{Choice, Facts, Probes};

/// Modules that may hold what the probes read, where a kernel does not have them built in.
const MODULES: [&str; 4] = ["jbd2", "ext4", "xfs", "btrfs"];

/// What this machine offers to the probes; reading it attaches nothing.
pub struct Kernel {
    pub btf: Btf,
    pub layout: Resolved,
    pub symbols: Symbols,
    pub host: Host,
}

impl Kernel {
    /// Reads the machine's facts. An error says what is missing without which nothing can be traced.
    pub fn read(roots: &Roots) -> anyhow::Result<Self> {
        let host = Host::read(roots);
        Self::with_host(host, roots)
    }

    /// The same from facts about the host that were read before.
    pub fn with_host(host: Host, roots: &Roots) -> anyhow::Result<Self> {
        allow(&host)?;
        let directory = roots.sys.join(btf::KERNEL_FILE);
        let btf = Btf::load(&directory)?;
        let module = |name: &&str| Btf::load_split(&btf, &directory.with_file_name(name)).ok();
        // A module that is not loaded, or is built in, has no file; a row that needs it is then missing by name.
        let modules: Vec<Btf> = MODULES.iter().filter_map(module).collect();
        let layout = layout::resolve(&btf, &modules)?;
        let symbols = Symbols::load(&roots.proc)?;
        Ok(Self { btf, layout, symbols, host })
    }

    /// What is missing and felt in reports, although the probes are attached; to be said once.
    pub fn lacking(&self) -> impl Iterator<Item = &Shortfall> {
        self.host.shortfalls.iter().filter(|row| row.felt == Felt::Reports)
    }

    /// Loads the probes for this kernel and attaches them. They stay attached as long as the value lives.
    pub fn attach(&self, choice: &Choice) -> anyhow::Result<Probes> {
        unlimit_locked_memory();
        let Self { btf, layout, symbols, host: _ } = self;
        let facts = Facts { btf, layout: &layout.values, functions: symbols.functions() };
        Probes::attach(&facts, choice).map_err(|e| anyhow!("{e}; `fsyncscope doctor` says what this machine lacks"))
    }
}

/// Refuses a machine or a process that cannot trace, in one sentence.
fn allow(host: &Host) -> anyhow::Result<()> {
    let lacks = |capability: &Capability| !host.may(*capability);
    let lacking: Vec<&str> =
        [Capability::Bpf, Capability::Perfmon].iter().filter(|each| lacks(each)).map(|each| each.name()).collect();
    if host.users == UserNamespace::Initial && host.capabilities.is_some() && !lacking.is_empty() {
        let (noun, names) = (if lacking.len() > 1 { "capabilities" } else { "capability" }, lacking.join(" and "));
        bail!(
            "loading the probes: this process lacks the {noun} {names}; run it as root, or add {names} to its service \
             or container"
        );
    }
    match host.shortfalls.iter().find(|row| row.need == Need::Required) {
        Some(row) => bail!("{row}"),
        None => Ok(()),
    }
}

/// Kernels before 5.11 count maps as locked memory. Without the privilege to raise the limit it stays as it is, and
/// such a kernel's refusal tells.
fn unlimit_locked_memory() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a limit of our own that outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
}

/// The right to be the only process of one command on this host (strictly, in this network namespace). It is a name in
/// the kernel, so nothing is left on disk and it ends with the process, however that ends.
#[derive(Debug)]
pub struct Instance {
    _name: UnixListener,
}

impl Instance {
    /// Claims a command; an error names the process that runs it already.
    pub fn claim(command: &str) -> anyhow::Result<Self> {
        let address = SocketAddr::from_abstract_name(name(command)).context("naming this instance")?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Self { _name: listener }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let holder = holder(command).map_or("in another container".into(), |pid| format!("as process {pid}"));
                bail!("`fsyncscope {command}` runs already, {holder}; end it first, or use its output")
            }
            Err(error) => bail!("claiming to be the only `fsyncscope {command}`: {error}; run it as root of the host"),
        }
    }
}

fn name(command: &str) -> String {
    format!("fsyncscope/{command}")
}

/// Process that holds a command's name. The kernel remembers who began to listen; a connection is all that it takes.
fn holder(command: &str) -> Option<i32> {
    let name = name(command);
    // SAFETY: an address is plain numbers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A name that starts with a zero byte is not a path.
    for (place, byte) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    let used = size_of::<libc::sa_family_t>() + 1 + name.len();
    // The holder never accepts; once many have asked, a connection that may block would wait for ever.
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes numbers only.
    let descriptor = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor was just given to us and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: the address outlives the call, and `used` bytes of it lie inside it.
    if unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), used as libc::socklen_t) } != 0 {
        return None;
    }
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let level = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: both pointers are to values of our own that outlive the call, and `bytes` is the size of the first.
    let status =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level.0, level.1, (&raw mut peer).cast(), &raw mut bytes) };
    // 0 stands for a process that this process's namespace does not show.
    (status == 0 && peer.pid != 0).then_some(peer.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_instance_of_a_command_learns_who_is_the_first() {
        let command = format!("test-{}", std::process::id());
        let first = Instance::claim(&command).unwrap();
        for _ in 0..300 {
            let refused = Instance::claim(&command).unwrap_err().to_string();
            assert!(refused.contains("runs already"), "{refused}");
        }
        assert_eq!(holder("nobody-has-this"), None);
        assert!(Instance::claim(&format!("{command}-other")).is_ok());
        drop(first);
        let again = Instance::claim(&command).unwrap();
        assert_eq!(holder(&command), Some(std::process::id() as i32));
        drop(again);
    }
}
