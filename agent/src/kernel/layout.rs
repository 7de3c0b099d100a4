//! The table of kernel facts, resolved: rows in, offsets and enumerator values out.
//!
//! Knows which rows this kernel has and whether what stands there is what the probes read. Must not know what a row is
//! for: the table itself says whether the probes can do without it.

use fsyncscope_ebpf::layout::{ABSENT, Field, Layout};

use super::btf::{Btf, Kind, Member};

/// The table as the probes want it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// One word a row, in the order of the rows: byte offset, enumerator value or [`ABSENT`].
    pub values: Vec<u32>,
    /// Optional rows that are [`ABSENT`]: the kernel lacks them, or has them in another form.
    pub missing: Vec<&'static Field>,
    /// Those of the missing rows that the kernel has in another form. Unlike a field that is not there, this is a
    /// change that the probes do not know yet, so it is worth a line at start.
    pub changed: Vec<Problem>,
}

/// A row that the probes cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    pub field: &'static Field,
    pub found: Found,
}

/// What the kernel has instead of what a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Neither a struct nor an enum of the row's name.
    NoOwner,
    /// The struct or enum is there, without the member or enumerator.
    NoMember,
    /// The member is there in another form.
    Other(Member),
    /// The enumerator is there, with a value that no row can hold.
    Value(i64),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Field { owner, name, size, required: _ } = self.field;
        match self.found {
            Found::NoOwner => write!(formatter, "{owner}.{name} is missing ({owner} is not described)"),
            Found::NoMember => write!(formatter, "{owner}.{name} is missing"),
            Found::Other(Member { bits: Some(bits), .. }) => {
                write!(formatter, "{owner}.{name} is a bitfield of {} bits instead of {size} bytes", bits.count)
            }
            Found::Other(Member { size: found, kind, .. }) => {
                write!(formatter, "{owner}.{name} is of kind {kind} and {found} bytes instead of {size}")
            }
            Found::Value(value) => write!(formatter, "{owner}.{name} has the value {value}, which is no bit number"),
        }
    }
}

/// Required rows that this kernel lacks or has in another form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "looking up the kernel's fields in its BTF: {}; this kernel cannot be traced by this version, report its release \
     and this line",
    sentence(.0)
)]
pub struct LayoutError(pub Vec<Problem>);

/// Resolves the table of the probes. What the kernel's own types do not have is looked for in the modules'.
pub fn resolve(kernel: &Btf, modules: &[Btf]) -> Result<Resolved, LayoutError> {
    resolve_rows(Layout::FIELDS, kernel, modules)
}

/// Resolves any table of rows.
pub fn resolve_rows(rows: &'static [Field], kernel: &Btf, modules: &[Btf]) -> Result<Resolved, LayoutError> {
    let mut resolved = Resolved { values: Vec::with_capacity(rows.len()), missing: Vec::new(), changed: Vec::new() };
    let mut problems = Vec::new();
    for field in rows {
        let found = match look_up(field, kernel, modules) {
            Ok(value) => {
                resolved.values.push(value);
                continue;
            }
            Err(found) => found,
        };
        resolved.values.push(ABSENT);
        let problem = Problem { field, found };
        if field.required {
            problems.push(problem);
            continue;
        }
        resolved.missing.push(field);
        if matches!(found, Found::Other(_) | Found::Value(_)) {
            resolved.changed.push(problem);
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(LayoutError(problems)) }
}

fn look_up(field: &Field, kernel: &Btf, modules: &[Btf]) -> Result<u32, Found> {
    let Field { owner, name, size, required: _ } = *field;
    let types = || std::iter::once(kernel).chain(modules);
    if let Some(member) = types().find_map(|btf| btf.member(owner, name)) {
        return if fits(&member, size) { Ok(member.offset) } else { Err(Found::Other(member)) };
    }
    if let Some(value) = types().find_map(|btf| btf.enumerator(owner, name)) {
        let word = u32::try_from(value).ok().filter(|word| *word != ABSENT);
        return word.ok_or(Found::Value(value));
    }
    Err(if types().any(|btf| btf.describes(owner)) { Found::NoMember } else { Found::NoOwner })
}

/// Whether `size` bytes can be read at the member. Size 0 wants the place alone, whatever stands there:
/// `page.flags` is a struct of its own since 6.18 and was an integer before.
fn fits(member: &Member, size: u32) -> bool {
    let Member { offset: _, size: found, kind, bits } = *member;
    let readable = match kind {
        Kind::Integer | Kind::Pointer | Kind::Enum | Kind::Array => true,
        Kind::Struct | Kind::Union | Kind::Float => false,
    };
    bits.is_none() && (size == 0 || (readable && found == size))
}

fn sentence(problems: &[Problem]) -> String {
    let words: Vec<String> = problems.iter().map(Problem::to_string).collect();
    words.join(", ")
}
