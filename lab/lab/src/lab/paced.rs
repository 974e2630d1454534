//! Requests at a pace: what a round draws by chance, the same for all of its rows, and the load that follows from it. Pure.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;
use twinpath_load::{Arrivals, INFLIGHT_MAX};
use twinpath_test_plain::Pace;

use super::peers;
use super::process::words;

/// Share by which each gap is longer or shorter.
pub(crate) const JITTER: f64 = 0.03;
/// The range of the period in most labs, us.
pub(crate) const PERIOD_US: RangeInclusive<f64> = 250.0..=500.0;

/// The period of requests, us, and the seed of what else differs by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draw {
    pub(crate) period_us: f64,
    pub(crate) seed: u64,
}

impl Draw {
    pub(crate) fn of(random: &mut Rng, period_us: RangeInclusive<f64>) -> Self {
        let (from, to) = period_us.into_inner();
        let period_us = from + (to - from) * random.f64();
        // Rounded for readers.
        Self { period_us: (period_us * 10.0).round() / 10.0, seed: random.u64(..1 << 32) }
    }

    /// One request per period.
    pub(crate) fn load(&self) -> Load {
        Load { rate_per_s: 1e6 / self.period_us, arrivals: Arrivals::Jittered(JITTER), seed: self.seed }
    }
}

/// Requests at a rate, whatever becomes of those before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) rate_per_s: f64,
    pub(crate) arrivals: Arrivals,
    pub(crate) seed: u64,
}

impl Load {
    /// Its options for a client.
    pub(crate) fn options(&self) -> String {
        let Self { rate_per_s, arrivals, seed } = self;
        format!("--rate {rate_per_s} --arrivals {arrivals} --arrivals-seed {seed}")
    }

    /// A client of the server at that port. It spins on its own CPU, and as many requests may be under way as a load can
    /// distinguish, so that a send never waits for a reply.
    pub(crate) fn bench(&self, port: u16, warmup: Duration, length: Duration) -> Vec<String> {
        words(&format!(
            "bench echo {} --udp --path kernel --mode poll --size 64 --inflight {INFLIGHT_MAX} --batch --duration {:.3} \
             --warmup {:.3} {} --json",
            peers::server(port),
            length.as_secs_f64(),
            warmup.as_secs_f64(),
            self.options()
        ))
    }

    /// The same for frames that the kernel times.
    pub(crate) fn pace(&self, length: Duration) -> Pace {
        let Self { rate_per_s, arrivals, seed } = *self;
        let length = twinpath_time::Duration::from_secs_f64(length.as_secs_f64());
        Pace { rate_per_s, arrivals, seed, warmup: twinpath_time::Duration::ZERO, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_what_the_client_understands() {
        let load = Draw { period_us: 400.0, seed: 5 }.load();
        assert_eq!(load.options(), "--rate 2500 --arrivals jitter:3 --arrivals-seed 5");
        for arrivals in
            [load.arrivals, Arrivals::Poisson, Arrivals::Bursts { size: 16, gap: Duration::from_micros(8) }]
        {
            assert_eq!(arrivals.to_string().parse::<Arrivals>(), Ok(arrivals));
        }
    }
}
