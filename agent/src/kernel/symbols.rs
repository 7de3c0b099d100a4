//! Symbols of the kernel: addresses of the functions that the probes tell apart, and names for the addresses of a stack.
//!
//! Knows the format of `/proc/kallsyms`. Must not know what a function means. The names are read only when the first
//! address is asked for, since most runs print no stack.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fsyncscope_ebpf::layout::Functions;

use super::limits;

#[derive(Debug, thiserror::Error)]
#[error("reading the kernel's symbols at {path}: {source}; mount /proc, the kernel needs CONFIG_KALLSYMS=y")]
pub struct SymbolsError {
    path: PathBuf,
    source: std::io::Error,
}

/// Whether this process is shown addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    Shown,
    /// Every address reads as zero.
    Hidden(Hidden),
}

/// What hides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The process lacks the privilege.
    Capability,
    /// The setting `kernel.kptr_restrict` is 2: nobody is shown addresses.
    Restricted,
}

impl std::fmt::Display for Hidden {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Capability => {
                "reading kernel symbol addresses: all of them read as zero because this process lacks the capability \
                 SYSLOG; add it, or run as root"
            }
            Self::Restricted => {
                "reading kernel symbol addresses: all of them read as zero because kernel.kptr_restrict is 2; set it \
                 to 1 with sysctl -w kernel.kptr_restrict=1"
            }
        })
    }
}

/// The symbols of one kernel.
#[derive(Debug)]
pub struct Symbols {
    path: PathBuf,
    functions: Vec<u64>,
    addresses: Addresses,
    names: OnceLock<Names>,
}

impl Symbols {
    /// Looks up the functions of the table under a prefix that stands for `/proc`.
    pub fn load(proc_root: &Path) -> Result<Self, SymbolsError> {
        let path = proc_root.join("kallsyms");
        let mut functions = vec![0; Functions::SYMBOLS.len()];
        let mut wanted = functions.len();
        let mut shown = false;
        scan(&path, |symbol| {
            shown |= symbol.address != 0;
            for (address, name) in functions.iter_mut().zip(Functions::SYMBOLS) {
                if *address == 0 && symbol.address != 0 && symbol.is(name) {
                    *address = symbol.address;
                    wanted -= 1;
                }
            }
            if wanted == 0 { Next::Stop } else { Next::Line }
        })?;
        let addresses = if shown { Addresses::Shown } else { Addresses::Hidden(hidden(proc_root)) };
        Ok(Self { path, functions, addresses, names: OnceLock::new() })
    }

    /// Addresses in the order of [`Functions::SYMBOLS`]; 0 where this kernel lacks or hides the function.
    pub fn functions(&self) -> &[u64] {
        &self.functions
    }

    /// Functions of the table whose address is not known.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        self.functions.iter().zip(Functions::SYMBOLS).filter(|(address, _)| **address == 0).map(|(_, name)| *name)
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Name of the function that an address lies in; `None` outside the kernel's text, or where addresses are hidden,
    /// or if the symbols cannot be read again ([`Self::names`] says why).
    pub fn name_of(&self, address: u64) -> Option<&str> {
        self.names().ok()?.name_of(address)
    }

    /// The names of all functions, read at the first call and kept.
    pub fn names(&self) -> Result<&Names, SymbolsError> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        let names = match self.addresses {
            Addresses::Shown => Names::read(&self.path)?,
            Addresses::Hidden(_) => Names::default(),
        };
        Ok(self.names.get_or_init(|| names))
    }
}

/// Functions by address: sorted addresses, and as many ends of names in one string.
#[derive(Debug, Default)]
pub struct Names {
    addresses: Vec<u64>,
    places: Vec<u32>,
    text: String,
    /// Functions left out because a limit was reached.
    dropped: usize,
}

impl Names {
    fn read(path: &Path) -> Result<Self, SymbolsError> {
        let mut found: Vec<(u64, u32)> = Vec::new();
        let mut text = String::new();
        let mut dropped = 0;
        scan(path, |symbol| {
            if symbol.is_text() && symbol.address != 0 {
                if found.len() < limits::SYMBOLS && text.len() + symbol.name.len() < limits::SYMBOL_NAME_BYTES {
                    found.push((symbol.address, text.len() as u32));
                    text.push_str(symbol.name);
                    text.push('\n');
                } else {
                    dropped += 1;
                }
            }
            Next::Line
        })?;
        // Of several names for one address the first in the file stays: the sort keeps their order.
        found.sort_by_key(|(address, _)| *address);
        found.dedup_by_key(|(address, _)| *address);
        text.shrink_to_fit();
        let (addresses, places) = found.into_iter().unzip();
        Ok(Self { addresses, places, text, dropped })
    }

    pub fn name_of(&self, address: u64) -> Option<&str> {
        let index = self.addresses.partition_point(|start| *start <= address).checked_sub(1)?;
        if address - self.addresses[index] > limits::FUNCTION_BYTES {
            return None;
        }
        self.text.get(self.places[index] as usize..)?.lines().next()
    }

    /// Functions that have a name here.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Functions left out because a limit was reached: an address in one of them gets its neighbour's name.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Bytes that the names occupy.
    pub fn bytes(&self) -> usize {
        self.addresses.capacity() * 8 + self.places.capacity() * 4 + self.text.capacity()
    }
}

/// One line of the table: `ffffffff81000000 T name [module]`.
struct Symbol<'a> {
    address: u64,
    kind: u8,
    name: &'a str,
}

impl<'a> Symbol<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let kind = *words.next()?.as_bytes().first()?;
        Some(Self { address, kind, name: words.next()? })
    }

    /// Text, global or local, strong or weak.
    fn is_text(&self) -> bool {
        matches!(self.kind, b'T' | b't' | b'W' | b'w')
    }

    /// Clang's link-time optimization appends `.llvm.` and a hash to the name of a local function.
    fn is(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name);
        self.is_text() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".llvm."))
    }
}

enum Next {
    Line,
    Stop,
}

/// Walks the table line by line; what is not a symbol is passed over.
fn scan(path: &Path, mut each: impl FnMut(&Symbol<'_>) -> Next) -> Result<(), SymbolsError> {
    let fail = |source| SymbolsError { path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(fail)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(limits::SYMBOL_LINE_BYTES).read_until(b'\n', &mut line).map_err(fail)?;
        if read == 0 {
            return Ok(());
        }
        let symbol = std::str::from_utf8(&line).ok().and_then(Symbol::parse);
        if let Some(symbol) = symbol
            && matches!(each(&symbol), Next::Stop)
        {
            return Ok(());
        }
    }
}

/// Says what hides the addresses: 2 hides them from everyone, anything else from those without the capability.
fn hidden(proc_root: &Path) -> Hidden {
    let setting = std::fs::read_to_string(proc_root.join("sys/kernel/kptr_restrict"));
    match setting.as_deref().map(str::trim) {
        Ok("2") => Hidden::Restricted,
        _ => Hidden::Capability,
    }
}
