//! Metrics and their endpoint from outside: bounds, formats, the catalogue, and clients that misbehave.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fsyncscope::limits;
use fsyncscope::metrics::{BlockLabels, Metrics, SyncLabels};
use fsyncscope::serve;
use fsyncscope_ebpf::slot::Phase;

use support::{catalogue, filled, http, tool};

const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0";
const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

fn plain(metrics: &Metrics) -> String {
    let (content_type, body) = metrics.encode("text/plain;version=0.0.4").unwrap();
    assert!(content_type.starts_with("text/plain; version=0.0.4"));
    String::from_utf8(body).unwrap()
}

fn filled_metrics() -> Metrics {
    let metrics = Metrics::new();
    (1..=40).for_each(|step| filled::fill(&metrics, step));
    filled::overflow(&metrics);
    metrics
}

/// The value of the one series whose line starts with `start`.
fn value(text: &str, start: &str) -> f64 {
    let mut lines = text.lines().filter(|line| line.starts_with(start));
    let line = lines.next().unwrap_or_else(|| panic!("{start} is not in\n{text}"));
    assert!(lines.next().is_none(), "{start} is not one series");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_hundred_thousand_label_sets_stay_within_the_cap() {
    let metrics = Metrics::new();
    for i in 0..100_000u64 {
        metrics.tick(i);
        let labels = SyncLabels {
            process: format!("process {i} \"\\\n"),
            thread: format!("thread {}", i % 977),
            operation: "fsync",
            file_class: "é".repeat((i % 300) as usize),
            device: format!("dm-{}", i % 31),
        };
        metrics.observe_sync(&labels, i * 1000);
        metrics.add_part("device", &format!("sd{i}"), i);
        metrics.spike("device_slow", &labels.process, &labels.device);
        metrics.sync_error("EIO", &labels.device, &labels.process);
        metrics.set_writeback_bytes(&labels.process, "background", i);
        metrics.set_lost(&labels.thread, i);
        if i % 50 == 0 {
            let block = BlockLabels { device: labels.process.clone(), kind: "write", submitter: "sync" };
            metrics.set_block_histogram(&block, Phase::Queue, &[i; 24], i);
            metrics.set_block_histogram(&block, Phase::Device, &[i; 24], i);
            metrics.set_probe(&labels.process, fsyncscope::metrics::ProbeState::Missing);
        }
    }
    let text = plain(&metrics);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series <= limits::SERIES_MAX, "{series} series");
    assert!(series > limits::SERIES_MAX * 8 / 10, "only {series} series: this test no longer fills the metrics");
    let dropped = value(&text, "fsyncscope_series_dropped_total{metric=\"fsyncscope_sync_duration_seconds\"}");
    assert_eq!(dropped, 100_000.0 - limits::SYNC_LABEL_SETS_MAX as f64, "every update that found no room is counted");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let longest = samples.flat_map(|line| line.split("=\"")).map(str::len).max().unwrap();
    assert!(longest <= limits::LABEL_BYTES_MAX + 32, "a value of {longest} bytes, with what follows it");
    metrics.encode(PROTOBUF).unwrap();
}

#[test]
fn an_idle_series_gives_way_and_a_live_one_does_not() {
    let metrics = Metrics::new();
    for i in 0..limits::SPIKE_LABEL_SETS_MAX {
        metrics.spike("device_slow", &format!("old-{i}"), "sda");
    }
    metrics.tick(limits::SERIES_IDLE.as_nanos() as u64 / 2);
    metrics.spike("device_slow", "too-early", "sda");
    (1..limits::SPIKE_LABEL_SETS_MAX).for_each(|i| metrics.spike("device_slow", &format!("old-{i}"), "sda"));
    metrics.tick(limits::SERIES_IDLE.as_nanos() as u64 + 1);
    metrics.spike("device_slow", "new", "sda");
    metrics.spike("device_slow", "newer", "sda");
    let text = plain(&metrics);
    assert!(text.contains("culprit=\"new\"") && !text.contains("culprit=\"old-0\""), "the idle one gave way");
    assert!(!text.contains("culprit=\"newer\"") && !text.contains("culprit=\"too-early\""), "the live ones stayed");
}

#[test]
fn a_dead_thread_takes_its_series_along() {
    let metrics = filled_metrics();
    metrics.forget_thread("java", "ForceWriteThrea");
    let text = plain(&metrics);
    assert!(!text.contains("thread=\"ForceWriteThrea\""), "{text}");
    assert!(text.contains("thread=\"postgres\""));
}

