//! What control loops have in common: requests that come to them, workers that they wait for, and what they say of the process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use twinpath_machine::Answer;
use twinpath_report as report;
use twinpath_sys::clock;
use twinpath_time::Instant;

use crate::engines::Hosted;
use crate::readable::readable_copy;
use crate::worker::WorkerHandle;

/// Requests that may wait for a control loop; more wait in their sockets.
pub const ASKED_MAX: usize = 64;

/// What is known once an instance serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where it can be asked.
    pub socket: PathBuf,
    /// Where metrics are, if they are offered.
    pub metrics: Option<SocketAddr>,
    /// What it says of itself.
    pub report: report::Report,
}

/// Hands a request over to the control loop, as `asked` makes a message of it and of where its answer goes; the answer.
///
/// # Errors
/// What the loop answers, or that `what` is stopping.
pub async fn hand_over<A>(
    ask: &mpsc::Sender<A>,
    what: &str,
    asked: impl FnOnce(Answer) -> A,
) -> Result<serde_json::Value, String> {
    let (answer, wait) = oneshot::channel();
    let stopping = || format!("{what} is stopping");
    ask.send(asked(answer)).await.map_err(|_| stopping())?;
    wait.await.map_err(|_| stopping())?
}

/// Descriptors that are readable when a worker has said something. Called within a tokio runtime.
///
/// # Errors
/// What duplicating or registering one returns.
pub fn watched<'a, E: Hosted + 'a>(
    workers: impl IntoIterator<Item = &'a WorkerHandle<E>>,
) -> io::Result<Vec<AsyncFd<OwnedFd>>> {
    workers.into_iter().map(|worker| readable_copy(worker.events.as_fd())).collect()
}

/// Says what waits for room in the mailboxes of workers. Says whether nothing waits any more.
pub fn flush<'a, E: Hosted + 'a>(workers: impl IntoIterator<Item = &'a mut WorkerHandle<E>>) -> bool {
    // All of them, also after one that has no room.
    workers.into_iter().filter_map(|worker| (!worker.flush()).then_some(())).count() == 0
}

/// What an instance that started then says of itself as a process, with so many bytes of frames.
#[must_use]
pub fn report_process(started: Instant, pool_bytes: u64, sandbox: &report::Sandbox) -> report::Instance {
    report::Instance {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: clock::now().since(started).as_secs_f64(),
        pool_mib: pool_bytes as f64 / f64::from(1 << 20),
        sandbox: sandbox.clone(),
        ..report::Instance::default()
    }
}
