//! The pure rooms against recordings: events from a file go in, the explanation in words and as JSON must come out as
//! the files beside it say. Needs no root and no kernel. `BLESS=1` writes the answers instead of comparing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fsyncscope::event::Event;
use fsyncscope::{record, replay};
use serde_json::Value;

#[path = "golden/bytes.rs"]
mod bytes;
#[path = "golden/disk.rs"]
mod disk;
#[path = "golden/schema.rs"]
mod schema;
#[path = "golden/sums.rs"]
mod sums;

/// One recording of the folder.
pub struct Recording {
    pub path: PathBuf,
    pub text: String,
}

impl Recording {
    /// All of them, by name.
    pub fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/syncs");
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of a folder").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        assert!(paths.len() >= 40, "only {} recordings in {}", paths.len(), folder.display());
        let read = |path: PathBuf| Self { text: fs::read_to_string(&path).expect("read a recording"), path };
        paths.into_iter().map(read).collect()
    }

    pub fn name(&self) -> &str {
        self.path.file_stem().and_then(|name| name.to_str()).expect("recordings have plain names")
    }

    /// What `explain` prints for it, in words.
    pub fn words(&self) -> Vec<String> {
        let texts = replay::explanations(record::read(self.text.as_bytes()), None, false);
        texts.map(|text| text.unwrap_or_else(|error| panic!("{}: {error}", self.name()))).collect()
    }

    /// What `explain --json` prints for it.
    pub fn objects(&self) -> Vec<String> {
        let texts = replay::explanations(record::read(self.text.as_bytes()), None, true);
        texts.map(|text| text.unwrap_or_else(|error| panic!("{}: {error}", self.name()))).collect()
    }
}

/// Why an answer is not what the file beside the recording says; nothing if it is.
fn difference(recording: &Recording, extension: &str, found: &str) -> Option<String> {
    let path = recording.path.with_extension(extension);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, found).expect("write an answer");
        return None;
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    let mut pairs = wanted.lines().zip(found.lines());
    let (was, is) = pairs.find(|(wanted, found)| wanted != found).unwrap_or(("(its end)", "(its end)"));
    (wanted != found).then(|| format!("{}: {was}\n  is now {is}", path.display()))
}

#[test]
fn every_recording_is_explained_as_it_was() {
    let answers = |recording: &Recording| {
        let words = difference(recording, "txt", &recording.words().join("\n"));
        let lines: String = recording.objects().iter().map(|line| format!("{line}\n")).collect();
        [words, difference(recording, "json", &lines)]
    };
    let wrong: Vec<String> = Recording::all().iter().flat_map(answers).flatten().collect();
    assert!(wrong.is_empty(), "if the change is meant, run with BLESS=1 and read the diff:\n{}", wrong.join("\n"));
}

#[test]
fn every_recording_shows_something() {
    for recording in Recording::all() {
        let shown = recording.words().len();
        assert!((1..=8).contains(&shown), "{} shows {shown} syncs", recording.name());
        assert_eq!(recording.objects().len(), shown, "{}", recording.name());
        assert!(recording.text.len() < 60_000, "{} is too long to read", recording.name());
    }
}

#[test]
fn every_cause_is_seen_in_a_recording() {
    let lines: Vec<String> = Recording::all().iter().flat_map(Recording::objects).collect();
    for cause in fsyncscope::attribution::Cause::ALL {
        let word = format!("\"cause\":\"{}\"", cause.word());
        assert!(lines.iter().any(|line| line.contains(&word)), "no recording shows {}", cause.word());
    }
    for confidence in ["certain", "likely", "unknown"] {
        let word = format!("\"confidence\":\"{confidence}\"");
        assert!(lines.iter().any(|line| line.contains(&word)), "no recording shows {confidence}");
    }
}

#[test]
fn the_rows_of_every_block_sum_to_its_whole() {
    for recording in Recording::all() {
        for block in recording.words() {
            let Some((rows, whole)) = rows(&block) else {
                assert!(block.starts_with("STILL OPEN "), "{}: {block}", recording.name());
                continue;
            };
            let sum = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
            // A sync of no time at all has no rows.
            assert!(sum == whole || (rows.is_empty() && whole.0 == 0), "{}: {block}", recording.name());
            assert_eq!(whole.1, 1000, "{}: {block}", recording.name());
        }
    }
}

