//! Tells the idle policy how a sleep ended, counts it, and publishes the policy's decisions. It does not sleep.

use twinpath_idle::{Arrival, Woken};
use twinpath_sys::stamp;
use twinpath_time::{Duration, Instant};

use crate::engine::Engine;
use crate::fds::ENGINE_TOKENS;
use crate::idle::Mode;
use crate::turn::{MAILBOX, Worker};

/// A worker that has not looked for this long may find packets that came earlier.
const AWAY: Duration = Duration::from_micros(100);

/// The time `age` before `now`.
fn ago(now: Instant, age: Duration) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64))
}

impl<E: Engine> Worker<E> {
    /// Asks the engine for the stamp on the data that has ended a sleep, which may have come to one of the engine's fds.
    pub(crate) fn ask_when_it_came(&self) {
        if self.idle.mode() == Mode::Adaptive {
            self.came.ask();
        }
    }

    /// A sleep lasted from `slept` to `now`. `for_engine`: something had come to one of the engine's fds.
    pub(crate) fn woke(&mut self, slept: Instant, now: Instant, for_engine: bool) {
        let stamp_ns = self.came.take();
        let counters = &*self.counters;
        counters.slept_ns.add(now.nanos_since(slept));
        if self.request.is_held() {
            counters.held_ns.add(now.nanos_since(slept));
        }
        let ready = self.sleeper.ready();
        counters.wakeups.add(u64::from(!ready.is_empty()));
        let by_port = ready.iter().any(|ready| ready.token != MAILBOX && ready.token < ENGINE_TOKENS);
        self.slept_since = Some(slept);
        let mut came = now;
        if by_port {
            // The arrival times of the packets are known once they have been taken.
            self.woken_by_port = true;
        } else if for_engine {
            counters.woken_by_packet.add(1);
            let latency = stamp_ns.and_then(|stamp_ns| stamp::age(stamp_ns, slept, now));
            if let Some(latency) = latency {
                counters.wake_latency.record(latency.as_nanos() as u64, 1);
                self.woken_after(now, latency);
            }
            self.idle.woke(now, Woken::Packet(latency));
            came = latency.map_or(now, |latency| ago(now, latency));
        } else {
            let by_timer = ready.is_empty();
            let ahead = by_timer && self.idle.is_ahead(now);
            counters.woken_by_prediction.add(u64::from(ahead));
            counters.woken_by_other.add(u64::from(!ahead));
            self.idle.woke(now, if by_timer { Woken::Timer } else { Woken::Other });
        }
        if for_engine {
            self.idle.arrived(now, Arrival { first: came, last: came, count: 1 });
        }
    }

    /// The ports returned `taken` frames in the turn of `now`, or were said to have some.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Instant, taken: u64) {
        let count = taken.min(u64::from(u32::MAX)) as u32;
        let arrival = match self.slept_since {
            Some(slept) => {
                let [first, last] = self.came_while_asleep(slept, now, taken);
                Arrival { first, last, count }
            }
            None => self.came_while_awake(now, count),
        };
        if taken > 0 {
            self.idle.arrived(now, arrival);
        }
    }

    /// The arrival times of packets found by a worker that has not slept.
    #[inline]
    fn came_while_awake(&self, now: Instant, count: u32) -> Arrival {
        if now.nanos_since(self.looked) < AWAY.as_nanos() as u64 {
            return Arrival { first: now, last: now, count };
        }
        // Others had the CPU, or the last turn was long.
        match self.ages_by_stamp(self.looked, now) {
            Some(ages) => {
                let [first, last] = ages.map(|age| ago(now, age));
                Arrival { first, last, count }
            }
            None => Arrival::since_look(self.looked, now, count),
        }
    }

    /// The arrival times of the first and the last packet found after a sleep.
    fn came_while_asleep(&mut self, slept: Instant, now: Instant, taken: u64) -> [Instant; 2] {
        let by_port = std::mem::take(&mut self.woken_by_port);
        if taken == 0 {
            // An error, or frames that were not for us.
            self.counters.woken_by_other.add(1);
            self.idle.woke(now, Woken::Other);
            return [now; 2];
        }
        self.slept_since = None;
        let ages = self.ages_by_stamp(slept, now);
        let latency = ages.map(|[first, _]| first);
        if by_port {
            self.counters.woken_by_packet.add(1);
            if let Some(latency) = latency {
                self.woken_after(now, latency);
                self.counters.wake_latency.record(latency.as_nanos() as u64, 1);
            }
            self.idle.woke(now, Woken::Packet(latency));
        }
        match ages {
            Some(ages) => ages.map(|age| ago(now, age)),
            // There are no time stamps: all packets, including the first, are assumed to have come just now.
            None => [now; 2],
        }
    }

    /// How long before `now` the first and the last packet came, by the kernel's stamps; `None` without them.
    fn ages_by_stamp(&self, slept: Instant, now: Instant) -> Option<[Duration; 2]> {
        let stamps = || self.ports.queues().iter().filter_map(|queue| queue.queue.stamps_ns());
        let first = stamp::age(stamps().map(|[first, _]| first).min()?, slept, now)?;
        let last = stamp::age(stamps().map(|[_, last]| last).max()?, slept, now)?;
        // The clock may have been set between the two.
        (last <= first).then_some([first, last])
    }

    pub(crate) fn publish_idle(&mut self) {
        if self.idle.mode() != Mode::Adaptive {
            return;
        }
        let (summary, counts) = self.idle.summary();
        self.counters.spins.set(counts.spins);
        self.counters.spun_ns.set(counts.spun_ns);
        for (counter, word) in self.counters.decided.iter().zip(summary.to_words()) {
            counter.set(word);
        }
    }
}
