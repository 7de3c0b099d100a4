//! Builds the kernel side (`probes` of the package `fsyncscope-ebpf`) for the bpf target and tells the agent where the
//! object is: `FSYNCSCOPE_PROBES` at compile time.
//!
//! Routes, the first that fits: a prebuilt object named by `FSYNCSCOPE_PROBES_OBJECT`; Debian's rustc-web with its
//! prebuilt core; rustup's nightly with rust-src. `FSYNCSCOPE_BPF_ROUTE=debian|nightly` chooses by hand.
//! CONTRIBUTING.md describes them. It must not know what the probes do.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Debian's compiler: the package rustc-web, whose core for the bpf target is libstd-rust-web-dev-bpf.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_RUSTLIB: &str = "/usr/lib/rustlib";

/// Everything whose change must build the object again; a change in `agent` is not among it.
const WATCHED_FILES: [&str; 4] = ["ebpf/src", "ebpf/Cargo.toml", "Cargo.toml", "Cargo.lock"];
const WATCHED_VARIABLES: [&str; 3] = ["FSYNCSCOPE_PROBES_OBJECT", "FSYNCSCOPE_BPF_ROUTE", "BPF_LINKER"];

/// Where the compiler for the bpf target comes from.
enum Route {
    Debian,
    Nightly,
}

/// The bpf target of the same byte order as the agent's, and the processor whose registers the probes will see.
struct Target {
    triple: String,
    processor: String,
}

fn main() -> ExitCode {
    match object() {
        Ok(path) => {
            println!("cargo::rustc-env=FSYNCSCOPE_PROBES={}", path.display());
            ExitCode::SUCCESS
        }
        Err(sentence) => {
            println!("cargo::error={sentence}");
            ExitCode::FAILURE
        }
    }
}

fn object() -> Result<PathBuf, String> {
    let agent = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = agent.parent().ok_or("the agent's package lies outside its workspace; clone the whole project")?;
    println!("cargo::rerun-if-changed=build.rs");
    WATCHED_VARIABLES.iter().for_each(|name| println!("cargo::rerun-if-env-changed={name}"));
    if let Some(given) = given("FSYNCSCOPE_PROBES_OBJECT") {
        return prebuilt(&workspace.join(given));
    }
    WATCHED_FILES.iter().for_each(|file| println!("cargo::rerun-if-changed={}", workspace.join(file).display()));
    let endian = if variable("CARGO_CFG_TARGET_ENDIAN")? == "big" { "bpfeb" } else { "bpfel" };
    let target = Target { triple: format!("{endian}-unknown-none"), processor: variable("CARGO_CFG_TARGET_ARCH")? };
    build(workspace, &target)
}

/// An object that was built elsewhere is used as it is; the loader checks what is in it.
fn prebuilt(path: &Path) -> Result<PathBuf, String> {
    println!("cargo::rerun-if-changed={}", path.display());
    path.canonicalize().map_err(|e| {
        format!(
            "reading FSYNCSCOPE_PROBES_OBJECT={} failed: {e}; name an object built by this project or unset it",
            path.display()
        )
    })
}

/// Runs cargo in cargo with a target directory of its own, so that neither waits for the other's lock.
fn build(workspace: &Path, target: &Target) -> Result<PathBuf, String> {
    let linker = linker(workspace)?;
    let directory = PathBuf::from(variable("OUT_DIR")?).join("probes");
    let mut cargo = command(&route(target)?)?;
    cargo
        .current_dir(workspace)
        .args(["--package", "fsyncscope-ebpf", "--bin", "probes", "--release"])
        .args(["--target", &target.triple, "--target-dir"])
        .arg(&directory)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&linker, target));
    let status = cargo.status().map_err(|e| format!("starting {cargo:?} failed: {e}; run `make setup`"))?;
    if !status.success() {
        return Err(format!(
            "building the probes for {} failed ({status}); read the compiler's words, or run `make setup` if a tool is missing",
            target.triple
        ));
    }
    Ok(directory.join(&target.triple).join("release").join("probes"))
}

fn flags(linker: &Path, target: &Target) -> String {
    [
        format!("-Clinker={}", linker.display()),
        // Kernels since 5.1 know v3: 32-bit registers and jumps, which shorten the probes.
        "-Ctarget-cpu=v3".into(),
        // BTF is made from the debug information; the kernel asks for it where a map holds a task's storage.
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
        "-Ccodegen-units=1".into(),
        format!("--cfg=bpf_target_arch=\"{}\"", target.processor),
    ]
    .join("\x1f")
}

/// Cargo with the compiler of the route and nothing of the build that runs this script: its flags, wrappers and facts
/// belong to the agent's target, not to bpf.
fn command(route: &Route) -> Result<Command, String> {
    let mut cargo = match route {
        Route::Debian => Command::new(variable("CARGO")?),
        Route::Nightly => Command::new("rustup"),
    };
    let inherited = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    inherited.filter(|name| of_outer_build(name)).for_each(|name| {
        cargo.env_remove(name);
    });
    // Empty, not absent: a wrapper named in the user's cargo configuration is for another compiler.
    cargo.env("RUSTC_WRAPPER", "").env("RUSTC_WORKSPACE_WRAPPER", "");
    match route {
        // aya-ebpf uses unstable features of core, which a released compiler allows under this variable only.
        Route::Debian => cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").arg("build"),
        Route::Nightly => cargo.args(["run", "nightly", "cargo", "build", "-Zbuild-std=core"]),
    };
    Ok(cargo)
}

fn of_outer_build(variable: &str) -> bool {
    const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_MAKEFLAGS"];
    const DROPPED: [&str; 4] = ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS"];
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| variable.starts_with(prefix));
    begins(&DROPPED) && !begins(&KEPT)
}

fn route(target: &Target) -> Result<Route, String> {
    let debian = Path::new(DEBIAN_RUSTC).exists() && Path::new(DEBIAN_RUSTLIB).join(&target.triple).exists();
    match given("FSYNCSCOPE_BPF_ROUTE").as_deref().map(OsStr::to_string_lossy).as_deref() {
        Some("debian") => Ok(Route::Debian),
        Some("nightly") => Ok(Route::Nightly),
        Some(other) => {
            Err(format!("FSYNCSCOPE_BPF_ROUTE={other} is no route; set it to debian or nightly, or unset it"))
        }
        None if debian => Ok(Route::Debian),
        None if nightly_has_source() => Ok(Route::Nightly),
        None => Err(format!(
            "found no compiler for {}, neither Debian's rustc-web with its core for bpf nor a nightly with rust-src; \
             run `make setup`",
            target.triple
        )),
    }
}

fn nightly_has_source() -> bool {
    Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]).output().is_ok_and(|out| {
        let sysroot = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        out.status.success() && Path::new(&sysroot).join("lib/rustlib/src/rust/library/core").exists()
    })
}

/// bpf-linker by hand, as `make setup` built it, or from the path.
fn linker(workspace: &Path) -> Result<PathBuf, String> {
    if let Some(given) = given("BPF_LINKER") {
        return Ok(PathBuf::from(given));
    }
    let ours = workspace.join("target/tools/bin/bpf-linker");
    let path = env::var_os("PATH").unwrap_or_default();
    std::iter::once(ours)
        .chain(env::split_paths(&path).map(|folder| folder.join("bpf-linker")))
        .find(|file| file.is_file())
        .ok_or_else(|| "found no bpf-linker in target/tools/bin or on the path; run `make setup`".into())
}

/// A variable that the user set; an empty one counts as unset.
fn given(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|e| format!("reading {name} failed: {e}; this script is run by cargo"))
}