/// Microseconds and tenths of a per cent.
type Share = (u64, u64);

/// The share of each row of a block, and that of its last one, the whole.
fn rows(block: &str) -> Option<(Vec<Share>, Share)> {
    let number = |text: &str| text.trim().replace('.', "").parse::<u64>().ok();
    let row = |line: &str| {
        let (rest, percent) = line.strip_suffix(" %")?.rsplit_once(" ms")?;
        let microseconds = rest.rsplit_once(' ')?.1;
        Some((number(microseconds)?, number(percent)?))
    };
    let mut rows: Vec<Share> = block.lines().filter_map(row).collect();
    let whole = rows.pop()?;
    Some((rows, whole))
}

#[test]
fn the_parts_of_every_object_sum_to_its_duration() {
    for recording in Recording::all() {
        for line in recording.objects() {
            let sync: Value = serde_json::from_str(&line).expect("a line is one object");
            let parts = sync["parts"].as_array().expect("parts is a list");
            let sum: u64 = parts.iter().map(|part| part["ns"].as_u64().expect("ns is a number")).sum();
            assert_eq!(Some(sum), sync["duration_ns"].as_u64(), "{}: {line}", recording.name());
        }
    }
}

#[test]
fn what_overlaps_a_loss_is_never_certain() {
    let lines: Vec<String> = Recording::all().iter().flat_map(Recording::objects).collect();
    let losses: Vec<&String> = lines.iter().filter(|line| !line.contains("\"lost_events\":0")).collect();
    assert!(losses.len() >= 2, "no recording has a loss");
    assert!(losses.iter().all(|line| !line.contains("\"confidence\":\"certain\"")), "{losses:#?}");
}

#[test]
fn events_survive_the_way_through_a_file() {
    for recording in Recording::all() {
        for (line, text) in recording.text.lines().enumerate() {
            let event: Event = serde_json::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", recording.name()));
            let again = serde_json::to_string(&event).expect("events are plain data");
            assert_eq!(serde_json::from_str::<Event>(&again).expect("it was just written"), event);
            let [was, is] = [text, &again].map(|text| serde_json::from_str::<Value>(text).expect("a line is JSON"));
            assert!(holds(&is, &was), "line {} of {} becomes {again}", line + 1, recording.name());
        }
    }
}

/// Whether a value has all that another has. A recording of an older version lacks fields that came later.
fn holds(value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::Object(value), Value::Object(other)) => {
            other.iter().all(|(name, other)| value.get(name).is_some_and(|value| holds(value, other)))
        }
        (Value::Array(value), Value::Array(other)) => {
            value.len() == other.len() && value.iter().zip(other).all(|(value, other)| holds(value, other))
        }
        (value, other) => value == other,
    }
}

#[test]
fn a_recording_names_no_place_of_the_machine_that_made_it() {
    for recording in Recording::all() {
        for place in ["/tmp/", "/root/", "/home/", "fsyncscope-"] {
            assert!(!recording.text.contains(place), "{} names {place}", recording.name());
        }
    }
}

#[test]
fn a_line_that_is_no_event_is_named() {
    let start = &Recording::all()[0].text.lines().next().map(str::to_owned).expect("a first line");
    for (line, why) in [("{\"sync\":", "line 2 is no event"), ("{\"telepathy\":{}}", "unknown variant `telepathy`")] {
        let text = format!("{start}\n{line}\n");
        let found: Vec<Result<String, String>> =
            replay::explanations(record::read(text.as_bytes()), None, false).collect();
        let [Err(error)] = found.as_slice() else { panic!("{line}: {found:?}") };
        assert!(error.contains(why), "{error}");
    }
}

/// The command itself, once: the rest of this file calls what it calls.
#[test]
fn the_command_prints_what_the_files_say() {
    let recording = Recording::all().remove(0);
    for (flags, extension) in [(&[][..], "txt"), (&["--json"], "json")] {
        let output = Command::new(env!("CARGO_BIN_EXE_fsyncscope"))
            .arg("explain")
            .args(flags)
            .arg(&recording.path)
            .output()
            .expect("start the agent");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let wanted = fs::read_to_string(recording.path.with_extension(extension)).expect("read the answer");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), wanted.trim_end());
    }
}
