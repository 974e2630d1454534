//! The clients of `bench`: a load against a service, or a stream to it, over kernel sockets or the fast
//! path, and the results. Their generic code is compiled here. [`fallback`] measures with such clients what attaching costs
//! the kernel's own traffic.

mod connection;
mod error;
pub mod fallback;
mod fast;
mod flow;
mod kernel;
pub mod measure;
mod measured;
mod plan;
mod stream;

use twinpath_config::PathAsked;
use twinpath_load::{Calls, Codec, Echo};
use twinpath_socket_load::{Progress, Stop};

pub use error::RunError;
pub use measured::{Measured, ThreadMeasured};
pub use plan::{Requests, RunPlan, Transport};
pub use stream::{FlowMeasured, Moved, StreamMeasured, StreamPlan, run_stream};

/// Runs the plan once to its end, or until `stop` is requested. `progress` has one entry per thread.
///
/// # Errors
/// [`RunError`]
pub fn run(plan: &RunPlan, stop: &Stop, progress: &[Progress]) -> Result<Measured, RunError> {
    let seed = |thread: u32| plan.seed.wrapping_add(u64::from(thread));
    // Each thread has its own codec.
    let codec = |thread: u32| -> Result<Box<dyn Codec>, RunError> {
        Ok(match &plan.requests {
            Requests::Echo { size } => Box::new(Echo::new(*size, seed(thread))?),
            Requests::Rpc { asked, auth, framing } => {
                let of_thread = &asked[thread as usize % asked.len()];
                Box::new(Calls::new(of_thread, auth.clone(), *framing, seed(thread)))
            }
        })
    };
    match plan.path {
        PathAsked::Kernel => kernel::run(plan, stop, progress, codec),
        _ => fast::run(plan, stop, progress, codec),
    }
}
