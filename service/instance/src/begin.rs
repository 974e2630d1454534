//! The end of the start: waits until the workers have carried out their commands, so that the instance
//! reports "ready" only when it is.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_host::RETRY_INTERVAL;
use twinpath_lifecycle::Outcome;
use twinpath_serve::ServeCommand;
use twinpath_sys::clock;
use twinpath_time::Duration;

use super::Instance;
use crate::hold::HoldError;

/// How long to wait for workers. One turn is enough, unless the machine is very busy.
const STEERED_PATIENCE: Duration = Duration::from_millis(900);

impl Instance {
    /// Waits until the program steers to every queue that was attached.
    pub(super) fn wait_until_steered(&mut self) {
        let waits = |instance: &Self| {
            instance.interface.attachment.as_ref().is_some_and(|attachment| attachment.waiting() > 0)
        };
        if !self.wait_for_workers(waits) {
            tracing::warn!("a worker has not taken its queues yet; the kernel serves them meanwhile");
        }
    }

    /// Reads the workers' events while `waits` is true. Returns whether it became false in time.
    pub(super) fn wait_for_workers(&mut self, waits: impl Fn(&Self) -> bool) -> bool {
        let deadline = clock::now() + STEERED_PATIENCE;
        while waits(self) {
            let flushed = self.flush_outboxes();
            let mut fds: Vec<_> =
                self.everyone().map(|worker| PollFd::new(&worker.events, PollFlags::IN)).collect();
            let left = deadline.since(clock::now());
            let pause = if flushed { left } else { left.min(RETRY_INTERVAL) };
            let timeout = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
            if left.is_zero() || poll(&mut fds, Some(&timeout)).is_err() {
                return false;
            }
            self.take_events();
        }
        true
    }

    /// Lets the workers serve requests that wait in the sockets passed on by a former instance.
    pub(super) fn begin_with_sockets(&mut self) -> Outcome {
        for worker in &mut self.workers {
            worker.tell_services(ServeCommand::Begin);
        }
        let all = self.workers.len() * self.plan.services.len();
        self.wait_for_workers(|instance| instance.begun < all);
        if self.begun < all {
            let why = format!("{} of {all} services of its workers serve", self.begun);
            let from = self.plan.take_over.clone().unwrap_or_default();
            return self.failed(HoldError::TakeOver { from, why }.into());
        }
        Outcome::Done
    }
}
