//! The symbol table: addresses of functions, names of addresses, and tables that hide their addresses.

use std::path::Path;

use fsyncscope::kernel::symbols::{Addresses, Hidden, Symbols};
use fsyncscope_ebpf::layout::Functions;

use crate::tree::Tree;

const TABLE: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000040 t wb_workfn
ffffffff81000040 t wb_workfn_alias
ffffffff81000200 T vfs_fsync
ffffffff81000100 T folio_wait_writeback
ffffffff81000300 t blk_throtl_dispatch_work_fn.llvm.123
ffffffff81000400 D loop_workfn
a line that is no symbol
ffffffffc0000000 t xfs_file_fsync\t[xfs]
";

fn load(name: &str, table: &str) -> (Tree, Symbols) {
    let tree = Tree::new(name).file("kallsyms", table);
    let symbols = Symbols::load(tree.root()).unwrap();
    (tree, symbols)
}

fn address(symbols: &Symbols, name: &str) -> u64 {
    symbols.functions()[Functions::SYMBOLS.iter().position(|symbol| *symbol == name).unwrap()]
}

#[test]
fn finds_functions_of_the_table() {
    let (_tree, symbols) = load("functions", TABLE);
    assert_eq!(symbols.functions().len(), Functions::SYMBOLS.len());
    assert_eq!(address(&symbols, "wb_workfn"), 0xffff_ffff_8100_0040);
    assert_eq!(address(&symbols, "blk_throtl_dispatch_work_fn"), 0xffff_ffff_8100_0300);
    // Data of that name is not the function.
    assert_eq!(address(&symbols, "loop_workfn"), 0);
    assert!(symbols.missing().any(|name| name == "loop_workfn"));
    assert_eq!(symbols.addresses(), Addresses::Shown);
}

#[test]
fn names_the_function_an_address_lies_in() {
    let (_tree, symbols) = load("names", TABLE);
    assert_eq!(symbols.name_of(0xffff_ffff_8100_0100), Some("folio_wait_writeback"));
    assert_eq!(symbols.name_of(0xffff_ffff_8100_01ff), Some("folio_wait_writeback"));
    assert_eq!(symbols.name_of(0xffff_ffff_8100_0200), Some("vfs_fsync"));
    assert_eq!(symbols.name_of(0xffff_ffff_8100_0044), Some("wb_workfn"));
    assert_eq!(symbols.name_of(0xffff_ffff_c000_0010), Some("xfs_file_fsync"));
    assert_eq!(symbols.names().unwrap().count(), 6);
}

#[test]
fn names_nothing_outside_the_kernels_text() {
    let (_tree, symbols) = load("outside", TABLE);
    assert_eq!(symbols.name_of(0), None);
    assert_eq!(symbols.name_of(0x7f00_0000_0000), None);
    assert_eq!(symbols.name_of(0xffff_ffff_8fff_ffff), None);
    assert_eq!(symbols.name_of(u64::MAX), None);
}

#[test]
fn says_what_hides_addresses() {
    let hidden = "0000000000000000 T _text\n0000000000000000 t wb_workfn\n";
    let (_tree, symbols) = load("hidden", hidden);
    assert_eq!(symbols.addresses(), Addresses::Hidden(Hidden::Capability));
    assert_eq!(symbols.name_of(0), None);
    assert!(symbols.functions().iter().all(|address| *address == 0));
    assert!(Hidden::Capability.to_string().contains("SYSLOG"));

    let tree = Tree::new("restricted").file("kallsyms", hidden).file("sys/kernel/kptr_restrict", "2\n");
    let symbols = Symbols::load(tree.root()).unwrap();
    assert_eq!(symbols.addresses(), Addresses::Hidden(Hidden::Restricted));
    assert!(Hidden::Restricted.to_string().contains("kernel.kptr_restrict=1"));
}

#[test]
fn an_endless_line_is_passed_over() {
    let table = format!("ffffffff81000000 T {}\nffffffff81000040 t wb_workfn\n", "x".repeat(1 << 20));
    let (_tree, symbols) = load("long", &table);
    assert_eq!(address(&symbols, "wb_workfn"), 0xffff_ffff_8100_0040);
}

#[test]
fn a_missing_table_says_what_to_do() {
    let error = Symbols::load(Path::new("/no/such/proc")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "reading the kernel's symbols at /no/such/proc/kallsyms: No such file or directory (os error 2); mount /proc, \
         the kernel needs CONFIG_KALLSYMS=y"
    );
}
