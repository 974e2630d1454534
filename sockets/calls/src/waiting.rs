//! Waiting for sockets of which some have a lease: what `select`, `poll` and `epoll_wait` share.
#![allow(unsafe_code, reason = "the kernel's calls take pointers")]

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use libc::{c_int, sigset_t, timespec};
use twinpath_idle::Woken;
use twinpath_leases::sockets::{Awaited, Lead, Precise, Readiness, Watch, wait};
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_worker::idle::Decision;

use crate::kernel::{Kernel, errno};
use crate::on_socket::OnSocket;
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
    /// The set of `epoll(7)` that the call waits for; -1: it names the descriptors itself.
    set: c_int,
    /// The call goes on with sockets that another thread closes.
    goes_on: bool,
}

const _: () = assert!(PLACES == 64);

impl Leased {
    pub(crate) const fn none() -> Self {
        Self::in_set(-1)
    }

    pub(crate) const fn in_set(set: c_int) -> Self {
        Self { places: 0, descriptors: [-1; PLACES], set, goes_on: false }
    }

    /// Of a call that can ask the kernel by another descriptor than the one that it has ([`Self::descriptor_of`]).
    pub(crate) const fn that_goes_on() -> Self {
        Self { goes_on: true, ..Self::none() }
    }

    pub(crate) const fn add(&mut self, place: usize, descriptor: c_int) {
        self.places |= 1 << place;
        self.descriptors[place] = descriptor;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// The number of each place, the descriptor by which the call has it, and the place. Not those whose lease is over, or that were closed
    /// by another thread, unless the call goes on with them: the kernel alone has these.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, c_int, &'static Place)> {
        self.all()
            .filter(|(number, place)| !place.lessee.is_over() && self.has(*number, place))
            .map(|(number, place)| (number, self.descriptor_of_place(number, place), place))
    }

    fn descriptor_of_place(&self, number: usize, place: &Place) -> c_int {
        let named = self.descriptors[number];
        if self.goes_on_with(number, place) { place.descriptor(named) } else { named }
    }

    /// Whether another thread has closed it.
    fn goes_on_with(&self, number: usize, place: &Place) -> bool {
        self.goes_on && place.was_closed_as(self.descriptors[number])
    }

    /// By which the kernel is asked for a descriptor that the call has, while the call waits ([`wait_among`]).
    pub(crate) fn descriptor_of(&self, named: c_int) -> c_int {
        let mut of_call = self.all().filter(|(number, _)| self.descriptors[*number] == named);
        of_call.next().map_or(named, |(number, place)| self.descriptor_of_place(number, place))
    }

    /// The other way round.
    pub(crate) fn named(&self, descriptor: c_int) -> c_int {
        let mut closed = self.all().filter(|(number, place)| self.goes_on_with(*number, place));
        let named = closed.find(|(_, place)| place.kept() == Some(descriptor));
        named.map_or(descriptor, |(number, _)| self.descriptors[number])
    }

    /// Whether another thread has closed a socket with which the call goes on.
    pub(crate) fn has_kept(&self) -> bool {
        self.all().any(|(number, place)| self.goes_on_with(number, place))
    }

    /// The places of these, as bits.
    fn closed(&self) -> u64 {
        let closed = self.all().filter(|(number, place)| self.goes_on_with(*number, place));
        closed.fold(0, |bits, (number, _)| bits | 1 << number)
    }

    /// What the call does on its sockets while it looks at rings, and while it sleeps.
    const fn kinds(&self) -> (OnSocket, OnSocket) {
        if self.goes_on {
            (OnSocket::ReceivesAndLooks, OnSocket::Receives)
        } else {
            (OnSocket::WaitsAndLooks, OnSocket::Waits)
        }
    }

    /// The number of the place of a descriptor that the call has, which another thread may have closed by now.
    pub(crate) fn place_of(&self, descriptor: c_int) -> Option<usize> {
        let named =
            self.all().map(|(number, _)| number).find(|number| self.descriptors[*number] == descriptor);
        // Another one of the same socket.
        named.or_else(|| table::place(descriptor).map(|(number, _)| number))
    }

    fn all(&self) -> impl Iterator<Item = (usize, &'static Place)> {
        table::places().filter(|(number, _)| self.places & 1 << number != 0)
    }

