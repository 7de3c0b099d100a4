//! Entry of the kernel side. The programs build only for the bpf target; elsewhere this keeps `cargo check` green.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }
#[cfg(not(target_arch = "bpf"))]
fn main() {}
