//! Rows of metrics from the parts of a report: their labels, and their values.

use twinpath_inspect::Times;

use super::{Row, Value};
use crate::report::{FallbackMeasure, Interface, OwnMetric, Report, Service, Worker};

/// Bounds of the histogram: two per doubling from 256 ns to 16.8 ms. Each is the upper bound of a bucket of the finer
/// histogram in the report.
pub(super) fn bounds_ns() -> impl Iterator<Item = u64> {
    (8..24)
        .flat_map(|exponent| [1u64 << exponent, 3 << (exponent - 1)])
        .chain([1 << 24])
        .map(|bound| bound - 1)
}

pub(super) fn times(times: &Times) -> Value {
    let count = times.count();
    let mut below = 0;
    let mut buckets: Vec<_> = bounds_ns()
        .map(|bound| {
            let at_most = times.at_most(bound);
            (bound as f64 / 1e9, at_most - std::mem::replace(&mut below, at_most))
        })
        .collect();
    buckets.push((f64::INFINITY, count - below));
    Value::Times { sum_s: times.sum_ns as f64 / 1e9, count, buckets }
}

/// A row for each metric of a service's own that has a value here.
pub(super) fn own(report: &Report, value: impl Fn(&OwnMetric) -> Option<Value>) -> Vec<Row> {
    let metrics =
        report.services.iter().flat_map(|service| service.own.iter().map(move |own| (service, own)));
    metrics
        .filter_map(|(service, metric)| {
            Some(Row { labels: with(of(service), &metric.name), value: value(metric)? })
        })
        .collect()
}

pub(super) fn flag(on: bool) -> Value {
    Value::Count(on.into())
}

pub(super) fn with(mut labels: Vec<String>, value: &str) -> Vec<String> {
    labels.push(value.to_owned());
    labels
}

/// The value of the label of an interface.
pub(super) fn on(interface: &Interface) -> Vec<String> {
    vec![interface.name.clone()]
}

/// The value of the label of a service.
pub(super) fn of(service: &Service) -> Vec<String> {
    vec![service.name.clone()]
}

/// The value of the label of a worker.
pub(super) fn by(worker: &Worker) -> Vec<String> {
    vec![worker.worker.to_string()]
}

pub(super) fn each<'a, T, I: IntoIterator<Item = Row> + 'a>(
    things: &'a [T],
    rows: impl Fn(&'a T) -> I,
) -> Vec<Row> {
    things.iter().flat_map(rows).collect()
}

pub(super) fn of_interfaces(report: &Report, value: fn(&Interface) -> Value) -> Vec<Row> {
    each(&report.interfaces, |it| [Row { labels: on(it), value: value(it) }])
}

pub(super) fn of_measures(report: &Report, value: fn(&FallbackMeasure) -> f64) -> Vec<Row> {
    each(&report.interfaces, |it| {
        each(&it.fallback, |fallback| {
            fallback.measures.iter().map(|measure| Row {
                labels: with(with(on(it), &fallback.path), &measure.name),
                value: Value::Number(value(measure)),
            })
        })
    })
}

pub(super) fn of_workers(report: &Report, value: fn(&Worker) -> Value) -> Vec<Row> {
    each(&report.workers, |it| [Row { labels: by(it), value: value(it) }])
}
