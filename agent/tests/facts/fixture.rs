//! Type information of real kernels, cut by `examples/btf_fixture.rs`. The kernels are Debian's of that version, but
//! 6.18, which has everything built in.

use std::path::PathBuf;

use fsyncscope::kernel::btf::Btf;

pub struct Fixture {
    pub version: &'static str,
    module: Option<&'static str>,
}

pub const KERNELS: [Fixture; 5] = [
    // Its modules do not carry type information.
    Fixture { version: "5.10", module: None },
    Fixture { version: "6.1", module: Some("xfs") },
    Fixture { version: "6.12", module: Some("xfs") },
    Fixture { version: "6.18", module: None },
    Fixture { version: "7.2", module: Some("xfs") },
];

impl Fixture {
    pub fn kernel(&self) -> Btf {
        Btf::parse(&bytes(self.version)).unwrap()
    }

    /// Its modules, on top of its kernel.
    pub fn modules(&self, kernel: &Btf) -> Vec<Btf> {
        let name = self.module.map(|module| format!("{}.{module}", self.version));
        name.map(|name| Btf::parse_split(kernel, &bytes(&name)).unwrap()).into_iter().collect()
    }
}

pub fn bytes(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/btf/{name}.btf"));
    std::fs::read(path).unwrap()
}
