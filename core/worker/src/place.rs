//! Threads for workers: they are created and pinned here, and get their priority here.

use std::io;
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use twinpath_sys::affinity::{self, AffinityError};
use twinpath_sys::cpuidle;
use twinpath_sys::scheduling::{RealTimeBudget, SchedulingError};

use crate::engine::Engine;
use crate::thread::guard::{Guard, Shares};
use crate::thread::panics;
use crate::thread::priority::{Granted, Priority};
use crate::thread::request::Request;
use crate::turn::{Remains, Worker};

/// Why a worker could not be given a thread.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The thread could not be made.
    #[error("cannot start a thread for worker {worker}: {source}")]
    Thread {
        /// Which worker.
        worker: u32,
        /// Why.
        source: io::Error,
    },
    /// The CPU was refused.
    #[error("worker {worker}: {source}")]
    Cpu {
        /// Which worker.
        worker: u32,
        /// Why.
        source: AffinityError,
    },
    /// The priority was refused.
    #[error("worker {worker}: {source}")]
    Priority {
        /// Which worker.
        worker: u32,
        /// Why.
        source: SchedulingError,
    },
    /// Its engine could not start.
    #[error("worker {worker} cannot watch its sockets: {source}")]
    Engine {
        /// Which worker.
        worker: u32,
        /// Why.
        source: Errno,
    },
    /// It ended before it had started.
    #[error("worker {worker} ended before it had started; this is a defect, please report it")]
    Ended {
        /// Which worker.
        worker: u32,
    },
}

/// Where and how a worker runs.
#[derive(Debug)]
pub struct Placement {
    /// The CPU it is pinned to, if it is.
    pub cpu: Option<usize>,
    /// Its priority.
    pub priority: Priority,
    /// How it makes its latency requests.
    pub request: Request,
    /// The share of a shared CPU, in thousandths, that it may spin while others could not run. If not given,
    /// [`SPIN_PERMILLE`](crate::thread::guard::SPIN_PERMILLE).
    pub spin_permille: Option<u32>,
}

impl Placement {
    /// Pinned to this CPU if one is named. Requests are for all CPUs and the shallowest state.
    #[must_use]
    pub const fn on(cpu: Option<usize>) -> Self {
        Self { cpu, priority: Priority::Normal, request: Request::machine(0), spin_permille: None }
    }
}

/// A worker that runs.
#[derive(Debug)]
pub struct Placed<E: Engine> {
    /// Its thread.
    pub thread: JoinHandle<Remains<E>>,
    /// The priority it got.
    pub priority: Granted,
    /// The shares of its CPU that it may take; `None`: as much as the scheduler gives it.
    pub shares: Option<Shares>,
}

/// Gives `worker` a thread as `placement` says, and waits until it has started.
///
/// # Errors
/// [`PlaceError`].
pub fn spawn<E>(worker: Worker<E>, number: u32, placement: Placement) -> Result<Placed<E>, PlaceError>
where
    E: Engine + 'static,
    E::Command: 'static,
    E::Event: 'static,
{
    let Placement { cpu, priority, request, spin_permille } = placement;
    let mut worker = worker.with_request(request);
    let (started, wait) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || {
            panics::end_process_on_panic(|| {
                let outcome = prepare(&mut worker, number, cpu, priority).map(|granted| {
                    let isolated = cpu.is_some_and(|cpu| cpuidle::isolated_cpus().contains(&cpu));
                    let budget = RealTimeBudget::read();
                    let shares = match granted.lower {
                        Some(_) => Some(Shares::of_steps(granted.priority, isolated, budget, spin_permille)),
                        None => Shares::of(granted.priority, isolated, budget, spin_permille),
                    };
                    (granted, shares)
                });
                let (guard, priorities) = outcome.as_ref().map_or((None, None), guard_of);
                let worker = worker.with_guard(guard, priorities);
                let failed = outcome.is_err();
                // The receiver waits below; it cannot be gone.
                let _ = started.send(outcome);
                if failed { worker.into_remains() } else { worker.run() }
            })
        })
        .map_err(|source| PlaceError::Thread { worker: number, source })?;
    let (priority, shares) = wait.recv().map_err(|_| PlaceError::Ended { worker: number })??;
    Ok(Placed { thread, priority, shares })
}

/// The guard that keeps the worker within its shares, and the two priorities if it does so by stepping between
/// them.
fn guard_of((granted, shares): &(Granted, Option<Shares>)) -> (Option<Guard>, Option<[Priority; 2]>) {
    match (*shares, granted.lower) {
        (Some(shares), Some(lower)) => (Some(Guard::stepping(shares)), Some([granted.priority, lower])),
        (shares, _) => (shares.map(Guard::new), None),
    }
}

fn prepare<E: Engine>(
    worker: &mut Worker<E>,
    number: u32,
    cpu: Option<usize>,
    priority: Priority,
) -> Result<Granted, PlaceError> {
    if let Some(cpu) = cpu {
        affinity::pin_current_thread(cpu).map_err(|source| PlaceError::Cpu { worker: number, source })?;
    }
    // Make the kernel serve deadlines exactly: by default it may serve them up to 50 us late (prctl(2),
    // PR_SET_TIMERSLACK).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    worker.start().map_err(|source| PlaceError::Engine { worker: number, source })?;
    // Last, so that no long work is done at a priority that keeps others waiting.
    priority.apply().map_err(|source| PlaceError::Priority { worker: number, source })
}
