//! Takes samples of wake-ups and timers, with one thread that is woken and one that wakes it at intervals. Both sleep
//! in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::io::Errno;
use twinpath_sys::{EventFd, affinity, clock};
use twinpath_time::Duration;

use super::judge::Set;
use crate::thread::sleep::Sleeper;

/// Wake-ups and timers per sample.
const ROUNDS: usize = 12;

/// Time between two signals, typical of packets for which no worker spins. After a shorter sleep the host would
/// still be polling.
const GAP: Duration = Duration::from_micros(350);

/// The timer in between, so that both fit.
const TIMER: Duration = Duration::from_micros(100);

/// A signal that comes sooner after the thread has begun to wait may find it still awake.
const SETTLED: Duration = Duration::from_micros(30);

/// The effect of a request lasts beyond its end, until the next tick of an idle CPU. So a sample without a request
/// waits for this many ticks.
const REST_TICKS: u32 = 3;
const REST_MAX: Duration = Duration::from_millis(30);

/// Calls per timing, and timings, of a short call.
const CALLS: u64 = 32;
const TIMINGS: usize = 9;

/// The thread that is woken, which is the caller's.
pub(super) struct Near {
    sleeper: Sleeper,
    /// CPU time of each round of two sleeps.
    rounds_cpu: Vec<Duration>,
    far_cpu: Duration,
}

impl Near {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { sleeper: Sleeper::new()?, rounds_cpu: Vec::new(), far_cpu: Duration::ZERO })
    }

    /// Waits until a request that was held no longer has an effect.
    pub(super) fn rest(&mut self) {
        let rest = (clock::tick() * REST_TICKS).min(REST_MAX);
        self.sleeper.sleep(clock::now() + rest);
    }

    /// One sample, woken by a thread on CPU `far`: about 5 ms.
    pub(super) fn sample(&mut self, far: usize) -> Result<Set, Errno> {
        let signal = EventFd::new_blocking()?;
        let mut pace = Sleeper::new()?;
        let stamps = [const { AtomicU64::new(0) }; ROUNDS];
        thread::scope(|scope| {
            let wakes = || {
                // If the placement is refused, the figure is that of another CPU.
                let _ = affinity::pin_current_thread(far);
                for stamp in &stamps {
                    pace.sleep(clock::now() + GAP);
                    stamp.store(clock::now().as_nanos(), Ordering::Release);
                    signal.signal();
                }
                clock::thread_cpu_time()
            };
            let far = thread::Builder::new()
                .name("measure-far".to_owned())
                .spawn_scoped(scope, wakes)
                .map_err(|_| Errno::AGAIN)?;
            let set = self.woken(&signal, &stamps);
            self.far_cpu += far.join().unwrap_or_default();
            Ok(set)
        })
    }

    /// Waits for a timer, then for a signal, until the last signal was seen.
    fn woken(&mut self, signal: &EventFd, stamps: &[AtomicU64]) -> Set {
        let mut set = Set { wake_ns: Vec::with_capacity(ROUNDS), timer_ns: Vec::with_capacity(ROUNDS) };
        let mut seen = 0;
        while seen < stamps.len() {
            let cpu_before = clock::thread_cpu_time();
            let due = clock::now() + TIMER;
            self.sleeper.sleep(due);
            let waiting_since = clock::now();
            set.timer_ns.push(waiting_since.nanos_since(due));
            let signals = signal.drain() as usize;
            let now = clock::now();
            self.rounds_cpu.push(clock::thread_cpu_time().saturating_sub(cpu_before));
            seen += signals;
            let stamp = seen.checked_sub(1).and_then(|last| stamps.get(last));
            let sent = stamp.map_or(0, |stamp| stamp.load(Ordering::Acquire));
            // Only a signal that came during the sleep shows the cost of waking up.
            if signals == 1 && sent >= (waiting_since + SETTLED).as_nanos() {
                set.wake_ns.push(now.as_nanos().saturating_sub(sent));
            }
        }
        set
    }

    /// CPU time of one sleep with its wake-up, ns: the median, because time during which a hypervisor stops the machine
    /// is charged to the thread.
    pub(super) fn wake_cpu_ns(&mut self) -> u64 {
        self.rounds_cpu.sort_unstable();
        self.rounds_cpu.get(self.rounds_cpu.len() / 2).map_or(0, |round| round.as_nanos() as u64 / 2)
    }

    /// CPU time of all samples, ms.
    pub(super) fn cpu_ms(&self) -> f64 {
        (clock::thread_cpu_time() + self.far_cpu).as_secs_f64() * 1e3
    }
}

/// Duration of one call, ns: the median of a few timings.
pub(super) fn each_ns(call: impl Fn()) -> u64 {
    let mut timings = [0; TIMINGS];
    for timing in &mut timings {
        let start = clock::now();
        (0..CALLS).for_each(|_| call());
        *timing = clock::now().nanos_since(start) / CALLS;
    }
    timings.sort_unstable();
    timings[TIMINGS / 2]
}
