//! How long a thread has waited for its CPU while others ran on it: `/proc/[pid]/task/[tid]/schedstat`.
//!
//! Time in which a hypervisor had the CPU is not included: a thread begins to wait only when an interrupt on that
//! CPU, or another CPU, makes it runnable.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use twinpath_time::Duration;

/// Room for three numbers of 64 bits.
const LEN: usize = 64;

/// The record of one thread, kept open so that it can be read when no more files may be opened.
#[derive(Debug)]
pub struct RunDelay(OwnedFd);

impl RunDelay {
    /// The record of the calling thread. `None` if the kernel keeps none (CONFIG_SCHED_INFO), or there is no /proc.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        let file =
            open("/proc/thread-self/schedstat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let account = Self(file);
        account.read().map(|_| account)
    }

    /// The total waiting time so far. Costs a system call; allocates nothing.
    #[must_use]
    pub fn read(&self) -> Option<Duration> {
        let mut text = [0; LEN];
        let len = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        waited(text.get(..len)?)
    }
}

/// The second number: the first is the time on the CPU, the third how often it got it (Documentation/scheduler/sched-stats.rst).
fn waited(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{affinity, clock};

    #[test]
    fn the_second_number_is_the_time_waited() {
        assert_eq!(waited(b"120410 2977900 2\n"), Some(Duration::from_nanos(2_977_900)));
        assert_eq!((waited(b""), waited(b"7"), waited(b"7 x 1")), (None, None, None));
    }

    #[test]
    fn a_thread_that_another_keeps_from_its_cpu_has_waited() {
        let Some(account) = RunDelay::of_this_thread() else {
            return twinpath_test_rig::skip("this kernel keeps no account of threads that wait");
        };
        let cpu = affinity::allowed_cpus().expect("CPUs are told")[0];
        let waits = std::thread::scope(|scope| {
            let busy = scope.spawn(move || {
                affinity::pin_current_thread(cpu).expect("its own CPU");
                let end = clock::now() + Duration::from_secs(20);
                let account = RunDelay::of_this_thread().expect("it is there");
                let before = account.read().expect("it is read");
                // Both want the CPU: sooner or later this one waits.
                while clock::now() < end {
                    if account.read().is_some_and(|now| now > before + Duration::from_micros(500)) {
                        return true;
                    }
                }
                false
            });
            affinity::pin_current_thread(cpu).expect("its own CPU");
            while !busy.is_finished() {
                std::hint::spin_loop();
            }
            busy.join().expect("no panic")
        });
        assert!(waits, "it was never kept waiting");
        assert!(account.read().is_some());
    }
}
