//! The policy: told of arrivals, sleeps and the time, it says whether to spin or to sleep.

use twinpath_time::{Duration, Instant};

use crate::costs::{Costs, POINTS};
use crate::density::Leads;
use crate::experts::{Context, Expert, Experts};
use crate::explain::{Counts, Explanation};
use crate::gaps::{CLASSES, Decaying, GAP_MAX_US, Ring, class_of};
use crate::goal::{Controller, Goal};
use crate::machine::{Learnt, Machine};
use crate::plan::Plan;

/// What the policy is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// What it is to reach.
    pub goal: Goal,
    /// What is known of the machine.
    pub machine: Machine,
    /// For experts: spin for just so long after each arrival, predict nothing.
    pub spin: Option<Duration>,
    /// For experts: hold the latency request for just so long after each arrival.
    pub linger: Option<Duration>,
    /// What holding the latency request for a us costs, in us of latency: power. It decides when to let go.
    pub held_price: f32,
}

impl Default for Config {
    /// A us of CPU is worth a us of latency. To hold a request for 10 s may cost as much as it takes to save 100 us once.
    fn default() -> Self {
        Self {
            goal: Goal::Weight(1.0),
            machine: Machine::default(),
            spin: None,
            linger: None,
            held_price: 1e-5,
        }
    }
}

/// What to do now that there is no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look for work again, and go on until then without asking.
    Spin {
        /// What is decided lasts so long.
        until: Instant,
    },
    /// Sleep until something comes, but no later than this.
    Sleep {
        /// [`Instant::NEVER`] if nothing is due or predicted.
        until: Instant,
    },
}

/// Packets found by one turn.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When the first one came: the kernel's time stamp where there is one, else the time of the turn.
    pub first: Instant,
    /// When the last one came.
    pub last: Instant,
    /// How many.
    pub count: u32,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A packet came; from its arrival to the worker's first instruction, where known.
    Packet(Option<Duration>),
    /// The time that [`Decision::Sleep`] gave had come.
    Timer,
    /// Anything else: a command, a signal, another deadline.
    Other,
}

/// Gaps below this are counted together: no choice hangs on them, and there may be millions per second.
const SHORT_US: f32 = 2.0;

/// Gaps learnt after which the table of costs is made anew, at first and later.
const COSTS_EVERY: u64 = 128;

/// A request is held for this long while nothing is known of the gaps.
const LINGER_UNKNOWN: Duration = Duration::from_secs(3);

/// It is never held for longer than this without an arrival.
const LINGER_MAX_US: f32 = 10e6;

/// What a packet later than a latency goal costs, us of latency.
const LATE_COST: f32 = 100.0;

/// Packets that come while one is being woken, at most as many as are looked at.
const CROWD: usize = 48;

/// The sequence of gaps that says how many packets come while one is being woken.
const FLOW: usize = 256;

/// An idle time that has ended and is still to be learnt from.
#[derive(Clone, Copy, Debug)]
struct Ended {
    context: Context,
    gap_us: f32,
    awake_us: f32,
}

/// An idle time that lasts.
#[derive(Clone, Copy, Debug)]
struct Idling {
    /// Since the last arrival, us, when it began.
    awake_us: f32,
    /// When the stretch of spinning that lasts began; `None` asleep.
    spinning: Option<Instant>,
    /// Where the spinning that was decided ends.
    until: Instant,
    /// The sleep that lasts, or the last one: since when, until when, whether that was a prediction.
    slept: Instant,
    alarm: Instant,
    predicted: bool,
    /// A timer of its own has come: it is as late as this, however times were rounded.
    reached_us: f32,
    plan: Plan,
    /// CPU spent on timers, ns.
    timers: u32,
}

/// The policy's state: about 30 KiB, no allocation.
#[derive(Clone, Debug)]
pub struct Policy {
    config: Config,
    control: Controller,
    learnt: Learnt,
    costs: Costs,
    /// The weight that the costs were made with.
    costs_weight: f32,
    costs_due: u64,
    experts: Experts,
    flow: Ring<FLOW>,
    context: Context,
    leader: Expert,
    last: Option<Instant>,
    idling: Option<Idling>,
    ended: Option<Ended>,
    short: (f32, f32),
    release_us: f32,
    /// Decaying mean of what a packet costs, us of latency.
    per_packet: f32,
    packets: f32,
    counts: Counts,
}

