//! What a raw tracepoint passes to its probe, from the typedef `btf_trace_<name>` that each tracepoint leaves.

use super::Btf;
use super::raw::{self, Record};
use crate::kernel::limits;

/// Argument types as in C, without the probe's own data pointer.
pub(super) fn arguments(btf: &Btf, tracepoint: &str) -> Option<Vec<String>> {
    let name = format!("btf_trace_{tracepoint}");
    let of_kind = |id: u32, kind: u8| btf.record(id).filter(|record| record.kind == kind);
    let prototype = btf.named(&name).find_map(|id| {
        let pointer = of_kind(of_kind(id, raw::TYPEDEF)?.value, raw::PTR)?;
        of_kind(pointer.value, raw::FUNC_PROTO)
    })?;
    Some(prototype.entries().skip(1).map(|[_, of]| render(btf, of)).collect())
}

/// A type in words: `const struct file *`, `unsigned int`, `void`. What the types do not tell is `?`.
fn render(btf: &Btf, of: u32) -> String {
    let mut before = Vec::new();
    let mut after = String::new();
    let mut id = of;
    for _ in 0..limits::TYPE_HOPS {
        if id == 0 {
            return assemble(&before, "void", &after);
        }
        let Some(record) = btf.record(id) else { break };
        match record.kind {
            raw::PTR => {
                after.insert(0, '*');
                // What qualified the pointer stands to its right.
                for qualifier in before.drain(..) {
                    after = format!("*{qualifier}{}", &after[1..]);
                }
            }
            raw::CONST => before.push("const "),
            raw::VOLATILE => before.push("volatile "),
            raw::RESTRICT | raw::TYPE_TAG => {}
            raw::ARRAY => after = format!("[{}]{after}", record.word(2).unwrap_or_default()),
            raw::FUNC_PROTO => return assemble(&before, "function", &after),
            _ => return assemble(&before, &base(btf, &record), &after),
        }
        id = if record.kind == raw::ARRAY { record.word(0).unwrap_or_default() } else { record.value };
    }
    "?".to_owned()
}

fn base(btf: &Btf, record: &Record<'_>) -> String {
    let word = match record.kind {
        raw::STRUCT => "struct ",
        raw::UNION => "union ",
        raw::FWD if record.flag => "union ",
        raw::FWD => "struct ",
        raw::ENUM | raw::ENUM64 => "enum ",
        _ => "",
    };
    format!("{word}{}", btf.text(record.name))
}

fn assemble(before: &[&str], base: &str, after: &str) -> String {
    let gap = if after.starts_with('*') { " " } else { "" };
    format!("{}{base}{gap}{after}", before.concat())
}
