//! The ends of calls, and of leases that end while calls are on their sockets.
#![allow(unsafe_code, reason = "descriptors are numbers that the application owns")]

use std::sync::atomic::Ordering;

use crate::on_socket::OnSocket;
use libc::c_int;

use super::{
    DESCRIPTORS, EARNING, FIRST, InSet, KERNEL, Place, TAKEN, TELL, entries, is_of, place, replace, socket,
};
use crate::earning;
use crate::kernel::{errno, set_errno};
use crate::users;

/// A receiving call is on a socket with a lease: that is its own until this is dropped, also if the socket is closed meanwhile.
pub(crate) struct Receives {
    number: usize,
    kind: OnSocket,
}

impl Receives {
    /// From now on it does not look at the ring, as it sleeps.
    pub(crate) fn rest(&mut self) {
        self.become_of(OnSocket::Receives);
    }

    /// It looks again.
    pub(crate) fn look_again(&mut self) {
        self.become_of(OnSocket::ReceivesAndLooks);
    }

    fn become_of(&mut self, kind: OnSocket) {
        let before = std::mem::replace(&mut self.kind, kind);
        if before != kind {
            TAKEN[self.number].calls.change(before, Some(kind));
        }
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        let place = &TAKEN[self.number];
        place.calls.change(self.kind, None);
        if place.paying.count() {
            judge(self.number, place);
        }
        left(self.number);
    }
}

/// A call on the socket of that place has ended. If the lease is over, or the socket was closed meanwhile, it may have
/// been the last call.
#[inline]
pub(crate) fn left(number: usize) {
    let Some(place) = TAKEN.get(number) else { return };
    if place.kept.load(Ordering::SeqCst) >= 0 {
        end_if_left(place);
    } else if place.lessee.is_over() {
        leave_to_kernel(number, place);
    }
}

/// A receiving call begins: it has the socket until what is returned is dropped. `None` if there is no lease. `is_one`: it receives one
/// message, and not several by calls for each of them.
pub(crate) fn receives(descriptor: c_int, is_one: bool) -> Option<(&'static Place, Receives)> {
    let (number, place) = place(descriptor)?;
    let kind = if is_one { OnSocket::ReceivesAndLooks } else { OnSocket::Receives };
    place.calls.begins(kind);
    let receives = Receives { number, kind };
    // It may have been closed before this call was counted, and the place be another socket's.
    is_of(descriptor, number).then_some((place, receives))
}

/// The last call that had a socket whose descriptors are closed has returned.
#[cold]
pub(super) fn end_if_left(place: &Place) {
    if place.calls.have_it() {
        return;
    }
    let kept = place.kept.swap(-1, Ordering::SeqCst);
    if kept >= 0 {
        let error = errno();
        place.lessee.end(&socket(kept));
        close_own(kept);
        place.is_used.store(false, Ordering::Release);
        set_errno(error);
    }
}

/// The lease is over, as everything that was in the ring has been received: from now on the socket is the kernel's, and calls on it cost
/// nothing here; or it earns another one.
#[cold]
fn leave_to_kernel(number: usize, place: &Place) {
    let mut left = place.descriptors.swap(0, Ordering::SeqCst);
    if left == 0 {
        return;
    }
    let error = errno();
    // Calls on it are not seen any more.
    place.shared().inspect(|shared| {
        shared.is_used_by_others(users::own());
    });
    let (mut is_told, descriptors) = (false, left);
    for (descriptor, entry) in entries() {
        if left == 0 {
            break;
        }
        if entry.load(Ordering::SeqCst) != FIRST + number as u8 {
            continue;
        }
        left -= 1;
        if !std::mem::replace(&mut is_told, true) {
            place.lessee.end(&socket(descriptor));
            TELL.get().inspect(|tell| (tell.is_over)(descriptor));
        }
        let next = if earns_again(descriptor, place, descriptors) { EARNING } else { KERNEL };
        replace(entry, FIRST + number as u8, next);
    }
    place.sets.iter().for_each(|in_set| in_set.set.store(-1, Ordering::Release));
    place.is_used.store(false, Ordering::Release);
    set_errno(error);
}

/// A descriptor of this library, which neither the program nor a hook of this library closes.
pub fn close_own(descriptor: c_int) {
    // SAFETY: it takes a number, which is that of a descriptor that nobody else uses.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}

/// A duplicate for the library, at a high number, where no program looks for its own descriptors.
pub fn duplicate_out_of_the_way(descriptor: c_int) -> Option<c_int> {
    let least = [DESCRIPTORS as c_int / 2, 512, 3];
    // SAFETY: it takes numbers.
    let duplicate =
        |least: &c_int| unsafe { libc::syscall(libc::SYS_fcntl, descriptor, libc::F_DUPFD_CLOEXEC, *least) };
    least.iter().map(duplicate).find(|made| *made >= 0).map(|made| made as c_int)
}

/// Whether other threads may be in calls. If there is only one thread, a call that it has left by a jump out of a
/// handler does not count.
pub(super) fn has_threads() -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: it is a string of C, and there is room for what is written, of which zeros are a valid value.
    let (got, status) = unsafe {
        let got = libc::stat(c"/proc/self/task".as_ptr(), status.as_mut_ptr());
        (got, status.assume_init())
    };
    // A folder for each thread, beside itself and the one above.
    got == 0 && status.st_nlink > 3
}

/// Ends the lease if it has not paid since the last judgement. What is in the ring is received first.
#[cold]
fn judge(number: usize, place: &Place) {
    if !place.paying.is_due() {
        return;
    }
    // Another thread receives: the next judgement sees it.
    let Some(counts) = place.lessee.counts() else { return };
    if !place.paying.judge(counts, place.lessee.is_over()) {
        return;
    }
    let is_its = |entry: u8| entry == FIRST + number as u8;
    let descriptor = entries().find(|(_, entry)| is_its(entry.load(Ordering::Relaxed)));
    if let (Some((descriptor, _)), Some(tell)) = (descriptor, TELL.get()) {
        (tell.pays_not)(descriptor);
    }
    place.lessee.finish();
}

/// Whether a socket whose lease is over can earn another one. It can if that lease has not paid, and all is known that
/// another one needs to know. Otherwise the kernel has it for good.
fn earns_again(descriptor: c_int, place: &Place, descriptors: u32) -> bool {
    // Calls that wait for it now would not be known to a lease that it gets while they wait.
    if !place.paying.pays_not() || descriptors != 1 || place.shared().is_some() || place.calls.have_it() {
        return false;
    }
    let mut memberships = place.sets.iter().filter_map(InSet::membership);
    let is_noted = memberships.all(|membership| earning::is_in(descriptor, membership.set, Some(membership)));
    if !is_noted {
        // Of a socket that is the kernel's nothing is to be known.
        earning::forget_memberships(descriptor);
    }
    is_noted && earning::pause(descriptor)
}
