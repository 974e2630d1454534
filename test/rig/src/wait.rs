//! Waiting for events that come without a notification.

use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};

/// Longest wait for an event.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at a condition. Without a pause the test would take the CPU from the program that it waits for.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Waits until a condition holds that the kernel or a peer brings about without a notification.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub fn until(what: &str, so: impl FnMut() -> bool) {
    until_within(PATIENCE, what, so);
}

/// The same with another deadline.
///
/// # Panics
/// If it does not hold in time.
pub fn until_within(patience: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < patience, "{what} did not happen within {patience:?}");
        // An exact deadline, and interrupted is as good as over.
        let _ = poll(&mut [], Some(&PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_waited_for_and_has_a_deadline() {
        let mut looks = 0;
        until("three looks", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
        let waits = || until_within(Duration::from_millis(5), "nothing", || false);
        let said = std::panic::catch_unwind(waits).unwrap_err();
        assert_eq!(said.downcast_ref::<String>().unwrap(), "nothing did not happen within 5ms");
    }
}
