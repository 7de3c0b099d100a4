//! A tree of files that a test makes and that goes with it.

use std::path::{Path, PathBuf};

pub struct Tree(PathBuf);

impl Tree {
    /// Each test gives a name of its own, so that tests may run side by side.
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("facts-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    pub fn link(self, path: &str, target: &str) -> Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A tree that stays behind lies in the build directory and harms nothing.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
