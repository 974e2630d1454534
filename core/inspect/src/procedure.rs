//! What a service counts of the procedures that others call.

use crate::{Counter, Histogram, counters};

const BYTES: &str = "Bytes of arguments (in) and of results (out), without the headers of RPC, by procedure.";

/// A procedure, and the program it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureName {
    /// The program, such as `nfs`.
    pub program: &'static str,
    /// The procedure, by its name in the specification, such as `GETATTR`.
    pub procedure: &'static str,
}

counters! {
    /// Counters of the calls of one procedure. One thread at a time writes them.
    pub struct ProcedureCounters {
        /// What was counted of the calls of a procedure, in a report.
        #[derive(PartialEq, Eq)]
        ProcedureCounts {
            /// Calls of a procedure: from the arrival of each until its results are there.
            took: Histogram => histogram("twinpath_rpc_call_seconds"), column("calls");
            /// Calls of a procedure whose result was an error.
            failed: Counter => counter("twinpath_rpc_calls_failed"), column("failed");
            /// Bytes of arguments.
            bytes_in: Counter => counter("twinpath_rpc_bytes"), about(BYTES), label("direction", "in"),
                column("bytes in");
            /// Bytes of results.
            bytes_out: Counter => counter("twinpath_rpc_bytes"), about(BYTES), label("direction", "out"),
                column("bytes out");
        }
    } and {}
}