impl Policy {
    /// A policy that has seen nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut policy = Self {
            config,
            control: Controller::new(config.goal),
            learnt: Learnt::new(&config.machine),
            costs: Costs {
                weight: 1.0,
                sleep: [0.0; CLASSES],
                free_us: 0.0,
                slope: 1.0,
                wake_us: 0.0,
                timer_cpu_us: config.machine.timer_cpu_us,
                sleep_cpu_us: config.machine.sleep_cpu_us,
                overshoot_us: [0.0; POINTS],
                overshoot_mean_us: 0.0,
            },
            costs_weight: 0.0,
            costs_due: 0,
            experts: Experts::new(),
            flow: Ring::new(),
            context: Context::default(),
            leader: Expert::Unknowing,
            last: None,
            idling: None,
            ended: None,
            short: (0.0, 0.0),
            release_us: LINGER_UNKNOWN.as_micros() as f32,
            per_packet: 0.0,
            packets: 0.0,
            counts: Counts::default(),
        };
        policy.make_costs();
        policy
    }

    /// The goal in force.
    #[must_use]
    pub const fn goal(&self) -> Goal {
        self.control.goal()
    }

    /// Pursues another goal from now on; what was learnt of the traffic is kept.
    pub fn set_goal(&mut self, goal: Goal) {
        self.config.goal = goal;
        self.control = Controller::new(goal);
        self.make_costs();
    }

    /// The machine was measured again.
    pub fn set_machine(&mut self, machine: Machine) {
        self.config.machine = machine;
        self.learnt = Learnt::new(&machine);
        self.make_costs();
    }

    /// A turn found packets.
    #[inline]
    pub fn arrived(&mut self, now: Instant, arrival: Arrival) {
        self.counts.packets += u64::from(arrival.count);
        if let Some(idling) = self.idling.take() {
            self.idle_ended(now, arrival, &idling);
        }
        // Times that go backwards are the same time.
        self.last = Some(self.last.map_or(arrival.last, |last| last.max(arrival.last)));
    }

    fn idle_ended(&mut self, now: Instant, arrival: Arrival, idling: &Idling) {
        let spun = idling.spinning.map_or(0, |since| now.nanos_since(since));
        self.account_spin(now, spun);
        let asleep = idling.spinning.is_none();
        let Some(last) = self.last else { return };
        let gap_us = us(arrival.first.nanos_since(last)).min(GAP_MAX_US);
        let inside_us =
            us(arrival.last.nanos_since(arrival.first)) / arrival.count.saturating_sub(1).max(1) as f32;
        self.flow.push(gap_us);
        for _ in 1..arrival.count.min(16) {
            self.flow.push(inside_us);
        }
        let found_late_us = if asleep { us(now.nanos_since(arrival.first)) } else { 0.0 };
        self.account_cost(arrival, idling, spun, found_late_us, inside_us);
        if gap_us < SHORT_US && !asleep {
            self.short.0 += 1.0;
            self.short.1 += gap_us;
        } else {
            self.ended = Some(Ended { context: self.context, gap_us, awake_us: idling.awake_us });
        }
        self.context = self.context.after(gap_us);
        for _ in 1..arrival.count.min(64) {
            self.context = self.context.after(inside_us);
        }
    }

    /// What the packets just found cost, per packet.
    fn account_cost(&mut self, arrival: Arrival, idling: &Idling, spun: u64, late_us: f32, inside_us: f32) {
        let count = arrival.count.max(1) as f32;
        let middle = (late_us - inside_us * (count - 1.0) / 2.0).max(0.0);
        let latency = match self.config.goal {
            Goal::Latency(budget) => {
                let late = if us(budget.as_nanos() as u64) < late_us { 1 } else { 0 };
                self.control.found(arrival.count, late);
                LATE_COST * late as f32
            }
            Goal::Weight(_) | Goal::Cpu(_) => middle * count,
        };
        let cpu = us(spun) + idling.timers as f32 * self.config.machine.timer_cpu_us;
        let cost = latency + self.costs.weight * cpu;
        let rate = (count / (self.packets + count)).max(1.0 - (1.0 - 1.0 / 256.0f32).powf(count.min(256.0)));
        self.packets = (self.packets + count).min(1e6);
        self.per_packet += (cost / count - self.per_packet) * rate;
    }

    fn account_spin(&mut self, now: Instant, spun_ns: u64) {
        self.counts.spun_ns += spun_ns;
        self.control.spent(now, spun_ns, spun_ns);
    }

    /// What to do: a turn that began at `now` found nothing. `deadline` is the next one of the worker's own.
    #[inline]
    pub fn decide(&mut self, now: Instant, deadline: Instant) -> Decision {
        if let Some(Idling { spinning: Some(_), until, .. }) = self.idling
            && now < until
        {
            return Decision::Spin { until };
        }
        self.decide_anew(now, deadline)
    }

    fn decide_anew(&mut self, now: Instant, deadline: Instant) -> Decision {
        let Some(last) = self.last else { return Decision::Sleep { until: deadline } };
        let at_us = us(now.nanos_since(last));
        let mut idling = match self.idling {
            Some(idling) => idling,
            None => self.begin(now, at_us),
        };
        let at_us = at_us.max(idling.reached_us);
        let awake_since = idling.spinning.unwrap_or(now);
        let spin = idling.plan.spin_until(at_us).map(|until| last + duration(until));
        let decision = match spin.and_then(|until| self.affordable(now, until)) {
            Some(until) if until > now => {
                if idling.spinning.is_none() {
                    self.counts.spins += 1;
                }
                idling.spinning = Some(awake_since);
                idling.until = until;
                Decision::Spin { until: until.min(deadline.max(now)) }
            }
            _ => {
                if let Some(since) = idling.spinning.take() {
                    self.account_spin(now, now.nanos_since(since));
                }
                let predicted = idling.plan.wake_at(at_us);
                let alarm = predicted.map_or(Instant::NEVER, |wake| last + duration(wake));
                let afford = self.control.allowance(alarm).is_none_or(|left| left > Duration::from_micros(5));
                let alarm = if afford { alarm } else { Instant::NEVER };
                idling.predicted = alarm < Instant::NEVER;
                idling.reached_us = at_us;
                idling.slept = now;
                let release = self.release(now);
                idling.alarm = alarm;
                Decision::Sleep { until: alarm.min(deadline).min(release) }
            }
        };
        if deadline <= now && matches!(decision, Decision::Sleep { .. }) {
            self.idling = Some(idling);
            return Decision::Spin { until: now };
        }
        if let Decision::Sleep { .. } = decision {
            self.counts.sleeps += 1;
        }
        self.idling = Some(idling);
        decision
    }

    /// As far as the budget goes.
    fn affordable(&mut self, now: Instant, until: Instant) -> Option<Instant> {
        match self.control.allowance(now) {
            None => Some(until),
            Some(left) => (left >= Duration::from_micros(1)).then(|| until.min(now + left)),
        }
    }

    /// An idle time begins: what the last one taught is learnt now, as nothing else is to be done.
    fn begin(&mut self, now: Instant, at_us: f32) -> Idling {
        self.learn();
        let plan = if let Some(spin) = self.config.spin {
            Plan::spin(us(spin.as_nanos() as u64))
        } else {
            let leads = self.leads();
            self.experts.replan(self.context, &self.costs, leads);
            let (leader, plan) = self.experts.leader(self.context);
            if leader != self.leader {
                self.leader = leader;
                self.counts.leader_changes += 1;
            }
            plan
        };
        Idling {
            awake_us: at_us,
            spinning: None,
            until: now,
            slept: now,
            alarm: Instant::NEVER,
            predicted: false,
            reached_us: 0.0,
            plan,
            timers: 0,
        }
    }

    fn learn(&mut self) {
        let (count, sum) = std::mem::take(&mut self.short);
        if count > 0.0 {
            self.experts.learn(self.context, sum / count, 0.0, count, &self.costs);
        }
        if let Some(ended) = self.ended.take() {
            self.experts.learn(ended.context, ended.gap_us, ended.awake_us, 1.0, &self.costs);
        }
        let gaps = self.experts.gaps();
        let moved = (self.control.weight() / self.costs_weight).ln().abs() > 0.1;
        if gaps >= self.costs_due || moved {
            self.make_costs();
            // Soon at first, then rarely.
            self.costs_due = gaps + (gaps / 2).clamp(4, COSTS_EVERY);
        }
    }

    /// A sleep that [`Decision::Sleep`] began ended at `now`.
    pub fn woke(&mut self, now: Instant, woken: Woken) {
        let held = self.holds(self.idling.map_or(now, |idling| idling.slept));
        let Some(idling) = &mut self.idling else { return };
        let slept_us = self.last.map_or(0.0, |last| us(now.nanos_since(last)));
        self.counts.slept_ns += now.nanos_since(idling.slept);
        if held {
            self.counts.held_ns += now.nanos_since(idling.slept);
        }
        match woken {
            Woken::Packet(latency) => {
                self.counts.woken_by_packet += 1;
                if let Some(latency) = latency {
                    let latency_us = us(latency.as_nanos() as u64);
                    self.learnt.woken(held, slept_us - latency_us, latency_us);
                }
            }
            Woken::Timer if idling.predicted && now >= idling.alarm => {
                self.counts.woken_by_prediction += 1;
                idling.timers += 1;
                let over_us = us(now.nanos_since(idling.alarm));
                self.learnt.fired(held, slept_us, over_us);
                if let Some(wake) = idling.plan.wake_at(idling.reached_us) {
                    idling.reached_us = idling.reached_us.max(wake);
                }
            }
            Woken::Timer | Woken::Other => self.counts.woken_by_other += 1,
        }
    }

    /// Whether a latency request should be held by a worker that sleeps at `now`.
    #[must_use]
    pub fn holds(&self, now: Instant) -> bool {
        now < self.held_until()
    }

    fn held_until(&self) -> Instant {
        match (self.config.machine.wake_held_us, self.last) {
            (Some(_), Some(last)) => last + self.config.linger.unwrap_or_else(|| duration(self.release_us)),
            _ => Instant::ZERO,
        }
    }

    /// When a sleeper must wake to let the request go.
    fn release(&self, now: Instant) -> Instant {
        if self.holds(now) { self.held_until() } else { Instant::NEVER }
    }

    fn leads(&self) -> Leads {
        let points = self.costs.overshoot_us;
        let between = |at: usize| f32::midpoint(points[at - 1], points[at]);
        [
            points[POINTS - 1] * 1.5,
            points[POINTS - 1],
            between(5),
            between(4),
            between(3),
            between(2),
            between(1),
            points[0] * 0.7,
        ]
    }

    /// The table of costs, from what was learnt.
    fn make_costs(&mut self) {
        let weight = self.control.weight();
        self.costs_weight = weight;
        let request = self.config.machine.wake_held_us.is_some();
        let (wakes, timers) = (&self.learnt.wake, &self.learnt.overshoot);
        let overshoot = timers[usize::from(request)].points();
        let budget = match self.config.goal {
            Goal::Latency(budget) => Some(us(budget.as_nanos() as u64)),
            Goal::Weight(_) | Goal::Cpu(_) => None,
        };
        self.release_us = self.best_release(budget);
        let held: [bool; CLASSES] =
            std::array::from_fn(|class| request && (class as f32 - 1.0).exp2() < self.release_us);
        let alone: [f32; CLASSES] = std::array::from_fn(|class| wakes[usize::from(held[class])].mean(class));
        let crowd = self.crowd(&alone, weight);
        for class in 0..CLASSES {
            self.costs.sleep[class] = match budget {
                Some(budget) => LATE_COST * wakes[usize::from(held[class])].above(budget),
                None => (alone[class] + crowd[class]).max(0.1 * alone[class]),
            };
        }
        self.costs.weight = weight;
        self.costs.wake_us = wakes[usize::from(request)].overall().max(0.1);
        self.costs.free_us = budget.unwrap_or(0.0);
        self.costs.slope = if budget.is_some() { 0.0 } else { 1.0 };
        self.costs.overshoot_us = overshoot;
        self.costs.overshoot_mean_us = overshoot.iter().sum::<f32>() / POINTS as f32;
        self.experts.costs_changed(&self.costs);
    }

    /// Per class of gap: what it costs more that further packets come within the wake-up after it, us of latency, less what
    /// those would cost if they were found one by one.
    fn crowd(&self, wake_us: &[f32; CLASSES], weight: f32) -> [f32; CLASSES] {
        let mut gaps = [0.0; FLOW];
        let count = self.flow.last(FLOW, &mut gaps);
        let gaps = &gaps[..count];
        // Those that come while the worker is being woken for one: their gaps, and how late each is.
        let followers = |at: usize| {
            let mut passed = 0.0;
            let wake_us = wake_us[class_of(gaps[at])];
            gaps[at + 1..].iter().take(CROWD).map_while(move |gap| {
                passed += gap;
                (passed < wake_us).then_some((*gap, wake_us - passed))
            })
        };
        let mut sums = [(0.0f32, 0.0f32); CLASSES];
        for at in 0..count {
            let sum = &mut sums[class_of(gaps[at])];
            let wake_us = wake_us[class_of(gaps[at])];
            let (late, packets) =
                followers(at).fold((wake_us, 1.0), |(late, packets), (_, more)| (late + more, packets + 1.0));
            *sum = (sum.0 + late, sum.1 + packets);
        }
        // What a packet costs if one always sleeps.
        let share = sums.map(|(late, packets)| if packets > 0.0 { late / packets } else { 0.0 });
        let mut more = [(0.0f32, 0.0f32); CLASSES];
        for at in 0..count {
            let sum = &mut more[class_of(gaps[at])];
            let each = |(gap, late): (f32, f32)| late - (weight * gap).min(share[class_of(gap)]);
            *sum = (sum.0 + followers(at).map(each).sum::<f32>(), sum.1 + 1.0);
        }
        more.map(|(cost, times)| if times > 0.0 { cost / times } else { 0.0 })
    }

    /// Until when, after an arrival, holding the request pays, us.
    fn best_release(&self, budget: Option<f32>) -> f32 {
        let wakes = &self.learnt.wake;
        let histogram: &Decaying = self.experts.histogram();
        if self.experts.gaps() < 8 {
            return LINGER_UNKNOWN.as_micros() as f32;
        }
        let gain = match budget {
            Some(budget) => LATE_COST * (wakes[0].above(budget) - wakes[1].above(budget)),
            None => wakes[0].overall() - wakes[1].overall(),
        };
        let price = self.config.held_price;
        let timer = self.costs.timer_cpu();
        // Relative to never holding; half a gap is believed to be longer than all.
        let mut alive = histogram.total() + 0.5;
        let (mut value, mut best, mut best_us, mut from) = (0.0, 0.0, 0.0, 0.0);
        for (_, hi, mass) in histogram.buckets() {
            let hi = hi * 1.05;
            value += gain * mass - price * (hi - from) * (alive - mass / 2.0);
            alive -= mass;
            from = hi;
            let value = value - timer * alive;
            if value > best {
                (best, best_us) = (value, hi);
            }
        }
        // As one who knows nothing would, for half as long: a change of the traffic costs little then.
        let unknowing = 0.25 * gain.max(0.0) / price.max(1e-9);
        best_us.max(unknowing).min(LINGER_MAX_US)
    }

    /// What it does, and why.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let (leader, plan) = self.experts.leader(self.context);
        Explanation {
            leader,
            plan,
            weight: self.control.weight(),
            behind_us: *self.experts.behind(),
            promised_us: *self.experts.promised(),
            per_packet_us: self.per_packet,
            release_us: if self.config.machine.wake_held_us.is_some() { self.release_us } else { 0.0 },
            wake_us: self.learnt.wake.each_ref().map(|wake| [wake.quantile(0.5), wake.quantile(0.99)]),
            overshoot_us: self
                .learnt
                .overshoot
                .each_ref()
                .map(|over| [over.quantile(0.5), over.quantile(0.99)]),
            counts: self.counts,
        }
    }
}

fn us(nanos: u64) -> f32 {
    nanos as f32 / 1e3
}

fn duration(us: f32) -> Duration {
    Duration::from_nanos((f64::from(us) * 1e3) as u64)
}
