//! Reads docs/metrics.md.

use std::collections::{BTreeMap, BTreeSet};

use super::tool;

/// Type and labels by name of metric.
pub type Catalogue = BTreeMap<String, (String, BTreeSet<String>)>;

/// The rows of the catalogue: | `name` | type | labels | unit | meaning | source | absent when |
pub fn read() -> Catalogue {
    let document = tool::read("docs/metrics.md");
    let rows = document.lines().filter(|line| line.starts_with("| `fsyncscope_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 9, "a row has seven cells: {row}");
        assert!(cells[1..8].iter().all(|cell| !cell.is_empty()), "an empty cell: {row}");
        let labels = cells[3].split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels = labels.filter(|label| label != "none").collect();
        (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), labels))
    })
    .collect()
}

/// The metrics that a text names; the bare prefix, as in a pattern, is none. A name that the catalogue does not know is
/// returned as it is.
pub fn names_in(text: &str, catalogue: &Catalogue) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names =
        text.split(|c: char| !is_name(c)).filter(|word| word.starts_with("fsyncscope_") && !word.ends_with('_'));
    names.map(|name| base(name, catalogue).unwrap_or(name).to_owned()).collect()
}

/// The histogram behind one of its series, or the metric itself.
fn base<'a>(name: &'a str, catalogue: &Catalogue) -> Option<&'a str> {
    if catalogue.contains_key(name) {
        return Some(name);
    }
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix))?;
    catalogue.get(base).filter(|(kind, _)| kind == "histogram").map(|_| base)
}
