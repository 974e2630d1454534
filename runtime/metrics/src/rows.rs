//! Rows of metrics from the parts of a report: their labels, and their values.

use twinpath_inspect::Times;
use twinpath_report::{FallbackMeasure, Interface, OwnMetric, Queue, Report, Service, Worker};

use super::{Labels, Row, Value};

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
            Some(Row { labels: with(of(service), "metric", &metric.name), value: value(metric)? })
        })
        .collect()
}

pub(super) fn flag(on: bool) -> Value {
    Value::Count(on.into())
}

pub(super) fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

pub(super) fn on(interface: &Interface) -> Labels {
    vec![("interface", interface.name.clone())]
}

pub(super) fn of(service: &Service) -> Labels {
    vec![("service", service.name.clone())]
}

pub(super) fn by(worker: &Worker) -> Labels {
    vec![("worker", worker.worker.to_string())]
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
                labels: with(with(on(it), "path", &fallback.path), "measure", &measure.name),
                value: Value::Number(value(measure)),
            })
        })
    })
}

pub(super) fn of_queues(report: &Report, count: fn(&Queue) -> u64) -> Vec<Row> {
    each(&report.interfaces, |it| {
        it.queues.iter().map(move |queue| Row {
            labels: with(
                with(on(it), "queue", &queue.queue.to_string()),
                "worker",
                &queue.worker.to_string(),
            ),
            value: Value::Count(count(queue)),
        })
    })
}

pub(super) fn of_services(report: &Report, count: fn(&Service) -> u64) -> Vec<Row> {
    each(&report.services, |it| [Row { labels: of(it), value: Value::Count(count(it)) }])
}

/// Two metrics per service: one of the fast path, one of the kernel's.
pub(super) fn by_path(report: &Report, counts: fn(&Service) -> [u64; 2]) -> Vec<Row> {
    each(&report.services, |service| {
        let [fast, kernel] = counts(service);
        [("fast", fast), ("kernel", kernel)]
            .map(|(path, count)| Row { labels: with(of(service), "path", path), value: Value::Count(count) })
    })
}

pub(super) fn of_workers(report: &Report, value: fn(&Worker) -> Value) -> Vec<Row> {
    each(&report.workers, |it| [Row { labels: by(it), value: value(it) }])
}