    fn has(&self, number: usize, place: &Place) -> bool {
        if self.set >= 0 {
            return place.is_in(self.set);
        }
        table::is_of(self.descriptors[number], number) || self.goes_on_with(number, place)
    }
}

/// Whether a call is to be told that a socket is ready.
enum Tells {
    Not,
    Now,
    /// If the kernel says so, which has told of edges before.
    ByKernel,
}

impl Leased {
    fn tells(&self, place: &Place, readiness: Readiness) -> Tells {
        let is_edge = |in_set: &table::InSet| in_set.is_edge();
        match readiness {
            Readiness::Nothing => Tells::Not,
            Readiness::Error => Tells::ByKernel,
            _ if self.set < 0 => Tells::Now,
            Readiness::Ring { taken } if place.in_sets(self.set).any(|in_set| in_set.is_news(taken)) => {
                Tells::Now
            }
            Readiness::Ring { .. } => Tells::Not,
            // It tells of what is there as well, where it is not by edges.
            Readiness::Socket if place.in_sets(self.set).any(is_edge) => Tells::ByKernel,
            Readiness::Socket => Tells::Now,
        }
    }
}

/// What a call found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// Places whose ring has a datagram, as bits.
    pub(crate) ready: u64,
    /// What the kernel returned when it was asked last; `None` if it was not asked.
    pub(crate) kernel: Option<c_int>,
    /// Places of sockets that another thread closed while the call went on with them, as bits.
    pub(crate) closed: u64,
}

impl Outcome {
    /// Whether the ring of this place has a datagram, and its socket is still open.
    pub(crate) const fn is_ready(&self, place: usize) -> bool {
        self.ready & !self.closed & 1 << place != 0
    }

    /// Whether that is so for any place.
    pub(crate) const fn is_any_ready(&self) -> bool {
        self.ready & !self.closed != 0
    }
}

/// A thread that sleeps looks again after this time, while others may open the ring without having seen it.
const LOOK_AGAIN: twinpath_time::Duration = twinpath_time::Duration::from_millis(5);
/// The same, while another thread spins at times and nobody keeps watch.
const LOOK_AT_LAST: twinpath_time::Duration = twinpath_time::Duration::from_millis(100);

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
    lead: Option<Lead>,
    /// After a sleep: whether this thread tells the policy what ended it.
    tells: Option<bool>,
    /// It does not look at the rings, as it sleeps.
    rests: bool,
    /// While it was looked last, another thread had one of the rings.
    was_busy: bool,
}

impl<A> Drop for Waiter<'_, A> {
    fn drop(&mut self) {
        self.follow();
        let (looks, rests) = self.leased.kinds();
        let before = if self.rests { rests } else { looks };
        for (number, place) in self.leased.all() {
            place.calls.change(before, None);
            table::left(number);
        }
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
    for (_, place) in leased.all() {
        place.calls.begins(leased.kinds().0);
    }
    let outcome = Outcome::default();
    let mut waiter = Waiter {
        kernel,
        leased,
        mask,
        ask,
        outcome,
        blocked: None,
        lead: None,
        tells: None,
        rests: false,
        was_busy: false,
    };
    // If all of them were closed meanwhile, the kernel is asked.
    let mut ask_at = waiter
        .first()
        .map_or(Instant::ZERO, |first| Instant::from_nanos(first.ask_at.load(Ordering::Relaxed)));
    for (_, _, place) in leased.each() {
        place.set_waited_for();
        place.look_for_others();
    }
    let waited = wait(timeout, &mut ask_at, &mut waiter);
    waiter.first().inspect(|first| first.ask_at.store(ask_at.as_nanos(), Ordering::Relaxed));
    if waiter.outcome.kernel.is_some_and(|ready| ready > 0) {
        leased.each().for_each(|(_, _, place)| place.lessee.was_told());
    }
    // Another thread may have begun to wait in the kernel meanwhile.
    fence(Ordering::SeqCst);
    let mut was_closed = false;
    for (_, _, place) in leased.each().filter(|(_, _, place)| !place.lessee.may_stay()) {
        place.lessee.give_back();
        was_closed = true;
    }
    // What has come until then is this thread's: nobody else is told of it.
    let may_be_ready = matches!(waited, Ok(false)) || waited.as_ref().is_err_and(is_interrupt);
    let is_late = was_closed && may_be_ready && waiter.look(clock::now());
    waiter.outcome.closed = leased.closed();
    if is_late { Ok(waiter.outcome) } else { waited.map(|_| waiter.outcome) }
}

