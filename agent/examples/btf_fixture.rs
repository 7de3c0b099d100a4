//! Cuts the type information of a whole kernel down to what the tests ask for.
//!
//! ```text
//! cargo run --example btf_fixture -- <vmlinux> <cut> [<module> <cut of the module>]...
//! ```
//! Input is what `/sys/kernel/btf` of that kernel holds. What stays is a faithful copy of every struct and enum that
//! the table of kernel facts names, with all members, and of the prototypes of the tracepoints in the list. Structs that
//! these embed keep their size and lose their members; pointers inside them point to void.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::sync::Arc;

use fsyncscope::kernel::btf::raw::{self, Image, Record};
use fsyncscope_ebpf::layout::Layout;

/// The list that the tests ask for as well.
const TRACEPOINTS: &str = include_str!("../tests/facts/tracepoints.txt");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(input), Some(output)) = (arguments.next(), arguments.next()) else {
        return Err("give the file of a kernel's types and the file to write".into());
    };
    let image = Arc::new(Image::parse(&std::fs::read(input)?, None)?);
    let mut kernel = Cut::new(&image, Numbering::KERNEL);
    kernel.take_all();
    std::fs::write(output, kernel.file())?;
    while let (Some(input), Some(output)) = (arguments.next(), arguments.next()) {
        let module = Image::parse(&std::fs::read(input)?, Some(Arc::clone(&image)))?;
        let mut cut = Cut::on_top_of(&kernel, &module);
        cut.take_all();
        std::fs::write(output, cut.file())?;
    }
    Ok(())
}

/// Where ids and strings begin.
#[derive(Clone, Copy)]
struct Numbering {
    id: u32,
    string: u32,
}

impl Numbering {
    const KERNEL: Self = Self { id: 1, string: 0 };
}

/// How much of a type is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Want {
    /// It is embedded: its size counts.
    Value,
    /// It is pointed to in a prototype: its name counts.
    Name,
}

