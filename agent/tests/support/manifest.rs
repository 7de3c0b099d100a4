//! The manifests of deploy/: what they say, and whether Kubernetes would take them, by the schemas that it publishes.
//!
//! The schemas and the reader of YAML come with a package of Python's registry, kept beside the build's output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{missing, run};

const PACKAGE: &str = "kubernetes-validate==1.37.0";
/// Versions of Kubernetes that the manifests are for: the oldest that is still found, and the newest.
pub const VERSIONS: [&str; 2] = ["1.31", "1.37"];

/// A Python with the schemas.
pub struct Schemas {
    directory: PathBuf,
}

impl Schemas {
    /// Why it cannot be had here, or nothing.
    pub fn missing() -> Option<String> {
        missing(&["python3"])
    }

    /// Installs the package once; a second call finds it.
    pub fn install() -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory has a parent");
        let directory = target.join(PACKAGE.replace("==", "-"));
        let complete = directory.join("complete");
        if !complete.exists() {
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&directory));
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE];
            run(Command::new(directory.join("bin/python")).args(pip));
            std::fs::write(complete, "").expect("mark the installation as complete");
        }
        Self { directory }
    }

    /// What the strict validation of a file says; unknown fields are errors in it.
    pub fn validate(&self, file: &Path, kubernetes: &str) -> Output {
        Command::new(self.directory.join("bin/kubernetes-validate"))
            .args(["--strict", "--kubernetes-version", kubernetes])
            .arg(file)
            .output()
            .expect("start kubernetes-validate")
    }

    /// The documents of a YAML file.
    pub fn documents(&self, file: &Path) -> Vec<Value> {
        const TO_JSON: &str =
            "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
        let json = run(Command::new(self.directory.join("bin/python")).args(["-c", TO_JSON]).arg(file));
        serde_json::from_str(&json).expect("Python writes JSON")
    }
}

/// The names of a list of capabilities, as a manifest has them.
pub fn words(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list} is no list"));
    list.iter().map(|word| word.as_str().unwrap_or_else(|| panic!("{word} is no word"))).collect()
}