/// The kernel reports what is ready rather than a signal. Every other error it reports whatever is ready.
fn is_interrupt(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

impl<A> Waiter<'_, A> {
    fn first(&self) -> Option<&'static Place> {
        self.leased.each().next().map(|(_, _, place)| place)
    }

    /// How long this thread may sleep before it looks again, if it does not keep watch; `None` is for ever. Another one may be about to
    /// open the ring, and not have seen that this one sleeps; or leave something there when nobody keeps watch.
    fn looks_again(&self, now: Instant) -> Option<Instant> {
        let mut looks_again = None;
        for (_, _, place) in self.leased.each() {
            if self.was_busy || place.calls.look() {
                return Some(now + LOOK_AGAIN);
            }
            if self.lead.is_none() && place.lessee.is_wanted(now) {
                looks_again = Some(now + LOOK_AT_LAST);
            }
        }
        looks_again
    }

    /// Whether this thread may spin: no other one does, that waits for the same socket.
    fn leads(&mut self, first: &Place, now: Instant) -> bool {
        self.lead = first.lessee.lead(self.lead, now);
        self.lead.is_some()
    }

    fn follow(&mut self) {
        if let Some(lead) = self.lead.take()
            && let Some(first) = self.first()
        {
            first.lessee.follow(lead);
        }
    }

    /// Of several threads, the policy learns from the one that spins, and from the first one that was woken.
    fn teaches(&self) -> Option<&'static Place> {
        let tells = |first: &&Place| {
            self.tells.unwrap_or_else(|| self.lead.is_some() || !first.lessee.is_contended())
        };
        self.first().filter(tells)
    }

    /// Keeps watch over sockets whose rings another thread may have.
    fn watch(&self, now: Instant) -> Watches {
        let mut watches = Watches::default();
        if self.lead.is_none() {
            for (number, _, place) in self.leased.each() {
                if let Some(watch) = place.lessee.watch(now) {
                    watches.places |= 1 << number;
                    watches.watch = Some(watch);
                }
            }
        }
        watches
    }

    fn end_watch(&self, watches: &Watches) {
        let Some(watch) = watches.watch else { return };
        for (_, place) in self.leased.all().filter(|(number, _)| watches.places & 1 << number != 0) {
            place.lessee.end_watch(watch);
        }
    }
}

/// The sockets that a thread keeps watch over, as bits: over all of them from one time to another.
#[derive(Clone, Copy, Default)]
struct Watches {
    places: u64,
    watch: Option<Watch>,
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
        // It tells of an edge once: a second answer would take the place of the first one.
        if self.outcome.kernel.is_some_and(|ready| ready > 0) {
            return Ok(true);
        }
        let got = (self.ask)(timeout, mask);
        if got < 0 {
            return Err(io::Error::from_raw_os_error(errno()));
        }
        self.outcome.kernel = Some(got);
        Ok(got > 0)
    }

    /// Sleeps in the kernel, until then at most. Returns whether something is ready.
    fn sleep(&mut self, until: Instant) -> io::Result<bool> {
        loop {
            let now = clock::now();
            let watches = self.watch(now);
            let look_at = watches.watch.map(|watch| watch.look_at).or_else(|| self.looks_again(now));
            let end = look_at.map_or(until, |look_at| look_at.min(until));
            if end < until {
                // A signal between two sleeps ends the call as one that comes in a sleep does.
                self.blocked.get_or_insert_with(Blocked::new);
            }
            let before = self.blocked.as_ref().map(|blocked| *blocked.before());
            let timeout = (end != Instant::NEVER).then(|| times::timespec(end.nanos_since(now)));
            // What keeps watch may be late.
            let _precise = (end == until).then_some(timeout).flatten().map(|_| Precise::new());
            let slept = self.ask_kernel(timeout.as_ref(), self.mask.or(before.as_ref()));
            self.end_watch(&watches);
            if look_at.is_some() {
                self.leased.each().for_each(|(_, _, place)| place.lessee.give_back());
                // Also if the kernel has something, or was interrupted: nobody else may look.
                let may_be_ready = slept.as_ref().err().is_none_or(is_interrupt);
                if may_be_ready && self.look(clock::now()) {
                    return Ok(true);
                }
            }
            if slept? || end == until {
                return Ok(self.outcome.kernel.is_some_and(|ready| ready > 0));
            }
        }
    }
}

