//! The label sets of all metrics, and the rule for what a label value may hold.
//!
//! Labels are plain data, so that the daemon fills them without knowing the Prometheus client.

use std::borrow::Cow;

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

use crate::limits::LABEL_BYTES_MAX;

/// Who synced which class of file how, and on which device. All values are the operator's words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SyncLabels {
    pub process: String,
    pub thread: String,
    /// fsync, fdatasync, o_dsync, o_sync or msync.
    pub operation: &'static str,
    /// From `file_class`; shown as label `file`.
    pub file_class: String,
    pub device: String,
}

impl SyncLabels {
    /// The same labels, fit to be shown; borrowed when they already are, which is the common case.
    pub(super) fn cleaned(&self) -> Cow<'_, Self> {
        let Self { process, thread, operation, file_class, device } = self;
        if [process, thread, file_class, device].into_iter().all(|value| is_clean(value)) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            process: clean(process),
            thread: clean(thread),
            operation,
            file_class: clean(file_class),
            device: clean(device),
        })
    }
}

/// One class of requests on one device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockLabels {
    pub device: String,
    /// read, write or flush.
    pub kind: &'static str,
    /// sync, journal, flusher, throttle, worker or other.
    pub submitter: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PartLabels {
    pub part: &'static str,
    pub device: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SpikeLabels {
    pub cause: String,
    pub culprit: String,
    pub device: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ErrorLabels {
    pub error: String,
    pub device: String,
    pub process: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WritebackLabels {
    pub device: String,
    pub reason: String,
}

/// Whose pages reached a disk from the page cache, through whom and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WrittenLabels {
    pub device: String,
    /// journal, flusher, throttle, worker or other.
    pub submitter: &'static str,
    /// The flusher's; `none` of the others.
    pub reason: &'static str,
    /// From `file_class`, or `metadata`, `unknown`; shown as label `file`.
    pub file_class: String,
    /// Process that has the file open for writing, `several` or `none`.
    pub writer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProbeLabels {
    pub probe: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LossLabels {
    pub kind: String,
}

/// A metric of one series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NoLabels;

/// One thread on one device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ThreadLabels {
    pub process: String,
    pub thread: String,
    pub device: String,
}

/// One percentile of one thread: 50, 90, 99, 99.9 or 100.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PercentileLabels<'a> {
    pub thread: &'a ThreadLabels,
    pub percentile: &'static str,
}

/// Encodes label sets as pairs of name and field, because a field may be named better than its label.
macro_rules! encode_labels {
    ($($set:ty => |$this:ident| [$($pair:expr),*]);* $(;)?) => {$(
        impl EncodeLabelSet for $set {
            fn encode(&self, encoder: &mut LabelSetEncoder) -> Result<(), std::fmt::Error> {
                let $this = self;
                let pairs: &[(&str, &str)] = &[$($pair),*];
                pairs.encode(encoder)
            }
        }
    )*};
}

encode_labels! {
    SyncLabels => |this| [("process", &this.process), ("thread", &this.thread), ("operation", this.operation), ("file", &this.file_class), ("device", &this.device)];
    BlockLabels => |this| [("device", &this.device), ("kind", this.kind), ("submitter", this.submitter)];
    PartLabels => |this| [("part", this.part), ("device", &this.device)];
    SpikeLabels => |this| [("cause", &this.cause), ("culprit", &this.culprit), ("device", &this.device)];
    ErrorLabels => |this| [("error", &this.error), ("device", &this.device), ("process", &this.process)];
    WritebackLabels => |this| [("device", &this.device), ("reason", &this.reason)];
    WrittenLabels => |this| [("device", &this.device), ("submitter", this.submitter), ("reason", this.reason), ("file", &this.file_class), ("writer", &this.writer)];
    ProbeLabels => |this| [("probe", &this.probe)];
    LossLabels => |this| [("kind", &this.kind)];
    NoLabels => |_this| [];
    ThreadLabels => |this| [("process", &this.process), ("thread", &this.thread), ("device", &this.device)];
    PercentileLabels<'_> => |this| [("process", &this.thread.process), ("thread", &this.thread.thread), ("device", &this.thread.device), ("percentile", this.percentile)];
}

/// A label value that is fit to be shown: no control characters, at most 128 bytes.
pub(super) fn clean(value: &str) -> String {
    let mut cleaned = String::with_capacity(value.len().min(LABEL_BYTES_MAX));
    for sign in value.chars() {
        let sign = if sign.is_control() { '?' } else { sign };
        if cleaned.len() + sign.len_utf8() > LABEL_BYTES_MAX {
            break;
        }
        cleaned.push(sign);
    }
    cleaned
}

fn is_clean(value: &str) -> bool {
    value.len() <= LABEL_BYTES_MAX && !value.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaned_values_are_short_and_printable() {
        assert_eq!(clean("a\nb\u{7f}\0c"), "a?b??c");
        assert_eq!(clean(&"é".repeat(100)), "é".repeat(64));
        assert!(is_clean(&clean(&"\u{1}\"\\x".repeat(100))));
    }

    #[test]
    fn clean_labels_are_not_copied() {
        let mut labels = SyncLabels {
            process: "java".into(),
            thread: "ForceWriteThrea".into(),
            operation: "fdatasync",
            file_class: "/j/HEX.txn".into(),
            device: "sda".into(),
        };
        assert!(matches!(labels.cleaned(), Cow::Borrowed(_)));
        labels.thread.push('\n');
        assert_eq!(labels.cleaned().thread, "ForceWriteThrea?");
    }
}
