//! Files that hold what an answer has to be. With `BLESS=1` in the environment they are written instead of compared.

use std::path::PathBuf;

/// Compares with `tests/golden/<name>`.
pub fn check(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(found, wanted, "{} differs; if the change is meant, run the test with BLESS=1", path.display());
}
