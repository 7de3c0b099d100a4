//! The reader of type information: right answers from sound bytes, some answer from any bytes.

use fsyncscope::kernel::btf::{Bits, Btf, BtfError, Kind, Member};
use fsyncscope::kernel::layout::resolve;

use crate::fixture::{KERNELS, bytes};
use crate::golden;

const HEADER_BYTES: usize = 24;

#[test]
fn finds_members_of_every_kind() {
    let kernel = KERNELS[2].kernel();
    let member = |offset, size, kind| Some(Member { offset, size, kind, bits: None });
    assert_eq!(kernel.member("request", "__sector"), member(48, 8, Kind::Integer));
    assert_eq!(kernel.member("request", "q"), member(0, 8, Kind::Pointer));
    assert_eq!(kernel.member("task_struct", "comm"), member(2976, 16, Kind::Array));
    assert_eq!(kernel.member("file", "f_path"), member(64, 16, Kind::Struct));
    assert_eq!(kernel.member("wb_writeback_work", "reason"), member(24, 4, Kind::Enum));
    assert_eq!(kernel.member("request", "no_such_member"), None);
    assert_eq!(kernel.member("request", "__sect"), None);
    assert_eq!(kernel.member("no_such_struct", "q"), None);
    // An enum has no members, a typedef is no struct.
    assert_eq!(kernel.member("pageflags", "PG_writeback"), None);
    assert_eq!(kernel.member("journal_t", "j_dev"), None);
}

#[test]
fn looks_through_anonymous_members() {
    let kernel = KERNELS[2].kernel();
    // The first is in a struct in a union, the second in a union in a struct in a union.
    assert_eq!(kernel.member("qstr", "hash_len").map(|member| member.offset), Some(0));
    assert_eq!(kernel.member("page", "mapping").map(|member| member.offset), Some(24));
    assert_eq!(kernel.member("page", "compound_head").map(|member| member.offset), Some(8));
}

#[test]
fn flags_bitfields() {
    let found = KERNELS[2].kernel().member("task_struct", "in_iowait").unwrap();
    assert_eq!((found.offset, found.bits), (2360, Some(Bits { first: 4, count: 1 })));
}

#[test]
fn finds_enumerators() {
    let kernel = KERNELS[2].kernel();
    assert!(kernel.enumerator("pageflags", "PG_writeback").is_some());
    assert_eq!(kernel.enumerator("pageflags", "PG_locked"), Some(0));
    assert_eq!(kernel.enumerator("pageflags", "PG_no_such"), None);
    assert_eq!(kernel.enumerator("page", "flags"), None);
}

#[test]
fn tells_prototypes_of_tracepoints() {
    for fixture in KERNELS {
        let kernel = fixture.kernel();
        let modules = fixture.modules(&kernel);
        let mut table = String::new();
        for tracepoint in include_str!("tracepoints.txt").lines() {
            let mut types = std::iter::once(&kernel).chain(&modules);
            let arguments = types.find_map(|btf| btf.tracepoint_arguments(tracepoint));
            let words = arguments.map_or("absent".to_owned(), |arguments| format!("({})", arguments.join(", ")));
            table.push_str(&format!("{tracepoint} {words}\n"));
        }
        golden::check(&format!("tracepoints/{}.txt", fixture.version), &table);
    }
}

#[test]
fn a_module_sees_its_kernel_and_itself() {
    let kernel = KERNELS[4].kernel();
    let module = &KERNELS[4].modules(&kernel)[1];
    assert_eq!(kernel.member("xfs_inode", "i_vnode"), None);
    assert!(module.member("xfs_inode", "i_vnode").is_some());
    assert_eq!(module.member("request", "q"), kernel.member("request", "q"));
    // The name of the struct stands in the module's strings, that of its argument's word in the kernel's.
    assert_eq!(module.tracepoint_arguments("xfs_file_fsync"), Some(vec!["struct xfs_inode *".to_owned()]));
    assert!(matches!(Btf::parse_split(module, &bytes("7.2.xfs")), Err(BtfError::Base)));
}

#[test]
fn the_largest_of_the_fixtures_stays_small() {
    for fixture in KERNELS {
        assert!(bytes(fixture.version).len() < 60_000, "{} grew", fixture.version);
    }
}

