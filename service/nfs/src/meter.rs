//! What is counted of each procedure of a program: calls and how long they took, failures, bytes.

use std::sync::Arc;

use twinpath_rpc::Request;
use twinpath_service::{OwnMetrics, ProcedureId, ProcedureName, ServiceCounters};
use twinpath_time::Instant;

/// A program, and the names of its procedures but NULL, by their numbers.
pub(crate) struct Names {
    program: &'static str,
    procedures: &'static [&'static str],
}

/// Those of NFS version 3 (RFC 1813, 3.3).
pub(crate) const NFS: Names = Names {
    program: "nfs",
    procedures: &[
        "GETATTR",
        "SETATTR",
        "LOOKUP",
        "ACCESS",
        "READLINK",
        "READ",
        "WRITE",
        "CREATE",
        "MKDIR",
        "SYMLINK",
        "MKNOD",
        "REMOVE",
        "RMDIR",
        "RENAME",
        "LINK",
        "READDIR",
        "READDIRPLUS",
        "FSSTAT",
        "FSINFO",
        "PATHCONF",
        "COMMIT",
    ],
};

/// Those of MOUNT (RFC 1813, 5.2).
pub(crate) const MOUNT: Names =
    Names { program: "mount", procedures: &["MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"] };

/// Counts the calls that one worker receives.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    /// By the procedure's number less one; empty: nothing is counted.
    procedures: Arc<[ProcedureId]>,
    counters: Option<Arc<ServiceCounters>>,
}

/// A call that is counted when it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    procedure: u32,
    arrived: Instant,
    /// Length of its arguments, bytes.
    args: usize,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) now: Instant,
    pub(crate) failed: bool,
    /// Length of its results, bytes.
    pub(crate) results: usize,
}

impl Pending {
    /// A call that has arrived.
    pub(crate) const fn new(request: &Request<'_>) -> Self {
        let Request { procedure, arrival, args, .. } = request;
        Self { procedure: *procedure, arrived: arrival.now, args: args.len() }
    }
}

impl Meter {
    /// Defines what is counted.
    pub(crate) fn define(&mut self, names: &Names, metrics: &mut OwnMetrics) {
        let &Names { program, procedures } = names;
        let define = |procedure: &&'static str| metrics.procedure(ProcedureName { program, procedure });
        self.procedures = procedures.iter().map(define).collect();
    }

    /// Counts there from now on.
    pub(crate) fn count_in(&mut self, counters: &Arc<ServiceCounters>) {
        self.counters = Some(Arc::clone(counters));
    }

    /// Counts a call that the worker itself has answered.
    pub(crate) fn count(&self, call: Pending, ended: Ended) {
        if let Some(counters) = &self.counters {
            self.add(&counters.own, call, ended);
        }
    }

    /// Counts a call that another thread has carried out.
    pub(crate) fn count_later(&self, call: Pending, ended: Ended) {
        if let Some(counters) = &self.counters {
            counters.count_later(|own| self.add(own, call, ended));
        }
    }

    fn add(&self, own: &OwnMetrics, call: Pending, ended: Ended) {
        let place = (call.procedure as usize).wrapping_sub(1);
        let Some(procedure) = self.procedures.get(place) else { return };
        let (counters, took) = (&own[*procedure], ended.now.since(call.arrived));
        // A call that took longer than 584 years took that long.
        counters.took.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), 1);
        counters.failed.add(u64::from(ended.failed));
        counters.bytes_in.add(call.args as u64);
        counters.bytes_out.add(ended.results as u64);
    }
}
