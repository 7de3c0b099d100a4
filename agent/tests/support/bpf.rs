//! Which programs a process holds in the kernel, and whether they are still there: asked of the kernel itself.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;

use serde_json::Value;

use super::run;

/// The ids of the programs behind a process's descriptors, its own and those of its links.
pub fn programs_of(pid: u32) -> BTreeSet<u32> {
    numbers_of(pid, "prog_id:")
}

/// The types of the programs that a process holds, as the kernel numbers them.
pub fn types_of(pid: u32) -> BTreeSet<u32> {
    numbers_of(pid, "prog_type:")
}

/// What the descriptors of a process say under one key.
fn numbers_of(pid: u32, key: &str) -> BTreeSet<u32> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return BTreeSet::new();
    };
    descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok())
        .filter_map(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse().ok()
        })
        .collect()
}

/// True while the kernel has a program of this id. Ids count upwards and are not given again soon.
pub fn exists(id: u32) -> bool {
    const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
    // The part of union bpf_attr that this command reads: the id, an unused id, no flags.
    let attributes: [u32; 3] = [id, 0, 0];
    // SAFETY: the command reads so many bytes as it is told there are, and writes none.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, attributes.as_ptr(), size_of_val(&attributes)) };
    if descriptor < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "ask for program {id}: {error}");
        return false;
    }
    // SAFETY: the descriptor was just given to us and is used nowhere else.
    unsafe { libc::close(descriptor as i32) };
    true
}

/// The ids of all programs that the kernel has, whosever they are.
pub fn all() -> BTreeSet<u32> {
    const BPF_PROG_GET_NEXT_ID: libc::c_int = 11;
    let mut ids = BTreeSet::new();
    // The part of union bpf_attr that this command reads and writes: the id to begin after, the next one, no flags.
    let mut attributes: [u32; 3] = [0; 3];
    loop {
        let size = size_of_val(&attributes);
        // SAFETY: the command reads and writes so many bytes as it is told there are.
        let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_GET_NEXT_ID, attributes.as_mut_ptr(), size) };
        if result < 0 {
            let error = std::io::Error::last_os_error();
            assert_eq!(
                error.raw_os_error(),
                Some(libc::ENOENT),
                "ask for the program after {}: {error}",
                attributes[0]
            );
            return ids;
        }
        attributes[0] = attributes[1];
        ids.insert(attributes[0]);
    }
}

/// The threads that sync, or have synced, among those that an agent's probes keep a place for.
pub fn watched_threads(agent: u32) -> Vec<u32> {
    /// The role of a thread that syncs, and where a slot has its task's id and its role (`ebpf/src/slot.rs`).
    const SYNC: u32 = 1;
    const TID: usize = 0;
    const ROLE: usize = 8;
    let own = numbers_of(agent, "map_id:");
    let maps = run(Command::new("bpftool").args(["--json", "map", "show"]));
    let maps: Vec<Value> = serde_json::from_str(&maps).expect("bpftool lists maps");
    let is_own =
        |map: &&Value| map["name"] == "SLOT" && map["id"].as_u64().is_some_and(|id| own.contains(&(id as u32)));
    let id = maps.iter().find(is_own).expect("the agent has a map of slots")["id"].to_string();
    let dump = run(Command::new("bpftool").args(["--json", "map", "dump", "id", &id]));
    let slots: Vec<Value> = serde_json::from_str(&dump).expect("bpftool dumps a map");
    let byte = |value: &Value| u8::from_str_radix(value.as_str()?.trim_start_matches("0x"), 16).ok();
    let number = |slot: &Value, place: usize| {
        let bytes: Vec<u8> = slot["value"].as_array()?[place..place + 4].iter().filter_map(byte).collect();
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let syncing = slots.iter().filter(|slot| number(slot, ROLE) == Some(SYNC));
    syncing.filter_map(|slot| number(slot, TID)).filter(|tid| *tid != 0).collect()
}

/// Loads the smallest program there is, for the tests of the two questions above.
pub fn load_nothing() -> OwnedFd {
    /// The part of union bpf_attr that loads a program.
    #[repr(C)]
    struct Load {
        kind: u32,
        instruction_count: u32,
        instructions: u64,
        licence: u64,
        rest: [u64; 3],
    }
    const BPF_PROG_LOAD: libc::c_int = 5;
    const SOCKET_FILTER: u32 = 1;
    // r0 = 0; exit.
    let instructions: [u64; 2] = [0xb7, 0x95];
    let load = Load {
        kind: SOCKET_FILTER,
        instruction_count: 2,
        instructions: instructions.as_ptr() as u64,
        licence: c"GPL".as_ptr() as u64,
        rest: [0; 3],
    };
    // SAFETY: the kernel reads the attributes and what they point to, all of which outlives the call.
    let descriptor = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    assert!(descriptor >= 0, "load a program: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just given to us and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}
