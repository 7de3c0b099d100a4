//! A kernel of Debian's, fetched by apt into a cache beside the build's output: its image, and the modules that the guest
//! loads, in the order in which they need each other.
//!
//! It asks the machine's own mirror, for whichever suite the kernel is from, and touches no list or cache of apt's own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::run;

/// Modules that the guest loads; a kernel that has one built in, or lacks it, gives no file of it.
const MODULES: [&str; 7] = ["nvme", "ext4", "xfs", "btrfs", "dm-mod", "dm-delay", "dm-flakey"];
/// Says in the cache which they were.
const LIST: &str = "list";
/// The packages that make up a kernel; newer ones split it.
const PARTS: [&str; 4] = ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"];

/// A kernel to be booted.
pub struct Kernel {
    /// Its name in the cache and in messages.
    pub name: &'static str,
    /// Debian's suite.
    pub suite: &'static str,
    /// The package that stands for the newest kernel of a flavour there.
    pub package: &'static str,
}

/// What is kept of it.
pub struct Fetched {
    pub image: PathBuf,
    /// Holds the modules, named so that they sort in the order of loading.
    pub modules: PathBuf,
}

impl Kernel {
    /// From the cache, or from the mirror; an error says why it cannot be had.
    pub fn fetch(&self) -> Result<Fetched, String> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory has a parent");
        let directory = target.join("kernels").join(self.name);
        let fetched = Fetched { image: directory.join("vmlinuz"), modules: directory.join("modules") };
        let kept = fs::read_to_string(directory.join(LIST)).unwrap_or_default();
        if kept != MODULES.join("\n") {
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(directory.join("apt/lists/partial")).expect("make the cache");
            self.download(&directory)?;
            keep(&directory, &fetched);
            // Last of all.
            fs::write(directory.join(LIST), MODULES.join("\n")).expect("write the list of modules");
        }
        Ok(fetched)
    }

    /// Unpacks the packages below `directory/root`.
    fn download(&self, directory: &Path) -> Result<(), String> {
        let apt = Apt { directory: directory.join("apt") };
        let list = format!("deb {} {} main\n", mirror()?, self.suite);
        fs::write(apt.directory.join("sources.list"), list).expect("write a list of sources");
        apt.ask("apt-get", &["--quiet=2", "--error-on=any", "update"])?;
        let packages = apt.parts_of(self.package)?;
        let wanted: Vec<&str> =
            ["--quiet=2", "download"].into_iter().chain(packages.iter().map(String::as_str)).collect();
        apt.ask("apt-get", &wanted)?;
        for file in files_of(&apt.directory).filter(|file| file.extension().is_some_and(|extension| extension == "deb"))
        {
            run(Command::new("dpkg").arg("--extract").arg(file).arg(directory.join("root")));
        }
        Ok(())
    }
}

/// apt with lists and a cache of its own.
struct Apt {
    directory: PathBuf,
}

impl Apt {
    fn ask(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let place = |option: &str, below: &str| format!("{option}={}", self.directory.join(below).display());
        let options = [
            place("Dir::Etc::SourceList", "sources.list"),
            "Dir::Etc::SourceParts=-".to_owned(),
            place("Dir::State::Lists", "lists"),
            place("Dir::Cache", "."),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::http::Timeout=60".to_owned(),
        ];
        let mut command = Command::new(program);
        command
            .current_dir(&self.directory)
            .args(options.iter().flat_map(|option| ["--option", option]))
            .args(arguments);
        let output = command.output().map_err(|error| format!("{program} cannot be started: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{program} {} failed: {}", arguments.join(" "), said.trim().replace('\n', "; ")))
    }

    /// The packages below one that stands for a kernel, as far as they are parts of it.
    fn parts_of(&self, package: &str) -> Result<BTreeSet<String>, String> {
        let mut parts = BTreeSet::new();
        let mut open = vec![package.to_owned()];
        while let Some(package) = open.pop() {
            let words = self.ask("apt-cache", &["depends", &package])?;
            let needed = words.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
            for part in needed.filter(|name| PARTS.iter().any(|part| name.starts_with(part))) {
                if parts.insert(part.to_owned()) {
                    open.push(part.to_owned());
                }
            }
        }
        if parts.is_empty() { Err(format!("{package} stands for no kernel")) } else { Ok(parts) }
    }
}

/// Where this machine's apt finds Debian.
fn mirror() -> Result<String, String> {
    let format = ["indextargets", "--format", "$(ORIGIN) $(RELEASE) $(REPO_URI)", "Created-By: Packages"];
    let targets = Command::new("apt-get").args(format).output().map_err(|error| format!("no apt here: {error}"))?;
    let text = String::from_utf8_lossy(&targets.stdout).into_owned();
    let rows = text.lines().filter_map(|line| line.strip_prefix("Debian ")?.split_once(' '));
    // Suites with a dash are the updates to one.
    let own = rows.filter(|(suite, _)| !suite.contains('-')).map(|(_, uri)| uri.to_owned()).next();
    own.ok_or_else(|| "apt has no source of Debian's own".to_owned())
}

/// Keeps the image and the modules that are wanted, and nothing else.
fn keep(directory: &Path, fetched: &Fetched) {
    let root = directory.join("root");
    if !root.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", root.join("lib")).expect("link lib");
    }
    let library = files_of(&root.join("lib/modules")).next().expect("a kernel has modules");
    let version = library.file_name().expect("its name is its version").to_string_lossy().into_owned();
    run(Command::new("depmod").arg("--basedir").arg(&root).arg(&version));
    fs::create_dir(&fetched.modules).expect("make a directory of modules");
    let mut kept: Vec<PathBuf> = Vec::new();
    for module in MODULES {
        let mut command = Command::new("modprobe");
        command.arg("--dirname").arg(&root).args(["--set-version", &version, "--show-depends", module]);
        let listed = command.output().expect("start modprobe");
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let Some(file) = line.strip_prefix("insmod ").map(|file| PathBuf::from(file.trim())) else { continue };
            if !kept.contains(&file) {
                unpack(&file, &fetched.modules.join(format!("{:02}", kept.len())));
                kept.push(file);
            }
        }
    }
    let images = [root.join("boot").join(format!("vmlinuz-{version}")), library.join("vmlinuz")];
    let image = images.iter().find(|image| image.exists()).expect("a kernel has an image");
    fs::rename(image, directory.join("image")).expect("keep the image");
    fs::remove_dir_all(root).expect("remove the rest");
    fs::remove_dir_all(directory.join("apt")).expect("remove what apt kept");
    fs::rename(directory.join("image"), &fetched.image).expect("keep the image");
}

/// Copies a module as the kernel wants it.
fn unpack(from: &Path, to: &Path) {
    if from.extension().is_some_and(|extension| extension == "xz") {
        let bytes = Command::new("xz").args(["--decompress", "--stdout"]).arg(from).output().expect("start xz");
        assert!(bytes.status.success(), "unpack {}", from.display());
        fs::write(to, bytes.stdout).expect("write a module");
    } else {
        fs::copy(from, to).expect("copy a module");
    }
}

fn files_of(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("list {}: {error}", directory.display()));
    entries.map(|entry| entry.expect("an entry of a directory").path())
}
