//! Reading kernel memory, in two ways from one source.
//!
//! A tp_btf program's pointers are typed: a load at an offset from the frozen table is checked by the verifier, costs
//! one instruction and reads 0 on a fault. A raw tracepoint's pointers are plain numbers and go through a helper. Both
//! read the same row of the table; which kind of program is loaded is the agent's choice.

use aya_ebpf::{
    Argument, EbpfContext, Global,
    helpers::{bpf_probe_read_kernel, generated},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use fsyncscope_ebpf::layout::{Functions, Layout};
use fsyncscope_ebpf::settings::Settings;

/// A kernel object.
pub type Object = *const u8;

#[unsafe(no_mangle)]
pub static LAYOUT: Global<Layout> = Global::new(Layout::UNRESOLVED);
#[unsafe(no_mangle)]
pub static FUNCTIONS: Global<Functions> = Global::new(Functions::UNRESOLVED);
#[unsafe(no_mangle)]
pub static SETTINGS: Global<Settings> = Global::new(Settings::UNSET);

/// One offset of the table.
macro_rules! offset {
    ($field:ident) => {
        $crate::probe::memory::frozen::<u32>(
            (&raw const $crate::probe::memory::LAYOUT).cast(),
            core::mem::offset_of!(fsyncscope_ebpf::layout::Layout, $field),
        )
    };
}
/// One setting.
macro_rules! setting {
    ($field:ident: $type:ty) => {
        $crate::probe::memory::frozen::<$type>(
            (&raw const $crate::probe::memory::SETTINGS).cast(),
            core::mem::offset_of!(fsyncscope_ebpf::settings::Settings, $field),
        )
    };
}
/// One function address.
macro_rules! function {
    ($field:ident) => {
        $crate::probe::memory::frozen::<u64>(
            (&raw const $crate::probe::memory::FUNCTIONS).cast(),
            core::mem::offset_of!(fsyncscope_ebpf::layout::Functions, $field),
        )
    };
}
/// One field of an object, read the way of `$memory`.
macro_rules! field {
    ($memory:ty, $object:expr, $field:ident: $type:ty) => {
        <$memory as $crate::probe::memory::Memory>::read::<$type>($object, $crate::probe::memory::offset!($field))
    };
}
/// One field of an object that may be untyped, read by the helper.
macro_rules! peek {
    ($object:expr, $field:ident: $type:ty) => {
        $crate::probe::memory::load::<$type>($object, $crate::probe::memory::offset!($field))
    };
}
pub(crate) use {field, function, offset, peek, setting};

/// Reads a member of a static that the agent filled before load and nothing writes since.
#[inline(always)]
pub fn frozen<T: Copy>(start: *const u8, offset: usize) -> T {
    // SAFETY: `offset_of` gives a place inside the static; volatile keeps the compiler from folding its initial value.
    unsafe { start.wrapping_add(offset).cast::<T>().read_volatile() }
}

/// A way to read kernel memory.
pub trait Memory {
    /// Reads `T` at `object + offset`; 0 on a fault.
    fn read<T: Copy>(object: Object, offset: u32) -> T;
    /// The object's address as a number.
    fn address(object: Object) -> u64;
    /// The current task.
    fn current() -> Object;
    /// Kernel stack of a sleeping task into `stack`, whose bytes must be zeroed before.
    fn stack(task: Object, stack: *mut u8, bytes: u32);
}

/// Typed pointers of a tp_btf program.
pub enum Typed {}

impl Memory for Typed {
    #[inline(always)]
    fn read<T: Copy>(object: Object, offset: u32) -> T {
        // SAFETY: the verifier checks the load against the pointer's type.
        unsafe { object.wrapping_add(offset as usize).cast::<T>().read_volatile() }
    }
    #[inline(always)]
    fn address(object: Object) -> u64 {
        // The verifier lets nobody calculate with a typed pointer; what the helper reads is a number. An atomic exchange
        // gives one too, and waits for every store before it.
        let typed = object;
        load((&raw const typed).cast(), 0)
    }
    #[inline(always)]
    fn current() -> Object {
        // SAFETY: the helper takes no argument.
        unsafe { generated::bpf_get_current_task_btf() }.cast::<u8>().cast_const()
    }
    #[inline(always)]
    fn stack(task: Object, stack: *mut u8, bytes: u32) {
        if setting!(has_registers: u32) != 0 {
            // SAFETY: the caller gives `bytes` of writable memory.
            unsafe { generated::bpf_get_task_stack(task.cast_mut().cast(), stack.cast(), bytes, 0) };
        }
    }
}

/// Plain numbers of a raw tracepoint.
pub enum Probed {}

impl Memory for Probed {
    #[inline(always)]
    fn read<T: Copy>(object: Object, offset: u32) -> T {
        load(object, offset)
    }
    #[inline(always)]
    fn address(object: Object) -> u64 {
        object as u64
    }
    #[inline(always)]
    fn current() -> Object {
        // SAFETY: the helper takes no argument.
        unsafe { generated::bpf_get_current_task() as Object }
    }
    #[inline(always)]
    fn stack(_: Object, _: *mut u8, _: u32) {}
}

/// Reads `T` at `object + offset` through the helper; 0 on a fault.
#[inline(always)]
pub fn load<T: Copy>(object: Object, offset: u32) -> T {
    // SAFETY: the helper checks the address; `T` is a number or an array of numbers, for which zero is a value.
    unsafe { bpf_probe_read_kernel(object.wrapping_add(offset as usize).cast::<T>()).unwrap_or(core::mem::zeroed()) }
}

/// A tracepoint's arguments, whichever kind of program asks.
pub trait Arguments: EbpfContext {
    fn argument<T: Argument>(&self, index: usize) -> T;
}

impl Arguments for BtfTracePointContext {
    #[inline(always)]
    fn argument<T: Argument>(&self, index: usize) -> T {
        self.arg(index)
    }
}

impl Arguments for RawTracePointContext {
    #[inline(always)]
    fn argument<T: Argument>(&self, index: usize) -> T {
        self.arg(index)
    }
}

/// The first argument, or the second where this kernel has another in front of it.
#[inline(always)]
pub fn argument_behind(context: &impl Arguments, others: u32) -> Object {
    let first = context.argument(0);
    if others == 0 {
        return first;
    }
    // SAFETY: the context of a tracepoint is its arguments, a word each. Volatile keeps the two reads from becoming one
    // through a pointer that is chosen before, which the verifier refuses.
    unsafe { context.as_ptr().cast::<Object>().add(1).read_volatile() }
}

/// User registers of the current task, null where the kernel does not offer them.
#[inline(always)]
pub fn registers() -> Object {
    if setting!(has_registers: u32) == 0 {
        return core::ptr::null();
    }
    // SAFETY: the argument is the current task, typed.
    unsafe { generated::bpf_task_pt_regs(generated::bpf_get_current_task_btf()) as Object }
}

/// CLOCK_MONOTONIC in ns.
#[inline(always)]
pub fn now_ns() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { generated::bpf_ktime_get_ns() }
}

/// Thread id of the current task.
#[inline(always)]
pub fn current_tid() -> u32 {
    aya_ebpf::helpers::bpf_get_current_pid_tgid() as u32
}
