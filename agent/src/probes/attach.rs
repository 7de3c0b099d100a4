//! Attaching: each probe of the table as a typed program where that can be, else as a raw tracepoint, else not at all.

use aya::Ebpf;
use aya::programs::{BtfTracePoint, ProgramError, RawTracePoint, TracePoint};
use fsyncscope_ebpf::layout::{ABSENT, Field, Layout};

use super::table::{Attached, Calls, Need, PROBES, Probe, State};
use super::{Choice, Facts, ProbesError, aio_in_use, kernel_types, reason};

/// Attaches every probe that this kernel has.
pub fn all(ebpf: &mut Ebpf, facts: &Facts, choice: &Choice) -> Result<Vec<Attached>, ProbesError> {
    let kernel = kernel_types()?;
    let mut attached = Vec::new();
    for probe in PROBES {
        let mut attach = || {
            let lacking = lacking_field(probe, facts);
            let waits = probe.need == Need::Aio && !aio_in_use();
            let put_off = lacking.or(waits.then_some(State::Waiting));
            Attached { probe, state: put_off.unwrap_or_else(|| one(ebpf, probe, &kernel, choice.raw)) }
        };
        if let Need::InPlaceOf(other) = probe.need {
            stand_in(&mut attached, other, facts, attach);
            continue;
        }
        let found = attach();
        if let (Need::Required, State::Missing(why)) = (probe.need, &found.state) {
            return Err(ProbesError(format!("attaching {} failed: {why}; without it, {}", probe.name, probe.lost)));
        }
        attached.push(found);
    }
    let seen =
        |attached: &Attached| attached.probe.need == Need::Filesystem && !matches!(attached.state, State::Missing(_));
    if !attached.iter().any(seen) {
        return Err(ProbesError("this kernel has no tracepoint of a filesystem that can be traced (ext4, xfs, btrfs); load the filesystem's module and try again".into()));
    }
    Ok(attached)
}

/// Attaches one probe, typed unless raw is wanted or only that can be had.
pub fn one(ebpf: &mut Ebpf, probe: &Probe, kernel: &aya::Btf, as_raw: bool) -> State {
    let typed = if as_raw { Err("not asked for".to_owned()) } else { typed(ebpf, probe.name, probe.name, kernel) };
    match typed {
        Ok(()) => State::Typed,
        Err(first) => match raw(ebpf, probe.raw, probe.name) {
            Ok(()) => State::Raw,
            Err(second) => {
                State::Missing(if as_raw { second } else { format!("{first}, and as a raw tracepoint: {second}") })
            }
        },
    }
}

/// Attaches what is wanted of the tracepoints of system calls.
pub fn calls(ebpf: &mut Ebpf, wanted: Calls) -> Result<Vec<Attached>, ProbesError> {
    let attach = |probe: &'static Probe| {
        classic(ebpf, probe.name).map_err(|why| {
            ProbesError(format!(
                "attaching {} failed: {why}; mount tracefs (mount -t tracefs none /sys/kernel/tracing), or leave --syscall-tracepoints out",
                probe.name
            ))
        })?;
        Ok(Attached { probe, state: State::Classic })
    };
    wanted.probes().map(attach).collect()
}

fn classic(ebpf: &mut Ebpf, name: &str) -> Result<(), String> {
    let program: &mut TracePoint = program(ebpf, name)?;
    program.load().map_err(|e| reason(&e))?;
    program.attach("syscalls", name).map(|_| ()).map_err(|e| reason(&e))
}

/// The state of a probe whose field this kernel does not describe.
fn lacking_field(probe: &Probe, facts: &Facts) -> Option<State> {
    let row = probe.reads().filter(|row| facts.layout.get(*row) == Some(&ABSENT))?;
    let Field { owner, name, .. } = Layout::FIELDS[row];
    Some(State::Missing(format!("this kernel does not describe {owner}.{name}")))
}

/// Attaches a probe where this kernel lacks the tracepoint of the one that it stands in for.
fn stand_in(attached: &mut [Attached], other: &str, facts: &Facts, attach: impl FnOnce() -> Attached) {
    let lacking = |each: &&mut Attached| each.probe.name == other && facts.btf.tracepoint_arguments(other).is_none();
    let Some(place) = attached.iter_mut().find(lacking) else { return };
    let stand_in = attach();
    match (&stand_in.state, &mut place.state) {
        (State::Missing(why), State::Missing(first)) => {
            *first = format!("{first}, and in its place {}: {why}", stand_in.probe.name);
        }
        _ => *place = stand_in,
    }
}

pub fn typed(ebpf: &mut Ebpf, name: &str, event: &str, kernel: &aya::Btf) -> Result<(), String> {
    let program: &mut BtfTracePoint = program(ebpf, name)?;
    program.load(event, kernel).map_err(|e| reason(&e))?;
    program.attach().map(|_| ()).map_err(|e| reason(&e))
}

pub fn raw(ebpf: &mut Ebpf, name: &str, event: &str) -> Result<(), String> {
    let program: &mut RawTracePoint = program(ebpf, name)?;
    program.load().map_err(|e| reason(&e))?;
    program.attach(event).map(|_| ()).map_err(|e| reason(&e))
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, String>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| format!("the object has no program {name}"))?;
    program.try_into().map_err(|e| reason(&e))
}