/// A thread waits in the kernel for sockets. It is dropped also if the thread is cancelled meanwhile.
struct Sleeps<'a>(&'a Leased);

impl<'a> Sleeps<'a> {
    fn begin(leased: &'a Leased) -> Self {
        leased.all().for_each(|(_, place)| place.lessee.waits_from_now_on());
        Self(leased)
    }
}

impl Drop for Sleeps<'_> {
    fn drop(&mut self) {
        self.0.all().for_each(|(_, place)| place.lessee.no_longer_waits());
    }
}

impl<A> Awaited for Waiter<'_, A>
where
    A: FnMut(Option<&timespec>, Option<&sigset_t>) -> c_int,
{
    fn look(&mut self, now: Instant) -> bool {
        // What the kernel has said is said once.
        let has_more = self.outcome.kernel.filter(|ready| *ready > 0);
        self.outcome = Outcome { kernel: has_more, ..Outcome::default() };
        let mut asks = false;
        self.was_busy = false;
        for (number, descriptor, place) in self.leased.each() {
            // If another thread receives, the socket is not ready for this one.
            let readiness = place.lessee.readiness(&table::socket(descriptor), now);
            self.was_busy |= readiness.is_none() && !place.lessee.is_over();
            match readiness.map_or(Tells::Not, |readiness| self.leased.tells(place, readiness)) {
                Tells::Not => {}
                Tells::Now => self.outcome.ready |= 1 << number,
                Tells::ByKernel => asks = true,
            }
        }
        if self.outcome.ready != 0 || has_more.is_some() {
            return true;
        }
        // Signals are let in elsewhere, so it does not fail.
        asks && self.ask_kernel(Some(&times::timespec(0)), None).unwrap_or(false)
    }

    fn ask(&mut self, until: Instant) -> io::Result<bool> {
        if until == Instant::ZERO {
            self.interrupt()?;
            // Signals that only the caller's set lets in come here also in a call that does not wait.
            return self.ask_kernel(Some(&times::timespec(0)), self.mask);
        }
        // A handler of a signal may leave this call for good: then others lead when the time that is said here is over.
        if let (Some(lead), Some(first)) = (self.lead, self.first()) {
            self.lead = first.lessee.leader_sleeps(lead, clock::now(), until);
        }
        let waits = Sleeps::begin(self.leased);
        self.rests = true;
        let (looks, rests) = self.leased.kinds();
        for (_, place) in self.leased.all() {
            place.calls.change(looks, Some(rests));
        }
        // Before another thread could have taken the lease, something may have come.
        let is_ready = self.look(clock::now());
        let slept = if is_ready { Ok(true) } else { self.sleep(until) };
        for (_, place) in self.leased.all() {
            place.calls.change(rests, Some(looks));
        }
        self.rests = false;
        drop(waits);
        slept
    }

    fn hold(&mut self, now: Instant) {
        self.blocked.get_or_insert_with(Blocked::new);
        for (_, _, place) in self.leased.each() {
            place.look_for_others();
            place.lessee.hold(now);
        }
    }

    fn give_back(&mut self, now: Instant) -> bool {
        self.leased.each().for_each(|(_, _, place)| place.lessee.give_back());
        !self.look(now)
    }

    fn decide(&mut self, now: Instant, deadline: Instant) -> Decision {
        // Another thread spins, or receives.
        let sleeps = Decision::Sleep { until: deadline };
        self.tells = None;
        let Some(first) = self.first() else { return sleeps };
        if !self.leads(first, now) {
            return sleeps;
        }
        match first.lessee.decide(now, deadline).unwrap_or(sleeps) {
            Decision::Turn if !first.lessee.may_hold(now) => sleeps,
            decision => decision,
        }
    }

    fn woke(&mut self, now: Instant, woken: Woken) {
        let Some(first) = self.first() else { return };
        if matches!(woken, Woken::Packet(_)) {
            self.tells = Some(first.lessee.tells());
        }
        self.teaches().inspect(|first| first.lessee.woke(now, woken));
    }

    fn found(&mut self, now: Instant, looked: Instant) {
        self.teaches().inspect(|first| first.lessee.found(now, looked));
    }
}
