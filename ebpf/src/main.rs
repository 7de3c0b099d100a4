//! Entry of the kernel side. The programs build only for the bpf target; elsewhere this keeps `cargo check` green.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(core_intrinsics), allow(internal_features))]

#[cfg(target_arch = "bpf")]
mod probe;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}