#[test]
fn values_arrive_as_they_were_measured() {
    let metrics = Metrics::new();
    (1..=40).for_each(|step| filled::fill(&metrics, step));
    let text = plain(&metrics);
    assert_eq!(value(&text, "fsyncscope_sync_duration_seconds_count{process=\"java\""), 40.0);
    let bucket = "fsyncscope_sync_duration_seconds_bucket{process=\"java\",thread=\"ForceWriteThrea\",operation=\"fdatasync\",file=\"/bk/journal/current/HEX.txn\",device=\"loop0\",le=\"0.1\"}";
    assert_eq!(value(&text, bucket), 38.0);
    let maximum = value(
        &text,
        "fsyncscope_sync_latency_percentile_seconds{process=\"java\",thread=\"ForceWriteThrea\",device=\"loop0\",percentile=\"100\"}",
    );
    assert!((0.18..0.182).contains(&maximum), "{maximum}");
    assert_eq!(
        value(&text, "fsyncscope_block_device_seconds_sum{device=\"loop0\",kind=\"write\",submitter=\"sync\"}"),
        0.12
    );
    assert_eq!(
        value(
            &text,
            "fsyncscope_block_queue_seconds_bucket{device=\"loop0\",kind=\"write\",submitter=\"sync\",le=\"3.2e-05\"}"
        ),
        40.0 * 7.0
    );
    assert_eq!(value(&text, "fsyncscope_probe_attached{probe=\"jbd2_run_stats\"}"), 0.0);
    assert_eq!(value(&text, "fsyncscope_events_lost_total{kind=\"sync\"}"), 0.0);
    assert_eq!(value(&text, "fsyncscope_sync_open_seconds "), 1.5);
}

#[test]
fn promtool_finds_no_fault() {
    if !tool::is_installed("promtool", "promtool_finds_no_fault") {
        return;
    }
    let output = tool::run("promtool", &["check", "metrics"], plain(&filled_metrics()).as_bytes());
    assert!(output.status.success() && output.stderr.is_empty(), "{}", tool::said(&output));
}

#[test]
fn openmetrics_has_each_family_once_and_an_end() {
    let (content_type, body) = filled_metrics().encode(OPENMETRICS).unwrap();
    let text = String::from_utf8(body).unwrap();
    assert!(content_type.starts_with("application/openmetrics-text") && text.ends_with("# EOF\n"));
    let families: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    assert_eq!(families.iter().collect::<BTreeSet<_>>().len(), families.len(), "a family appears twice: {families:?}");
}

#[test]
fn the_catalogue_is_complete_and_true() {
    let text = plain(&filled_metrics());
    let mut exposed: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            exposed.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, rest)) = line.split_once('{') {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
            let labels = rest.split("=\"").filter_map(|part| part.rsplit([',', '{', '"']).next());
            let family = exposed.get_mut(base).or(None).expect("a line follows its type");
            family.1.extend(labels.filter(|l| is_label(l) && *l != "le").map(str::to_owned));
        }
    }
    assert_eq!(exposed, catalogue::read(), "left: what the code exposes; right: what docs/metrics.md says");
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[test]
fn the_endpoint_answers() {
    let healthy = Arc::new(AtomicBool::new(true));
    let state = healthy.clone();
    let health = move || match state.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err("no event for 60 s, restart the agent".to_owned()),
    };
    let served = http::Served::start(Arc::new(filled_metrics()), Arc::new(health));
    let answer = http::get(served.address, "/healthz", "*/*").unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
    healthy.store(false, Ordering::SeqCst);
    let answer = http::get(served.address, "/healthz", "*/*").unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (503, "no event for 60 s, restart the agent\n"));
    for (accept, content_type) in [
        ("*/*", "text/plain; version=0.0.4"),
        (OPENMETRICS, "application/openmetrics-text"),
        (PROTOBUF, "application/vnd"),
    ] {
        let answer = http::get(served.address, "/metrics", accept).unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.head.to_lowercase().contains(&format!("content-type: {content_type}")), "{}", answer.head);
        assert!(answer.body.contains("fsyncscope_sync_duration_seconds"));
    }
    assert!(http::get(served.address, "/", "*/*").unwrap().body.contains("/metrics"));
    assert_eq!(http::get(served.address, "/nothing", "*/*").unwrap().status, 404);
    let posted = http::send(served.address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert!(posted.starts_with(b"HTTP/1.1 405"));
}

#[test]
fn a_taken_port_is_one_sentence() {
    let taken = serve::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = taken.local_addr().unwrap();
    let sentence = serve::bind(address).unwrap_err().to_string();
    assert!(sentence.starts_with(&format!("could not listen on {address}: ")), "{sentence}");
    assert!(sentence.contains("in use") && sentence.contains("--listen") && !sentence.contains('\n'), "{sentence}");
}

#[test]
fn garbage_and_slow_clients_do_not_hurt() {
    let served = http::Served::start(Arc::new(filled_metrics()), Arc::new(|| Ok(())));
    let garbage: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    // The server may close before it has read all of it: then the client sees a reset, which is as good.
    drop(http::send(served.address, &garbage));
    let endless = [b"GET /metrics HTTP/1.1\r\n".as_slice(), &b"X-A: aaaaaaaaaaaaaaaa\r\n".repeat(5000)].concat();
    if let Ok(answer) = http::send(served.address, &endless) {
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    // As many silent clients as there are places: the next request waits until their time is over, not longer.
    let silent: Vec<TcpStream> = (0..limits::HTTP_CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(served.address).unwrap();
            stream.write_all(b"GET /met").unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    assert_eq!(http::get(served.address, "/healthz", "*/*").unwrap().status, 200);
    assert!(start.elapsed() < limits::HTTP_HEADER + Duration::from_secs(2), "{:?}", start.elapsed());
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the server closes the connection of a silent client");
    }
}
