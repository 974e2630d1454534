//! `epoll_ctl(2)`, `epoll_wait(2)` and `epoll_pwait(2)`.
//!
//! The kernel has the sets. For sockets with a lease this module notes which sets they are in, for which events, and
//! with which data. A socket that is in a set for one event (EPOLLONESHOT) or exclusively stays with the kernel there.
//!
//! In an edge-triggered set, a program is told of a datagram in the ring if the ring has taken one since the program
//! was told last. Only the kernel reports what is in its own socket, as it alone knows which edges it has reported.
#![allow(unsafe_code, reason = "the caller's memory is described by pointers")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{POLLIN, c_int, epoll_event, pollfd, sigset_t, timespec};
use twinpath_leases::WhyKernel;
use twinpath_leases::sockets::Readiness;
use twinpath_sys::clock;

use crate::kernel::{Kernel, errno, set_errno};
use crate::times::duration;
use crate::waiting::{Leased, Outcome, wait_among};
use crate::{earning, nested, pointers, table};

/// What a socket with a datagram is ready for.
const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
/// Maximum number of events of one call: the kernel refuses more.
const EVENTS_MAX: usize = c_int::MAX as usize / size_of::<epoll_event>();
const BY_KERNEL: u32 = (libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE) as u32;

/// Why a socket without a lease can get none, by the sets that it is in.
#[must_use]
pub fn why_none(descriptor: c_int) -> Option<WhyKernel> {
    let mut count = 0;
    for of in earning::memberships(descriptor) {
        count += 1;
        match () {
            () if nested::may_be_nested(of.set) => return Some(WhyKernel::NestedSet),
            () if of.events & BY_KERNEL != 0 => return Some(WhyKernel::SetForOne),
            () if count > table::SETS => return Some(WhyKernel::TooManySets),
            () => {}
        }
    }
    None
}

/// The kernel has done as `epoll_ctl(2)` was told. Returns why the socket stays with the kernel in that set, if it does.
///
/// # Safety
/// `event` is what the kernel was told: it has read it, but for EPOLL_CTL_DEL.
pub unsafe fn done(
    set: c_int,
    operation: c_int,
    descriptor: c_int,
    event: *const epoll_event,
) -> Option<WhyKernel> {
    let set = nested::first_of(set);
    table::extend_to(set);
    let is_told = operation != libc::EPOLL_CTL_DEL && !event.is_null();
    // SAFETY: the caller's promise, which the kernel has read; the structure may be packed.
    let event = is_told.then(|| unsafe { event.read_unaligned() });
    let Some((_, place)) = table::place(descriptor) else {
        if table::is_undecided(descriptor) {
            let event = event.filter(|event| event.events & READABLE != 0);
            let membership =
                event.map(|event| earning::Membership { set, events: event.events, data: event.u64 });
            return table::note_membership(descriptor, set, membership);
        }
        // A set in a set: threads that wait for the outer one are told by the kernel alone.
        if nested::may_be_set(descriptor) && operation == libc::EPOLL_CTL_ADD {
            set_waited_for_elsewhere(descriptor);
        }
        return None;
    };
    let is_it = |in_set: &&table::InSet| {
        in_set.set.load(Ordering::Acquire) == set && in_set.descriptor.load(Ordering::Relaxed) == descriptor
    };
    for in_set in place.sets.iter().filter(is_it) {
        in_set.set.store(-1, Ordering::Release);
    }
    let epoll_event { events, u64: data } = event?;
    if events & READABLE == 0 {
        return None;
    }
    let free = place.sets.iter().find(|in_set| in_set.set.load(Ordering::Relaxed) < 0);
    let why = match free {
        _ if nested::may_be_nested(set) => WhyKernel::NestedSet,
        Some(free) if events & BY_KERNEL == 0 => {
            free.put(set, descriptor, events, data);
            return None;
        }
        Some(_) => WhyKernel::SetForOne,
        None => WhyKernel::TooManySets,
    };
    // The set has the socket by the kernel, which is given what is in the ring, so that it tells of that.
    place.lessee.share_in_order(&table::socket(descriptor));
    Some(why)
}

