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

/// How long to wait for workers at the start. One turn is enough, but on a very busy machine a thread waits for its CPU for
/// seconds. A take-over fails if a worker does not serve; the former instance serves meanwhile.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// The same for a change while this instance serves: control does nothing else meanwhile.
pub(super) const CHANGE_PATIENCE: Duration = Duration::from_millis(900);

impl Instance {
    /// Waits until the program steers to every queue that was attached.
    pub(super) fn wait_until_steered(&mut self) {
        let waits = |instance: &Self| {
            instance.interface.attachment.as_ref().is_some_and(|attachment| attachment.waiting() > 0)
        };
        let patience = if self.reloads.is_changing() { CHANGE_PATIENCE } else { START_PATIENCE };
        if !self.wait_for_workers(patience, waits) {
            tracing::warn!("a worker has not taken its queues yet; the kernel serves them meanwhile");
        }
    }

    /// Reads the workers' events while `waits` is true, for so long at most. Returns whether it became false in time.
    pub(super) fn wait_for_workers(&mut self, patience: Duration, waits: impl Fn(&Self) -> bool) -> bool {
        let deadline = clock::now() + patience;
        while waits(self) {
            let flushed = self.flush_outboxes();
            let mut fds: Vec<_> =
                self.everyone().map(|worker| PollFd::new(&worker.events, PollFlags::IN)).collect();
            let left = deadline.since(clock::now());
            let pause = if flushed { left } else { left.min(RETRY_INTERVAL) };
            let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
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
        self.wait_for_workers(START_PATIENCE, |instance| instance.begun < all);
        if self.begun < all {
            let why = format!("{} of {all} services of its workers serve", self.begun);
            let from = self.plan.take_over.clone().unwrap_or_default();
            return self.failed(HoldError::TakeOver { from, why }.into());
        }
        Outcome::Done
    }
}
