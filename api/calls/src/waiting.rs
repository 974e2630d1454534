//! Waiting for sockets of which some have a lease: what `select`, `poll` and `epoll_wait` share.
#![allow(unsafe_code, reason = "the kernel's calls take pointers")]

use std::io;
use std::time::Duration;

use libc::{c_int, sigset_t, timespec};
use twinpath_idle::Woken;
use twinpath_socket::{Awaited, Precise, wait};
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_worker::idle::Decision;

use crate::kernel::{Kernel, errno};
use crate::signals::Blocked;
use crate::table::{self, PLACES, Place};
use crate::times;

/// The sockets with a lease that a call waits for.
#[derive(Clone, Copy)]
pub(crate) struct Leased {
    /// A bit for each place.
    places: u64,
    /// The descriptor that the call has for each of them.
    descriptors: [c_int; PLACES],
}

const _: () = assert!(PLACES == 64);

impl Leased {
    pub(crate) const fn none() -> Self {
        Self { places: 0, descriptors: [-1; PLACES] }
    }

    pub(crate) const fn add(&mut self, place: usize, descriptor: c_int) {
        self.places |= 1 << place;
        self.descriptors[place] = descriptor;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// The number of each place, the descriptor that the call has for it, and the place.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, c_int, &'static Place)> {
        table::places()
            .filter(|(number, _)| self.places & 1 << number != 0)
            .map(|(number, place)| (number, self.descriptors[number], place))
    }
}

/// What a call found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// Places whose ring has a datagram, as bits.
    pub(crate) ready: u64,
    /// What the kernel returned when it was asked last; `None` if it was not asked.
    pub(crate) kernel: Option<c_int>,
}

impl Outcome {
    pub(crate) const fn is_ready(&self, place: usize) -> bool {
        self.ready & 1 << place != 0
    }
}

struct Waiter<'a, A> {
    kernel: &'a Kernel,
    leased: &'a Leased,
    /// The signals that the call holds back, if it says so.
    mask: Option<&'a sigset_t>,
    /// Asks the kernel, with a time-out and a set of signals: what the kernel returns.
    ask: A,
    outcome: Outcome,
    blocked: Option<Blocked>,
    /// Of the threads that wait for the first socket, this is the one that spins.
    leads: bool,
}

impl<A> Drop for Waiter<'_, A> {
    fn drop(&mut self) {
        self.follow();
    }
}

/// Waits for `leased` and whatever else `ask` asks for. The error is in `errno` as well.
pub(crate) fn wait_among<A>(
    kernel: &Kernel,
    leased: &Leased,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
    ask: A,
) -> io::Result<Outcome>
where
    A: FnMut(Option<&timespec>, Option<&sigset_t>) -> c_int,
{
    use std::sync::atomic::Ordering;
    let Some((_, _, first)) = leased.each().next() else { return Ok(Outcome::default()) };
    leased.each().for_each(|(_, _, place)| place.set_waited_for());
    let mut ask_at = Instant::from_nanos(first.ask_at.load(Ordering::Relaxed));
    let mut waiter =
        Waiter { kernel, leased, mask, ask, outcome: Outcome::default(), blocked: None, leads: false };
    let waited = wait(timeout, &mut ask_at, &mut waiter);
    let outcome = waiter.outcome;
    drop(waiter);
    first.ask_at.store(ask_at.as_nanos(), Ordering::Relaxed);
    // Another thread may have begun to wait in the kernel meanwhile.
    for (_, _, place) in leased.each().filter(|(_, _, place)| !place.lessee.may_stay()) {
        place.lessee.give_back();
    }
    waited.map(|_| outcome)
}

impl<A> Waiter<'_, A> {
    fn first(&self) -> Option<&'static Place> {
        self.leased.each().next().map(|(_, _, place)| place)
    }

    /// Whether this thread may spin: no other one does, that waits for the same socket.
    fn leads(&mut self, first: &Place) -> bool {
        self.leads = self.leads || first.lessee.lead();
        self.leads
    }

    fn follow(&mut self) {
        if std::mem::take(&mut self.leads)
            && let Some(first) = self.first()
        {
            first.lessee.follow();
        }
    }

    /// The socket by which the policy learns. A thread that was woken beside others says nothing: the one that receives does.
    fn teaches(&self) -> Option<&'static Place> {
        self.first().filter(|first| self.leads || !first.lessee.is_contended())
    }
}

