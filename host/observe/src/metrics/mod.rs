//! Metrics for Prometheus, from the same report as `show`: each family has a stable name, a type and a description.
//!
//! The metric of a counter is declared with the counter; the others are in `families.rs`. A scrape is a
//! request to the control thread like any other, and does not involve workers. docs/metrics.md is the list
//! for operators: `make documents` writes its table, and a test compares it with an instance.

mod declared;
mod families;
mod format;
mod http;
mod of_owner;
mod of_rds;
mod of_switch;
mod rows;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use twinpath_inspect::MetricKind;

use crate::report::Report;

pub use self::format::Format;
pub use self::http::{CLIENTS_MAX, Counters, MetricsError, Offered, PATIENCE, Server, serve_where_offered};

/// One family of metrics.
pub struct Family {
    /// Its name, without the suffix that its type adds in the text (`_total`, `_info`, `_bucket`, ...).
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// Its description.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: Vec<&'static str>,
    /// Computes its metrics from a report.
    rows: Rows,
}

type Rows = Box<dyn Fn(&Report) -> Vec<Row> + Send + Sync>;

/// All families. Names and labels are stable, because dashboards depend on them.
#[must_use]
pub fn families() -> &'static [Family] {
    static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
        [families::all(), of_switch::all(), of_owner::all(), of_rds::all()].into_iter().flatten().collect()
    });
    &FAMILIES
}

struct Row {
    /// The values of the family's labels, in that order.
    labels: Vec<String>,
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
                (Format::OpenMetrics, MetricKind::Counter) => {
                    (Cow::Borrowed(family.name), MetricType::Counter)
                }
                (Format::OpenMetrics, MetricKind::Info) => (Cow::Borrowed(family.name), MetricType::Info),
                (Format::Text, MetricKind::Counter) => {
                    (format!("{}_total", family.name).into(), MetricType::Counter)
                }
                (Format::Text, MetricKind::Info) => {
                    (format!("{}_info", family.name).into(), MetricType::Gauge)
                }
                (_, MetricKind::Gauge) => (Cow::Borrowed(family.name), MetricType::Gauge),
                (_, MetricKind::Histogram) => (Cow::Borrowed(family.name), MetricType::Histogram),
            };
            let mut encoder = encoder.encode_descriptor(&name, family.help, None, kind)?;
            for row in (family.rows)(&self.0) {
                let labels: Vec<_> = family.labels.iter().copied().zip(&row.labels).collect();
                match (self.1, row.value) {
                    (Format::OpenMetrics, value) => write(&mut encoder, family.kind, &labels, &value)?,
                    // The name has its suffix already, and that of a gauge is written unchanged. An info
                    // metric has the value 1.
                    (Format::Text, Value::Labels) => {
                        write(&mut encoder, MetricKind::Gauge, &labels, &Value::Count(1))?;
                    }
                    (Format::Text, value) => write(&mut encoder, MetricKind::Gauge, &labels, &value)?,
                }
            }
        }
        Ok(())
    }
}

type Labels<'a> = [(&'static str, &'a String)];

fn write(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricKind,
    labels: &Labels<'_>,
    value: &Value,
) -> fmt::Result {
    match value {
        Value::Labels => encoder.encode_info(&labels),
        value if labels.is_empty() => write_value(encoder, kind, value),
        value => write_value(&mut encoder.encode_family(&labels)?, kind, value),
    }
}

fn write_value(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: &Value) -> fmt::Result {
    match (value, kind) {
        (Value::Count(count), MetricKind::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(count, None)
        }
        (Value::Number(number), MetricKind::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(number, None)
        }
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
