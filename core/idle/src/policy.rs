//! The policy: given arrivals, sleeps and the time, it decides whether to spin or to sleep.

use libm::logf;
use twinpath_time::{Duration, Instant};

use crate::beliefs::Context;
use crate::config::Config;
use crate::costs::{Costs, best_release};
use crate::during_wakeup::DuringWakeup;
use crate::event::{Arrival, Decision, Woken};
use crate::expert::Expert;
use crate::experts::Experts;
use crate::explain::{Counts, Explanation, Summary};
use crate::gaps::{GAP_MAX_US, class_of, is_silence};
use crate::goal::{Controller, Goal};
use crate::machine::{Learnt, Machine, POINTS};
use crate::pending::Pending;
use crate::plan::IdlePlan;

/// The table of costs is made anew after this many gaps at the latest.
const COSTS_EVERY: u64 = 128;

/// The fraction of the time that may go into making plans, and how much of it may be saved up, us.
const PLANNING_SHARE: f32 = 0.005;
const PLANNING_MAX_US: f32 = 5_000.0;

/// The time to make a plan, us.
const PLAN_US: f32 = 20.0;

/// A packet that is found later than this after the worker woke has come after the wake-up.
const SETTLED: Duration = Duration::from_micros(1);

/// A worker that could not spin for this long is not woken ahead of a packet.
const WORTH_WAKING: Duration = Duration::from_micros(5);

/// A request is held for this long while no gaps are known.
const LINGER_UNKNOWN: Duration = Duration::from_secs(3);

/// A request is never held for longer than this without an arrival.
const LINGER_MAX_US: f32 = 10e6;

/// The current idle time.
#[derive(Clone, Copy, Debug)]
struct Idling {
    /// When the current spinning began; `None` while asleep.
    spinning: Option<Instant>,
    /// The end of the spinning that was decided.
    until: Instant,
    /// The current or last sleep: its begin, its end, and whether its timer was a prediction.
    slept: Instant,
    alarm: Instant,
    predicted: bool,
    /// When its timer woke the worker, and whether a request was held then.
    fired: Option<(Instant, bool)>,
    /// The probable arrival time of the packet that woke it, if nothing reported it.
    came: Option<Instant>,
    /// Spinning that the plan wanted and the budget did not allow: from, until.
    denied: Option<(Instant, Instant)>,
    /// The plan's timers up to this time have fired, however times were rounded.
    reached_us: f32,
    plan: IdlePlan,
}

/// The policy's state: about 22 KiB, plus 18 KiB in which plans are made. Both are allocated at creation.
#[derive(Clone, Debug)]
pub struct Policy {
    config: Config,
    control: Controller,
    learnt: Learnt,
    during_wakeup: DuringWakeup,
    costs: Costs,
    costs_due: u64,
    experts: Experts,
    pending: Pending,
    context: Context,
    leader: Expert,
    contended: bool,
    last: Option<Instant>,
    idling: Option<Idling>,
    release_us: f32,
    /// The time left for making plans, us, as of an instant.
    planning_us: f32,
    planned: Instant,
    counts: Counts,
}

