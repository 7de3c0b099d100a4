//! A pod of a manifest, really run: by podman with runc, from an image that this checkout's own script built.
//!
//! Every field of the pod's template becomes a flag, or is named here as one that a single container has no use for. A
//! field that is neither is refused, so that what is tested and what is shipped cannot drift apart.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Output};

use serde_json::Value;

use super::manifest::words;
use super::scratch::Scratch;
use super::tool::repository;
use super::{missing, run};

/// Fields that speak to the scheduler, the kubelet or the API server.
const BEYOND_THE_POD: [&str; 6] = [
    "automountServiceAccountToken",
    "enableServiceLinks",
    "hostUsers",
    "nodeSelector",
    "terminationGracePeriodSeconds",
    "tolerations",
];
const BEYOND_THE_CONTAINER: [&str; 6] =
    ["name", "imagePullPolicy", "ports", "startupProbe", "readinessProbe", "livenessProbe"];

/// Podman with a storage of its own, which goes with it.
pub struct Podman {
    scratch: Scratch,
}

impl Podman {
    /// Why it cannot be had here, or nothing.
    pub fn missing() -> Option<String> {
        missing(&["podman", "runc", "conmon"])
    }

    pub fn new() -> Self {
        Self { scratch: Scratch::new("pod") }
    }

    /// Everything that needs no privilege beyond root's in a container or a small machine.
    fn flags(&self) -> Vec<String> {
        let path = |name: &str| self.scratch.join(name).display().to_string();
        let pairs = [
            ("--root", path("root")),
            ("--runroot", path("run")),
            ("--tmpdir", path("tmp")),
            ("--storage-driver", "vfs".to_owned()),
            ("--runtime", "runc".to_owned()),
            ("--cgroup-manager", "cgroupfs".to_owned()),
            ("--events-backend", "file".to_owned()),
        ];
        pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// Above the containers' control groups; podman leaves it behind.
    fn cgroup(&self) -> String {
        format!("/fsyncscope-pod-{}", std::process::id())
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.args(self.flags()).args(arguments);
        command
    }

    /// Builds the image by the script that the documentation gives.
    pub fn build(&self, name: &str) {
        let tool = format!("podman {}", self.flags().join(" "));
        run(Command::new(repository("deploy/build-image.sh")).arg(name).env("IMAGE_TOOL", tool));
    }

    /// Runs the only container of a pod's template to its end.
    pub fn run_to_end(&self, template: &Value) -> Output {
        self.run_command(template, &["--rm"]).output().expect("start podman")
    }

    /// Starts the only container of a pod's template in the background.
    pub fn start<'a>(&'a self, name: &str, template: &Value) -> Pod<'a> {
        // Held before it runs, so that one that starts badly is removed, too.
        let pod = Pod { podman: self, name: name.to_owned() };
        run(&mut self.run_command(template, &["--detach", "--name", name, "--log-driver", "k8s-file"]));
        pod
    }

    fn run_command(&self, template: &Value, more: &[&str]) -> Command {
        // Podman's own limits are higher than a small machine may set.
        let limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=32768:32768"];
        let mut command = self.command(&["run", "--pull", "never", "--cgroup-parent", &self.cgroup()]);
        command.args(limits);
        command.args(more).args(self.arguments(template));
        command
    }

    /// The flags, the image and the arguments of the only container of a pod's template.
    fn arguments(&self, template: &Value) -> Vec<String> {
        let spec = &template["spec"];
        let mut flags = Vec::new();
        for (field, value) in fields(spec).filter(|(field, _)| !BEYOND_THE_POD.contains(field)) {
            match (field, value) {
                ("containers" | "volumes", _) => {}
                ("hostPID", Value::Bool(true)) => flags.push("--pid=host".to_owned()),
                // Its own network, of which loopback is enough here.
                ("hostNetwork", Value::Bool(false)) => flags.push("--network=none".to_owned()),
                _ => panic!("{field}: {value} of the pod is new to this test"),
            }
        }
        let containers = spec["containers"].as_array().expect("the pod has containers");
        assert_eq!(containers.len(), 1, "this test runs one container");
        let container = &containers[0];
        for (field, value) in fields(container).filter(|(field, _)| !BEYOND_THE_CONTAINER.contains(field)) {
            match field {
                "image" | "args" => {}
                "env" => flags.extend(value.as_array().into_iter().flatten().map(environment)),
                "resources" => flags.push(format!("--memory={}", memory(value))),
                "securityContext" => flags.extend(security(value)),
                "volumeMounts" => {
                    flags.extend(value.as_array().into_iter().flatten().map(|mount| self.mount(spec, mount)))
                }
                _ => panic!("{field}: {value} of the container is new to this test"),
            }
        }
        flags.push(text(&container["image"]).to_owned());
        flags.extend(words(&container["args"]).into_iter().map(str::to_owned));
        flags
    }

    /// The mount of an empty directory of the pod.
    fn mount(&self, spec: &Value, mount: &Value) -> String {
        let name = text(&mount["name"]);
        let volume =
            spec["volumes"].as_array().and_then(|volumes| volumes.iter().find(|volume| volume["name"] == name));
        let is_empty_directory = volume.is_some_and(|volume| volume["emptyDir"].is_object());
        assert!(is_empty_directory, "{name} is no empty directory, and new to this test");
        let directory = self.scratch.join(name);
        std::fs::create_dir_all(&directory).expect("create the pod's volume");
        format!("--volume={}:{}", directory.display(), text(&mount["mountPath"]))
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let own = self.cgroup();
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        // Version 2 alone has its groups right there; of version 1, each hierarchy has its own.
        for hierarchy in hierarchies.chain(["/sys/fs/cgroup".into()]) {
            let group = hierarchy.join(own.trim_start_matches('/'));
            for below in std::fs::read_dir(&group).into_iter().flatten().flatten() {
                // Only groups are directories, and only an empty one can be removed.
                let _ = std::fs::remove_dir(below.path());
            }
            let _ = std::fs::remove_dir(&group);
        }
    }
}

