//! The bytes of one BTF blob: header, records, strings. Knows the format, not the meaning of a type.
//!
//! After [`Image::parse`] every record lies inside its section and every record's own name inside the strings; names
//! and types that a record's tail refers to are checked where they are followed.

use std::sync::Arc;

use super::BtfError;
use crate::kernel::limits;

pub const INT: u8 = 1;
pub const PTR: u8 = 2;
pub const ARRAY: u8 = 3;
pub const STRUCT: u8 = 4;
pub const UNION: u8 = 5;
pub const ENUM: u8 = 6;
pub const FWD: u8 = 7;
pub const TYPEDEF: u8 = 8;
pub const VOLATILE: u8 = 9;
pub const CONST: u8 = 10;
pub const RESTRICT: u8 = 11;
pub const FUNC: u8 = 12;
pub const FUNC_PROTO: u8 = 13;
pub const VAR: u8 = 14;
pub const DATASEC: u8 = 15;
pub const FLOAT: u8 = 16;
pub const DECL_TAG: u8 = 17;
pub const TYPE_TAG: u8 = 18;
pub const ENUM64: u8 = 19;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 12;

/// Where the numbering of an image begins: a module's continues its kernel's. Id 0 is void and has no record.
#[derive(Clone, Copy)]
struct Start {
    id: u32,
    string: u32,
}

/// One type: the common part, and the bytes of its kind.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub name: u32,
    pub kind: u8,
    /// For structs: members say how many bits they have. For enums: values have a sign. For forwards: it is a union.
    pub flag: bool,
    /// Size in bytes, or the type referred to.
    pub value: u32,
    pub tail: &'a [u8],
}

impl<'a> Record<'a> {
    /// Word number `index` of the tail.
    pub fn word(&self, index: usize) -> Option<u32> {
        word(self.tail, index * 4)
    }

    /// The tail in groups of `words` words.
    pub fn entries<const WORDS: usize>(&self) -> impl Iterator<Item = [u32; WORDS]> + use<'a, WORDS> {
        self.tail
            .chunks_exact(WORDS * 4)
            .map(|entry| std::array::from_fn(|index| word(entry, index * 4).unwrap_or_default()))
    }
}

/// The bytes of one blob with an index of its records, on top of the blob that it extends.
pub struct Image {
    base: Option<Arc<Image>>,
    start: Start,
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Place of each record in `types`, by id.
    places: Vec<u32>,
    /// Ids of structs, unions, enums and typedefs that have a name, sorted by name, then by id.
    named: Vec<u32>,
}

impl Image {
    pub fn parse(bytes: &[u8], base: Option<Arc<Image>>) -> Result<Self, BtfError> {
        let (types, strings) = sections(bytes)?;
        let start = base.as_deref().map_or(Start { id: 1, string: 0 }, Self::end);
        let mut image = Self {
            base,
            start,
            types: types.to_vec(),
            strings: strings.to_vec(),
            places: places(types, start.id)?,
            named: Vec::new(),
        };
        image.named = image.index()?;
        Ok(image)
    }

    pub fn base(&self) -> Option<&Self> {
        self.base.as_deref()
    }

