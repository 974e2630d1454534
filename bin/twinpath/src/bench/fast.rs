//! The load over the fast path: twinpath's own transport as the client.

use anyhow::bail;
use twinpath_plain::{Progress, Stop};

use super::Measured;
use super::plan::Plan;

/// Runs the plan to its end, or until `stop` is requested. `progress` has one entry per thread.
pub(crate) fn run(plan: &Plan, _stop: &Stop, _progress: &[Progress]) -> anyhow::Result<Measured> {
    let interface = plan.interface.as_deref().unwrap_or_default();
    bail!(
        "the fast path as a client is not built yet: leave out --on {interface}, or add --path kernel, to use \
         kernel sockets"
    )
}
