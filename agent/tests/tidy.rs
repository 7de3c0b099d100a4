//! The house rules as a test over every Rust file of the repository. It reads sources only: no kernel, no root.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use source::Source;

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the agent lies in a workspace");
    let files = rust_files(root);
    assert!(files.len() > 5, "only {} files found under {}", files.len(), root.display());
    let found: Vec<String> = files.iter().flat_map(|file| rules::complaints(&read(root, file))).collect();
    assert!(found.is_empty(), "{} breaches of the house rules:\n{}", found.len(), found.join("\n"));
}

fn read(root: &Path, file: &Path) -> Source {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("reading {} failed: {e}", file.display()));
    let path = file.strip_prefix(root).unwrap_or(file);
    Source::new(&path.to_string_lossy(), &text)
}

/// Sources of both packages; build products and fetched code lie in hidden folders and in `target`.
fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("agent"), root.join("ebpf")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("listing {} failed: {e}", folder.display()));
        for path in entries.map(|entry| entry.expect("an entry of a folder").path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
