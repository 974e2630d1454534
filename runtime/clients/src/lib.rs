//! The clients of `bench`: a load against a service, over kernel sockets or the fast path, and what it measured. Their loops are compiled here.

mod error;
mod fast;
mod kernel;
mod measured;
mod plan;

use twinpath_config::PathAsked;
use twinpath_load::{Calls, Codec, Echo};
use twinpath_socket_load::{Progress, Stop};

pub use error::RunError;
pub use measured::{Measured, ThreadMeasured};
pub use plan::{Requests, RunPlan, Transport};

/// Runs the plan once to its end, or until `stop` is requested. `progress` has one entry per thread.
///
/// # Errors
/// [`RunError`]
pub fn run(plan: &RunPlan, stop: &Stop, progress: &[Progress]) -> Result<Measured, RunError> {
    let seed = |thread: u32| plan.seed.wrapping_add(u64::from(thread));
    match &plan.requests {
        Requests::Echo { size } => {
            by_path(plan, stop, progress, |thread| Ok(Echo::new(*size, seed(thread))?))
        }
        Requests::Rpc { asked, auth, framing } => by_path(plan, stop, progress, |thread| {
            Ok(Calls::new(asked, auth.clone(), *framing, seed(thread)))
        }),
    }
}

/// `codec` makes what the thread of that number speaks.
fn by_path<C: Codec + Send>(
    plan: &RunPlan,
    stop: &Stop,
    progress: &[Progress],
    codec: impl Fn(u32) -> Result<C, RunError>,
) -> Result<Measured, RunError> {
    match plan.path {
        PathAsked::Kernel => kernel::run(plan, stop, progress, codec),
        _ => fast::run(plan, stop, progress, codec),
    }
}