/// A running container, stopped and removed when dropped.
pub struct Pod<'a> {
    podman: &'a Podman,
    name: String,
}

impl Pod<'_> {
    /// One field of podman's own description.
    pub fn inspect(&self, field: &str) -> String {
        let format = format!("{{{{{field}}}}}");
        run(&mut self.podman.command(&["inspect", "--format", &format, &self.name])).trim().to_owned()
    }

    /// The number of its process on the host.
    pub fn pid(&self) -> u32 {
        self.inspect(".State.Pid").parse().expect("a process number")
    }

    pub fn log(&self) -> String {
        let output = self.podman.command(&["logs", &self.name]).output().expect("start podman");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// Runs one more program in it, with its privileges.
    pub fn execute(&self, words: &[&str]) -> Output {
        self.podman.command(&["exec", &self.name]).args(words).output().expect("start podman")
    }

    /// Ends it as a kubelet does, and gives its exit code.
    pub fn stop(&self) -> String {
        run(&mut self.podman.command(&["stop", "--time", "10", &self.name]));
        self.inspect(".State.ExitCode")
    }

    /// Does something in the pod's network.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let network = File::open(format!("/proc/{}/ns/net", self.pid())).expect("the pod has a network");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: the descriptor is open; only this thread, which ends here, changes its network.
                let result = unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(result, 0, "enter the pod's network: {}", std::io::Error::last_os_error());
                act()
            });
            thread.join().expect("the visitor of the pod's network does not panic")
        })
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        let _ = self.podman.command(&["rm", "--force", "--ignore", "--time", "2", &self.name]).output();
    }
}

fn security(context: &Value) -> Vec<String> {
    let flag = |(field, value): (&str, &Value)| match (field, value) {
        ("privileged", Value::Bool(false)) => vec![],
        ("allowPrivilegeEscalation", Value::Bool(false)) => vec!["--security-opt=no-new-privileges".to_owned()],
        ("readOnlyRootFilesystem", Value::Bool(true)) => {
            vec!["--read-only".to_owned(), "--read-only-tmpfs=false".to_owned()]
        }
        ("runAsUser", user) => vec![format!("--user={user}:{}", context["runAsGroup"])],
        ("runAsGroup", _) => vec![],
        ("capabilities", sets) => {
            let drop = words(&sets["drop"]).into_iter().map(|name| format!("--cap-drop={name}"));
            let add = words(&sets["add"]).into_iter().map(|name| format!("--cap-add={name}"));
            drop.chain(add).collect()
        }
        ("seccompProfile" | "appArmorProfile", profile) if profile["type"] == "Unconfined" => {
            let kind = field.trim_end_matches("Profile").to_lowercase();
            vec![format!("--security-opt={kind}=unconfined")]
        }
        _ => panic!("{field}: {value} of the security context is new to this test"),
    };
    fields(context).flat_map(flag).collect()
}

/// Podman counts in the same units with other letters.
fn memory(resources: &Value) -> String {
    text(&resources["limits"]["memory"]).replace("Mi", "m")
}

fn environment(entry: &Value) -> String {
    format!("--env={}={}", text(&entry["name"]), text(&entry["value"]))
}

fn fields(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object
        .as_object()
        .unwrap_or_else(|| panic!("{object} has no fields"))
        .iter()
        .map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