/// A set was made: what is known of a former one with that number is forgotten.
pub fn set_made(set: c_int) {
    set_closed(set);
    nested::made(set);
}

fn in_set(set: c_int) -> impl Iterator<Item = &'static table::InSet> {
    let all = table::places().flat_map(|(_, place)| &place.sets);
    all.filter(move |in_set| in_set.set.load(Ordering::Relaxed) == set)
}

/// A descriptor of a set was duplicated. The set is the same one, whichever descriptor the program uses.
pub fn set_duplicated(set: c_int, new: c_int) {
    table::begin_tracking();
    table::extend_to(set.max(new));
    if !nested::duplicated(set, new) {
        set_waited_for_elsewhere(set);
    }
}

/// The set is waited for by other means than [`wait`], which are told by the kernel alone: sockets that are in it, or will be, leave
/// nothing in a ring, and the kernel is given what is there.
pub fn set_waited_for_elsewhere(set: c_int) {
    let set = nested::first_of(set);
    nested::put(set);
    for (_, place) in table::places() {
        if let Some(descriptor) = place.in_sets(set).find_map(open_descriptor) {
            place.lessee.share_in_order(&table::socket(descriptor));
        }
    }
}

/// Whether something is known of the set that has this descriptor: that a socket with a lease is, or was, in it, or that it has several.
#[inline]
#[must_use]
pub fn is_set(descriptor: c_int) -> bool {
    nested::is_one_of_several(descriptor) || table::is_any() && in_set(descriptor).next().is_some()
}

