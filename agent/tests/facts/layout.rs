//! The table of kernel facts on five kernels, and what happens when a kernel differs.

use std::path::Path;

use fsyncscope::kernel::btf::{Btf, KERNEL_FILE};
use fsyncscope::kernel::layout::{Found, resolve, resolve_rows};
use fsyncscope_ebpf::layout::{ABSENT, Field, Layout};

use crate::fixture::{KERNELS, bytes};
use crate::golden;

const fn required(owner: &'static str, name: &'static str, size: u32) -> Field {
    Field { owner, name, size, required: true }
}

const fn optional(owner: &'static str, name: &'static str, size: u32) -> Field {
    Field { owner, name, size, required: false }
}

#[test]
fn resolves_on_every_kernel() {
    for fixture in KERNELS {
        let kernel = fixture.kernel();
        let resolved = resolve(&kernel, &fixture.modules(&kernel)).unwrap();
        assert_eq!(resolved.values.len(), Layout::FIELDS.len());
        assert_eq!(resolved.changed, []);
        let mut table = String::new();
        for (field, value) in Layout::FIELDS.iter().zip(&resolved.values) {
            let word = if *value == ABSENT { "absent".to_owned() } else { value.to_string() };
            table.push_str(&format!("{}.{} {word}\n", field.owner, field.name));
        }
        golden::check(&format!("layout/{}.txt", fixture.version), &table);
    }
}

/// The whole types of the kernel under the test, where it shows any: a machine of another kernel is another test.
#[test]
fn resolves_on_this_machine() {
    let path = Path::new("/sys").join(KERNEL_FILE);
    if path.exists() {
        resolve(&Btf::load(&path).unwrap(), &[]).unwrap();
    }
}

#[test]
fn every_kernel_has_one_of_each_pair_of_alternatives() {
    let pairs = [
        ["task_struct.__state", "task_struct.state"],
        ["request_queue.disk", "request.rq_disk"],
        ["bio.bi_bdev", "bio.bi_disk"],
        ["page.compound_head", "page.compound_info"],
        ["pt_regs.orig_ax", "pt_regs.syscallno"],
    ];
    for fixture in KERNELS {
        let kernel = fixture.kernel();
        let resolved = resolve(&kernel, &[]).unwrap();
        let is_missing =
            |name: &&&str| resolved.missing.iter().any(|row| format!("{}.{}", row.owner, row.name) == **name);
        for pair in pairs {
            assert_eq!(pair.iter().filter(is_missing).count(), 1, "{pair:?} on {}", fixture.version);
        }
    }
}

#[test]
fn a_module_adds_what_the_kernel_lacks() {
    let kernel = KERNELS[1].kernel();
    static ROWS: [Field; 1] = [optional("xfs_inode", "i_vnode", 0)];
    let without = resolve_rows(&ROWS, &kernel, &[]).unwrap();
    assert_eq!((without.values, without.missing), (vec![ABSENT], vec![&ROWS[0]]));
    let with = resolve_rows(&ROWS, &kernel, &KERNELS[1].modules(&kernel)).unwrap();
    assert_ne!(with.values, [ABSENT]);
    assert_eq!(with.missing, [] as [&Field; 0]);
}

#[test]
fn an_optional_field_may_be_missing() {
    static ROWS: [Field; 3] = [
        optional("request", "no_such_member", 8),
        optional("no_such_struct", "member", 8),
        required("request", "q", 8),
    ];
    let resolved = resolve_rows(&ROWS, &KERNELS[2].kernel(), &[]).unwrap();
    assert_eq!(resolved.values, [ABSENT, ABSENT, 0]);
    assert_eq!(resolved.missing, [&ROWS[0], &ROWS[1]]);
    assert_eq!(resolved.changed, []);
}

#[test]
fn required_fields_are_missed_all_at_once_and_by_name() {
    static ROWS: [Field; 3] = [
        required("request", "no_such_member", 8),
        required("request", "q", 8),
        required("no_such_struct", "member", 8),
    ];
    let error = resolve_rows(&ROWS, &KERNELS[2].kernel(), &[]).unwrap_err();
    assert_eq!(error.0.iter().map(|problem| problem.found).collect::<Vec<_>>(), [Found::NoMember, Found::NoOwner]);
    assert_eq!(
        error.to_string(),
        "looking up the kernel's fields in its BTF: request.no_such_member is missing, no_such_struct.member is missing \
         (no_such_struct is not described); this kernel cannot be traced by this version, report its release and this \
         line"
    );
}

/// The same as above with the kernel changed in place of the table.
#[test]
fn a_kernel_that_renames_a_required_field_is_refused() {
    let mut bytes = bytes("6.12");
    let place = bytes.windows(12).position(|window| window == b"\0__data_len\0").unwrap();
    bytes[place + 1] = b'x';
    let error = resolve(&Btf::parse(&bytes).unwrap(), &[]).unwrap_err();
    assert_eq!(error.0.len(), 1);
    assert!(error.to_string().contains(": request.__data_len is missing;"), "{error}");
}

#[test]
fn a_changed_size_is_refused_by_name() {
    static ROWS: [Field; 1] = [required("request", "__data_len", 8)];
    let error = resolve_rows(&ROWS, &KERNELS[2].kernel(), &[]).unwrap_err().to_string();
    assert!(error.contains("request.__data_len is of kind integer and 4 bytes instead of 8"), "{error}");
}

#[test]
fn a_changed_kind_is_refused_by_name() {
    // The flags of a page became a struct of the same size.
    static ROWS: [Field; 1] = [required("page", "flags", 8)];
    assert_eq!(resolve_rows(&ROWS, &KERNELS[2].kernel(), &[]).unwrap().values, [0]);
    let error = resolve_rows(&ROWS, &KERNELS[3].kernel(), &[]).unwrap_err().to_string();
    assert!(error.contains("page.flags is of kind struct and 8 bytes instead of 8"), "{error}");
}

#[test]
fn a_bitfield_is_refused_by_name() {
    static ROWS: [Field; 1] = [required("task_struct", "in_iowait", 4)];
    let error = resolve_rows(&ROWS, &KERNELS[2].kernel(), &[]).unwrap_err().to_string();
    assert!(error.contains("task_struct.in_iowait is a bitfield of 1 bits instead of 4 bytes"), "{error}");
}

#[test]
fn an_optional_field_of_another_size_is_absent_and_said() {
    static ROWS: [Field; 1] = [optional("request", "__data_len", 8)];
    let resolved = resolve_rows(&ROWS, &KERNELS[2].kernel(), &[]).unwrap();
    assert_eq!(resolved.values, [ABSENT]);
    assert_eq!(resolved.missing, [&ROWS[0]]);
    assert_eq!(resolved.changed[0].to_string(), "request.__data_len is of kind integer and 4 bytes instead of 8");
}
