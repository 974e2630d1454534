//! The part of a report that services define themselves.

use twinpath_observe::report::{OwnMetric, Procedure, ProcedureCounts, Times};
use twinpath_service::{MetricName, ProcedureName, ServiceCounters};

/// The metrics of all clones of a service, added up: each clone has the same ones, in the same order.
pub fn own_metrics<'a>(clones: impl Iterator<Item = &'a ServiceCounters>) -> Vec<OwnMetric> {
    let (mut sums, mut histograms): (Vec<OwnMetric>, Vec<(MetricName, Times)>) = (Vec::new(), Vec::new());
    // A service that counts on other threads as well has its metrics twice.
    for own in clones.flat_map(|counters| [&counters.own, &counters.own_later]) {
        let counted = own.counters().map(|it| ("counter", it));
        let counted = counted.chain(own.reasons().map(|it| ("reason", it)));
        for (at, (kind, (name, count))) in counted.enumerate() {
            match sums.get_mut(at) {
                Some(sum) => sum.count += count,
                None => sums.push(metric(name, kind, count)),
            }
        }
        for (at, (name, times)) in own.histograms().enumerate() {
            match histograms.get_mut(at) {
                Some((_, sum)) => *sum = sum.with(&times),
                None => histograms.push((name, times)),
            }
        }
    }
    let histograms = histograms.into_iter().map(|(name, times)| {
        let count = times.count();
        OwnMetric { times: Some(times), ..metric(name, "histogram", count) }
    });
    sums.into_iter().chain(histograms).collect()
}

/// The procedures of all clones of a service, added up likewise.
pub fn own_procedures<'a>(
    service: &str,
    clones: impl Iterator<Item = &'a ServiceCounters>,
) -> Vec<Procedure> {
    let mut sums: Vec<(ProcedureName, ProcedureCounts)> = Vec::new();
    for own in clones.flat_map(|counters| [&counters.own, &counters.own_later]) {
        for (at, (name, counts)) in own.procedures().enumerate() {
            match sums.get_mut(at) {
                Some((_, sum)) => *sum = std::mem::take(sum).with(counts),
                None => sums.push((name, counts)),
            }
        }
    }
    let procedure = |(ProcedureName { program, procedure }, counts): (ProcedureName, ProcedureCounts)| {
        let [service, program, procedure] = [service, program, procedure].map(str::to_owned);
        Procedure { service, program, procedure, counts }
    };
    sums.into_iter().map(procedure).collect()
}

fn metric(name: MetricName, kind: &str, count: u64) -> OwnMetric {
    let MetricName { name, help } = name;
    OwnMetric { name: name.to_owned(), kind: kind.to_owned(), help: help.to_owned(), count, times: None }
}

#[cfg(test)]
mod tests {
    use twinpath_service::OwnMetrics;

    use super::*;

    fn clone_with(hits: u64, lookups_ns: &[u64]) -> ServiceCounters {
        let mut counters = ServiceCounters::default();
        let counted = counters.own.counter("hits", "Keys that were there.");
        let took = counters.own.histogram("lookup", "How long a look-up took.");
        let reason = counters.own.reason("key_too_long", "The key was too long.");
        counters.own[counted].add(hits);
        lookups_ns.iter().for_each(|ns| counters.own[took].record(*ns, 1));
        let _ = counters.own.refuse(reason);
        counters
    }

    #[test]
    fn clones_are_added_up_by_metric() {
        let clones = [clone_with(3, &[10, 1000]), clone_with(4, &[10])];
        let own = own_metrics(clones.iter());
        let counts: Vec<_> = own.iter().map(|it| (it.name.as_str(), it.kind.as_str(), it.count)).collect();
        assert_eq!(
            counts,
            [("hits", "counter", 7), ("key_too_long", "reason", 2), ("lookup", "histogram", 3)]
        );
        let times = own[2].times.clone().expect("it is a histogram");
        assert_eq!((times.sum_ns, times.quantile(0.5)), (1020, Some(10)));
        assert_eq!(own_metrics([].into_iter()), []);
    }

    #[test]
    fn what_workers_and_other_threads_count_of_a_procedure_is_added_up() {
        let of_worker = |calls_ns: &[u64], later_ns: &[u64]| {
            let mut counters = ServiceCounters::default();
            let [mut now, mut later] = [OwnMetrics::default(), OwnMetrics::default()];
            for (own, took) in [(&mut now, calls_ns), (&mut later, later_ns)] {
                let [_, read] = ["GETATTR", "READ"]
                    .map(|procedure| own.procedure(ProcedureName { program: "nfs", procedure }));
                took.iter().for_each(|ns| own[read].took.record(*ns, 1));
                own[read].failed.add(1);
                own[read].bytes_out.add(100);
            }
            (counters.own, counters.own_later) = (now, later);
            counters
        };
        let workers = [of_worker(&[10], &[10, 10]), of_worker(&[], &[1000])];
        let [getattr, read] = &own_procedures("files", workers.iter())[..] else { panic!("two are defined") };
        assert_eq!((getattr.procedure.as_str(), getattr.calls()), ("GETATTR", 0));
        assert_eq!((read.service.as_str(), read.program.as_str(), read.calls()), ("files", "nfs", 4));
        assert_eq!((read.counts.failed, read.counts.bytes_in, read.counts.bytes_out), (4, 0, 400));
        assert_eq!((read.counts.took.sum_ns, read.counts.took.quantile(0.5)), (1030, Some(10)));
    }
}