impl Policy {
    /// A policy that has seen nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let config = Config { machine: config.machine.plausible(), ..config };
        let control = Controller::new(config.goal, config.spin_share);
        let (learnt, during_wakeup) = (Learnt::new(&config.machine), DuringWakeup::default());
        let release_us = LINGER_UNKNOWN.as_micros() as f32;
        let costs = Costs::of(
            &config.machine,
            &learnt,
            &during_wakeup,
            control.weight(),
            config.goal.budget_us(),
            release_us,
        );
        Self {
            config,
            control,
            learnt,
            during_wakeup,
            costs,
            costs_due: 0,
            experts: Experts::new(),
            pending: Pending::new(),
            context: Context::default(),
            leader: Expert::Unknowing,
            contended: false,
            last: None,
            idling: None,
            release_us,
            planning_us: PLANNING_MAX_US,
            planned: Instant::ZERO,
            counts: Counts::default(),
        }
    }

    /// The current goal.
    #[must_use]
    pub const fn goal(&self) -> Goal {
        self.control.goal()
    }

    /// Sets another goal; what was learnt of the traffic is kept.
    pub fn set_goal(&mut self, goal: Goal) {
        self.config.goal = goal;
        self.control = Controller::new(goal, self.config.spin_share);
        self.make_costs();
    }

    /// Sets another bound on the share of the time that may be spent spinning; see [`Config::spin_share`].
    pub fn set_spin_share(&mut self, share: Option<f32>) {
        self.config.spin_share = share;
        self.control = Controller::new(self.config.goal, share);
        self.make_costs();
    }

    /// Tells the policy whether others compete for the CPU under a fair scheduler. If so, it sleeps immediately
    /// from the next idle time on, because a worker that spins would be woken late. This has no effect if the time
    /// of spinning is fixed or the goal is a latency.
    pub const fn set_contended(&mut self, contended: bool) {
        self.contended = contended;
    }

    const fn gives_way(&self) -> bool {
        self.contended && self.config.spin.is_none() && !matches!(self.config.goal, Goal::Latency(_))
    }

    /// The policy will not be told of the time that follows. The current idle time is forgotten; what was learnt is
    /// kept.
    pub fn pause(&mut self) {
        (self.idling, self.last, self.pending) = (None, None, Pending::new());
    }

    /// Replaces the figures of the machine by newly measured ones.
    pub fn set_machine(&mut self, machine: Machine) {
        let machine = machine.plausible();
        self.config.machine = machine;
        self.learnt = Learnt::new(&machine);
        self.make_costs();
    }

    /// A turn found packets.
    #[inline]
    pub fn arrived(&mut self, now: Instant, arrival: Arrival) {
        self.counts.packets += u64::from(arrival.count);
        let mut arrival = arrival;
        if let Some(idling) = self.idling.take() {
            let stamped = arrival.first < now;
            arrival = self.likely(now, arrival, &idling);
            self.idle_ended(now, arrival, stamped, &idling);
        }
        // If time goes backwards, it is taken as unchanged.
        self.last = Some(self.last.map_or(arrival.last, |last| last.max(arrival.last)));
    }

    /// Estimates when packets came that are only known to have been found at `now`. If the time of finding were
    /// taken for the arrival, the policy would expect the next packet too late, therefore find it late, and so on.
    fn likely(&self, now: Instant, found: Arrival, idling: &Idling) -> Arrival {
        let Arrival { mut first, mut last, count } = found;
        if let Some(came) = idling.came
            && first >= now
        {
            first = came;
            last = if count == 1 { came } else { last };
        }
        let usual = duration(self.experts.mean_us());
        if let (Some((fired, _)), Some(before)) = (idling.fired, self.last)
            && first >= now
            && now.nanos_since(fired) < SETTLED.as_nanos() as u64
            && now > before + usual
            && us(now.nanos_since(before + usual)) < self.costs.overshoot_us[POINTS - 1]
        {
            // The packet was there when the timer woke the worker: it came when it was expected, if the timer was no
            // later than timers are.
            first = before + usual;
            last = if count == 1 { first } else { last };
        }
        if count > 1 && last >= now && now.nanos_since(first) > usual.as_nanos() as u64 {
            // At the usual gaps, if that is possible.
            let at = first + usual * (count - 1);
            let ago = now.nanos_since(at);
            last = if at <= now && ago < 2 * usual.as_nanos() as u64 { at } else { last };
        }
        Arrival { first, last, count }
    }

    fn idle_ended(&mut self, now: Instant, arrival: Arrival, stamped: bool, idling: &Idling) {
        let spun = idling.spinning.map_or(0, |since| now.nanos_since(since));
        let denied = idling.denied.map_or(0, |(from, until)| until.min(arrival.first).nanos_since(from));
        self.counts.spun_ns += spun;
        self.control.spent(now, spun, spun + denied);
        let inside_us =
            us(arrival.last.nanos_since(arrival.first)) / arrival.count.saturating_sub(1).max(1) as f32;
        if let Goal::Latency(budget) = self.config.goal {
            // A spinning worker finds a packet as early as it can. It cannot prevent others from having its CPU.
            let from = if idling.spinning.is_some() { now } else { arrival.first };
            let late_us = us(now.nanos_since(from)) - us(budget.as_nanos() as u64);
            let late = if late_us > 0.0 { 1 + (late_us / inside_us.max(0.01)) as u32 } else { 0 };
            self.control.found(arrival.count, late);
        }
        if let (Some(last), Some((fired, held))) = (self.last, idling.fired)
            && stamped
            && arrival.first < fired
        {
            let (slept, after) = (arrival.first.nanos_since(last), fired.nanos_since(arrival.first));
            self.learnt.woken_by_timer(held, us(slept), us(after));
        }
        if let Some(last) = self.last {
            let gap_us = us(arrival.first.nanos_since(last));
            if is_silence(gap_us, self.experts.mean_us()) {
                self.learnt.doubt();
            }
            self.pending.push(gap_us.min(GAP_MAX_US), 1);
        }
        if arrival.count > 1 {
            self.pending.push(inside_us, arrival.count - 1);
        }
    }

    /// Decides what to do after a turn that began at `now` and found nothing. `deadline` is the next deadline of
    /// the worker itself.
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
            None => self.begin(now),
        };
        let at_us = at_us.max(idling.reached_us);
        if let Some(since) = &mut idling.spinning {
            let spun = now.nanos_since(*since);
            self.counts.spun_ns += spun;
            self.control.spent(now, spun, spun);
            *since = now;
        }
        let spin = idling.plan.spin_until(at_us).map(|until| last + duration(until));
        let affordable = spin.and_then(|until| self.affordable(now, until));
        if let Some(until) = spin
            && affordable.is_none_or(|end| end < until)
        {
            idling.denied = Some((affordable.unwrap_or(now), until));
        }
        let decision = match affordable {
            Some(until) if until > now => {
                if idling.spinning.is_none() {
                    self.counts.spins += 1;
                }
                idling.spinning = Some(now);
                idling.until = until;
                Decision::Spin { until: until.min(deadline.max(now)) }
            }
            _ => {
                idling.spinning = None;
                let ahead = idling.plan.ahead(at_us);
                let mut alarm = ahead.map_or(Instant::NEVER, |window| last + duration(window.wake_us));
                if let Some(window) = ahead
                    && self.control.allowance(alarm).is_some_and(|left| left < WORTH_WAKING)
                {
                    idling.denied = Some((alarm, last + duration(window.until_us)));
                    alarm = Instant::NEVER;
                }
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

    /// Cuts a time of spinning to the budget.
    fn affordable(&self, now: Instant, until: Instant) -> Option<Instant> {
        match self.control.allowance(now) {
            None => Some(until),
            Some(left) => (left >= Duration::from_micros(1)).then(|| until.min(now + left)),
        }
    }

    /// An idle time begins: earlier gaps are learnt now, as there is nothing else to do.
    fn begin(&mut self, now: Instant) -> Idling {
        self.learn();
        self.replan(now);
        let plan = if let Some(spin) = self.config.spin {
            IdlePlan::spin(us(spin.as_nanos() as u64))
        } else if self.gives_way() {
            IdlePlan::SLEEP
        } else {
            let (leader, plan) = self.experts.leader(self.context, &self.costs);
            if leader != self.leader {
                self.leader = leader;
                self.counts.leader_changes += 1;
            }
            plan
        };
        Idling {
            spinning: None,
            until: now,
            slept: now,
            alarm: Instant::NEVER,
            predicted: false,
            fired: None,
            came: None,
            denied: None,
            reached_us: 0.0,
            plan,
        }
    }

    fn learn(&mut self) {
        for &(gap_us, packets) in self.pending.oldest() {
            self.during_wakeup.learn(gap_us, packets as f32, &self.costs.alone_us, self.costs.weight);
            self.experts.learn(self.context, gap_us, packets as f32, &self.costs);
            self.context = self.context.after(gap_us, packets);
        }
        self.pending.remove_oldest();
        let gaps = self.experts.gaps();
        let moved = logf(self.control.weight() / self.costs.weight).abs() > 0.1;
        if gaps >= self.costs_due || self.learnt.is_news() || moved {
            self.make_costs();
            if moved {
                self.experts.forget_plans();
            }
            // Often at first, then rarely.
            self.costs_due = gaps + (gaps / 2).clamp(4, COSTS_EVERY);
        }
    }

    /// Makes the plans that are due, as far as there is time: several while little is known, then one at a time.
    fn replan(&mut self, now: Instant) {
        let passed = us(now.nanos_since(self.planned));
        self.planned = now;
        // If packets come as fast as plans are made, each plan delays one of them.
        let share =
            if self.experts.mean_us() < 2.0 * PLAN_US { PLANNING_SHARE / 5.0 } else { PLANNING_SHARE };
        self.planning_us = (self.planning_us + passed * share).min(PLANNING_MAX_US);
        let most = if self.experts.gaps() < 100 { 6 } else { 1 };
        let leads = self.costs.leads();
        for _ in 0..most {
            if self.planning_us < PLAN_US || !self.experts.replan(self.context, &self.costs, leads) {
                break;
            }
            self.planning_us -= PLAN_US;
            self.counts.plans += 1;
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
                if latency.is_none() {
                    let class = class_of(slept_us);
                    let likely = duration(self.learnt.wake[usize::from(held)].mean(class));
                    let slept = Duration::from_nanos(now.nanos_since(idling.slept));
                    idling.came = Some(idling.slept + slept.saturating_sub(likely));
                }
                if let Some(latency) = latency {
                    let latency_us = us(latency.as_nanos() as u64);
                    self.learnt.woken(held, slept_us - latency_us, latency_us);
                    if idling.predicted && now.nanos_since(idling.alarm) > latency.as_nanos() as u64 {
                        // The packet came first: the timer's lateness is unknown, only its minimum.
                        let over_us = us(now.nanos_since(idling.alarm));
                        self.learnt.fired_too_late(held, slept_us, over_us);
                    }
                }
            }
            Woken::Timer if idling.predicted && now >= idling.alarm => {
                self.counts.woken_by_prediction += 1;
                idling.fired = Some((now, held));
                let over_us = us(now.nanos_since(idling.alarm));
                self.learnt.fired(held, slept_us, over_us);
                let cpu_ns = (self.config.machine.timer_cpu_us * 1e3) as u64;
                self.control.spent(now, cpu_ns, cpu_ns);
                if let Some(wake) = idling.plan.wake_at(idling.reached_us) {
                    idling.reached_us = idling.reached_us.max(wake);
                }
            }
            Woken::Timer | Woken::Other => self.counts.woken_by_other += 1,
        }
    }

    /// Whether a worker that sleeps at `now` should hold a latency request.
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

    /// When a sleeping worker must wake to release the request.
    fn release(&self, now: Instant) -> Instant {
        if self.holds(now) { self.held_until() } else { Instant::NEVER }
    }

    /// Makes the table of costs from what was learnt.
    fn make_costs(&mut self) {
        self.learnt.told();
        let Self { config, learnt, during_wakeup, .. } = self;
        let budget_us = config.goal.budget_us();
        if self.experts.gaps() >= 8 {
            let (price, timer) = (config.held_price, self.costs.timer_cpu());
            let release_us = best_release(self.experts.histogram(), learnt, budget_us, price, timer);
            self.release_us = release_us.min(LINGER_MAX_US);
        }
        let weight = self.control.weight();
        self.costs = Costs::of(&config.machine, learnt, during_wakeup, weight, budget_us, self.release_us);
    }

    /// Whether a sleep that ends at `now` ends with the timer set for an expected packet.
    #[must_use]
    pub fn is_ahead(&self, now: Instant) -> bool {
        self.idling.is_some_and(|idling| idling.predicted && now >= idling.alarm)
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A short summary of its behaviour and the reason.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let (leader, plan) = self.experts.leader(self.context, &self.costs);
        let fixed = self.config.spin.map(|spin| IdlePlan::spin(us(spin.as_nanos() as u64)));
        let plan = if self.gives_way() { IdlePlan::SLEEP } else { plan };
        let first = fixed.unwrap_or(plan).windows().next();
        Summary {
            gives_way: self.gives_way(),
            leader: if fixed.is_some() { None } else { Some(leader) },
            gaps: self.experts.gaps(),
            gap_us: self.experts.mean_us(),
            last: self.last.unwrap_or(Instant::ZERO),
            wake_us: first.map_or(f32::INFINITY, |window| window.wake_us),
            until_us: first.map_or(0.0, |window| window.until_us),
            cost_us: self.costs.wake_us,
            release_us: if self.config.machine.wake_held_us.is_some() { self.release_us } else { 0.0 },
            weight: self.control.weight(),
        }
    }

    /// Its behaviour and the reason.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let (leader, plan) = self.experts.leader(self.context, &self.costs);
        Explanation {
            leader,
            plan,
            weight: self.control.weight(),
            behind_us: self.experts.behind(),
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
