//! The JSON of a sync against its schema: every field is there, on every line, with a type that the schema allows.

use serde_json::Value;

use crate::Recording;

/// Types that a field may have.
const NUMBER: &[&str] = &["number"];
const TEXT: &[&str] = &["text"];
const LIST: &[&str] = &["list"];
const BOOLEAN: &[&str] = &["boolean"];
const OBJECT: &[&str] = &["object"];

/// Every field by its JSON pointer. `*` stands for each item of a list.
const FIELDS: [(&str, &[&str]); 27] = [
    ("id", NUMBER),
    ("time_unix_ns", NUMBER),
    ("operation", TEXT),
    ("process", OBJECT),
    ("process/pid", NUMBER),
    ("process/name", TEXT),
    ("thread", OBJECT),
    ("thread/tid", NUMBER),
    ("thread/name", TEXT),
    ("asked_through", &["text", "null"]),
    ("file", &["object", "null"]),
    ("filesystems", LIST),
    ("device", OBJECT),
    ("device/major", NUMBER),
    ("device/minor", NUMBER),
    ("device/name", TEXT),
    ("result", &["number", "text", "null"]),
    ("duration_ns", NUMBER),
    ("parts", LIST),
    ("after_ns", &["number", "null"]),
    ("after_parts", LIST),
    ("cause", TEXT),
    ("culprit", &["object", "null"]),
    ("confidence", TEXT),
    ("evidence", LIST),
    ("lost_events", NUMBER),
    ("open", BOOLEAN),
];

/// Fields of what may be null or empty, where it is not.
const OPTIONAL: [(&str, &[&str]); 13] = [
    ("file/path", &["text", "null"]),
    ("file/inode", NUMBER),
    ("file/directory", BOOLEAN),
    ("filesystems/*/device", OBJECT),
    ("filesystems/*/ns", NUMBER),
    ("parts/*/name", TEXT),
    ("parts/*/ns", NUMBER),
    ("parts/*/detail", TEXT),
    ("culprit/class", TEXT),
    ("culprit/text", TEXT),
    ("evidence/*", TEXT),
    ("after_parts/*/name", TEXT),
    ("after_parts/*/ns", NUMBER),
];

/// The words that a field may hold.
const WORDS: [(&str, &[&str]); 3] = [
    (
        "operation",
        &["fsync", "fdatasync", "o_dsync", "o_sync", "msync", "syncfs", "sync", "sync_file_range", "fadvise"],
    ),
    (
        "cause",
        &[
            "device_slow",
            "queue_behind",
            "throttled",
            "flusher_writeback",
            "journal_commit",
            "helper_not_scheduled",
            "thread_not_scheduled",
            "shared_lower_device",
            "unknown",
        ],
    ),
    ("confidence", &["certain", "likely", "unknown"]),
];

fn objects() -> Vec<Value> {
    let lines: Vec<String> = Recording::all().iter().flat_map(Recording::objects).collect();
    lines.iter().map(|line| serde_json::from_str(line).expect("a line is one object")).collect()
}

/// The values at a path; none if it leads through a null, a text or an empty list.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    path.split('/').fold(vec![value], |values, step| match step {
        "*" => values.into_iter().filter_map(Value::as_array).flatten().collect(),
        name => values.into_iter().filter_map(|value| value.get(name)).collect(),
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

#[test]
fn every_field_is_there_with_its_type() {
    for object in objects() {
        for (path, kinds) in FIELDS {
            let found = at(&object, path);
            assert!(!found.is_empty(), "no {path} in {object}");
            let wrong = found.iter().find(|value| !kinds.contains(&kind(value)));
            assert_eq!(wrong, None, "{path} is to be of {kinds:?} in {object}");
        }
    }
}

