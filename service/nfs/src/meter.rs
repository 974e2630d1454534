//! What is counted of each procedure: calls and how long they took, failures, bytes of data.

use std::sync::Arc;

use twinpath_service::{CounterId, HistogramId, OwnMetrics, ServiceCounters};
use twinpath_time::Duration;

/// The metrics of a procedure: the names of its histogram and of its counter of failures, and what they mean.
type Names = [&'static str; 4];

macro_rules! procedures {
    ($($name:literal $in_rfc:literal),+ $(,)?) => {
        [$([
            $name,
            concat!("Calls of ", $in_rfc, ": from the arrival of each until its results were there."),
            concat!($name, "_failed"),
            concat!("Calls of ", $in_rfc, " whose result was an error."),
        ]),+]
    };
}

/// Those of all procedures but NULL, by their numbers.
const PROCEDURES: [Names; 21] = procedures![
    "getattr" "GETATTR", "setattr" "SETATTR", "lookup" "LOOKUP", "access" "ACCESS", "readlink" "READLINK",
    "read" "READ", "write" "WRITE", "create" "CREATE", "mkdir" "MKDIR", "symlink" "SYMLINK", "mknod" "MKNOD",
    "remove" "REMOVE", "rmdir" "RMDIR", "rename" "RENAME", "link" "LINK", "readdir" "READDIR",
    "readdirplus" "READDIRPLUS", "fsstat" "FSSTAT", "fsinfo" "FSINFO", "pathconf" "PATHCONF", "commit" "COMMIT",
];

#[derive(Clone, Copy, Debug)]
struct Procedure {
    took: HistogramId,
    failed: CounterId,
}

#[derive(Clone, Copy, Debug)]
struct Ids {
    procedures: [Procedure; PROCEDURES.len()],
    args_bytes: CounterId,
    results_bytes: CounterId,
}

/// A call that was carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) procedure: u32,
    pub(crate) took: Duration,
    pub(crate) failed: bool,
    /// Length of its arguments, bytes.
    pub(crate) args: usize,
    /// Length of its results, bytes.
    pub(crate) results: usize,
}

/// Counts the calls of one worker.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    ids: Option<Ids>,
    counters: Option<Arc<ServiceCounters>>,
}

impl Meter {
    /// Defines what is counted.
    pub(crate) fn define(&mut self, metrics: &mut OwnMetrics) {
        let args_bytes = metrics.counter("args_bytes", "Bytes of arguments, with the data of WRITE.");
        let results_bytes = metrics.counter("results_bytes", "Bytes of results, with the data of READ.");
        let procedures = PROCEDURES.map(|[name, help, failed, failed_help]| Procedure {
            took: metrics.histogram(name, help),
            failed: metrics.counter(failed, failed_help),
        });
        self.ids = Some(Ids { procedures, args_bytes, results_bytes });
    }

    /// Counts there from now on.
    pub(crate) fn count_in(&mut self, counters: &Arc<ServiceCounters>) {
        self.counters = Some(Arc::clone(counters));
    }

    /// Counts a call that the worker itself has answered.
    pub(crate) fn count(&self, call: &Call) {
        if let (Some(ids), Some(counters)) = (&self.ids, &self.counters) {
            ids.count(&counters.own, call);
        }
    }

    /// Counts a call that another thread has carried out.
    pub(crate) fn count_later(&self, call: &Call) {
        if let (Some(ids), Some(counters)) = (&self.ids, &self.counters) {
            counters.count_later(|own| ids.count(own, call));
        }
    }
}

impl Ids {
    fn count(&self, own: &OwnMetrics, call: &Call) {
        let place = (call.procedure as usize).wrapping_sub(1);
        let Some(procedure) = self.procedures.get(place) else { return };
        // A call that took longer than 584 years took that long.
        own[procedure.took].record(u64::try_from(call.took.as_nanos()).unwrap_or(u64::MAX), 1);
        own[procedure.failed].add(u64::from(call.failed));
        own[self.args_bytes].add(call.args as u64);
        own[self.results_bytes].add(call.results as u64);
    }
}
