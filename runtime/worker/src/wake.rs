//! How a sleep ended, told to the idle policy and counted; what the policy decided, published. No sleeping here.

use twinpath_idle::{Arrival, Woken};
use twinpath_sys::stamp;
use twinpath_time::{Duration, Instant};

use crate::engine::{ENGINE_TOKENS, Engine};
use crate::idle::Mode;
use crate::turn::{MAILBOX, Worker};

impl<E: Engine> Worker<E> {
    /// A sleep lasted from `slept` to `now`. `for_engine`: one of the engine's fds was ready.
    pub(crate) fn woke(&mut self, slept: Instant, now: Instant, for_engine: bool) {
        let counters = &*self.counters;
        counters.slept_ns.add(now.nanos_since(slept));
        if self.request.is_held() {
            counters.held_ns.add(now.nanos_since(slept));
        }
        let ready = self.sleeper.ready();
        counters.wakeups.add(u64::from(!ready.is_empty()));
        let by_port = ready.iter().any(|ready| ready.token != MAILBOX && ready.token < ENGINE_TOKENS);
        self.slept_since = Some(slept);
        if by_port {
            // What the packets say of when they came is known when they have been taken.
            self.woken_by_port = true;
        } else if for_engine {
            counters.woken_by_packet.add(1);
            self.idle.woke(now, Woken::Packet(None));
        } else {
            let by_timer = ready.is_empty();
            let ahead = by_timer && self.idle.is_ahead(now);
            counters.woken_by_prediction.add(u64::from(ahead));
            counters.woken_by_other.add(u64::from(!ahead));
            self.idle.woke(now, if by_timer { Woken::Timer } else { Woken::Other });
        }
        if for_engine {
            self.idle.arrived(now, Arrival { first: now, last: now, count: 1 });
        }
    }

    /// The ports gave `taken` frames in the turn of `now`, or were said to have some.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Instant, taken: u64) {
        let first = match self.slept_since {
            Some(slept) => self.first_after_sleep(slept, now, taken),
            None => now,
        };
        if taken > 0 {
            let last = if taken == 1 { first } else { now };
            self.idle.arrived(now, Arrival { first, last, count: taken.min(u64::from(u32::MAX)) as u32 });
        }
    }

    /// When the first packet after a sleep came.
    fn first_after_sleep(&mut self, slept: Instant, now: Instant, taken: u64) -> Instant {
        let by_port = std::mem::take(&mut self.woken_by_port);
        if taken == 0 {
            // An error, or frames that were not for us.
            self.counters.woken_by_other.add(1);
            self.idle.woke(now, Woken::Other);
            return now;
        }
        self.slept_since = None;
        let latency = self.latency_by_stamp(slept, now);
        if by_port {
            self.counters.woken_by_packet.add(1);
            if let Some(latency) = latency {
                self.counters.wake_latency.record(latency.as_nanos() as u64, 1);
            }
            self.idle.woke(now, Woken::Packet(latency));
        }
        latency.map_or(now, |latency| Instant::from_nanos(now.as_nanos() - latency.as_nanos() as u64))
    }

    /// How long before `now` the first packet came, by the kernel's stamp; `None` without one.
    fn latency_by_stamp(&self, slept: Instant, now: Instant) -> Option<Duration> {
        let stamp_ns = self.ports.iter().filter_map(|port| port.queue.stamp_ns()).min()?;
        stamp::age(stamp_ns, slept, now)
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
