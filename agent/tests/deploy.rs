//! What is deployed: the manifest's form, the pod that it describes, and what each privilege is for.

mod support;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fsyncscope::metrics::file_class;
use serde_json::{Value, json};

use support::manifest::{self, Schemas, words};
use support::metrics::Samples;
use support::pod::{Pod, Podman};
use support::process::{Process, tail};
use support::scratch::{Format, LoopFs, Scratch};
use support::tool::{read, repository};
use support::{Machine, bpf, find, free_port, http, missing, wait_for};

const MANIFEST: &str = "deploy/daemonset.yaml";
const UNIT: &str = "deploy/fsyncscope.service";
/// A prime number: no multiple of anything that happens by itself.
const SYNCS: usize = 499;
const THREAD: &str = "pod-journal";
const COUNT: &str = "fsyncscope_sync_duration_seconds_count";

#[test]
fn the_manifest_is_valid_and_a_typo_is_not() {
    skip_if!(Schemas::missing());
    let schemas = Schemas::install();
    let scratch = Scratch::new("manifest");
    let text = read(MANIFEST);
    for kubernetes in manifest::VERSIONS {
        let output = schemas.validate(&repository(MANIFEST), kubernetes);
        assert!(output.status.success(), "{kubernetes}: {}", support::tool::said(&output));
        for (right, wrong) in
            [("hostPID:", "hostPid:"), ("capabilities:", "capability:"), ("periodSeconds: 2", "periodSeconds: 2s")]
        {
            assert!(text.contains(right), "the manifest has no {right}");
            let file = scratch.join("typo.yaml");
            fs::write(&file, text.replacen(right, wrong, 1)).expect("write the copy");
            let output = schemas.validate(&file, kubernetes);
            assert!(!output.status.success(), "{kubernetes} takes {wrong}");
        }
    }
}

#[test]
fn all_files_of_deploy_agree() {
    skip_if!(Schemas::missing());
    let schemas = Schemas::install();
    let template = template(&schemas);
    let container = &template["spec"]["containers"][0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container["image"], format!("fsyncscope:{version}"));
    let kustomization = &schemas.documents(&repository("deploy/kustomization.yaml"))[0];
    assert_eq!(kustomization["images"][0], json!({ "name": "fsyncscope", "newTag": version }));
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    let unit = read(UNIT);
    for setting in ["CapabilityBoundingSet", "AmbientCapabilities"] {
        let value = unit.lines().find_map(|line| line.strip_prefix(setting)?.strip_prefix('=')).expect(setting);
        let names: BTreeSet<&str> = value.split(' ').map(|name| name.trim_start_matches("CAP_")).collect();
        assert_eq!(names, capabilities(&template).into_iter().collect(), "{setting} against the manifest");
    }
    let documented = read("deploy/README.md");
    for name in capabilities(&template) {
        assert!(documented.contains(&format!("| `{name}` |")), "{name} has no row in deploy/README.md");
    }
}

/// By the parser of systemd where there is one: a misspelt setting is only a warning in a journal otherwise.
#[test]
fn the_unit_is_understood_by_systemd() {
    let tool = find("systemd-analyze");
    skip_if!(tool.is_none().then(|| "no systemd-analyze, of Debian's package systemd".to_owned()));
    let tool = tool.expect("it is there");
    let scratch = Scratch::new("unit");
    let file = scratch.join("fsyncscope.service");
    let agent = env!("CARGO_BIN_EXE_fsyncscope");
    let verify = |text: String| {
        fs::write(&file, text).expect("write the copy");
        let output =
            Command::new(&tool).args(["verify", "--man=no"]).arg(&file).output().expect("start systemd-analyze");
        support::tool::said(&output)
    };
    let here = read(UNIT).replace("/usr/local/bin/fsyncscope", agent);
    let complaints = |said: &str| said.lines().filter(|line| line.contains("fsyncscope.service")).count();
    let said = verify(here.clone());
    assert_eq!(complaints(&said), 0, "{said}");
    let said = verify(here.replacen("DynamicUser=", "DynamicUsers=", 1));
    assert_eq!(complaints(&said), 1, "a misspelt setting passes: {said}");
}

