//! The machine that a kernel boots on: QEMU without KVM, two processors, disks that its kernel calls NVMe. It ends with
//! the job, with the kernel's panic, or by its time; nothing of it is left in either case.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::fetch::Kernel;
use super::jobs::Job;
use super::support::process::Process;
use super::support::scratch::Scratch;
use super::support::{missing, skipped};
use super::{guest, image};

/// A boot takes 5 to 8 s where the machine is idle, and a job of some thousand syncs a minute; beside two busy loops on two
/// processors, more than four.
const JOB_TAKES_AT_MOST: Duration = Duration::from_secs(600);
const TOOLS: [&str; 11] = [
    "qemu-system-x86_64",
    "apt-get",
    "dpkg",
    "modprobe",
    "cpio",
    "xz",
    "strip",
    "dmsetup",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
];
/// What a kernel says as it gives up, or a job that was cut short.
const CONSOLE_LINES: usize = 40;
/// A panic of the test program, and what it leads to.
const PANIC_LINES: usize = 120;
/// Room for what a job found, in MiB.
const ANSWER_MIB: u64 = 64;

/// Boots a kernel, has it do a job and gives what the job found. Says `skipped` and gives nothing where the kernel cannot
/// be had; everything that goes wrong afterwards is a failure.
pub fn answer(kernel: &Kernel, job: &Job) -> Option<Value> {
    let arch = (std::env::consts::ARCH != "x86_64").then(|| "its kernels are for x86-64".to_owned());
    let kernel_or_why = match arch.or_else(|| missing(&TOOLS)) {
        Some(why) => Err(why),
        None => kernel.fetch(),
    };
    let fetched = match kernel_or_why {
        Ok(fetched) => fetched,
        Err(why) => {
            skipped(&format!("{} on the kernel {}, which cannot be had: {why}", job.name, kernel.name));
            return None;
        }
    };
    let scratch = Scratch::new("kernel");
    let archive = image::make(&fetched, scratch.path());
    make_disks(&scratch);
    let mut machine = start(&fetched.image, &archive, &scratch, job);
    let ended = machine.wait(JOB_TAKES_AT_MOST).is_some();
    let console = fs::read_to_string(scratch.join("console")).unwrap_or_default();
    let said = || format!("{}\n{}", machine.log(), end_of(&console));
    let about = format!("{} on {}", job.name, kernel.name);
    assert!(ended, "{about} did not end within {JOB_TAKES_AT_MOST:?}; its console:\n{}", said());
    let bytes = fs::read(scratch.join(guest::ANSWER)).expect("read what the job found");
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let found = serde_json::from_slice(&bytes[..end]);
    Some(found.unwrap_or_else(|error| panic!("{about} told nothing ({error}); its console:\n{}", said())))
}

/// What a console shows from the test program's first panic on, or else last, up to the kernel's panic: that is the usual
/// end of a guest, and a long story.
fn end_of(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let end = lines.iter().position(|line| line.contains("Kernel panic")).map_or(lines.len(), |line| line + 1);
    let last = end.saturating_sub(CONSOLE_LINES);
    let begin = lines[..end].iter().position(|line| line.contains("panicked at")).map_or(last, |line| line.min(last));
    lines[begin..end.min(begin + PANIC_LINES)].join("\n")
}

/// The disks of the guest, as files named after the serial numbers by which it finds them.
fn make_disks(scratch: &Scratch) {
    for (serial, format) in guest::DISKS {
        format.make(&scratch.join(serial), format.mebibytes());
    }
    let answer = File::create(scratch.join(guest::ANSWER)).expect("make a disk");
    answer.set_len(ANSWER_MIB << 20).expect("size a disk");
}

/// Starts QEMU.
fn start(image: &Path, archive: &Path, scratch: &Scratch, job: &Job) -> Process {
    let mut command = Command::new("qemu-system-x86_64");
    let shape = "-nodefaults -no-user-config -display none -no-reboot -M q35 -accel tcg,thread=single -cpu max -smp 2";
    command.args(shape.split(' ')).args(["-m", "1024"]);
    command.arg("-serial").arg(format!("file:{}", scratch.join("console").display()));
    command.arg("-kernel").arg(image).arg("-initrd").arg(archive);
    // What the kernel does not know it hands to /init: names with a value as environment, the rest behind the dashes as
    // arguments.
    let words = format!(
        "console=ttyS0 quiet panic=-1 rdinit=/init {}={} -- {} --exact --nocapture --test-threads=1",
        guest::JOB,
        job.name,
        guest::ENTRY
    );
    command.arg("-append").arg(words);
    // A disk in memory is done before the emulated processor has gone to sleep.
    let slow = format!(",throttling.iops-write={}", job.writes_a_second);
    let disks = guest::DISKS.map(|(serial, _)| (serial, slow.as_str()));
    for (serial, more) in disks.into_iter().chain([(guest::ANSWER, "")]) {
        // The host's own disk is not to be flushed: other tests trace it.
        let file = scratch.join(serial).display().to_string();
        command.args(["-drive", &format!("id={serial},file={file},format=raw,if=none,cache=unsafe{more}")]);
        command.args(["-device", &format!("nvme,drive={serial},serial={serial}")]);
    }
    Process::start(command, scratch.join("qemu"), libc::SIGTERM)
}
