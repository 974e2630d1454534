//! Sleeps that end when they are to: by default the kernel ends a thread's sleep up to 50 us late, to save wake-ups (timer slack).

use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// While it lives, sleeps of this thread are precise. Then they are as the application has them.
#[derive(Debug)]
pub(crate) struct Precise {
    before_ns: Option<NonZeroU64>,
}

impl Precise {
    pub(crate) fn new() -> Self {
        let before_ns = current_timer_slack().ok().and_then(NonZeroU64::new);
        // Where it is refused the sleep is late, and nothing else.
        let _ = before_ns.map(|_| set_current_timer_slack(Some(NonZeroU64::MIN)));
        Self { before_ns }
    }
}

impl Drop for Precise {
    fn drop(&mut self) {
        let _ = self.before_ns.map(|before_ns| set_current_timer_slack(Some(before_ns)));
    }
}