#[test]
fn refuses_what_is_not_type_information() {
    let message = |bytes: &[u8]| Btf::parse(bytes).unwrap_err().to_string();
    assert_eq!(message(b""), "reading BTF: the header ends after 0 bytes; the file is cut off, copy it again");
    assert_eq!(
        message(&[0x7f; 64]),
        "reading BTF: it starts with 0x7f7f instead of 0xeb9f; take the file from a machine of this byte order"
    );
    let mut newer = bytes("6.12");
    newer[2] = 2;
    assert_eq!(message(&newer), "reading BTF: its version is 2, this agent knows version 1; use a newer agent");
    let mut unknown = bytes("6.12");
    unknown[HEADER_BYTES + 7] = 31;
    assert_eq!(
        message(&unknown),
        "reading BTF: type 1 is of kind 31, which this agent does not know; use a newer agent"
    );
}

#[test]
fn a_missing_file_says_what_to_do() {
    let error = Btf::load(std::path::Path::new("/no/such/file")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "reading the kernel's types at /no/such/file: No such file or directory (os error 2); the kernel needs \
         CONFIG_DEBUG_INFO_BTF=y and /sys mounted"
    );
}

#[test]
fn every_truncation_is_an_error() {
    let whole = bytes("6.12");
    for length in 0..whole.len() {
        let error = Btf::parse(&whole[..length]).expect_err("a cut file was read");
        assert!(error.to_string().starts_with("reading BTF: "), "{error}");
    }
}

/// Cuts the type section and keeps the header true to it, so that the cut is met inside the records.
#[test]
fn records_that_end_early_do_no_harm() {
    let whole = bytes("6.12");
    let length = u32::from_le_bytes(whole[12..16].try_into().unwrap());
    for kept in (0..length).step_by(7) {
        let mut bytes = whole.clone();
        bytes[12..16].copy_from_slice(&kept.to_le_bytes());
        ask_everything(&bytes);
    }
}

#[test]
fn random_damage_does_no_harm() {
    let whole = bytes("6.12");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..10_000 {
        let mut bytes = whole.clone();
        let place = random.below(bytes.len());
        bytes[place] = random.below(256) as u8;
        ask_everything(&bytes);
    }
}

/// Types that refer to themselves, and anonymous structs that hold themselves twice, must not keep the reader busy.
#[test]
fn circles_end() {
    let typedef = |of: u32| [1, 8 << 24, of];
    let bytes = blob(&[typedef(2).as_slice(), &typedef(1), &[1, 4 << 24 | 1, 8, 1, 1, 0]].concat());
    assert_eq!(Btf::parse(&bytes).unwrap().member("a", "a"), None);
    let doubled = [1, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 0];
    assert_eq!(Btf::parse(&blob(&doubled)).unwrap().member("a", "b"), None);
    // btf_trace_a, pointer, prototype whose argument is a pointer to itself.
    let prototype = [3, 8 << 24, 2, 0, 2 << 24, 3, 0, 13 << 24 | 2, 0, 0, 0, 0, 4, 0, 2 << 24, 4];
    assert_eq!(Btf::parse(&blob(&prototype)).unwrap().tracepoint_arguments("a"), Some(vec!["?".to_owned()]));
}

/// A file of these records with the strings `a` at 1 and `btf_trace_a` at 3.
fn blob(words: &[u32]) -> Vec<u8> {
    let strings = b"\0a\0btf_trace_a\0";
    let types = 4 * words.len() as u32;
    let mut file = vec![0x9f, 0xeb, 1, 0];
    file.extend([24, 0, types, types, strings.len() as u32].iter().chain(words).flat_map(|word| word.to_le_bytes()));
    file.extend(strings);
    file
}

/// Whatever the bytes hold, each question ends in an answer.
fn ask_everything(bytes: &[u8]) {
    let Ok(btf) = Btf::parse(bytes) else { return };
    if let Err(error) = resolve(&btf, &[]) {
        assert!(!error.0.is_empty());
    }
    for tracepoint in include_str!("tracepoints.txt").lines() {
        btf.tracepoint_arguments(tracepoint);
    }
}

/// Numbers that are the same in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