/// The descriptor of a set is about to be closed: what is known of it is forgotten, if it is the last one of the set.
pub fn set_closed(set: c_int) {
    let goes_on_as = nested::goes_on(set);
    if goes_on_as == Some(None) {
        return;
    }
    let next = goes_on_as.flatten();
    earning::set_closed(set, next);
    let next = next.unwrap_or(-1);
    for in_set in in_set(set) {
        let _ = in_set.set.compare_exchange(set, next, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// As `epoll_wait(2)`, with a time-out in ms; a negative one is for ever.
///
/// # Safety
/// As for `epoll_pwait(2)`.
pub unsafe fn wait(
    kernel: &Kernel,
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: the caller's promise.
    let ready = unsafe { wait_until(kernel, set, events, count, timeout, mask) };
    // SAFETY: the caller's promise.
    ready.unwrap_or_else(|| unsafe { (kernel.epoll_pwait)(set, events, count, timeout_ms, mask) })
}

/// As `epoll_pwait2(2)`. `None`: the call is the kernel's as it is.
///
/// # Safety
/// As for `epoll_pwait2(2)`.
pub unsafe fn wait_for(
    kernel: &Kernel,
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let timeout = match unsafe { pointers::optional(timeout) } {
        Ok(timeout) => duration(timeout.as_ref()).ok()?,
        Err(error) => return Some(set_errno(error)),
    };
    // SAFETY: the caller's promise.
    unsafe { wait_until(kernel, set, events, count, timeout, mask) }
}

/// # Safety
/// As for `epoll_pwait2(2)`.
unsafe fn wait_until(
    kernel: &Kernel,
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    let first = nested::first_of(set);
    let leased = leased_in(first);
    let room = usize::try_from(count).ok().filter(|room| (1..=EVENTS_MAX).contains(room))?;
    if leased.is_empty() {
        return None;
    }
    if !pointers::can_be(events.cast(), room * size_of::<epoll_event>()) {
        // As the kernel, which looks at the memory if it has something to say.
        return is_any_ready(first, &leased).then(|| set_errno(libc::EFAULT));
    }
    let mut left_out = left_out_of(first, &leased);
    if left_out.ready != 0 {
        let rest = count - left_out.ready.count_ones() as c_int;
        if rest > 0 {
            // The call succeeds whatever the kernel has to say.
            let former = errno();
            // SAFETY: the caller's promise: there is room for more.
            let told = unsafe { (kernel.epoll_pwait)(set, events, rest, 0, std::ptr::null()) };
            set_errno(former);
            left_out.kernel = (told > 0).then_some(told);
        }
        // SAFETY: the caller's promise: there is room for `count` events.
        return Some(unsafe { with_rings(kernel, first, events, count, left_out) });
    }
    // SAFETY: the caller's promise.
    let mask = match unsafe { pointers::mask(mask) } {
        Ok(mask) => mask,
        Err(error) => return Some(set_errno(error)),
    };
    let ask = |timeout: Option<&timespec>, mask: Option<&sigset_t>| {
        let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
        let mut timeout_ms = milliseconds(timeout);
        if let Some(timeout) = timeout.filter(|timeout| timeout.tv_sec == 0 && timeout.tv_nsec > 0) {
            // A sleep that ends just before a packet: in milliseconds it would end after it.
            let mut waited = pollfd { fd: set, events: POLLIN, revents: 0 };
            // SAFETY: one entry; the mask is the caller's.
            let came = unsafe { (kernel.ppoll)(&raw mut waited, 1, timeout, mask) };
            if came <= 0 {
                return came;
            }
            timeout_ms = 0;
        }
        // SAFETY: the caller's promise.
        unsafe { (kernel.epoll_pwait)(set, events, count, timeout_ms, mask) }
    };
    let Ok(outcome) = wait_among(kernel, &leased, timeout, mask.as_ref(), ask) else { return Some(-1) };
    // SAFETY: the caller's promise: there is room for `count` events.
    Some(unsafe { with_rings(kernel, first, events, count, outcome) })
}

/// A thread is about to wait for the set in the kernel: it counts for sockets there that may get a lease meanwhile. `None` if there are
/// none.
#[inline]
#[must_use]
pub fn waits_early(set: c_int) -> Option<earning::SetWait> {
    if earning::has_members() { earning::SetWait::begin(nested::first_of(set)) } else { None }
}

/// A socket without a lease is in the set, for which the owner was asked, if there is one.
#[inline]
#[must_use]
pub fn asked_in(set: c_int) -> Option<c_int> {
    if !earning::has_members() {
        return None;
    }
    earning::members(nested::first_of(set)).find(|descriptor| table::is_asked(*descriptor))
}

/// Whether a socket with a lease is in the set.
#[inline]
#[must_use]
pub fn has_leased(set: c_int) -> bool {
    table::is_any() && !leased_in(nested::first_of(set)).is_empty()
}

/// A part of a millisecond counts as a whole one, so that nobody is woken too early.
fn milliseconds(timeout: Option<&timespec>) -> c_int {
    timeout.map_or(-1, |timeout| {
        let whole =
            timeout.tv_sec.saturating_mul(1_000).saturating_add((timeout.tv_nsec + 999_999) / 1_000_000);
        c_int::try_from(whole).unwrap_or(c_int::MAX)
    })
}

/// The ready sockets for which the last call had no room beside what the kernel had. Without this, a caller with room
/// for one event, and another descriptor that is always ready, would never learn of them. The kernel is asked only for
/// what there is room for beside them, as an edge or a one-shot event without room would be lost.
fn left_out_of(set: c_int, leased: &Leased) -> Outcome {
    let mut outcome = Outcome::default();
    for (number, descriptor, place) in leased.each() {
        let was_left_out = place.in_sets(set).any(|in_set| {
            in_set.left_out.load(Ordering::Relaxed) && in_set.left_out.swap(false, Ordering::Relaxed)
        });
        if was_left_out && place.lessee.is_ready(&table::socket(descriptor), clock::now()) == Some(true) {
            outcome.ready |= 1 << number;
        }
    }
    outcome
}

/// Whether a ring has something that the set tells of as long as it is there. Of an edge the kernel alone decides.
fn is_any_ready(set: c_int, leased: &Leased) -> bool {
    let now = clock::now();
    leased.each().any(|(_, descriptor, place)| {
        place.in_sets(set).any(|in_set| !in_set.is_edge())
            && place.lessee.is_ready(&table::socket(descriptor), now) == Some(true)
    })
}

fn leased_in(set: c_int) -> Leased {
    let mut leased = Leased::in_set(set);
    for (number, place) in table::places() {
        if let Some(descriptor) = place.in_sets(set).find_map(open_descriptor) {
            leased.add(number, descriptor);
        }
    }
    leased
}

/// Adds what is in rings to what the kernel has said. Returns the number of events.
///
/// # Safety
/// There is room for `count` events.
unsafe fn with_rings(
    kernel: &Kernel,
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    outcome: Outcome,
) -> c_int {
    let mut ready = outcome.kernel.unwrap_or(0) as usize;
    let by_kernel = ready > 0;
    let tells = |number, place: &table::Place| outcome.is_ready(number) || by_kernel && place.is_in(set);
    for (number, place) in table::places().filter(|(number, place)| tells(*number, place)) {
        // While another thread has the ring it is not asked: then the program may be told twice.
        let taken = place.lessee.taken();
        for in_set in place.in_sets(set) {
            let wanted = in_set.events.load(Ordering::Relaxed);
            let data = in_set.data.load(Ordering::Relaxed);
            // SAFETY: the first ones were written by the kernel, or below.
            let known = (0..ready).find(|at| unsafe { events.add(*at).read_unaligned().u64 } == data);
            let is_news = outcome.is_ready(number) && taken.is_none_or(|taken| in_set.is_news(taken));
            // If the kernel reports anything about a socket, it reports everything, even what it has reported before.
            let is_told_again = known.is_some() && !is_news && in_set.is_edge();
            let tells = is_news || is_told_again && is_in_ring(place, in_set);
            if !tells {
                continue;
            }
            if let Some(at) = known {
                // SAFETY: as above.
                unsafe {
                    let told = &raw mut (*events.add(at)).events;
                    told.write_unaligned(told.read_unaligned() | wanted & READABLE);
                }
            } else if ready < count as usize {
                let event =
                    epoll_event { events: wanted & READABLE | writable(kernel, in_set, wanted), u64: data };
                if !pointers::can_write(events.wrapping_add(ready).cast(), size_of::<epoll_event>()) {
                    // As in the kernel, events before it are told.
                    return if ready > 0 { ready as c_int } else { set_errno(libc::EFAULT) };
                }
                // SAFETY: there is room for `count`.
                unsafe { events.add(ready).write_unaligned(event) };
                ready += 1;
            } else {
                in_set.left_out.store(true, Ordering::Relaxed);
                continue;
            }
            taken.inspect(|taken| in_set.set_told_of(*taken));
        }
    }
    ready as c_int
}

/// The descriptor by which a socket is in a set; none if another thread closes that one, a duplicate, meanwhile.
fn open_descriptor(in_set: &table::InSet) -> Option<c_int> {
    Some(in_set.descriptor.load(Ordering::Relaxed)).filter(|descriptor| *descriptor >= 0)
}

fn is_in_ring(place: &table::Place, in_set: &table::InSet) -> bool {
    open_descriptor(in_set).is_some_and(|descriptor| {
        let readiness = place.lessee.readiness(&table::socket(descriptor), clock::now());
        matches!(readiness, Some(Readiness::Ring { .. }))
    })
}

/// What a set is to tell of the sending side beside a datagram, if that was asked for.
fn writable(kernel: &Kernel, in_set: &table::InSet, wanted: u32) -> u32 {
    const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND) as u32;
    if wanted & WRITABLE == 0 {
        return 0;
    }
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // The bits of epoll(7) are those of poll(2).
    let events = (wanted & WRITABLE) as i16;
    let mut waited = pollfd { fd: in_set.descriptor.load(Ordering::Relaxed), events, revents: 0 };
    // SAFETY: it is one structure.
    let is_any = unsafe { (kernel.ppoll)(&raw mut waited, 1, &raw const now, std::ptr::null()) } > 0;
    if is_any { waited.revents as u32 & wanted & WRITABLE } else { 0 }
}
