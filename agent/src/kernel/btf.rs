//! A reader of BTF, the type information that a kernel carries about itself.
//!
//! Knows the format as the kernel documents it (`Documentation/bpf/btf.rst`) and answers three questions: where a
//! member stands ([`Btf::member`]), what an enumerator is worth ([`Btf::enumerator`]) and what a tracepoint passes
//! ([`Btf::tracepoint_arguments`]). Must not know which of them are asked. The bytes are not trusted: whatever they
//! hold, reading them ends, and ends in an answer or in an error.

mod member;
mod prototype;
/// For tools that copy types; the agent asks [`Btf`].
pub mod raw;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use member::{Bits, Kind, Member};
use raw::{Image, Record};

/// Where a kernel shows its own types, below `/sys`.
pub const KERNEL_FILE: &str = "kernel/btf/vmlinux";

/// Why bytes are not BTF that can be read.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    #[error(
        "reading the kernel's types at {path}: {source}; the kernel needs CONFIG_DEBUG_INFO_BTF=y and /sys mounted"
    )]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "reading BTF: {bytes} bytes are more than the {limit} this agent reads; check that the file is a kernel's BTF"
    )]
    Large { bytes: usize, limit: usize },
    #[error("reading BTF: the header ends after {bytes} bytes; the file is cut off, copy it again")]
    Header { bytes: usize },
    #[error(
        "reading BTF: it starts with {found:#06x} instead of 0xeb9f; take the file from a machine of this byte order"
    )]
    Magic { found: u16 },
    #[error("reading BTF: its version is {found}, this agent knows version 1; use a newer agent")]
    Version { found: u8 },
    #[error("reading BTF: the {section} section lies outside the {bytes} bytes of the file; copy it again")]
    Section { section: &'static str, bytes: usize },
    #[error("reading BTF: the string section does not end with a zero byte; copy the file again")]
    Strings,
    #[error("reading BTF: type {id} is cut off by the end of the type section; copy the file again")]
    Record { id: u32 },
    #[error("reading BTF: type {id} is of kind {kind}, which this agent does not know; use a newer agent")]
    Kind { id: u32, kind: u8 },
    #[error("reading BTF: the name of type {id} lies outside the string section; copy the file again")]
    Name { id: u32 },
    #[error("reading a module's BTF: its base is a module's as well; give the kernel's own BTF as base")]
    Base,
}

/// The types of a kernel, or of one module on top of its kernel's. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Btf(Arc<Image>);

impl Btf {
    /// Reads a kernel's own types.
    pub fn parse(bytes: &[u8]) -> Result<Self, BtfError> {
        Ok(Self(Arc::new(Image::parse(bytes, None)?)))
    }

    /// Reads a module's types, which continue the numbering of types and strings of `base`.
    pub fn parse_split(base: &Self, bytes: &[u8]) -> Result<Self, BtfError> {
        if base.0.base().is_some() {
            return Err(BtfError::Base);
        }
        Ok(Self(Arc::new(Image::parse(bytes, Some(Arc::clone(&base.0)))?)))
    }

    /// Reads the kernel's types from a file, as a rule `/sys/kernel/btf/vmlinux`.
    pub fn load(path: &Path) -> Result<Self, BtfError> {
        Self::parse(&read(path)?)
    }

    /// Reads a module's types from a file, as a rule `/sys/kernel/btf/<module>`.
    pub fn load_split(base: &Self, path: &Path) -> Result<Self, BtfError> {
        Self::parse_split(base, &read(path)?)
    }

    /// Where a member of a struct or union stands. Members of anonymous structs and unions inside it count as its own;
    /// of several structs with this name the first that has the member answers.
    pub fn member(&self, owner: &str, name: &str) -> Option<Member> {
        self.named(owner).find_map(|id| member::find(self, id, name))
    }

    /// Value of an enumerator.
    pub fn enumerator(&self, owner: &str, name: &str) -> Option<i64> {
        self.named(owner).find_map(|id| member::enumerator(self, id, name))
    }

    /// Whether a struct, union or enum of this name is described in full.
    pub fn describes(&self, owner: &str) -> bool {
        self.named(owner).any(|id| self.record(id).is_some_and(|record| record.kind != raw::TYPEDEF))
    }

    /// Types of the arguments that the kernel passes to a raw tracepoint's probe, written as in C; `None` if the
    /// kernel does not have the tracepoint. The probe's own data pointer, which stands first, is left out.
    pub fn tracepoint_arguments(&self, tracepoint: &str) -> Option<Vec<String>> {
        prototype::arguments(self, tracepoint)
    }

    /// Ids of the named structs, unions, enums and typedefs of this name: the base's, then the module's.
    fn named(&self, name: &str) -> impl Iterator<Item = u32> {
        let base = self.0.base().map_or(&[][..], |base| base.named(name));
        base.iter().chain(self.0.named(name)).copied()
    }

    fn record(&self, id: u32) -> Option<Record<'_>> {
        self.0.record(id)
    }

    fn is(&self, name: u32, text: &str) -> bool {
        self.0.is(name, text)
    }

    /// A name by its place in the strings; an empty one if there is none.
    fn text(&self, name: u32) -> &str {
        self.0.text(name).unwrap_or_default()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BtfError> {
    std::fs::read(path).map_err(|source| BtfError::File { path: path.to_owned(), source })
}
