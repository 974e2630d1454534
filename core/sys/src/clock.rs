//! The clocks of this host. Only crates of the tier runtime and the plain peers read them; all other code is given
//! the time as an argument.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};
use twinpath_time::{Duration, Instant};

/// The time of `CLOCK_MONOTONIC`, read through the vDSO: about 25 ns where the clock source is the TSC.
#[must_use]
pub fn now() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// CPU time the calling thread has used so far, user and system. A system call: not for the packet path.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// CPU time all threads of this process have used so far, user and system. A system call: not for the packet path.
#[must_use]
pub fn process_cpu_time() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

/// The kernel's timer tick, 1/HZ: the step of the coarse clocks (`KTIME_LOW_RES` in kernel/time/timekeeping.c).
#[must_use]
pub fn tick() -> Duration {
    Duration::from_nanos(nanos(clock_getres(ClockId::MonotonicCoarse)))
}

/// These clocks start at zero and never return a negative time.
fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_corresponds_to_a_valid_hz() {
        // 100 to 1000; TICK_NSEC is rounded to the nanosecond.
        let hz = 1e9 / tick().as_nanos() as f64;
        assert!((99.0..1001.0).contains(&hz), "{hz}");
    }

    #[test]
    fn clocks_advance_and_work_is_charged() {
        let (wall, thread, process) = (now(), thread_cpu_time(), process_cpu_time());
        while thread_cpu_time() == thread {}
        assert!(now() > wall);
        assert!(process_cpu_time() > process);
    }
}
