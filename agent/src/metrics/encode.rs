//! Chooses the exposition format that a client asks for, and writes it.
//!
//! Knows the Prometheus client and the Accept header. Must not know HTTP beyond that.

use anyhow::Context;
use prometheus_client::encoding::{prometheus_protobuf, prometheus_text, text};
use prometheus_client::registry::Registry;

/// A way to write all metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4: understood by everything, so the answer to everyone who does not ask.
    Plain,
    OpenMetrics,
    /// The only one that carries native histograms. A Prometheus with that feature asks for it first.
    Protobuf,
}

impl Format {
    /// The format of the highest weight in an Accept header; of two with the same weight, the first.
    pub fn accepted(accept: &str) -> Self {
        let mut best = (0.0, Self::Plain);
        for range in accept.split(',') {
            let mut fields = range.split(';').map(str::trim);
            let media = fields.next().unwrap_or_default().to_ascii_lowercase();
            let mut weight = 1.0;
            let mut is_metric_family = false;
            for field in fields {
                let (name, value) = field.split_once('=').unwrap_or((field, ""));
                match name.trim() {
                    "q" => weight = value.trim().parse().unwrap_or(0.0),
                    "proto" => is_metric_family = value.trim() == "io.prometheus.client.MetricFamily",
                    _ => {}
                }
            }
            let format = match media.as_str() {
                "application/vnd.google.protobuf" if is_metric_family => Self::Protobuf,
                "application/openmetrics-text" => Self::OpenMetrics,
                "text/plain" | "text/*" | "*/*" => Self::Plain,
                _ => continue,
            };
            if weight > best.0 {
                best = (weight, format);
            }
        }
        best.1
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Plain => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    pub fn write(self, registry: &Registry) -> anyhow::Result<Vec<u8>> {
        const FAILED: &str = "could not write the metrics";
        let mut written = String::new();
        match self {
            Self::Plain => prometheus_text::encode(&mut written, registry).context(FAILED)?,
            Self::OpenMetrics => text::encode(&mut written, registry).context(FAILED)?,
            Self::Protobuf => return prometheus_protobuf::encode_to_vec(registry).context(FAILED),
        }
        Ok(written.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_format_wins() {
        const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        const NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1";
        for (accept, format) in [
            ("", Format::Plain),
            ("*/*", Format::Plain),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Plain),
            ("text/plain;version=0.0.4", Format::Plain),
            ("application/openmetrics-text; version=1.0.0", Format::OpenMetrics),
            (PROMETHEUS, Format::OpenMetrics),
            (NATIVE, Format::Protobuf),
            ("application/vnd.google.protobuf", Format::Plain),
            ("text/plain;q=0.9, APPLICATION/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text;q=x,;;,=", Format::Plain),
            ("application/openmetrics-text;q=0", Format::Plain),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
