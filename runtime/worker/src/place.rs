//! Threads for workers: made here, pinned here.

use std::io;
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use twinpath_sys::affinity::{self, AffinityError};

use crate::engine::Engine;
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

/// Gives `worker` a thread, on `cpu` if one is named, and waits until it has started.
///
/// # Errors
/// [`PlaceError`].
pub fn spawn<E>(
    mut worker: Worker<E>,
    number: u32,
    cpu: Option<usize>,
) -> Result<JoinHandle<Remains<E>>, PlaceError>
where
    E: Engine + 'static,
    E::Command: 'static,
    E::Event: 'static,
{
    let (started, wait) = std::sync::mpsc::sync_channel(1);
    let handle = thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || {
            let outcome = prepare(&mut worker, number, cpu);
            let failed = outcome.is_err();
            // The receiver waits below; it cannot be gone.
            let _ = started.send(outcome);
            if failed { worker.into_remains() } else { worker.run() }
        })
        .map_err(|source| PlaceError::Thread { worker: number, source })?;
    wait.recv().map_err(|_| PlaceError::Ended { worker: number })??;
    Ok(handle)
}

fn prepare<E: Engine>(worker: &mut Worker<E>, number: u32, cpu: Option<usize>) -> Result<(), PlaceError> {
    if let Some(cpu) = cpu {
        affinity::pin_current_thread(cpu).map_err(|source| PlaceError::Cpu { worker: number, source })?;
    }
    // Deadlines are armed exactly: without this the kernel may serve them up to 50 us late (prctl(2), PR_SET_TIMERSLACK).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    worker.start().map_err(|source| PlaceError::Engine { worker: number, source })
}