#[test]
fn a_pod_of_the_manifest_counts_every_sync_of_a_journal_outside_of_it() {
    skip_if!(Podman::missing().or_else(Schemas::missing).or_else(|| Format::Ext4.missing()));
    let template = template(&Schemas::install());
    let _machine = Machine::lock();
    let podman = Podman::new();
    podman.build(template.pointer("/spec/containers/0/image").and_then(Value::as_str).expect("an image"));
    let pod = podman.start("agent", &template);
    let healthy = wait_for(Duration::from_secs(60), || pod.inside(|| ask("/healthz")));
    assert!(healthy.is_some(), "the pod is not healthy; it said: {}", tail(&pod.log()));
    has_exactly_these_privileges(pod.pid(), &template);
    let programs = bpf::programs_of(pod.pid());
    assert!(programs.len() > 10, "the pod holds the programs {programs:?}");

    let scratch = Scratch::new("outside");
    let disk = LoopFs::new(&scratch, "journal", Format::Ext4, 256);
    let file = disk.join("pod-0001.log");
    let journal = Journal::start(file.clone());
    let counted = counted_once(&file, disk.device_name(), || pod.inside(|| ask("/metrics")));
    assert_eq!(counted, SYNCS as f64, "the pod said: {}", tail(&pod.log()));
    drop(journal);
    proves_its_probes(&pod);

    assert_eq!(pod.stop(), "0", "SIGTERM ends it cleanly; it said: {}", tail(&pod.log()));
    let gone = wait_for(Duration::from_secs(5), || programs.iter().all(|id| !bpf::exists(*id)).then_some(()));
    assert!(gone.is_some(), "programs of the pod are still in the kernel");
    refuses_without_a_required_capability(&podman, &template);
}

/// `doctor` in the pod has all that it needs there: a place for a canary that was asked for among it.
fn proves_its_probes(pod: &Pod) {
    let output = pod.execute(&["/fsyncscope", "doctor", "--json", "--canary", "/tmp"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::tool::said(&output)));
    assert!(output.status.success() && report["canaries"][0]["told"] == report["canaries"][0]["made"], "{report:#}");
}

/// Proves that the pod's capabilities are what the test thinks: with one less the agent cannot work.
fn refuses_without_a_required_capability(podman: &Podman, template: &Value) {
    let mut poorer = template.clone();
    let list =
        poorer.pointer_mut("/spec/containers/0/securityContext/capabilities/add").expect("a list of capabilities");
    list.as_array_mut().expect("a list").retain(|name| name != "PERFMON");
    let output = podman.run_to_end(&poorer);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("fsyncscope: ") && said.contains("PERFMON") && said.trim().lines().count() == 1, "{said}");
}

#[test]
fn two_capabilities_are_enough_to_count_and_what_the_others_bring_is_said() {
    skip_if!(missing(&["setpriv"]).or_else(|| Format::Ext4.missing()));
    let _machine = Machine::lock();
    let scratch = Scratch::new("privileges");
    let disk = LoopFs::new(&scratch, "journal", Format::Ext4, 256);
    for (name, more) in [("least", &[][..]), ("manifest", &["syslog", "sys_ptrace", "dac_read_search"][..])] {
        let port = free_port();
        let log = scratch.join(&format!("{name}.log"));
        let mut agent = Process::start(with_capabilities(more, port), log, libc::SIGTERM);
        let watching = wait_for(Duration::from_secs(60), || agent.log().contains("fsyncscope: watching").then_some(()));
        assert!(watching.is_some(), "{name}: {}", tail(&agent.log()));
        for capability in ["SYSLOG", "SYS_PTRACE", "DAC_READ_SEARCH"] {
            let said = agent
                .log()
                .lines()
                .filter(|line| line.contains(&format!("capability {capability} is missing")))
                .count();
            assert_eq!(said, usize::from(more.is_empty()), "{name}: {capability} in: {}", agent.log());
        }
        let file = disk.join(name);
        let journal = Journal::start(file.clone());
        let scrape =
            || http::get(([127, 0, 0, 1], port).into(), "/metrics", "text/plain").ok().map(|answer| answer.body);
        assert_eq!(counted_once(&file, disk.device_name(), scrape), SYNCS as f64, "{name}");
        drop(journal);
        agent.stop();
    }
}