/// A smaller copy in the making.
struct Cut<'a> {
    source: &'a Image,
    /// Types that are copied with all members.
    owners: BTreeSet<u32>,
    /// Ids of the copies, by id of the original.
    copied: HashMap<(u32, Want), u32>,
    next: Numbering,
    places: HashMap<String, u32>,
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl<'a> Cut<'a> {
    fn new(source: &'a Image, next: Numbering) -> Self {
        let owners = Layout::FIELDS.iter().flat_map(|field| source.named(field.owner)).copied().collect();
        let mut cut = Self {
            source,
            owners,
            copied: HashMap::new(),
            next,
            places: HashMap::new(),
            types: Vec::new(),
            strings: Vec::new(),
        };
        if next.string == 0 {
            cut.text("");
        }
        cut
    }

    /// A module's copy refers to types and strings of its kernel's copy.
    fn on_top_of(kernel: &Self, source: &'a Image) -> Self {
        let mut cut = Self::new(source, kernel.next);
        cut.copied.clone_from(&kernel.copied);
        cut.places.clone_from(&kernel.places);
        cut
    }

    fn take_all(&mut self) {
        for owner in self.owners.clone() {
            self.copy(owner, Want::Value);
        }
        for tracepoint in TRACEPOINTS.lines() {
            let typedefs = self.source.named(&format!("btf_trace_{tracepoint}")).to_vec();
            for typedef in typedefs {
                self.copy(typedef, Want::Name);
            }
        }
    }

    fn file(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut file = vec![0x9f, 0xeb, 1, 0];
        file.extend([24, 0, types, types, strings].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(&self.types);
        file.extend(&self.strings);
        file
    }

    fn copy(&mut self, id: u32, want: Want) -> u32 {
        if let Some(copied) = self.copied.get(&(id, want)) {
            return *copied;
        }
        let source = self.source;
        let Some(record) = source.record(id) else { return 0 };
        let name = source.text(record.name).unwrap_or_default();
        let copied = match record.kind {
            raw::PTR if want == Want::Value => self.put("", raw::PTR, Flag::Off, 0, &[], 0),
            raw::STRUCT | raw::UNION if name.is_empty() || self.owners.contains(&id) => self.whole(&record, name),
            raw::STRUCT if want == Want::Name => self.put(name, raw::FWD, Flag::Off, 0, &[], 0),
            raw::UNION if want == Want::Name => self.put(name, raw::FWD, Flag::On, 0, &[], 0),
            raw::ENUM | raw::ENUM64 if self.owners.contains(&id) => self.values(&record, name),
            raw::STRUCT | raw::UNION | raw::ENUM | raw::ENUM64 => {
                self.put(name, record.kind, Flag::Off, 0, &[], record.value)
            }
            raw::ARRAY => self.array(&record, want),
            raw::FUNC_PROTO => self.prototype(&record),
            raw::INT => self.put(name, raw::INT, Flag::Off, 0, &words(&record), record.value),
            raw::FLOAT => self.put(name, raw::FLOAT, Flag::Off, 0, &[], record.value),
            raw::FWD => self.put(name, raw::FWD, Flag::of(&record), 0, &[], 0),
            // Typedefs, qualifiers, tags and the pointers of prototypes.
            _ => {
                let inner = self.copy(record.value, want);
                self.put(name, record.kind, Flag::of(&record), 0, &[], inner)
            }
        };
        self.copied.insert((id, want), copied);
        copied
    }

    fn whole(&mut self, record: &Record<'_>, name: &str) -> u32 {
        let mut tail = Vec::new();
        for [text, of, place] in record.entries() {
            let member = self.source.text(text).unwrap_or_default();
            tail.extend([self.text(member), self.copy(of, Want::Value), place]);
        }
        self.put(name, record.kind, Flag::of(record), tail.len() / 3, &tail, record.value)
    }

    fn values(&mut self, record: &Record<'_>, name: &str) -> u32 {
        let mut tail = words(record);
        let step = if record.kind == raw::ENUM { 2 } else { 3 };
        for entry in tail.chunks_exact_mut(step) {
            entry[0] = self.text(self.source.text(entry[0]).unwrap_or_default());
        }
        self.put(name, record.kind, Flag::of(record), tail.len() / step, &tail, record.value)
    }

    fn array(&mut self, record: &Record<'_>, want: Want) -> u32 {
        let mut tail = words(record);
        for word in &mut tail[..2] {
            *word = self.copy(*word, want);
        }
        self.put("", raw::ARRAY, Flag::Off, 0, &tail, 0)
    }

    fn prototype(&mut self, record: &Record<'_>) -> u32 {
        let mut tail = words(record);
        for argument in tail.chunks_exact_mut(2) {
            argument[0] = 0;
            argument[1] = self.copy(argument[1], Want::Name);
        }
        let result = self.copy(record.value, Want::Name);
        self.put("", raw::FUNC_PROTO, Flag::Off, tail.len() / 2, &tail, result)
    }

    /// Appends one record and gives its id.
    fn put(&mut self, name: &str, kind: u8, flag: Flag, count: usize, tail: &[u32], value: u32) -> u32 {
        let info = (flag as u32) << 31 | u32::from(kind) << 24 | count as u32;
        let common = [self.text(name), info, value];
        self.types.extend(common.iter().chain(tail).flat_map(|word| word.to_le_bytes()));
        self.next.id += 1;
        self.next.id - 1
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.next.string;
        self.places.insert(text.to_owned(), place);
        self.strings.extend(text.bytes().chain([0]));
        self.next.string += text.len() as u32 + 1;
        place
    }
}

/// The flag of a record, whatever it means for its kind.
#[derive(Clone, Copy)]
enum Flag {
    Off = 0,
    On = 1,
}

impl Flag {
    fn of(record: &Record<'_>) -> Self {
        if record.flag { Self::On } else { Self::Off }
    }
}

fn words(record: &Record<'_>) -> Vec<u32> {
    record.entries::<1>().map(|[word]| word).collect()
}
