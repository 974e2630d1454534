//! The end of the start: workers have been told, and are waited for, so that who hears "ready" finds it so.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_hold::HoldError;
use twinpath_host::RETRY_INTERVAL;
use twinpath_serve::ServeCommand;
use twinpath_sys::clock;
use twinpath_time::Duration;

use super::{Instance, InstanceError};

/// How long workers may take to serve what they were given: they do in the turn after, unless the machine is very busy.
const STEERED_PATIENCE: Duration = Duration::from_millis(900);

impl Instance {
    /// Waits until every queue that was attached is steered to, so that who is told "ready" finds it so.
    pub(super) fn wait_until_steered(&mut self) {
        let waits = |instance: &Self| {
            instance.interface.attachment.as_ref().is_some_and(|attachment| attachment.waiting() > 0)
        };
        if !self.wait_for_workers(waits) {
            tracing::warn!("a worker has not taken its queues yet; the kernel serves them meanwhile");
        }
    }

    /// Reads what workers say while there is something to wait for; says whether it came in time.
    pub(super) fn wait_for_workers(&mut self, waits: impl Fn(&Self) -> bool) -> bool {
        let deadline = clock::now() + STEERED_PATIENCE;
        while waits(self) {
            let flushed = self.flush_outboxes();
            let mut fds: Vec<_> =
                self.workers.iter().map(|worker| PollFd::new(&worker.events, PollFlags::IN)).collect();
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

    /// Has the workers serve what waits in the sockets of a former instance.
    pub(super) fn begin_with_sockets(&mut self) -> Result<(), InstanceError> {
        for worker in &mut self.workers {
            worker.tell_services(ServeCommand::Begin);
        }
        let all = self.workers.len() * self.plan.services.len();
        self.wait_for_workers(|instance| instance.begun < all);
        if self.begun < all {
            let why = format!("{} of {all} services of its workers serve", self.begun);
            return Err(
                HoldError::TakeOver { from: self.plan.take_over.clone().unwrap_or_default(), why }.into()
            );
        }
        Ok(())
    }
}
