//! The dashboard and the alert rules: their form without any tool, their truth against a real Prometheus.

mod support;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fsyncscope::metrics::Metrics;

use support::agent::Agent;
use support::child::{Child, Role};
use support::dashboard::{self, text};
use support::faults::{EarlyFlusher, Frozen};
use support::interference::{Growth, Writer};
use support::journal::Workload;
use support::prometheus::{self, Histograms, prove};
use support::scratch::{Format, LoopFs, Scratch};
use support::{Machine, catalogue, filled, http, tool, wait_for};

const RULES: &str = "dashboards/fsyncscope.rules.yml";
const RULES_TEST: &str = "dashboards/fsyncscope.rules.test.yml";

#[test]
fn every_panel_is_described() {
    let dashboard = dashboard::read();
    let mut ids = HashSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(!text(&panel["title"]).is_empty(), "a panel without a title: {panel}");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "an id appears twice: {panel}");
    }
    for panel in dashboard::panels(&dashboard) {
        let title = text(&panel["title"]);
        let description = text(&panel["description"]);
        assert!(description.len() > 20 && description.ends_with('.'), "{title}: no description");
        assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title}: no unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}: a fixed data source");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}: no query");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}: a fixed data source");
        }
    }
}

#[test]
fn no_two_panels_overlap() {
    let dashboard = dashboard::read();
    let mut cells: BTreeMap<(u64, u64), &str> = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let place = |field: &str| panel["gridPos"][field].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{}: beyond the grid", panel["title"]);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                if let Some(other) = cells.insert((x, y), text(&panel["title"])) {
                    panic!("{} lies on {other}", panel["title"]);
                }
            }
        }
    }
}

#[test]
fn variables_are_declared_and_used() {
    let dashboard = dashboard::read();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|variable| text(&variable["name"])).collect();
    assert_eq!(names, ["datasource", "instance", "process", "thread", "device"]);
    let panels = dashboard["panels"].to_string();
    for name in names.into_iter().filter(|name| *name != "datasource") {
        assert!(panels.contains(&format!("=~\\\"${name}\\\"")), "${name} is declared and not used");
    }
}

#[test]
fn every_name_is_in_the_catalogue_and_every_metric_is_shown() {
    let catalogue = catalogue::read();
    let known: BTreeSet<String> = catalogue.keys().cloned().collect();
    let shown = catalogue::names_in(&dashboard::read()["panels"].to_string(), &catalogue);
    assert_eq!(shown, known, "left: the dashboard's metrics; right: the catalogue's");
    let variables = catalogue::names_in(&dashboard::read()["templating"].to_string(), &catalogue);
    assert!(variables.is_subset(&known), "{:?}", variables.difference(&known));
    for file in [RULES, RULES_TEST] {
        let named = catalogue::names_in(&tool::read(file), &catalogue);
        assert!(named.is_subset(&known), "{file}: {:?}", named.difference(&known));
    }
}

#[test]
fn every_alert_says_what_to_do_and_has_a_test() {
    let rules = tool::read(RULES);
    let tests = tool::read(RULES_TEST);
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 5);
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        for field in ["severity: ", "summary: ", "description: ", "runbook: "] {
            assert!(alert.contains(field), "{name} has no {field}");
        }
        let cases: Vec<&str> = tests.split("- alertname: ").skip(1).filter(|case| case.starts_with(name)).collect();
        assert!(cases.iter().any(|case| fires(case)), "{name}: no case in which it fires");
        assert!(cases.iter().any(|case| !fires(case)), "{name}: no case in which it does not");
    }
}

/// Whether one case of promtool's file expects an alert.
fn fires(case: &str) -> bool {
    case.lines().take_while(|line| !line.starts_with("  - name:")).any(|line| line.trim() == "exp_alerts:")
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    if !tool::is_installed("promtool", "promtool_accepts_the_rules_and_their_tests") {
        return;
    }
    for (arguments, file) in [(["check", "rules"], RULES), (["test", "rules"], RULES_TEST)] {
        let path = tool::repository(file);
        let output = tool::run("promtool", &[arguments[0], arguments[1], &path.to_string_lossy()], b"");
        assert!(output.status.success(), "{file}: {}", tool::said(&output));
    }
}

