//! Metrics that a service defines itself: counters, histograms of durations, reasons for which it refuses, and procedures.

use std::ops::Index;

use crate::{Counter, Histogram, ProcedureCounters, ProcedureCounts, ProcedureName, Reason, Times};

/// The name of a metric, and what it means, in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// Letters, digits and `_`, such as `cache_hits`.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
}

/// A counter of [`OwnMetrics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterId(usize);

/// A histogram of [`OwnMetrics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramId(usize);

/// A reason of [`OwnMetrics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonId(usize);

/// A procedure of [`OwnMetrics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureId(usize);

/// A service's own metrics, part of its [`ServiceCounters`](crate::ServiceCounters): only the service's worker writes
/// them, and they are read without stopping it. Writing one is an addition to memory.
///
/// `twinpath show services` prints them, and Prometheus gets them as `twinpath_service_own` and
/// `twinpath_service_own_seconds`, with the service's and the metric's name as labels. Procedures are shown by
/// `twinpath show rpc`, and are metrics whose names begin with `twinpath_rpc`. All clones of a service define the same
/// ones, in the same order.
///
/// ```
/// use twinpath_inspect::OwnMetrics;
///
/// let mut metrics = OwnMetrics::default();
/// let hits = metrics.counter("hits", "Keys that were there.");
/// let lookup = metrics.histogram("lookup", "How long a look-up took.");
/// let too_long = metrics.reason("key_too_long", "The key had more than 250 bytes.");
/// metrics[hits].add(1);
/// metrics[lookup].record(1_200, 1);
/// // To be returned as `Answer::Drop(reason)`, or by `accept`, or passed to `Output::refuse`.
/// let reason = metrics.refuse(too_long);
/// assert_eq!(reason.name(), "service_refused");
/// ```
#[derive(Debug, Default)]
pub struct OwnMetrics {
    counters: Vec<(MetricName, Counter)>,
    histograms: Vec<(MetricName, Histogram)>,
    reasons: Vec<(MetricName, Counter)>,
    procedures: Vec<(ProcedureName, ProcedureCounters)>,
}

impl OwnMetrics {
    /// Defines a counter.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> CounterId {
        self.counters.push((MetricName { name, help }, Counter::default()));
        CounterId(self.counters.len() - 1)
    }

    /// Defines a histogram of durations, ns.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> HistogramId {
        self.histograms.push((MetricName { name, help }, Histogram::default()));
        HistogramId(self.histograms.len() - 1)
    }

    /// Defines a reason.
    pub fn reason(&mut self, name: &'static str, help: &'static str) -> ReasonId {
        self.reasons.push((MetricName { name, help }, Counter::default()));
        ReasonId(self.reasons.len() - 1)
    }

    /// Defines a procedure, by its own name and that of its program.
    pub fn procedure(&mut self, name: ProcedureName) -> ProcedureId {
        self.procedures.push((name, ProcedureCounters::default()));
        ProcedureId(self.procedures.len() - 1)
    }

    /// Counts a reason. Returns the general reason that the instance counts as well.
    #[must_use]
    pub fn refuse(&self, reason: ReasonId) -> Reason {
        self.reasons[reason.0].1.add(1);
        Reason::ServiceRefused
    }

    /// The counters.
    pub fn counters(&self) -> impl Iterator<Item = (MetricName, u64)> + '_ {
        self.counters.iter().map(|(name, counter)| (*name, counter.get()))
    }

    /// Copies of the histograms.
    pub fn histograms(&self) -> impl Iterator<Item = (MetricName, Times)> + '_ {
        self.histograms.iter().map(|(name, histogram)| (*name, histogram.read()))
    }

    /// How often each reason was counted.
    pub fn reasons(&self) -> impl Iterator<Item = (MetricName, u64)> + '_ {
        self.reasons.iter().map(|(name, counter)| (*name, counter.get()))
    }

    /// What was counted of each procedure.
    pub fn procedures(&self) -> impl Iterator<Item = (ProcedureName, ProcedureCounts)> + '_ {
        self.procedures.iter().map(|(name, counters)| (*name, counters.into()))
    }
}

impl Index<CounterId> for OwnMetrics {
    type Output = Counter;

    fn index(&self, counter: CounterId) -> &Counter {
        &self.counters[counter.0].1
    }
}

impl Index<HistogramId> for OwnMetrics {
    type Output = Histogram;

    fn index(&self, histogram: HistogramId) -> &Histogram {
        &self.histograms[histogram.0].1
    }
}

impl Index<ProcedureId> for OwnMetrics {
    type Output = ProcedureCounters;

    fn index(&self, procedure: ProcedureId) -> &ProcedureCounters {
        &self.procedures[procedure.0].1
    }
}
