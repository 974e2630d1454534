//! Simulated machines: the latency of wake-ups and the lateness of timers.

use crate::Machine;

/// A random number generator with the same results on every machine (splitmix64).
#[derive(Clone, Copy, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for one event, independent of earlier draws.
    #[must_use]
    pub fn of(seed: u64, event: u64, kind: u64) -> Self {
        let mut chance = Self(seed ^ event.wrapping_mul(0xd134_2543_de82_ef95) ^ (kind << 60));
        chance.bits();
        chance
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in a range.
    pub fn within(&mut self, lo: f64, hi: f64) -> f64 {
        lo + (hi - lo) * self.unit()
    }

    /// Exponential.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }

    /// Normal, mean 0, deviation 1 (twelve draws, cut at 6).
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// A distribution of latencies: a floor and a log-normal part, us.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    floor: f64,
    median: f64,
    sigma: f64,
}

impl Spread {
    fn draw(&self, mut chance: Chance) -> f64 {
        self.floor + self.median * (self.sigma * chance.normal()).exp()
    }

    /// Points of equal weight that represent it, ascending.
    fn points(&self) -> Vec<f64> {
        let mut points: Vec<f64> = (0..2000).map(|event| self.draw(Chance::of(1, event, 3))).collect();
        points.sort_by(f64::total_cmp);
        points.into_iter().skip(12).step_by(25).collect()
    }

    /// Its mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.floor + self.median * (self.sigma * self.sigma / 2.0).exp()
    }
}

/// A simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Simulated {
    /// Its name.
    pub name: &'static str,
    /// Latency of wake-ups soon after the last packet, and of later ones, and the time from which the second
    /// applies, us. The kernel's choice of an idle state follows the traffic.
    wake: [Spread; 2],
    deep_after_us: f64,
    /// The same with a request held.
    wake_held: Option<Spread>,
    overshoot: Spread,
    /// How often others take the CPU on average (infinite: never), and for how long, us.
    stolen_every_us: f64,
    stolen_us: [f64; 2],
    /// A process always wants the CPU, and the scheduler is fair: see [`Self::beside_fair`].
    pub fair: bool,
    /// Packets carry a time stamp, so that a worker which had lost its CPU knows when they came.
    pub stamps: bool,
    /// CPU of a timer wake-up, us.
    pub timer_cpu_us: f64,
}

impl Simulated {
    /// The machines: a virtual one with haltpoll and a request that helps; the same where requests are refused; one
    /// with short wake-ups, with or without a request; bare metal with idle states that deepen.
    #[must_use]
    pub fn all() -> [Self; 4] {
        let deep = Spread { floor: 60.0, median: 20.0, sigma: 0.35 };
        let shallow = Spread { floor: 3.0, median: 2.5, sigma: 0.4 };
        let plain = Spread { floor: 4.0, median: 2.0, sigma: 0.5 };
        let timer = Spread { floor: 4.0, median: 6.0, sigma: 0.5 };
        Self::array(deep, shallow, plain, timer)
    }

    fn array(deep: Spread, shallow: Spread, plain: Spread, timer: Spread) -> [Self; 4] {
        let helped = Self {
            name: "request",
            wake: [deep; 2],
            deep_after_us: 0.0,
            wake_held: Some(shallow),
            overshoot: timer,
            stolen_every_us: f64::INFINITY,
            stolen_us: [100.0, 2_000.0],
            fair: false,
            stamps: true,
            timer_cpu_us: 3.0,
        };
        let light = Spread { floor: 10.0, median: 4.0, sigma: 0.3 };
        let bottom = Spread { floor: 50.0, median: 12.0, sigma: 0.3 };
        [
            helped,
            Self { name: "refused", wake_held: None, ..helped },
            Self { name: "cheap", wake: [plain; 2], wake_held: None, ..helped },
            Self { name: "metal", wake: [light, bottom], deep_after_us: 200.0, wake_held: None, ..helped },
        ]
    }

    /// The same machine, where others take the CPU for 100 us to 2 ms about once in this time.
    #[must_use]
    pub const fn stolen(self, every_us: f64) -> Self {
        Self { stolen_every_us: every_us, ..self }
    }

    /// The same beside a process that always wants the CPU: the scheduler runs each of the two for a few ms in turn.
    #[must_use]
    pub const fn beside_busy(self) -> Self {
        Self { stolen_every_us: 4_000.0, stolen_us: [2_000.0, 6_000.0], ..self }
    }

    /// The same beside a process that always wants the CPU, under a scheduler that lets a woken thread preempt the
    /// other one unless the woken one has had more CPU time since (Linux's EEVDF, 250 Hz). In that case it waits
    /// for a tick.
    #[must_use]
    pub const fn beside_fair(self) -> Self {
        Self { fair: true, ..self }
    }

    /// The same with a port that does not stamp packets: the arrival of a packet is known only if it ended a sleep.
    #[must_use]
    pub const fn unstamped(self) -> Self {
        Self { stamps: false, ..self }
    }

    /// The times at which others have the CPU, up to the end, ns: from, to, ascending.
    #[must_use]
    pub fn stolen_until(&self, end_ns: u64, seed: u64) -> Vec<(u64, u64)> {
        let mut chance = Chance::of(seed, 0, 4);
        let mut stolen = Vec::new();
        let mut now = chance.exponential(self.stolen_every_us);
        while now * 1e3 < end_ns as f64 {
            let end = now + chance.within(self.stolen_us[0], self.stolen_us[1]);
            stolen.push(((now * 1e3) as u64, (end * 1e3) as u64));
            now = end + chance.exponential(self.stolen_every_us);
        }
        stolen
    }

    /// Whether a request can be held.
    #[must_use]
    pub const fn has_request(&self) -> bool {
        self.wake_held.is_some()
    }

    /// The latency of one wake-up, ns.
    #[must_use]
    pub fn wake_ns(&self, held: bool, gap_ns: u64, chance: Chance) -> u64 {
        let plain = self.wake[self.depth(gap_ns as f64 / 1e3)];
        let spread = if held { self.wake_held.unwrap_or(plain) } else { plain };
        (spread.draw(chance) * 1e3) as u64
    }

    /// How late one timer is, ns.
    #[must_use]
    pub fn overshoot_ns(&self, chance: Chance) -> u64 {
        (self.overshoot.draw(chance) * 1e3) as u64
    }

    /// Which of [`Self::wake_points`] applies to a wake-up that ends such a gap.
    #[must_use]
    pub fn depth(&self, gap_us: f64) -> usize {
        usize::from(gap_us >= self.deep_after_us)
    }

    /// Points of equal weight of a wake-up's latency, us, by the depth of the sleep: the better of without and with a
    /// request.
    #[must_use]
    pub fn wake_points(&self) -> [Vec<f64>; 2] {
        self.wake.map(|wake| self.wake_held.unwrap_or(wake).points())
    }

    /// The figures given to a policy at start: near the truth, but not exact. A ping-pong measures wake-ups from short
    /// sleeps.
    #[must_use]
    pub fn told(&self) -> Machine {
        Machine {
            wake_us: self.wake[0].mean() as f32 * 0.9,
            wake_held_us: self.wake_held.map(|held| held.mean() as f32 * 1.2),
            overshoot_us: 8.0,
            timer_cpu_us: self.timer_cpu_us as f32,
            sleep_cpu_us: 0.0,
        }
    }
}
