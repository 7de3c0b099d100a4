//! A real Prometheus on this machine that scrapes one address, and what is asked of it.
//!
//! `prove` takes any address that serves the agent's metrics: those of a test, or of an agent under load.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::dashboard::{self, Query, text};
use super::{http, tool};

/// Which histograms Prometheus stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Histograms {
    Classic,
    Native,
}

/// Demands that a Prometheus which scrapes `target` fills every panel and every variable of the dashboard, stores
/// histograms of the wanted form, and fires `alerts`. Returns it for further questions.
pub fn prove(target: SocketAddr, histograms: Histograms, alerts: &[&str]) -> Prometheus {
    const LIMIT: Duration = Duration::from_secs(60);
    let prometheus = Prometheus::start(target, histograms);
    every_panel_answers(&prometheus, LIMIT);
    every_variable_has_values(&prometheus);
    let native = prometheus.query("histogram_count(rate(fsyncscope_sync_duration_seconds[10s]))").len();
    let classic = prometheus.query("rate(fsyncscope_sync_duration_seconds_bucket[10s])").len();
    match histograms {
        Histograms::Native => assert!(native > 0, "no native histogram was stored"),
        Histograms::Classic => assert!(native == 0 && classic > 0, "no classic histogram was stored"),
    }
    for alert in alerts {
        an_alert_fires(&prometheus, alert, LIMIT);
    }
    prometheus
}

/// A running Prometheus. Dropping it ends the process and removes its files.
pub struct Prometheus {
    pub address: SocketAddr,
    process: Child,
    directory: PathBuf,
}

impl Prometheus {
    /// Scrapes `target` each second with the repository's rules, their waiting times shortened to one second.
    pub fn start(target: SocketAddr, histograms: Histograms) -> Self {
        let name = format!("prometheus-{}-{}-{histograms:?}", std::process::id(), target.port());
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).expect("a scratch directory");
        fs::write(directory.join("rules.yml"), hasty_rules()).expect("the rules are written");
        fs::write(directory.join("prometheus.yml"), configuration(target)).expect("the configuration is written");
        let log = File::create(directory.join("log")).expect("a log");
        let address = http::free_address();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", directory.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if histograms == Histograms::Native {
            command.arg("--enable-feature=native-histograms");
        }
        let process = command.spawn().expect("prometheus starts");
        let started = Self { address, process, directory };
        started.wait_until("it is ready", Duration::from_secs(30), || {
            http::get(address, "/-/ready", "*/*").is_ok_and(|answer| answer.status == 200)
        });
        started
    }

    /// The result of an instant query.
    pub fn query(&self, promql: &str) -> Vec<Value> {
        let answer = self.ask(&format!("/api/v1/query?query={}", http::escaped(promql)));
        assert_eq!(answer["status"], "success", "{promql}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Names of the alerts that fire now.
    pub fn firing(&self) -> Vec<String> {
        let answer = self.ask("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| text(&alert["labels"]["alertname"]).to_owned()).collect()
    }

    fn ask(&self, target: &str) -> Value {
        let answer = http::get(self.address, target, "application/json").expect("prometheus answers");
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{target}: {error}: {}", answer.body))
    }

    pub fn wait_until(&self, what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            if start.elapsed() > limit {
                let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                panic!("not within {limit:?}: {what}\nfiring: {:?}\n{log}", self.firing());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Nothing here may panic: a test that failed is already unwinding.
        let _killed = self.process.kill();
        let _waited = self.process.wait();
        let _removed = fs::remove_dir_all(&self.directory);
    }
}

/// Asks every query of the dashboard until each has given at least one number, and prints what it gave.
pub fn every_panel_answers(prometheus: &Prometheus, limit: Duration) {
    let mut open: Vec<Query> = dashboard::queries(&dashboard::read());
    let count = open.len();
    let start = Instant::now();
    while !open.is_empty() {
        open.retain(|query| match numbers(&prometheus.query(&query.promql)) {
            0 => true,
            series => {
                println!("{:>4} series  {}", series, query.panel);
                false
            }
        });
        let empty: Vec<String> = open.iter().map(|query| format!("{}: {}", query.panel, query.promql)).collect();
        assert!(start.elapsed() < limit, "{} of {count} queries are empty:\n{}", empty.len(), empty.join("\n"));
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// What Grafana offers in its lists must not be empty either.
fn every_variable_has_values(prometheus: &Prometheus) {
    for (metric, label) in dashboard::variables(&dashboard::read()) {
        let target = format!("/api/v1/label/{label}/values?match[]={}", http::escaped(&metric));
        let answer = prometheus.ask(&target);
        assert!(answer["data"].as_array().is_some_and(|values| !values.is_empty()), "{metric}, {label}: {answer}");
    }
}

/// Series whose value is a number: a quantile of nothing is NaN, and a panel shows nothing for it.
fn numbers(result: &[Value]) -> usize {
    let value = |series: &Value| text(&series["value"][1]).parse::<f64>().ok();
    result.iter().filter(|series| value(series).is_some_and(f64::is_finite)).count()
}

/// Waits until the alert of this name fires.
pub fn an_alert_fires(prometheus: &Prometheus, alert: &str, limit: Duration) {
    prometheus
        .wait_until(&format!("alert {alert} fires"), limit, || prometheus.firing().iter().any(|name| name == alert));
    println!("firing: {alert}");
}

/// The repository's rules with every `for` cut to a second. Their queries stay as they are.
fn hasty_rules() -> String {
    let rules = tool::read("dashboards/fsyncscope.rules.yml");
    let hasty = rules.lines().map(|line| match line.trim_start().starts_with("for: ") {
        true => "        for: 1s".to_owned(),
        false => line.to_owned(),
    });
    hasty.map(|line| line + "\n").collect()
}

/// JSON is YAML.
fn configuration(target: SocketAddr) -> String {
    let configuration = serde_json::json!({
        "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
        "rule_files": ["rules.yml"],
        "scrape_configs": [{
            "job_name": "fsyncscope",
            "static_configs": [{ "targets": [target.to_string()] }],
        }],
    });
    configuration.to_string()
}
