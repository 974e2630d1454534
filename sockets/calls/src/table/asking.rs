//! Sockets that have no lease yet and are to have one: they earn it, the owner of the interface is asked for it, and its answer is taken up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use libc::c_int;
use twinpath_leases::WhyKernel;
use twinpath_leases::lending::Connection;
use twinpath_leases::sockets::{Access, LentBy};
use twinpath_sys::clock;
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;

use super::{
    ASKED, EARNING, NAMED, UNDECIDED, entry, free_place, is_undecided, keep_with_kernel, occupy,
    register_fork, set_ended_free, socket,
};
use crate::earning::{self, Earned};
use crate::identity;
use crate::options::Wanted;
use crate::users;

/// Whether a rule was looked for already: it asks for a lease.
#[must_use]
pub fn is_earning(descriptor: c_int) -> bool {
    entry(descriptor).is_some_and(|entry| (EARNING..=ASKED).contains(&entry.load(Ordering::Relaxed)))
}

/// Whether the owner was asked for a lease, and its answer is to be taken up.
#[inline]
#[must_use]
pub fn is_asked(descriptor: c_int) -> bool {
    entry(descriptor).is_some_and(|entry| entry.load(Ordering::Relaxed) == ASKED)
}

/// A rule asks for a lease for a socket about which nothing was decided yet. From now on its datagrams are counted.
pub fn set_earning(descriptor: c_int) {
    let Some(entry) = entry(descriptor) else { return };
    earning::begin(descriptor);
    let begins = |value: u8| matches!(value, UNDECIDED | NAMED).then_some(EARNING);
    let _ = entry.fetch_update(Ordering::AcqRel, Ordering::Relaxed, begins);
}