impl<A> Waiter<'_, A>
where
    A: FnMut(Option<&timespec>, Option<&sigset_t>) -> c_int,
{
    /// A call that spins is interrupted as one that sleeps: a signal that has come meanwhile is let through here.
    fn interrupt(&self) -> io::Result<()> {
        let Some(blocked) = &self.blocked else { return Ok(()) };
        let mask = self.mask.unwrap_or_else(|| blocked.before());
        if !Blocked::has_come(mask) {
            return Ok(());
        }
        let now = times::timespec(0);
        // SAFETY: it waits for nothing, with a set of signals that the C library has filled.
        let got = unsafe { (self.kernel.ppoll)(std::ptr::null_mut(), 0, &raw const now, mask) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn ask_kernel(&mut self, timeout: Option<&timespec>, mask: Option<&sigset_t>) -> io::Result<bool> {
        let got = (self.ask)(timeout, mask);
        if got < 0 {
            return Err(io::Error::from_raw_os_error(errno()));
        }
        self.outcome.kernel = Some(got);
        Ok(got > 0)
    }
}

impl<A> Awaited for Waiter<'_, A>
where
    A: FnMut(Option<&timespec>, Option<&sigset_t>) -> c_int,
{
    fn look(&mut self, now: Instant) -> bool {
        self.outcome = Outcome::default();
        for (number, descriptor, place) in self.leased.each() {
            // If another thread receives, the socket is not ready for this one.
            if place.lessee.is_ready(&table::socket(descriptor), now) == Some(true) {
                self.outcome.ready |= 1 << number;
            }
        }
        self.outcome.ready != 0
    }

    fn ask(&mut self, until: Instant) -> io::Result<bool> {
        if until == Instant::ZERO {
            self.interrupt()?;
            // Signals that only the caller's set lets in come here also in a call that does not wait.
            return self.ask_kernel(Some(&times::timespec(0)), self.mask);
        }
        let left = times::timespec(until.nanos_since(clock::now()));
        let timeout = (until != Instant::NEVER).then_some(&left);
        // A handler of a signal may leave this call for good.
        self.follow();
        let _precise = timeout.map(|_| Precise::new());
        self.leased.each().for_each(|(_, _, place)| place.lessee.waits());
        let before = self.blocked.as_ref().map(|blocked| *blocked.before());
        // Before another thread could have taken the lease, something may have come.
        let is_ready = self.look(clock::now());
        let slept = if is_ready { Ok(true) } else { self.ask_kernel(timeout, self.mask.or(before.as_ref())) };
        self.leased.each().for_each(|(_, _, place)| place.lessee.waited());
        slept
    }

    fn hold(&mut self, now: Instant) {
        self.blocked.get_or_insert_with(Blocked::new);
        self.leased.each().for_each(|(_, _, place)| place.lessee.hold(now));
    }

    fn give_back(&mut self, now: Instant) -> bool {
        self.leased.each().for_each(|(_, _, place)| place.lessee.give_back());
        !self.look(now)
    }

    fn decide(&mut self, now: Instant, deadline: Instant) -> Decision {
        // Another thread spins, or receives.
        let sleeps = Decision::Sleep { until: deadline };
        let Some(first) = self.first().filter(|first| self.leads(first)) else { return sleeps };
        first.lessee.decide(now, deadline).unwrap_or(sleeps)
    }

    fn woke(&mut self, now: Instant, woken: Woken) {
        self.teaches().inspect(|first| first.lessee.woke(now, woken));
    }

    fn found(&mut self, now: Instant, looked: Instant) {
        self.teaches().inspect(|first| first.lessee.found(now, looked));
    }
}