    pub fn record(&self, id: u32) -> Option<Record<'_>> {
        let Some(index) = id.checked_sub(self.start.id) else { return self.base()?.record(id) };
        record(&self.types, *self.places.get(index as usize)? as usize)
    }

    /// A name by its place. What is not UTF-8 is no C name and reads as empty.
    pub fn text(&self, name: u32) -> Option<&str> {
        let Some(place) = name.checked_sub(self.start.string) else { return self.base()?.text(name) };
        let tail = self.strings.get(place as usize..)?;
        let length = tail.iter().position(|byte| *byte == 0)?;
        Some(std::str::from_utf8(&tail[..length]).unwrap_or_default())
    }

    /// Whether a name reads so; quicker than [`Self::text`], which looks for the name's end.
    pub fn is(&self, name: u32, text: &str) -> bool {
        let Some(place) = name.checked_sub(self.start.string) else {
            return self.base().is_some_and(|base| base.is(name, text));
        };
        let rest = self.strings.get(place as usize..).and_then(|tail| tail.strip_prefix(text.as_bytes()));
        rest.and_then(<[u8]>::first) == Some(&0)
    }

    /// Ids of this image alone that carry the name.
    pub fn named(&self, name: &str) -> &[u32] {
        let first = self.named.partition_point(|id| self.name_of(*id) < name);
        let count = self.named[first..].partition_point(|id| self.name_of(*id) == name);
        &self.named[first..first + count]
    }

    fn end(&self) -> Start {
        let Start { id, string } = self.start;
        Start { id: id + self.places.len() as u32, string: string + self.strings.len() as u32 }
    }

    fn index(&self) -> Result<Vec<u32>, BtfError> {
        let mut named = Vec::new();
        for id in self.start.id..self.end().id {
            let Some(record) = self.record(id) else { return Err(BtfError::Record { id }) };
            if record.name != 0 && record.name >= self.end().string {
                return Err(BtfError::Name { id });
            }
            if matches!(record.kind, STRUCT | UNION | ENUM | ENUM64 | TYPEDEF) && record.name != 0 {
                named.push((self.name_of(id), id));
            }
        }
        named.sort_unstable();
        Ok(named.into_iter().map(|(_, id)| id).collect())
    }

    fn name_of(&self, id: u32) -> &str {
        self.record(id).and_then(|record| self.text(record.name)).unwrap_or_default()
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} types from id {}", self.places.len(), self.start.id)
    }
}

/// The type section and the string section, both inside the file.
fn sections(bytes: &[u8]) -> Result<(&[u8], &[u8]), BtfError> {
    if bytes.len() > limits::BTF_BYTES {
        return Err(BtfError::Large { bytes: bytes.len(), limit: limits::BTF_BYTES });
    }
    let short = BtfError::Header { bytes: bytes.len() };
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(short) };
    let magic = u16::from_ne_bytes([header[0], header[1]]);
    if magic != MAGIC {
        return Err(BtfError::Magic { found: magic });
    }
    if header[2] != 1 {
        return Err(BtfError::Version { found: header[2] });
    }
    let field = |index: usize| word(header, index * 4).unwrap_or_default() as usize;
    let Some(body) = bytes.get(field(1)..).filter(|_| field(1) >= HEADER_BYTES) else { return Err(short) };
    let section = |name, offset: usize, length: usize| {
        let end = offset.checked_add(length);
        end.and_then(|end| body.get(offset..end)).ok_or(BtfError::Section { section: name, bytes: bytes.len() })
    };
    let types = section("type", field(2), field(3))?;
    let strings = section("string", field(4), field(5))?;
    // A name that starts inside the section then ends inside it.
    if strings.last().is_some_and(|last| *last != 0) {
        return Err(BtfError::Strings);
    }
    Ok((types, strings))
}

/// Walks the records, each of which says how long it is.
fn places(types: &[u8], first: u32) -> Result<Vec<u32>, BtfError> {
    // An average record has about twenty bytes.
    let mut places = Vec::with_capacity(types.len() / 20);
    let mut place = 0;
    while place < types.len() {
        let id = first + places.len() as u32;
        let info = word(types, place + 4).ok_or(BtfError::Record { id })?;
        let kind = kind(info);
        let tail = tail_bytes(kind, count(info)).ok_or(BtfError::Kind { id, kind })?;
        let end = place + RECORD_BYTES + tail;
        if end > types.len() {
            return Err(BtfError::Record { id });
        }
        places.push(place as u32);
        place = end;
    }
    Ok(places)
}

fn record(types: &[u8], place: usize) -> Option<Record<'_>> {
    let info = word(types, place + 4)?;
    let (kind, count) = (kind(info), count(info));
    let tail = place + RECORD_BYTES;
    Some(Record {
        name: word(types, place)?,
        kind,
        flag: info >> 31 == 1,
        value: word(types, place + 8)?,
        tail: types.get(tail..tail + tail_bytes(kind, count)?)?,
    })
}

fn kind(info: u32) -> u8 {
    (info >> 24 & 0x1f) as u8
}

fn count(info: u32) -> usize {
    (info & 0xffff) as usize
}

/// Bytes that follow the common part of a record; `None` for a kind that is not known.
fn tail_bytes(kind: u8, count: usize) -> Option<usize> {
    Some(match kind {
        PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
        ENUM | FUNC_PROTO => 8 * count,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*bytes))
}