/// A socket without a lease has received this many datagrams. Returns whether it has earned one: then [`ask`] for it.
pub fn received(descriptor: c_int, count: u32) -> bool {
    // A ring would be open only while this process waits for it: that pays nothing.
    if users::shared(descriptor).is_some_and(|shared| shared.is_used_by_others(users::own())) {
        return false;
    }
    let Some(entry) = entry(descriptor) else { return false };
    let value = entry.load(Ordering::Relaxed);
    if !(EARNING..ASKED).contains(&value) {
        return false;
    }
    let so_far = u32::from(value - EARNING) + count;
    let last = u32::from(earning::ENOUGH) - 1;
    let (goes_on_with, has_earned) = match so_far > last {
        false => (so_far, false),
        true => match earning::has_received_enough(descriptor) {
            Earned::NotYet => (last, false),
            Earned::Anew => (0, false),
            Earned::Lease => (last, true),
        },
    };
    // If another thread receives as well, what one of them has received may count for both.
    let next = EARNING + goes_on_with as u8;
    let is_first = entry.compare_exchange(value, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    has_earned && is_first
}

/// Asks the owner of an interface for a lease for the socket, without waiting. Allocates. [`take_up`] has the answer. Returns the
/// descriptor of the connection to the owner.
///
/// # Errors
/// Why there is none; it may be tried again if that is brief.
pub fn ask(descriptor: c_int, interface: &str, access: &Access) -> Result<Option<c_int>, WhyKernel> {
    register_fork();
    let known = entry(descriptor).filter(|_| is_undecided(descriptor));
    let entry = known.ok_or(WhyKernel::Busy)?;
    Wanted::of(descriptor)?;
    let before = entry.load(Ordering::Relaxed);
    // Another thread may be about to do the same.
    if before == ASKED
        || before < EARNING
        || entry.compare_exchange(before, ASKED, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return Err(WhyKernel::Busy);
    }
    earning::ask(descriptor, interface, access).inspect_err(|_| {
        let _ = entry.compare_exchange(ASKED, before, Ordering::AcqRel, Ordering::Relaxed);
    })
}

/// A lease that was asked for and is a socket's now.
#[derive(Debug)]
pub struct TakenUp {
    /// By whose rights.
    pub by: LentBy,
    /// The interface.
    pub ifindex: u32,
}

/// Whether it is time to look whether an owner has answered: once in some ms.
#[must_use]
pub fn is_time_to_look() -> bool {
    earning::looks_now()
}

/// Looks whether the owner has answered what [`ask`] has asked. Returns the lease that the socket has from now on; `None`: it has none
/// yet. Allocates if it has, and never waits.
///
/// # Errors
/// Why the socket gets none.
pub fn take_up(descriptor: c_int, mode: Mode) -> Result<Option<TakenUp>, WhyKernel> {
    // One whose waiting threads are not all counted waits for these.
    if earning::is_waited_for_uncounted(descriptor) {
        return Ok(None);
    }
    set_ended_free();
    let Some((on, lent)) = earning::go_on(descriptor, &socket(descriptor))? else { return Ok(None) };
    let cookie = identity::cookie_of_udp(descriptor)?;
    let wanted = Wanted::of(descriptor)?;
    let (number, place) = free_place()?;
    let shared = users::shared(descriptor);
    place.set_shared(shared);
    let ifindex = lent.on.ifindex;
    let by = place.lessee.take_up(&socket(descriptor), (on, lent), shared.is_some(), descriptor);
    let by = by.inspect_err(|_| place.is_used.store(false, Ordering::Release))?;
    let is_ours = occupy(descriptor, (number, place), mode, (cookie, wanted), ASKED);
    place.paying.set_earned(is_ours);
    Ok(is_ours.then_some(TakenUp { by, ifindex }))
}

/// What a socket that is to have its lease at once does next.
#[derive(Debug)]
pub enum Next {
    /// Nothing: it is decided about, or goes on as any other.
    Done,
    /// The same again: another thread is in the way for a moment.
    Again,
    /// It waits for this owner's answer.
    Await(Arc<Connection>),
}

/// What was waited for before a step of a socket that is to have its lease at once.
#[derive(Debug)]
pub struct Waited {
    /// The owner. The step drops it, which may free memory.
    pub owner: Option<Arc<Connection>>,
    /// There is no time left: this is the last step.
    pub is_over: bool,
}

/// Takes steps until one is [`Next::Done`], or the time is over. Only a step allocates or takes locks: in between, this waits on the
/// caller's stack, so that handlers of signals may run, which may also leave by `siglongjmp(3)`.
pub fn take_steps(patience: Duration, mut step: impl FnMut(Waited) -> Next) {
    let until = clock::now() + patience;
    let mut waited = Waited { owner: None, is_over: false };
    loop {
        match step(waited) {
            Next::Done => return,
            Next::Again => {
                std::thread::yield_now();
                waited = Waited { owner: None, is_over: clock::now() >= until };
            }
            Next::Await(owner) => {
                let is_broken = owner.wait_for_answer().is_err();
                waited = Waited { owner: Some(owner), is_over: is_broken || clock::now() >= until };
            }
        }
        if waited.is_over {
            step(waited);
            return;
        }
    }
}

/// After [`take_up`], for a socket that is to have its lease at once: what it does next.
///
/// # Errors
/// The owner has not answered within the time, and the socket is to stay with the kernel.
pub fn after_step(
    descriptor: c_int,
    Waited { is_over, .. }: Waited,
    patience: Duration,
) -> Result<Next, WhyKernel> {
    // It has not earned the lease.
    super::place(descriptor).inspect(|(_, place)| place.paying.set_earned(false));
    if !is_asked(descriptor) {
        return Ok(Next::Done);
    }
    if is_over {
        earning::set_silent();
        return Err(WhyKernel::Silent(patience.as_secs()));
    }
    // Another socket has waited in vain: this one takes the answer up when it comes, as one that has earned its lease.
    if earning::is_silent() {
        return Ok(Next::Done);
    }
    Ok(earning::owner_of(descriptor).map_or(Next::Again, Next::Await))
}

/// The socket is in a set of `epoll(7)` from now on, or not any more: what a lease that it gets later has to know. Returns why it gets
/// none, if it does not.
pub(crate) fn note_membership(
    descriptor: c_int,
    set: c_int,
    membership: Option<earning::Membership>,
) -> Option<WhyKernel> {
    if earning::is_in(descriptor, set, membership) {
        return None;
    }
    keep_with_kernel(descriptor);
    Some(WhyKernel::TooManyMembers)
}
