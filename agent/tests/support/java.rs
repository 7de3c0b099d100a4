//! Programs of the JVM from their published artefacts: fetched once by Maven, kept beside the build's output.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use super::{broker_cache, broker_files, missing, run};

/// The artefacts of a broker, and its client where one is checked in.
pub struct Java {
    class_path: String,
}

impl Java {
    /// Why nothing can be fetched or run, or nothing.
    pub fn missing() -> Option<String> {
        missing(&["java", "javac", "mvn"])
    }

    /// Fetches what a broker's `pom.xml` names and compiles its one source, unless that is done.
    pub fn fetched(broker: &str, source: Option<&str>) -> Self {
        let cache = broker_cache(broker);
        fs::create_dir_all(&cache).expect("create the cache of brokers");
        let lock = File::create(cache.join("lock")).expect("create a lock file");
        // SAFETY: the descriptor is open for as long as `lock` lives.
        let result = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(result, 0, "lock the cache of brokers: {}", std::io::Error::last_os_error());
        let (jars, classes) = (cache.join("lib"), cache.join("classes"));
        let class_path = format!("{}/*:{}", jars.display(), classes.display());
        once(broker, "pom.xml", || {
            let _ = fs::remove_dir_all(&jars);
            run(Command::new("mvn")
                .args(["-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"])
                .arg(format!("-DoutputDirectory={}", jars.display()))
                .arg("-f")
                .arg(broker_files(broker).join("pom.xml")));
        });
        if let Some(source) = source {
            once(broker, source, || {
                run(Command::new("javac")
                    .args(["-proc:none", "-cp", &class_path, "-d"])
                    .arg(&classes)
                    .arg(broker_files(broker).join(source)));
            });
        }
        Self { class_path }
    }

    /// A JVM with options, to which the class and its arguments are to be added.
    pub fn command(&self, scratch: &Path, options: &[&str]) -> Command {
        let temporary = scratch.join("java-tmp");
        fs::create_dir_all(&temporary).expect("create the JVM's directory of temporary files");
        let mut command = Command::new("java");
        command.args(options).args(["-cp", &self.class_path]);
        // Native libraries are unpacked there; a JVM that is killed does not remove them.
        command.env("JDK_JAVA_OPTIONS", format!("-Djava.io.tmpdir={}", temporary.display()));
        command
    }
}

/// Options of a JVM that lives for a moment.
pub const BRIEF: [&str; 3] = ["-Xmx128m", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1"];

/// Does something again only when a checked-in file differs from the one that it was last done for.
fn once(broker: &str, name: &str, work: impl FnOnce()) {
    let wanted = fs::read(broker_files(broker).join(name)).expect("read a checked-in file");
    let stamp = broker_cache(broker).join(format!("{name}.done"));
    if fs::read(&stamp).is_ok_and(|done| done == wanted) {
        return;
    }
    work();
    fs::write(&stamp, wanted).expect("write a stamp");
}

/// A broker's checked-in template with its `@NAME@` replaced.
pub fn fill(broker: &str, template: &str, values: &[(&str, &str)]) -> String {
    let text = fs::read_to_string(broker_files(broker).join(template)).expect("read a template");
    let filled = values.iter().fold(text, |text, (name, value)| text.replace(&format!("@{name}@"), value));
    assert!(!filled.contains('@'), "{template} has a value that nobody gives");
    filled
}

pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are plain")
}
