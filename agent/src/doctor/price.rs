//! What the tracepoints of system calls cost every system call of this machine: measured, with and without them.

use std::time::Instant;

use serde::Serialize;

use crate::probes::Probes;
use crate::probes::table::Calls;

const CALLS: u32 = 100_000;
/// The quickest of some rounds: what else runs makes the others longer.
const ROUNDS: usize = 7;

/// Nanoseconds of the cheapest system call.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Price {
    pub without_ns: f64,
    pub with_ns: f64,
}

/// Measures a call that none of the programs is on, before and after they are attached; they stay attached.
pub fn measure(probes: &mut Probes) -> anyhow::Result<Price> {
    let without_ns = call_ns();
    probes.attach_calls(Calls::ALL)?;
    Ok(Price { without_ns, with_ns: call_ns() })
}

fn call_ns() -> f64 {
    let round = || {
        let begun = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: the call takes nothing and cannot fail.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

impl Price {
    pub fn sentence(&self) -> String {
        let Self { without_ns, with_ns } = self;
        let more = with_ns - without_ns;
        format!(
            "--syscall-tracepoints makes each system call of this machine {more:.0} ns longer ({without_ns:.0} to {with_ns:.0} ns)"
        )
    }
}
