//! Hand-over of what is in a ring to the kernel's socket. Somebody may wait there without knowing of the ring: a
//! process that is forked or gets the descriptor, or a set of `epoll(7)` that the kernel alone reports on. No receiving
//! call does this.

use std::net::UdpSocket;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread::yield_now;

use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use crate::lending::Withdrawal;
use crate::sockets::holder::Holder;
use crate::sockets::interfaces;
use crate::sockets::lessee::{Leased, Lessee};

/// How long a call waits until it has been done: usually for some 100 us. Then the kernel alone serves the socket, and gets what is in the
/// ring a little later.
const PATIENCE: Duration = Duration::from_millis(10);
/// The same of a call after which the kernel's socket refuses some of it: what comes there later than that is lost.
const PATIENCE_BEFORE_REFUSALS: Duration = Duration::from_millis(200);

/// How often the lock is tried. Another thread that has it for longer receives from the ring.
const TRIES: u32 = 64;

impl Lessee {
    /// Closes the ring. What is in it goes to the kernel's socket, before what comes later; then this returns. It does not wait for
    /// long, and allocates only for a lease by this process's own rights.
    pub fn hand_over(&self) {
        self.hand_over_if(|_| true);
    }

    /// As [`Lessee::hand_over`], unless the kernel has later ones already: then what is in the ring stays there, and is received first.
    pub fn hand_over_in_order(&self) {
        self.hand_over_if(Holder::is_before_all);
    }

    /// As [`Lessee::hand_over_in_order`], before the kernel's socket accepts less than it does now.
    pub fn hand_over_before_refusals(&self) {
        self.hand_over_within(PATIENCE_BEFORE_REFUSALS, Holder::is_before_all);
    }

    pub(crate) fn hand_over_if(&self, is_to: impl FnOnce(&mut Holder) -> bool) {
        self.hand_over_within(PATIENCE, is_to);
    }

    fn hand_over_within(&self, patience: Duration, is_to: impl FnOnce(&mut Holder) -> bool) {
        let now = clock::now();
        let until = now + patience;
        // A thread that has the lock for longer waits for the ring, and receives what comes there.
        let locked = self.locked_soon(until.min(now + PATIENCE));
        let Some(mut guard) = locked.filter(|_| !self.has_ended.load(Ordering::Acquire)) else {
            return;
        };
        let (Some(leased), Some(withdrawal)) = (guard.as_mut(), self.withdrawal()) else { return };
        if !is_to(&mut leased.holder) || !leased.holder.leave_rest(until) {
            return;
        }
        let is_told = withdrawal.hand_over().unwrap_or_else(|| {
            let number = leased.holder.number;
            interfaces::try_locked(&leased.lender).is_some_and(|mut lender| lender.hand_over(number))
        });
        if !is_told {
            // It stays there, for calls of this process.
            return leased.holder.give_back();
        }
        while !leased.holder.was_left() {
            if clock::now() >= until {
                let has_left = withdrawal.leave().unwrap_or(false);
                return self.has_ended.store(has_left, Ordering::Release);
            }
            yield_now();
        }
    }

    /// As [`Lessee::end`], for a socket that others may have: they get what is in the ring, from the kernel.
    pub fn end_for_others(&self, socket: &UdpSocket) {
        let until = clock::now() + PATIENCE;
        let is_unread = self.with_holder(|holder| holder.leave_rest(until)).unwrap_or(true);
        match self.withdrawal().filter(|_| is_unread).and_then(|withdrawal| withdrawal.leave()) {
            Some(has_left) => self.has_ended.store(has_left, Ordering::Release),
            None => {
                self.hand_over();
                self.end(socket);
            }
        }
    }

    pub(crate) fn withdrawal(&self) -> Option<Withdrawal> {
        self.outside.try_read().ok()?.as_ref().map(|outside| outside.withdrawal.clone())
    }

    /// Each try gives the CPU away, which may take a millisecond where others want it.
    fn locked_soon(&self, until: Instant) -> Option<MutexGuard<'_, Option<Leased>>> {
        for _ in 0..TRIES {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            if clock::now() >= until {
                break;
            }
            yield_now();
        }
        None
    }
}
