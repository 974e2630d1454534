//! The drain: listeners close first, then each connection once its requests are answered, and then the instance ends.

use twinpath_time::{Duration, Instant};

use crate::action::Action;
use crate::event::TakerId;
use crate::taker::Taker;
use crate::{Awaited, Lifecycle, Phase};

/// How long to wait for workers to close the remaining connections, or their listeners. They need one turn, unless
/// the machine is very busy.
pub const CUT_PATIENCE: Duration = Duration::from_millis(900);

/// How long workers may take in all to close the remaining connections, while these become fewer. A turn closes some: very
/// many go on in sockets of the kernel, each by some tens of system calls.
pub const CUT_MAX: Duration = Duration::from_secs(10);

/// The state of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// When the remaining connections are closed or, if they are being closed, when that has taken too long.
    pub ends_at: Instant,
    /// Whether the remaining connections are being closed.
    pub is_cutting: bool,
    /// Until when they may be, however many there are.
    cut_by: Instant,
    /// Whether what waits in the sockets is left to another instance.
    pub handed_over: bool,
    /// Services, counted once per worker, that have something left to answer.
    pub services: usize,
    /// Workers that may still accept connections.
    listening: usize,
    /// The new instance that may take over.
    pub(crate) taker: Option<Taker>,
    /// The new instance that has taken over.
    successor: Option<Successor>,
}

/// A new instance that has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Successor {
    id: TakerId,
    /// When it is agreed with at the latest; `None`: it has been.
    agree_by: Option<Instant>,
}

/// How a drain begins.
pub(crate) struct Begun {
    pub(crate) handed_over: bool,
    pub(crate) taker: Option<Taker>,
    /// The new instance that has taken over.
    pub(crate) agrees_with: Option<TakerId>,
    pub(crate) within: Duration,
}

impl Drain {
    /// Whether another instance has taken over.
    pub(crate) const fn is_taken_over(&self) -> bool {
        self.successor.is_some()
    }

    /// Whether everything is answered.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.services == 0
    }

    pub(crate) fn deadline(&self) -> Instant {
        let agree_by = self.successor.and_then(|successor| successor.agree_by);
        self.ends_at.min(agree_by.unwrap_or(Instant::NEVER))
    }
}

/// A service that a reload has removed and that has something left to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaving {
    pub(crate) part: usize,
    /// Workers on which it has.
    workers: usize,
    /// When its connections are closed; never: they have been.
    pub(crate) cut_at: Instant,
}

impl Lifecycle {
    /// Starts to drain. Closing control's own descriptors comes first, because they would keep the listeners open.
    pub(crate) fn begin_to_drain(&mut self, now: Instant, begun: Begun, actions: &mut Vec<Action>) {
        let Begun { handed_over, taker, agrees_with, within } = begun;
        actions.extend([Action::CloseStandbys, Action::LetGo]);
        let agree_by = Some(now + CUT_PATIENCE);
        self.phase = Phase::Draining(Drain {
            ends_at: now + within,
            is_cutting: false,
            cut_by: Instant::NEVER,
            handed_over,
            services: 0,
            listening: 0,
            taker,
            successor: agrees_with.map(|id| Successor { id, agree_by }),
        });
        self.ask(Action::Drain { handed_over }, Awaited::Drain, actions);
    }

    pub(crate) const fn drain_begun(&mut self, services: usize, listening: usize) {
        if let Phase::Draining(drain) = &mut self.phase {
            (drain.services, drain.listening) = (services, listening);
        }
    }

    /// Starts to drain because a user or the program asks for it.
    fn drain_within(&mut self, now: Instant, within: Duration, actions: &mut Vec<Action>) {
        let handed_over = matches!(self.phase, Phase::StandingBy(_));
        let taker = self.taker().copied();
        let begun = Begun { handed_over, taker, agrees_with: None, within };
        self.begin_to_drain(now, begun, actions);
    }

    pub(crate) fn drain_asked(&mut self, now: Instant, within: Option<Duration>, actions: &mut Vec<Action>) {
        actions.push(Action::Unregister);
        match (&mut self.phase, within) {
            (Phase::Draining(drain), Some(within)) if !drain.is_cutting => drain.ends_at = now + within,
            (Phase::Draining(_) | Phase::Ended, _) => {}
            (_, within) => self.drain_within(now, within.unwrap_or(self.limits.drain), actions),
        }
    }

