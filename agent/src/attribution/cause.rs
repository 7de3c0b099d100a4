//! The words of a verdict: causes, confidence, culprits.

use super::case::Case;

/// Why a sync was slow. The word is the same in reports, metrics, alerts and docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    DeviceSlow,
    QueueBehind,
    Throttled,
    FlusherWriteback,
    JournalCommit,
    HelperNotScheduled,
    ThreadNotScheduled,
    SharedLowerDevice,
    Unknown,
}

impl Cause {
    pub const ALL: [Self; 9] = [
        Self::DeviceSlow,
        Self::QueueBehind,
        Self::Throttled,
        Self::FlusherWriteback,
        Self::JournalCommit,
        Self::HelperNotScheduled,
        Self::ThreadNotScheduled,
        Self::SharedLowerDevice,
        Self::Unknown,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::DeviceSlow => "device_slow",
            Self::QueueBehind => "queue_behind",
            Self::Throttled => "throttled",
            Self::FlusherWriteback => "flusher_writeback",
            Self::JournalCommit => "journal_commit",
            Self::HelperNotScheduled => "helper_not_scheduled",
            Self::ThreadNotScheduled => "thread_not_scheduled",
            Self::SharedLowerDevice => "shared_lower_device",
            Self::Unknown => "unknown",
        }
    }
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    Unknown,
    /// The evidence fits, and another cause cannot be ruled out.
    Likely,
    /// The evidence admits no other cause of that time.
    Certain,
}

impl Confidence {
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

/// Who or what made the sync slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// For a metric: a process name, or flusher, device, throttle, several or none.
    pub class: String,
    /// For a person.
    pub text: String,
}

impl Culprit {
    pub fn new(class: impl Into<String>, text: impl Into<String>) -> Self {
        Self { class: class.into(), text: text.into() }
    }
}

/// What a cause found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Time of the sync that it explains.
    pub explained_ns: u64,
    pub confidence: Confidence,
    pub culprit: Option<Culprit>,
    /// Sentences, each a fact that was seen.
    pub evidence: Vec<String>,
    /// Name of the row that the culprit stands under.
    pub row: Option<&'static str>,
}

/// The answer to "why was it slow?".
#[derive(Clone, Debug)]
pub struct Verdict {
    pub cause: Cause,
    pub confidence: Confidence,
    pub culprit: Option<Culprit>,
    pub evidence: Vec<String>,
    pub explained_ns: u64,
    pub row: Option<&'static str>,
}

impl Verdict {
    /// No cause has the evidence that it needs; says which part was the largest.
    pub(super) fn unknown(case: &Case) -> Self {
        let largest = case.breakdown.rows.iter().max_by_key(|row| row.ns);
        let evidence = largest.map(|row| format!("the largest part is {}, and nothing shows why", row.title));
        Self {
            cause: Cause::Unknown,
            confidence: Confidence::Unknown,
            culprit: None,
            evidence: evidence.into_iter().collect(),
            explained_ns: 0,
            row: None,
        }
    }

    /// Class of the culprit for a metric.
    pub fn culprit_class(&self) -> &str {
        self.culprit.as_ref().map_or("none", |culprit| &culprit.class)
    }
}