#[test]
fn an_optional_field_has_its_type_where_it_is_there() {
    let objects = objects();
    for (path, kinds) in OPTIONAL {
        let found: Vec<&Value> = objects.iter().flat_map(|object| at(object, path)).collect();
        assert!(!found.is_empty(), "no recording has {path}");
        let wrong = found.iter().find(|value| !kinds.contains(&kind(value)));
        assert_eq!(wrong, None, "{path} is to be of {kinds:?}");
    }
}

#[test]
fn no_field_is_unknown_to_the_schema() {
    let known: Vec<&str> = FIELDS.iter().chain(&OPTIONAL).map(|(path, _)| *path).collect();
    for object in objects() {
        let fields = object.as_object().expect("an object");
        for (name, value) in fields {
            assert!(known.contains(&name.as_str()), "the schema does not know {name}");
            let (items, between) = match value {
                Value::Array(items) => (items.iter().collect(), "/*/"),
                value => (vec![value], "/"),
            };
            let inner = items.into_iter().filter_map(Value::as_object).flat_map(|inner| inner.keys());
            for key in inner {
                let path = format!("{name}{between}{key}");
                assert!(known.contains(&path.as_str()), "the schema does not know {path}");
            }
        }
    }
}

#[test]
fn words_are_those_of_the_schema() {
    let names: Vec<&str> = fsyncscope::attribution::part_names().collect();
    for object in objects() {
        for (path, words) in WORDS {
            let word = object[path].as_str().unwrap_or_default();
            assert!(words.contains(&word), "{path} is {word} in {object}");
        }
        for name in at(&object, "parts/*/name") {
            assert!(names.iter().any(|known| name == known), "no part is named {name}");
        }
    }
}

/// The page that documents the schema, or nothing and a line that counts as a skipped test.
fn page() -> Option<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let page = std::fs::read_to_string(&path);
    if let Err(error) = &page {
        eprintln!("\nskipped: {}: {error}", path.display());
    }
    page.ok()
}

/// Field, type and what is said of null, of each row of the page's table.
fn rows(page: &str) -> Vec<[&str; 3]> {
    page.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, field, kind, _, null, _] = cells.as_slice() else { return None };
            Some([field.strip_prefix('`')?.strip_suffix('`')?, kind, null])
        })
        .collect()
}

#[test]
fn every_field_is_as_the_page_says() {
    let Some(page) = page() else { return };
    // The chapter of disks has a table of its own, see disk.rs.
    let page = page.split("\n## A disk").next().expect("a beginning");
    let rows = rows(page);
    for object in objects() {
        let fields = object.as_object().expect("an object");
        let named: Vec<&str> = rows.iter().map(|[field, ..]| *field).collect();
        assert!(fields.keys().all(|field| named.contains(&field.as_str())), "the page lacks a field of {object}");
        for [field, kinds, null] in &rows {
            let value =
                fields.get(*field).unwrap_or_else(|| panic!("the page promises {field}, and {object} has none"));
            let allowed = match kind(value) {
                "null" => null.contains("null"),
                "number" => kinds.contains("integer") && (value.is_u64() || value.is_i64()),
                "text" => kinds.contains("string"),
                "list" => kinds.contains("array"),
                other => kinds.contains(other),
            };
            assert!(allowed, "the page says that {field} is {kinds}, and it is {value}");
        }
    }
}

#[test]
fn every_word_is_on_the_page() {
    let Some(page) = page() else { return };
    let inner = FIELDS.iter().chain(&OPTIONAL).filter_map(|(path, _)| path.split('/').rfind(|step| *step != "*"));
    let words = WORDS.iter().flat_map(|(_, words)| words.iter().copied());
    // Parts of the journal thread stand there once, as a rule.
    let parts = fsyncscope::attribution::part_names().map(|name| name.strip_prefix("journal_").unwrap_or(name));
    let all = inner.chain(words).chain(parts);
    let missing: Vec<&str> = all.filter(|name| !page.contains(&format!("`{name}`")) && *name != "idle").collect();
    assert!(missing.is_empty(), "docs/json.md does not name {missing:?}");
}
