//! Metrics for Prometheus, from the same report as `show`: each family has a stable name, a type and a description.
//!
//! A scrape is a request to the control thread like any other, and workers are not involved. docs/metrics.md is the
//! list for operators, and a test compares it with an instance.

mod families;
mod format;
mod http;
mod of_owner;
mod of_switch;
mod rows;

use std::borrow::Cow;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use twinpath_report::Report;

pub use self::format::Format;
pub use self::http::{CLIENTS_MAX, Counters, MetricsError, PATIENCE, Server, serve_where_offered};

/// One family of metrics.
pub struct Family {
    /// Its name, without the suffix that its type adds in the text (`_total`, `_info`, `_bucket`, ...).
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its description.
    pub help: &'static str,
    /// Computes its metrics from a report.
    rows: fn(&Report) -> Vec<Row>,
}

/// All families.
pub fn families() -> impl Iterator<Item = &'static Family> {
    families::FAMILIES.iter().chain(of_switch::FAMILIES).chain(of_owner::FAMILIES)
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only increases, except when its source is attached anew.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Times in buckets.
    Histogram,
    /// Always 1: the information is in its labels.
    Info,
}

impl Kind {
    /// The name in the text format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

type Labels = Vec<(&'static str, String)>;

struct Row {
    labels: Labels,
    value: Value,
}

enum Value {
    /// A whole number.
    Count(u64),
    /// Seconds, or a gauge.
    Number(f64),
    /// Sum in s, and counts by upper bound in s, not cumulative.
    Times { sum_s: f64, count: u64, buckets: Vec<(f64, u64)> },
    /// No value besides the labels.
    Labels,
}

/// The metrics of a report, as text.
#[must_use]
pub fn encode(report: Report, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(report, format)));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match format {
        Format::OpenMetrics => prometheus_client::encoding::text::encode(&mut text, &registry),
        Format::Text => prometheus_client::encoding::text::encode_registry(&mut text, &registry),
    };
    text
}

#[derive(Debug)]
struct Scrape(Report, Format);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in families() {
            let (name, kind) = match (self.1, family.kind) {
                (Format::OpenMetrics, Kind::Counter) => (Cow::Borrowed(family.name), MetricType::Counter),
                (Format::OpenMetrics, Kind::Info) => (Cow::Borrowed(family.name), MetricType::Info),
                (Format::Text, Kind::Counter) => {
                    (format!("{}_total", family.name).into(), MetricType::Counter)
                }
                (Format::Text, Kind::Info) => (format!("{}_info", family.name).into(), MetricType::Gauge),
                (_, Kind::Gauge) => (Cow::Borrowed(family.name), MetricType::Gauge),
                (_, Kind::Histogram) => (Cow::Borrowed(family.name), MetricType::Histogram),
            };
            let mut encoder = encoder.encode_descriptor(&name, family.help, None, kind)?;
            for row in (family.rows)(&self.0) {
                match self.1 {
                    Format::OpenMetrics => write(&mut encoder, family.kind, &row)?,
                    // The name has its suffix already, and that of a gauge is written as it is.
                    Format::Text => write(&mut encoder, Kind::Gauge, &row.with_a_value())?,
                }
            }
        }
        Ok(())
    }
}

impl Row {
    /// The same with the value that information has: 1.
    fn with_a_value(self) -> Self {
        match self.value {
            Value::Labels => Self { labels: self.labels, value: Value::Count(1) },
            _ => self,
        }
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: Kind, row: &Row) -> fmt::Result {
    match (&row.value, kind) {
        (Value::Labels, _) => encoder.encode_info(&row.labels),
        (value, _) if row.labels.is_empty() => write_value(encoder, kind, value),
        (value, _) => write_value(&mut encoder.encode_family(&row.labels)?, kind, value),
    }
}

fn write_value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (value, kind) {
        (Value::Count(count), Kind::Counter) => encoder.encode_counter::<NoLabelSet, _, f64>(count, None),
        (Value::Number(number), Kind::Counter) => encoder.encode_counter::<NoLabelSet, _, f64>(number, None),
        (Value::Count(count), _) => encoder.encode_gauge(count),
        (Value::Number(number), _) => encoder.encode_gauge(number),
        (Value::Times { sum_s, count, buckets }, _) => {
            encoder.encode_histogram::<NoLabelSet>(*sum_s, *count, buckets, None)
        }
        (Value::Labels, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