fn with_capabilities(more: &[&str], port: u16) -> Command {
    let sets: String = more.iter().map(|name| format!(",+{name}")).collect();
    let mut command = Command::new("setpriv");
    command
        .args(["--no-new-privs", &format!("--bounding-set=-all,+bpf,+perfmon{sets}")])
        .arg(env!("CARGO_BIN_EXE_fsyncscope"))
        .args(["run", "--listen", &format!("127.0.0.1:{port}")]);
    command
}

/// The template of the pods, out of the DaemonSet.
fn template(schemas: &Schemas) -> Value {
    let documents = schemas.documents(&repository(MANIFEST));
    let set = documents.iter().find(|document| document["kind"] == "DaemonSet").expect("a DaemonSet");
    set["spec"]["template"].clone()
}

fn capabilities(template: &Value) -> Vec<&str> {
    words(&template["spec"]["containers"][0]["securityContext"]["capabilities"]["add"])
}

/// As the kernel has them, not as podman was asked for.
fn has_exactly_these_privileges(pid: u32, template: &Value) {
    const NUMBERS: [(&str, u32); 7] = [
        ("DAC_READ_SEARCH", 2),
        ("SYS_PTRACE", 19),
        ("SYS_ADMIN", 21),
        ("SYS_RESOURCE", 24),
        ("SYSLOG", 34),
        ("PERFMON", 38),
        ("BPF", 39),
    ];
    let number = |name: &str| NUMBERS.iter().find(|(known, _)| *known == name).expect("a capability of the list").1;
    let mask: u64 = capabilities(template).into_iter().map(|name| 1 << number(name)).sum();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the pod's process lives");
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim().to_owned();
    for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
        assert_eq!(field(set), format!("{mask:016x}"), "{set} of the pod");
    }
    assert_eq!((field("NoNewPrivs:"), field("Uid:")), ("1".to_owned(), "0\t0\t0\t0".to_owned()));
    let mounts = fs::read_to_string(format!("/proc/{pid}/mounts")).expect("the pod's mounts");
    let root = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/")).expect("a root");
    assert!(root.split([' ', ',']).any(|word| word == "ro"), "the pod's root can be written: {root}");
}

/// The body of the pod's answer, if it is one of success.
fn ask(target: &str) -> Option<String> {
    let answer = http::get(([127, 0, 0, 1], 9464).into(), target, "text/plain").ok()?;
    (answer.status == 200).then_some(answer.body)
}

/// What the agent counted of the journal, once it has counted enough; a little later than that, so that too many show.
fn counted_once(file: &Path, device: &str, scrape: impl Fn() -> Option<String>) -> f64 {
    let class = file_class(file.to_str().expect("our own paths are text"));
    let labels = [("thread", THREAD), ("operation", "fdatasync"), ("file", class.as_str()), ("device", device)];
    let count = || scrape().map(|body| Samples::parse(&body).sum(COUNT, &labels)).unwrap_or_default();
    wait_for(Duration::from_secs(10), || (count() >= SYNCS as f64).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    count()
}

/// A thread that has made all its syncs and stays, because the series of a thread that ended are dropped.
struct Journal {
    _stay: Sender<()>,
}

impl Journal {
    fn start(file: PathBuf) -> Self {
        let (stay, until) = channel();
        let (done, made) = channel();
        let thread = move || perform(&file, &done, &until);
        std::thread::Builder::new().name(THREAD.to_owned()).spawn(thread).expect("start the journal");
        made.recv_timeout(Duration::from_secs(60)).expect("the journal has made its syncs");
        Self { _stay: stay }
    }
}

fn perform(file: &Path, done: &Sender<()>, until: &Receiver<()>) {
    let mut file = OpenOptions::new().create_new(true).write(true).open(file).expect("create the journal");
    for _ in 0..SYNCS {
        file.write_all(&[0x6a; 512]).expect("write to the journal");
        file.sync_data().expect("sync the journal");
    }
    done.send(()).expect("the test waits");
    let _ = until.recv();
}