    pub(crate) fn stop_asked(&mut self, now: Instant, within: Option<Duration>, actions: &mut Vec<Action>) {
        actions.push(Action::Unregister);
        let given = within.filter(|within| !within.is_zero());
        let timeout = within.unwrap_or(self.limits.drain);
        match (&mut self.phase, given) {
            // The program asks for an earlier end.
            (Phase::Draining(drain), Some(within)) => drain.ends_at = drain.ends_at.min(now + within),
            (Phase::Draining(_), None) => self.end(true, actions),
            _ if timeout.is_zero() => self.end(true, actions),
            _ => self.drain_within(now, timeout, actions),
        }
    }

    pub(crate) const fn listeners_closed(&mut self) {
        if let Phase::Draining(drain) = &mut self.phase {
            drain.listening = drain.listening.saturating_sub(1);
        }
    }

    pub(crate) const fn service_drained(&mut self) {
        if let Phase::Draining(drain) = &mut self.phase {
            drain.services = drain.services.saturating_sub(1);
        }
    }

    /// The remaining connections, which are being closed, have become fewer: the others get time, too.
    pub(crate) fn cut_goes_on(&mut self, now: Instant) {
        if let Phase::Draining(drain) = &mut self.phase
            && drain.is_cutting
        {
            drain.ends_at = (now + CUT_PATIENCE).min(drain.cut_by);
        }
    }

    /// A new instance serves from here on, after this one has begun to drain by itself.
    pub(crate) fn agree_in_drain(&mut self, now: Instant, id: TakerId, actions: &mut Vec<Action>) {
        if let Phase::Draining(drain) = &mut self.phase {
            actions.push(Action::ReleaseFrames);
            drain.taker = None;
            drain.handed_over = true;
            drain.successor = Some(Successor { id, agree_by: Some(now + CUT_PATIENCE) });
        }
    }

    /// Agrees with the new instance once no worker accepts connections, or when that has taken too long: a client that
    /// connects after that must not be accepted here, where its connection would end. A stuck worker accepts none, so
    /// it is waited for no longer than the others.
    fn agree_if_closed(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Phase::Draining(drain) = &mut self.phase
            && let Some(Successor { id, agree_by: Some(by) }) = drain.successor
            && (drain.listening == 0 || drain.is_done() || by <= now)
        {
            drain.successor = Some(Successor { id, agree_by: None });
            actions.push(Action::Agree(id));
        }
    }

    /// Carries on with a drain: agrees with a new instance, closes connections, ends.
    pub(crate) fn drain_continues(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.agree_if_closed(now, actions);
        let Phase::Draining(drain) = &mut self.phase else { return };
        let is_done = drain.is_done() && self.leaving.is_empty();
        let is_late = drain.ends_at <= now;
        if is_done || (is_late && drain.is_cutting) {
            self.end(true, actions);
        } else if is_late {
            (drain.is_cutting, drain.ends_at, drain.cut_by) = (true, now + CUT_PATIENCE, now + CUT_MAX);
            actions.push(Action::Cut);
        }
    }

    /// Services leave the workers after a reload, within the time of a drain.
    pub(crate) fn expect_to_leave(&mut self, now: Instant, parts: &[usize], workers: usize) {
        let cut_at = now + self.limits.drain;
        self.leaving.extend(parts.iter().map(|part| Leaving { part: *part, workers, cut_at }));
    }

    /// A removed service has left one worker.
    pub(crate) fn left(&mut self, part: usize) {
        let leaving = self.leaving.iter_mut().filter(|leaving| leaving.part == part);
        leaving.for_each(|leaving| leaving.workers = leaving.workers.saturating_sub(1));
        self.leaving.retain(|leaving| leaving.workers > 0);
    }

    /// Closes the connections of removed services whose time is over.
    pub(crate) fn cut_leaving(&mut self, now: Instant, actions: &mut Vec<Action>) {
        for leaving in self.leaving.iter_mut().filter(|leaving| leaving.cut_at <= now) {
            leaving.cut_at = Instant::NEVER;
            actions.push(Action::CutService(leaving.part));
        }
    }
}
