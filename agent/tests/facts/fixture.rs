//! Type information of real kernels, cut by `examples/btf_fixture.rs`. The kernels are Debian's of that version, but
//! 6.18, which has everything built in.

use std::path::PathBuf;

use fsyncscope::kernel::btf::Btf;

pub struct Fixture {
    pub version: &'static str,
    modules: &'static [&'static str],
}

pub const KERNELS: [Fixture; 5] = [
    // Its modules do not carry type information.
    Fixture { version: "5.10", modules: &[] },
    Fixture { version: "6.1", modules: &["btrfs", "xfs"] },
    Fixture { version: "6.12", modules: &["btrfs", "xfs"] },
    Fixture { version: "6.18", modules: &[] },
    Fixture { version: "7.2", modules: &["btrfs", "xfs"] },
];

impl Fixture {
    pub fn kernel(&self) -> Btf {
        Btf::parse(&bytes(self.version)).unwrap()
    }

    /// Its modules, on top of its kernel.
    pub fn modules(&self, kernel: &Btf) -> Vec<Btf> {
        let names = self.modules.iter().map(|module| format!("{}.{module}", self.version));
        names.map(|name| Btf::parse_split(kernel, &bytes(&name)).unwrap()).collect()
    }
}

pub fn bytes(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/btf/{name}.btf"));
    std::fs::read(path).unwrap()
}
