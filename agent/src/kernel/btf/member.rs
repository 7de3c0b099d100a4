//! Where a member stands and how large it is; what an enumerator is worth.

use super::Btf;
use super::raw::{self, Record};
use crate::kernel::limits;

/// What a member is, once typedefs and qualifiers are taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Pointer,
    Enum,
    Struct,
    Union,
    Array,
    Float,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Integer => "integer",
            Self::Pointer => "pointer",
            Self::Enum => "enum",
            Self::Struct => "struct",
            Self::Union => "union",
            Self::Array => "array",
            Self::Float => "float",
        })
    }
}

/// The part of a byte or word that a bitfield occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Bits between the member's byte offset and its first bit, 0 to 7.
    pub first: u8,
    pub count: u8,
}

/// A member of a struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the struct that was asked for.
    pub offset: u32,
    /// Bytes of its type.
    pub size: u32,
    pub kind: Kind,
    /// Set if it is a bitfield: then a plain read at `offset` reads its neighbours as well.
    pub bits: Option<Bits>,
}

/// Finds a member by name, also inside anonymous members.
pub(super) fn find(btf: &Btf, owner: u32, name: &str) -> Option<Member> {
    let mut visited = 0;
    let (entry, bit) = search(btf, owner, name, 0, &mut visited)?;
    let (size, kind) = shape(btf, entry.of)?;
    let bits = entry.bits.or_else(|| old_bitfield(btf, entry.of, bit));
    let bits = bits.map(|count| Bits { first: (bit % 8) as u8, count });
    Some(Member { offset: u32::try_from(bit / 8).ok()?, size, kind, bits })
}

/// Value of an enumerator in a type that is an enum.
pub(super) fn enumerator(btf: &Btf, owner: u32, name: &str) -> Option<i64> {
    let record = btf.record(owner)?;
    match record.kind {
        raw::ENUM => {
            let [_, value] = record.entries().find(|[text, _]| btf.is(*text, name))?;
            Some(if record.flag { i64::from(value.cast_signed()) } else { i64::from(value) })
        }
        raw::ENUM64 => {
            let [_, low, high] = record.entries().find(|[text, _, _]| btf.is(*text, name))?;
            Some((u64::from(high) << 32 | u64::from(low)).cast_signed())
        }
        _ => None,
    }
}

/// One entry of a struct's tail.
struct Entry {
    of: u32,
    /// Width, if the entry says that it is a bitfield.
    bits: Option<u8>,
}

/// The entry of that name, and its distance in bits from the start of `owner`.
fn search(btf: &Btf, owner: u32, name: &str, depth: usize, visited: &mut usize) -> Option<(Entry, u64)> {
    let record = btf.record(owner).filter(|record| matches!(record.kind, raw::STRUCT | raw::UNION))?;
    for [text, of, place] in record.entries() {
        *visited += 1;
        if *visited > limits::MEMBERS_VISITED {
            return None;
        }
        let (bit, bits) = position(&record, place);
        if text != 0 {
            if btf.is(text, name) {
                return Some((Entry { of, bits }, bit));
            }
        } else if depth < limits::ANONYMOUS_DEPTH
            && let Some(inside) = strip(btf, of)
            && let Some((entry, inner)) = search(btf, inside, name, depth + 1, visited)
        {
            return Some((entry, bit + inner));
        }
    }
    None
}

/// Structs whose flag is set keep a width in the upper byte of the place.
fn position(record: &Record<'_>, place: u32) -> (u64, Option<u8>) {
    if record.flag {
        let width = (place >> 24) as u8;
        (u64::from(place & 0x00ff_ffff), (width != 0).then_some(width))
    } else {
        (u64::from(place), None)
    }
}

/// Compilers before 2019 hid the width of a bitfield in its integer type.
fn old_bitfield(btf: &Btf, of: u32, bit: u64) -> Option<u8> {
    let record = btf.record(strip(btf, of)?).filter(|record| record.kind == raw::INT)?;
    let width = record.word(0)? & 0xff;
    (width != record.value.checked_mul(8)? || !bit.is_multiple_of(8)).then_some(width as u8)
}

/// Size in bytes and kind of a type.
fn shape(btf: &Btf, of: u32) -> Option<(u32, Kind)> {
    let mut elements = 1_u32;
    let mut outer = None;
    let mut id = of;
    // Arrays of arrays: each turn takes one dimension off.
    for _ in 0..limits::TYPE_HOPS {
        let record = btf.record(strip(btf, id)?)?;
        let (size, kind) = match record.kind {
            raw::INT => (record.value, Kind::Integer),
            raw::PTR => (size_of::<usize>() as u32, Kind::Pointer),
            raw::ENUM | raw::ENUM64 => (record.value, Kind::Enum),
            raw::STRUCT => (record.value, Kind::Struct),
            raw::UNION => (record.value, Kind::Union),
            raw::FLOAT => (record.value, Kind::Float),
            raw::ARRAY => {
                elements = elements.checked_mul(record.word(2)?)?;
                outer = Some(Kind::Array);
                id = record.word(0)?;
                continue;
            }
            _ => return None,
        };
        return Some((size.checked_mul(elements)?, outer.unwrap_or(kind)));
    }
    None
}

/// The type below typedefs, qualifiers and tags; `None` if they go in a circle or nowhere.
fn strip(btf: &Btf, mut id: u32) -> Option<u32> {
    for _ in 0..limits::TYPE_HOPS {
        let record = btf.record(id)?;
        match record.kind {
            raw::TYPEDEF | raw::VOLATILE | raw::CONST | raw::RESTRICT | raw::TYPE_TAG => id = record.value,
            _ => return Some(id),
        }
    }
    None
}