/// The agent's endpoint with a load that a thread of its own keeps up.
struct Loaded {
    served: http::Served,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Loaded {
    fn start() -> Self {
        let metrics = Arc::new(Metrics::new());
        let served = http::Served::start(metrics.clone(), Arc::new(|| Ok(())));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            for step in 1.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                filled::fill(&metrics, step);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self { served, stop, thread: Some(thread) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the load does not panic");
        }
    }
}

/// The load above breaks the objective, loses details, misses a probe and fails syncs; nothing hangs, and it answers.
const FIRING: [&str; 4] =
    ["FsyncscopeSyncLatencyHigh", "FsyncscopeProbeMissing", "FsyncscopeSyncErrors", "FsyncscopeEventsLost"];
const QUIET: [&str; 2] = ["FsyncscopeSyncHanging", "FsyncscopeDown"];

fn panels_and_alerts_with(histograms: Histograms) {
    if !tool::is_installed("prometheus", "panels_and_alerts_with") {
        return;
    }
    let loaded = Loaded::start();
    let prometheus = prove(loaded.served.address, histograms, &FIRING);
    let firing = prometheus.firing();
    assert!(!firing.iter().any(|alert| QUIET.contains(&alert.as_str())), "{firing:?}");
}

#[test]
fn a_prometheus_with_native_histograms_fills_every_panel_and_fires() {
    panels_and_alerts_with(Histograms::Native);
}

#[test]
fn a_prometheus_with_classic_histograms_fills_every_panel_and_fires() {
    panels_and_alerts_with(Histograms::Classic);
}

/// The name of the journal's thread, as the kernel keeps it.
const THREAD: &str = "journal-thread";

/// A journal and a writer that is flushed early, both on one disk that lies on another.
struct Disturbed<'a> {
    journal: Child,
    writer: Child,
    _early: EarlyFlusher,
    _disk: &'a LoopFs,
}

impl<'a> Disturbed<'a> {
    fn start(disk: &'a LoopFs, scratch: &Scratch) -> Self {
        let early = EarlyFlusher::new(1 << 20);
        let file = disk.join("entry.log");
        let writer = Writer { file, chunk: 1 << 16, region: 64 << 20, growth: Growth::Regrow, pause_us: 500 };
        let writer = Child::start(Role::Writer(writer), "ledger-writer", scratch.join("writer"));
        let mut workload = Workload::new(THREAD, disk.join("1.txn"));
        // So few syncs that the one that hangs is more than one of a thousand.
        workload.think_us = 20_000;
        let journal = Child::start(Role::Journal(workload), "journal", scratch.join("book"));
        Self { journal, writer, _early: early, _disk: disk }
    }
}

#[test]
fn an_agent_under_load_fills_every_panel_and_a_hang_fires() {
    const HANGS: &str = "FsyncscopeSyncHanging";
    let name = "an_agent_under_load_fills_every_panel_and_a_hang_fires";
    if !tool::is_installed("prometheus", name) {
        return;
    }
    skip_if!(Format::Ext4.missing());
    let _machine = Machine::lock();
    let scratch = Scratch::new("panels");
    let lower = LoopFs::new(&scratch, "lower", Format::Ext4, 512);
    let disk = LoopFs::stacked(&scratch, "disk", Format::Ext4, 256, &lower);
    let agent = Agent::run(&["--threshold", "2ms", "--keep-series", "2s"]);
    let address = ([127, 0, 0, 1], agent.port().unwrap()).into();
    let load = Disturbed::start(&disk, &scratch);
    let prometheus = prove(address, Histograms::Native, &[]);
    assert!(!prometheus.firing().iter().any(|alert| alert == HANGS), "nothing hangs yet");

    // With a writer, a commit is nearly always under way, and a freeze then holds the journal's next write and no sync.
    let Disturbed { journal, writer, _early: early, _disk } = load;
    writer.stop();
    drop(early);
    std::thread::sleep(Duration::from_secs(2));
    let open = || agent.scrape().only("fsyncscope_sync_open_seconds", &[]).unwrap();
    let rises_over = |age: f64| wait_for(Duration::from_secs(6), || (open() > age).then_some(()));
    // It may still come in the middle of a commit: thaw, once more.
    let hang = (0..5).find_map(|_| {
        let frozen = Frozen::new(&lower);
        rises_over(1.0).map(|()| frozen)
    });
    let frozen = hang.expect("no sync hung in five freezes");
    let risen = rises_over(3.0);
    prometheus::an_alert_fires(&prometheus, HANGS, Duration::from_secs(12));
    assert_eq!(http::get(address, "/healthz", "*/*").unwrap().status, 200, "a hang of others is no fault of the agent");
    drop(frozen);
    assert!(risen.is_some(), "the age of the open sync did not rise");
    assert_eq!(wait_for(Duration::from_secs(10), || (open() < 1.0).then_some(())), Some(()), "the sync ended");
    // The sync that hung also broke the objective.
    prometheus::an_alert_fires(&prometheus, "FsyncscopeSyncLatencyHigh", Duration::from_secs(15));
    series_end_with_their_thread(&agent, journal);
    assert!(agent.terminate().status.success());
}

/// A thread has its series while it lives; soon after its end they are gone too.
fn series_end_with_their_thread(agent: &Agent, journal: Child) {
    let of_thread = [("process", "journal"), ("thread", THREAD)];
    let names = ["fsyncscope_sync_duration_seconds_count", "fsyncscope_sync_latency_percentile_seconds"];
    let count = || names.map(|name| agent.scrape().all(name, &of_thread).count());
    assert!(count().iter().all(|series| *series > 0), "{:?}", count());
    journal.stop();
    let gone = wait_for(Duration::from_secs(8), || (count() == [0, 0]).then_some(()));
    assert!(gone.is_some(), "the thread has ended and left {:?}", count());
}
