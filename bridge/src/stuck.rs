//! Watches for stuck workers of an exception port, for which the kernel carries frames.
//!
//! The BPF programs detect a stuck worker by the age of waiting frames, in either direction
//! (`stack/bpf/bpf/bridge.c`), and let all frames cross within the kernel, without help of control. Control only
//! reports it, and polls only while a worker is stuck. The worker drops the frames that had waited for it, and then the
//! programs stop.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use twinpath_bpf::{Exclusive, FILTERS_MAX};
use twinpath_frame::Mapping;
use twinpath_host::{StuckChange, readable_copy, until, until_readable};
use twinpath_rings::pending::{Pending, STRIDE};
use twinpath_sys::event_loop::Watched;
use twinpath_sys::{clock, race};
use twinpath_time::{Duration, Instant};

use super::workers::WorkerHandle;
use super::{Bridge, BridgeError, Carrier, Location};
use crate::engine::Side;

/// How often control checks whether a stuck worker runs again.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The descriptors through which control learns that a worker is stuck.
pub(super) struct Watch {
    /// The words of all workers; `None` if detection is off.
    words: Option<Arc<Mapping>>,
    fail_open: Duration,
    /// Readable when a worker was found stuck.
    readable: Option<Watched<OwnedFd>>,
    /// When to check again, while a worker is stuck.
    look_at: Option<Instant>,
}

impl Watch {
    pub(super) fn new(exclusive: &Exclusive, fail_open: Duration) -> Result<Self, BridgeError> {
        let words = exclusive.pending().map(|fd| Mapping::of_fd(fd, 2 * FILTERS_MAX as usize * STRIDE, 0));
        let words = words.transpose().map_err(BridgeError::Words)?.map(Arc::new);
        let readable = exclusive.stuck().map(readable_copy).transpose().map_err(BridgeError::Control)?;
        Ok(Self { words, fail_open, readable, look_at: None })
    }

    /// The words for frames that arrive on one side of a worker: this side's and the other's.
    pub(super) fn words_of(&self, worker: usize, side: Side) -> Option<[Pending; 2]> {
        let word = |side| {
            Pending::new(Arc::clone(self.words.as_ref()?), 2 * worker as u32 + side as u32, self.fail_open)
        };
        let other = match side {
            Side::Port => Side::Kernel,
            Side::Kernel => Side::Port,
        };
        Some([word(side)?, word(other)?])
    }

    /// Waits until a worker is found stuck, or until a stuck one must be checked again.
    pub(super) async fn is_due(&self) {
        race!(until_readable(self.readable.as_ref()), until(self.look_at));
    }
}

impl Bridge {
    /// Checks which workers are stuck.
    pub(super) fn look_at_stuck(&mut self) {
        self.exclusive.read_stuck();
        let now = clock::now();
        for worker in &mut self.workers {
            let words = self.stuck.words_of(worker.number(), Side::Port);
            let since = words.iter().flatten().filter_map(Pending::stuck_since).min();
            let name = worker.name();
            match worker.look_at_stuck(since, 0, now) {
                Some(StuckChange::Begun { waited }) => tracing::warn!(
                    "{name} is stuck: for {} ms it has left frames that wait for it. The kernel carries all frames until it moves on",
                    waited.as_millis()
                ),
                Some(StuckChange::Over { after, dropped }) => tracing::warn!(
                    "{name} moves on after {} ms and carries frames again; it dropped {dropped} that had waited for it",
                    after.as_millis()
                ),
                None => {}
            }
        }
        let is_stuck = self.workers.iter().any(WorkerHandle::is_stuck);
        self.stuck.look_at = is_stuck.then(|| clock::now() + LOOK_INTERVAL);
    }

    /// A sentence for users about how frames are carried while a worker is stuck; empty if detection is off.
    pub(super) fn fail_open_sentence(&self) -> String {
        match (self.port.carrier, self.port.fails_open) {
            (Carrier::Kernel, _) => String::new(),
            (Carrier::Workers, true) => "; the kernel does while one is stuck".to_owned(),
            (Carrier::Workers, false) => format!("; nobody does while one is stuck: {}", self.why_not_open()),
        }
    }

    /// The reason that the kernel cannot carry frames while a worker is stuck.
    pub(super) fn why_not_open(&self) -> String {
        let kernel = &self.kernel.name;
        match self.kernel.place {
            _ if self.plan.fail_open.is_zero() => {
                "the time after which one is (--fail-open-ms) is 0".to_owned()
            }
            Location::Elsewhere => {
                format!("{kernel} is in another network namespace, where the kernel cannot redirect to")
            }
            Location::Nowhere => format!("{kernel} is gone"),
            Location::Home => "the kernel refuses to redirect frames".to_owned(),
        }
    }
}
