//! Which descriptors have a lease.
#![allow(unsafe_code, reason = "descriptors are numbers that the application owns")]

use std::mem::ManuallyDrop;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Once, OnceLock};

use libc::c_int;
use twinpath_leases::WhyKernel;
use twinpath_leases::sockets::{Access, LentBy, SocketCounts};
use twinpath_worker::idle::Mode;

pub use crate::earning::{ENOUGH, WINDOW_MS};

use crate::earning;
use crate::identity;
use crate::kernel::{errno, set_errno};
use crate::options::{self, Means, Wanted};
use crate::thread_words::{self, ThreadWords};
use crate::users::{self, Shared};

mod asking;
mod forked;
mod leaving;
mod paying;
mod place;

pub(crate) use asking::note_membership;
pub use asking::{
    Next, TakenUp, Waited, after_step, ask, is_asked, is_earning, is_time_to_look, received, set_earning,
    take_steps, take_up,
};

use forked::is_table_own;
pub(crate) use leaving::{Receives, left, receives};
pub use leaving::{close_own, duplicate_out_of_the_way};
use leaving::{end_if_left, has_threads};
pub(crate) use place::InSet;
pub use place::Place;

/// Descriptors from here on stay with the kernel.
pub const DESCRIPTORS: usize = users::DESCRIPTORS;
/// Sockets of a process that can have a lease at a time.
pub const PLACES: usize = 64;
/// Sets of `epoll(7)` that a socket can be in.
pub(crate) const SETS: usize = 4;

/// The kernel's alone.
const KERNEL: u8 = 0;
/// A UDP socket for which nothing was decided yet.
const UNDECIDED: u8 = 1;
/// The same, bound to a port that the program has named.
const NAMED: u8 = 2;
/// The first place.
const FIRST: u8 = 3;
/// A rule asks for a lease. What is above this value is the number of datagrams that the socket has received since its
/// window began.
const EARNING: u8 = FIRST + PLACES as u8;
/// The owner of the interface was asked for one.
const ASKED: u8 = EARNING + earning::ENOUGH;
/// A thread decides about it at this moment: for all others it is the kernel's.
const CLAIMED: u8 = u8::MAX;
const _: () = assert!(EARNING as usize + (earning::ENOUGH as usize) < CLAIMED as usize);

static OF_DESCRIPTOR: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(KERNEL) }; DESCRIPTORS];
static TAKEN: [Place; PLACES] = [const { Place::new() }; PLACES];
/// Number of places, from the first on, that have been used.
static USED: AtomicU32 = AtomicU32::new(0);
static TRACKING: AtomicBool = AtomicBool::new(false);
/// All descriptors about which anything is, or was, known are lower: a fork and the end of the program look at no others.
static BELOW: AtomicUsize = AtomicUsize::new(0);

/// What is told to the library that uses this crate.
#[derive(Debug)]
pub struct Tell {
    /// The lease of this descriptor's socket is over: the kernel alone has it.
    pub is_over: fn(c_int),
    /// The lease of the socket does not pay, and ends; it may earn another one.
    pub pays_not: fn(c_int),
    /// The process was made by other means than `fork(3)`, whose handlers have not run.
    pub was_forked: fn(),
    /// Whether a handler of a signal has called.
    pub is_handler: fn() -> bool,
    /// Words of the calling thread in memory that no call has to allocate; `None`: there are none.
    pub thread_words: fn() -> Option<ThreadWords>,
}

static TELL: OnceLock<Tell> = OnceLock::new();

/// Says whom to tell. The functions may be called in handlers of signals.
pub fn set_tell(tell: Tell) {
    thread_words::set(tell.thread_words);
    let _ = TELL.set(tell);
}

/// The kernel's socket, which is not closed when this is dropped.
pub(crate) fn socket(descriptor: c_int) -> ManuallyDrop<UdpSocket> {
    // SAFETY: the number is of the table, so it is not negative, and the application owns it as long as it uses it in a call. If it has
    // closed it meanwhile, system calls fail or meet the descriptor that has the number now, as they do in any program that does so.
    ManuallyDrop::new(unsafe { UdpSocket::from_raw_fd(descriptor) })
}

#[inline]
fn entry(descriptor: c_int) -> Option<&'static AtomicU8> {
    OF_DESCRIPTOR.get(usize::try_from(descriptor).ok()?)
}

/// All entries that may be another one than the kernel's, with their descriptors.
fn entries() -> impl Iterator<Item = (c_int, &'static AtomicU8)> {
    (0..).zip(&OF_DESCRIPTOR).take(BELOW.load(Ordering::Relaxed))
}

/// The number of a descriptor's place, and the place.
#[inline]
pub(crate) fn place(descriptor: c_int) -> Option<(usize, &'static Place)> {
    let number = usize::from(entry(descriptor)?.load(Ordering::Acquire).checked_sub(FIRST)?);
    // Those that are inherited have no place.
    TAKEN.get(number).filter(|_| is_table_own()).map(|place| (number, place))
}

/// Whether the descriptor is of the socket that has this place.
pub(crate) fn is_of(descriptor: c_int, number: usize) -> bool {
    entry(descriptor).is_some_and(|entry| entry.load(Ordering::SeqCst) == FIRST + number as u8)
}

/// The places that have been used, with their numbers.
pub(crate) fn places() -> impl Iterator<Item = (usize, &'static Place)> {
    let used = if is_table_own() { USED.load(Ordering::Acquire) } else { 0 };
    TAKEN.iter().enumerate().take(used as usize)
}

/// Whether any socket has, or had, a lease: until then every call is the kernel's.
#[inline]
#[must_use]
pub fn is_any() -> bool {
    USED.load(Ordering::Acquire) > 0
}

/// Whether the descriptor is not the kernel's alone: it has a lease, or nothing was decided yet.
#[inline]
#[must_use]
pub fn is_known(descriptor: c_int) -> bool {
    entry(descriptor).is_some_and(|entry| entry.load(Ordering::Relaxed) != KERNEL)
}

/// Whether closing the descriptor, or giving its number another meaning, changes anything here.
#[inline]
#[must_use]
pub fn is_watched(descriptor: c_int) -> bool {
    is_known(descriptor) || users::shared(descriptor).is_some()
}

/// Whether the descriptor has a lease.
#[inline]
#[must_use]
pub fn is_leased(descriptor: c_int) -> bool {
    place(descriptor).is_some()
}

/// Whether it is the only descriptor of a socket with a lease.
#[must_use]
pub fn is_last(descriptor: c_int) -> bool {
    place(descriptor).is_some_and(|(_, place)| place.descriptors.load(Ordering::Relaxed) == 1)
}

/// Whether nothing was decided yet for the descriptor.
#[inline]
#[must_use]
pub fn is_undecided(descriptor: c_int) -> bool {
    entry(descriptor).is_some_and(|entry| {
        let value = entry.load(Ordering::Relaxed);
        is_undecided_value(value)
    })
}

const fn is_undecided_value(value: u8) -> bool {
    matches!(value, UNDECIDED | NAMED) || value >= EARNING && value != CLAIMED
}

/// A socket without a lease stays with the kernel.
pub fn keep_with_kernel(descriptor: c_int) {
    abandon(descriptor);
    earning::forget_memberships(descriptor);
    set_kernel(descriptor);
}

/// If the owner was asked for a lease for the socket, it is given back.
fn abandon(descriptor: c_int) {
    if is_asked(descriptor) {
        earning::abandon(descriptor, !TELL.get().is_some_and(|tell| (tell.is_handler)()));
    }
}

/// The program has named the port of a socket for which nothing was decided yet.
pub fn set_port_named(descriptor: c_int) {
    entry(descriptor).inspect(|entry| {
        replace(entry, UNDECIDED, NAMED);
    });
}

/// Whether the program has named the port of a socket for which nothing was decided yet.
#[must_use]
pub fn is_port_named(descriptor: c_int) -> bool {
    entry(descriptor).is_some_and(|entry| entry.load(Ordering::Relaxed) == NAMED)
}

/// Whether anything was ever undecided, or has a lease.
#[inline]
#[must_use]
pub fn is_tracking() -> bool {
    TRACKING.load(Ordering::Relaxed)
}

/// Something is known of descriptors from now on: it is to be noticed when they are closed.
pub fn begin_tracking() {
    TRACKING.store(true, Ordering::Relaxed);
}

/// Nothing is, or was, known of this descriptor and those above.
#[inline]
#[must_use]
pub fn below() -> usize {
    BELOW.load(Ordering::Relaxed)
}

/// The entry of the descriptor is about to be another one than the kernel's, or something is about to be known of a set of `epoll(7)`.
pub(crate) fn extend_to(descriptor: c_int) {
    let Some(below) = usize::try_from(descriptor).ok().map(|number| number + 1) else { return };
    if below > BELOW.load(Ordering::Relaxed) {
        BELOW.fetch_max(below.min(DESCRIPTORS), Ordering::Relaxed);
    }
}

/// Says that it is a UDP socket for which nothing was decided yet.
pub fn set_undecided(descriptor: c_int) {
    begin_tracking();
    extend_to(descriptor);
    users::set(descriptor, None);
    set(descriptor, UNDECIDED);
}

/// Decides that the descriptor is the kernel's alone, if nothing was decided yet: another thread may have given it a lease.
pub fn set_kernel(descriptor: c_int) {
    let Some(entry) = entry(descriptor) else { return };
    let value = entry.load(Ordering::Acquire);
    if is_undecided_value(value) {
        replace(entry, value, KERNEL);
    }
}

/// Forgets the descriptor: its number got another meaning by a call that was not seen here.
pub fn forget(descriptor: c_int) {
    match place(descriptor) {
        Some((number, place)) => drop(end(descriptor, number, place, false)),
        None => {
            if is_undecided(descriptor) {
                keep_with_kernel(descriptor);
            }
            set(descriptor, KERNEL);
        }
    }
}

/// Returns whether the entry had that value.
fn replace(entry: &AtomicU8, from: u8, to: u8) -> bool {
    entry.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

fn set(descriptor: c_int, value: u8) {
    if let Some(entry) = entry(descriptor) {
        entry.store(value, Ordering::SeqCst);
    }
}

/// Gives a bound UDP socket the lease of an interface. Allocates, and takes some tens of milliseconds. Returns by whose rights; `None`
/// if it has one already.
///
/// # Errors
/// Why there is none; it may be tried again if that is brief.
pub fn lend(
    descriptor: c_int,
    interface: &str,
    access: &Access,
    mode: Mode,
) -> Result<Option<LentBy>, WhyKernel> {
    register_fork();
    let entry = entry(descriptor).ok_or(WhyKernel::DescriptorFrom(DESCRIPTORS))?;
    let before = entry.load(Ordering::Acquire);
    extend_to(descriptor);
    // If two threads decide about one socket at the same time, one of them does.
    if place(descriptor).is_some() || before == CLAIMED || !replace(entry, before, CLAIMED) {
        return Ok(None);
    }
    let lent = lend_claimed(descriptor, interface, access, mode);
    if !matches!(lent, Ok(Some(_))) {
        replace(entry, CLAIMED, before);
    }
    lent
}

/// As [`lend`], for a socket about which no other thread decides meanwhile.
fn lend_claimed(
    descriptor: c_int,
    interface: &str,
    access: &Access,
    mode: Mode,
) -> Result<Option<LentBy>, WhyKernel> {
    let cookie = identity::cookie_of_udp(descriptor)?;
    let wanted = Wanted::of(descriptor)?;
    let (number, place) = free_place()?;
    let shared = users::shared(descriptor);
    place.set_shared(shared);
    let lent = place.lessee.lend(&socket(descriptor), interface, access, shared.is_some());
    let by = lent.inspect_err(|_| place.is_used.store(false, Ordering::Release))?;
    Ok(occupy(descriptor, (number, place), mode, (cookie, wanted), CLAIMED).then_some(by))
}

/// Frees what closed sockets have left on any interface. The owner may give a ring again as soon as it has been told of
/// its end, and then this process has to know it.
fn set_ended_free() {
    for (_, place) in places().filter(|(_, place)| place.take()) {
        place.is_used.store(false, Ordering::Release);
    }
}

/// A place without a lease, which is taken.
fn free_place() -> Result<(usize, &'static Place), WhyKernel> {
    set_ended_free();
    TAKEN.iter().enumerate().find(|(_, place)| place.take()).ok_or(WhyKernel::NoPlace(PLACES))
}

/// The socket has the lease of a place, if its entry is as it was `before`: otherwise another thread has decided about it. Returns whether
/// it has.
fn occupy(
    descriptor: c_int,
    (number, place): (usize, &'static Place),
    mode: Mode,
    (cookie, wanted): (u64, Wanted),
    before: u8,
) -> bool {
    place.lessee.set_mode(mode);
    place.descriptors.store(1, Ordering::Relaxed);
    place.wanted.store(wanted.bits(), Ordering::Relaxed);
    place.cookie.store(cookie, Ordering::Relaxed);
    place.is_waited_for.store(false, Ordering::Relaxed);
    place.error.store(0, Ordering::Relaxed);
    place.paying.begin();
    place.sets.iter().for_each(|in_set| in_set.set.store(-1, Ordering::Relaxed));
    for (in_set, of) in place.sets.iter().zip(earning::memberships(descriptor)) {
        in_set.put(of.set, descriptor, of.events, of.data);
    }
    USED.fetch_max(number as u32 + 1, Ordering::AcqRel);
    let is_ours = entry(descriptor).is_some_and(|entry| replace(entry, before, FIRST + number as u8));
    if is_ours {
        earning::forget_memberships(descriptor);
    } else {
        // It was closed meanwhile.
        place.lessee.end(&socket(descriptor));
        place.is_used.store(false, Ordering::Release);
    }
    is_ours
}

/// A descriptor is about to be closed, or to become a duplicate of another one. Returns what the socket has received,
/// if it has a lease and this is its last descriptor. Does nothing in a process that shares its memory with its parent
/// (`vfork`).
pub fn close(descriptor: c_int) -> Option<SocketCounts> {
    let matters = is_leased(descriptor) || is_watched(descriptor);
    if matters && is_own_process() { close_here(descriptor) } else { None }
}

/// A descriptor is about to be closed. Returns whether nothing but that it is a UDP socket is known of it, and the program has received
/// nothing by it: then that is forgotten. A program may open and close a socket for each query, so it costs no system call where
/// `vfork(2)` is noted. What a child has closed that was made by means that are not seen gets no lease in its parent any more.
#[inline]
pub fn close_unused(descriptor: c_int) -> bool {
    let Some(entry) = entry(descriptor) else { return false };
    let value = entry.load(Ordering::Relaxed);
    matches!(value, UNDECIDED | NAMED)
        && users::shared(descriptor).is_none()
        && !earning::has_members()
        && is_own_thread()
        && replace(entry, value, KERNEL)
}

/// As [`is_own_process`], as far as is seen how children are made.
fn is_own_thread() -> bool {
    if !thread_words::may_be_child() {
        return is_table_own();
    }
    let is_own = is_own_process();
    if is_own {
        thread_words::is_no_child();
    }
    is_own
}

/// As [`close`], in the process to which the table belongs ([`is_own_process`]).
pub fn close_here(descriptor: c_int) -> Option<SocketCounts> {
    if let Some((number, place)) = place(descriptor) {
        return end(descriptor, number, place, true);
    }
    if is_watched(descriptor) {
        if is_undecided(descriptor) {
            keep_with_kernel(descriptor);
        }
        users::set(descriptor, None);
        set(descriptor, KERNEL);
    }
    None
}

/// A descriptor of a socket with a lease is closed, or was. `is_open`: it is still of that socket.
fn end(descriptor: c_int, number: usize, place: &Place, is_open: bool) -> Option<SocketCounts> {
    users::set(descriptor, None);
    // If it is no longer of that socket, the kernel has it by now.
    let was_there = entry(descriptor).is_some_and(|entry| replace(entry, FIRST + number as u8, KERNEL));
    place.sets.iter().for_each(|in_set| {
        let _ = in_set.descriptor.compare_exchange(descriptor, -1, Ordering::AcqRel, Ordering::Relaxed);
    });
    let one_less = |descriptors: u32| descriptors.checked_sub(1);
    let before = place.descriptors.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_less);
    if !was_there || before != Ok(1) {
        return None;
    }
    place.shared().inspect(|shared| shared.end(users::own()));
    let counts = place.lessee.counts();
    // After the entry was changed: a call that begins now sees that, or is counted.
    fence(Ordering::SeqCst);
    let goes_on = is_open && place.calls.have_it() && has_threads();
    if let Some(kept) = goes_on.then(|| duplicate_out_of_the_way(descriptor)).flatten() {
        // As in the kernel, calls that have begun have the socket until they return.
        place.lessee.finish();
        place.closed_as.store(descriptor, Ordering::Relaxed);
        place.kept.store(kept, Ordering::SeqCst);
        end_if_left(place);
        return counts;
    }
    // Of a socket that others may have as well, what is in the ring is theirs.
    if place.shared().is_some() || place.lessee.is_others_too() {
        place.lessee.end_for_others(&socket(descriptor));
    } else {
        place.lessee.end(&socket(descriptor));
    }
    place.is_used.store(false, Ordering::Release);
    counts
}

/// Whether the socket of the place was closed by a call that was not seen here, so that its number has another meaning
/// by now. Then it is the kernel's, as if the socket had been closed by [`close`].
pub(crate) fn is_replaced(descriptor: c_int, place: &Place) -> bool {
    let is_replaced = identity::is_another(descriptor, place.cookie.load(Ordering::Relaxed));
    if is_replaced {
        forget(descriptor);
    }
    is_replaced
}

/// A descriptor was made a duplicate of another one: they share the lease. If nothing was decided yet, both stay with the kernel, so that
/// it is not decided twice about one socket.
pub fn duplicate(of: c_int, new: c_int) {
    if !is_watched(of) && !is_watched(new) {
        return;
    }
    let Some(entry_of_new) = entry(new).filter(|_| is_own_process()) else { return };
    extend_to(new);
    users::set(new, users::shared(of));
    if is_undecided(of) {
        keep_with_kernel(of);
    }
    // Another thread decides about it at this moment.
    entry(of).inspect(|of| {
        replace(of, CLAIMED, KERNEL);
    });
    let one_more = |descriptors: u32| (descriptors > 0).then(|| descriptors + 1);
    let shares = place(of).filter(|(_, place)| {
        place.descriptors.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_more).is_ok()
    });
    let Some((number, place)) = shares else { return entry_of_new.store(KERNEL, Ordering::SeqCst) };
    entry_of_new.store(FIRST + number as u8, Ordering::SeqCst);
    // The lease may have ended meanwhile for all descriptors that were known.
    if place.descriptors.load(Ordering::SeqCst) == 0 {
        replace(entry_of_new, FIRST + number as u8, KERNEL);
    }
}

/// The program has set an option of a socket that has a lease, or may get one. If it asks for something that frames in the ring do not
/// carry, or is not known here, the socket is the kernel's: a lease ends as by [`give_up`]. The reason, and whether a lease has ended.
#[cold]
pub fn option_set(descriptor: c_int, level: c_int, name: c_int) -> Option<(WhyKernel, bool)> {
    let why = WhyKernel::Sets { level, name };
    match (options::means(level, name), place(descriptor)) {
        (Means::Nothing, _) => None,
        (Means::Look, Some((_, place))) => match Wanted::of(descriptor) {
            Ok(wanted) => {
                place.wanted.store(wanted.bits(), Ordering::Relaxed);
                None
            }
            Err(why) => {
                hand_over_if_not_narrowed(place, level, name);
                give_up(descriptor).then_some((why, true))
            }
        },
        // It is looked at when that is decided.
        (Means::Look, None) => None,
        (Means::Kernel, Some((_, place))) => {
            hand_over_if_not_narrowed(place, level, name);
            give_up(descriptor).then_some((why, true))
        }
        (Means::Kernel, None) => is_undecided(descriptor).then(|| {
            keep_with_kernel(descriptor);
            (why, false)
        }),
    }
}

/// Hands what waits in the ring to the kernel, if that keeps the order: then the kernel reports what the program asks
/// for from now on. After an option by which it accepts less it is too late ([`option_is_set`]): what waits is received as it is.
fn hand_over_if_not_narrowed(place: &Place, level: c_int, name: c_int) {
    if !options::is_narrowing(level, name) {
        place.lessee.hand_over_in_order();
    }
}

/// The program is about to set an option ([`option_set`]). As by [`is_narrowed`], if the kernel's socket accepts less then.
pub fn option_is_set(descriptor: c_int, level: c_int, name: c_int) {
    if options::is_narrowing(level, name) {
        is_narrowed(descriptor);
    }
}

/// The kernel's socket is about to accept less than before, as that of a peer alone (`connect(2)`). What waits in the ring came before and
/// is still to be received, also by processes that get it from the kernel's socket: it goes there now, if that keeps the order.
#[cold]
pub fn is_narrowed(descriptor: c_int) {
    let Some((_, place)) = place(descriptor).filter(|_| is_own_process()) else { return };
    let error = errno();
    place.lessee.hand_over_before_refusals();
    set_errno(error);
}

/// The program asks, by `ioctl(2)`, when the last datagram came. The kernel knows that only for what it has received
/// itself. As by [`option_set`].
#[cold]
pub fn stamp_wanted(descriptor: c_int) -> Option<(WhyKernel, bool)> {
    if give_up(descriptor) {
        return Some((WhyKernel::Stamps, true));
    }
    is_undecided(descriptor).then(|| {
        keep_with_kernel(descriptor);
        (WhyKernel::Stamps, false)
    })
}

/// The length of the datagram that the next receiving call returns, if that is in the ring: what FIONREAD gives.
#[cold]
#[must_use]
pub fn next_len(descriptor: c_int) -> Option<usize> {
    let (place, _receives) = receives(descriptor, true)?;
    // Another thread has the ring only for a short time, and it is then the one that receives what is there.
    place.lessee.next_len().flatten()
}

/// Ends the lease of a socket for good. What is in the ring is received first, in order; then the kernel alone has it. Returns whether it
/// has one.
pub fn give_up(descriptor: c_int) -> bool {
    let Some((number, place)) = place(descriptor) else { return false };
    // It earns no other one, also if this one is just ending as it does not pay.
    place.paying.begin();
    place.lessee.finish();
    left(number);
    true
}

/// What a socket has received; `None` if it never had a lease.
#[must_use]
pub fn counts(descriptor: c_int) -> Option<SocketCounts> {
    place(descriptor)?.1.lessee.counts()
}

/// Sets when calls on a socket spin and when they sleep. Returns whether it has a lease.
#[must_use]
pub fn set_mode(descriptor: c_int, mode: Mode) -> bool {
    place(descriptor).map(|(_, place)| place.lessee.set_mode(mode)).is_some()
}

/// The address that a socket is bound to; `None` if it is not a bound Internet socket.
#[must_use]
pub fn local_address(descriptor: c_int) -> Option<SocketAddr> {
    if descriptor < 0 {
        return None;
    }
    socket(descriptor).local_addr().ok().filter(|address| address.port() != 0)
}

/// One descriptor of each socket that has a lease.
pub fn leased_sockets() -> impl Iterator<Item = c_int> {
    let mut seen = 0u64;
    leased().filter(move |descriptor| {
        let bit = place(*descriptor).map_or(0, |(number, _)| 1 << number);
        let is_new = seen & bit == 0;
        seen |= bit;
        is_new
    })
}

/// Every socket that has none, and may get one.
pub fn undecided_sockets() -> impl Iterator<Item = c_int> {
    tracked().filter(|descriptor| is_undecided(*descriptor))
}

/// Every descriptor that has a lease.
fn leased() -> impl Iterator<Item = c_int> {
    tracked().filter(|descriptor| is_leased(*descriptor))
}

/// Every descriptor that has a lease, or may get one.
fn tracked() -> impl Iterator<Item = c_int> {
    entries().filter(|(_, entry)| entry.load(Ordering::Relaxed) != KERNEL).map(|(descriptor, _)| descriptor)
}

/// The process to which the table belongs; 0 before [`register_fork`] and the first lease.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether this is the process to which the table belongs, and not one that was made by `vfork` and shares its memory.
#[must_use]
pub fn is_own_process() -> bool {
    if !is_table_own() {
        return false;
    }
    let process = PROCESS.load(Ordering::Relaxed);
    // SAFETY: it takes nothing.
    process == 0 || process == unsafe { libc::getpid() }
}

/// As [`is_own_process`], or one that was made by `vfork` and shares its memory: without a system call. For what is noted of sockets
/// that have no lease, if a call of such a process has the same effect for its parent, as on a set of `epoll(7)`.
#[inline]
#[must_use]
pub fn is_own_memory() -> bool {
    is_table_own()
}

/// Watches forks from now on: the table belongs to the calling process, and to no child that shares its memory (`vfork`).
/// In such a child it must not be the first call.
pub fn register_fork() {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() {
        return;
    }
    ONCE.call_once(|| {
        // SAFETY: it takes nothing.
        PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        forked::begin();
        // SAFETY: the handlers are functions of this library, and use atomic words only.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(forked::in_child)) };
    });
}

/// The descriptor is about to be passed to another process (SCM_RIGHTS), which may read the socket from then on, and of which nothing is
/// known: what is in the ring goes to the kernel's socket.
pub fn passed_on(descriptor: c_int) {
    if !is_watched(descriptor) || !is_own_process() {
        return;
    }
    users::set_unknown(descriptor);
    if let Some((_, place)) = place(descriptor) {
        place.set_shared(users::shared(descriptor));
        place.lessee.share();
    }
}

/// The process ends: it uses none of the sockets any more that others have as well.
pub fn process_ends() {
    tracked().for_each(abandon);
    tracked().filter_map(users::shared).for_each(|shared| shared.end(users::own()));
}

/// The child may read the socket as well: nothing may be left in a ring for a reader that has none. Later it is known who uses it.
extern "C" fn before_fork() {
    for descriptor in tracked() {
        let place = place(descriptor).map(|(_, place)| place);
        let shared = users::share(descriptor, place.and_then(Place::shared));
        shared.inspect(|shared| shared.forks(users::own()));
        place.inspect(|place| place.set_shared(shared));
    }
    users::enter_before_fork();
    for (_, place) in places().filter(|(_, place)| place.is_used.load(Ordering::Relaxed)) {
        place.lessee.set_used_by_others(true);
        place.lessee.hand_over();
    }
    thread_words::set_before_fork(errno());
    set_errno(0);
}

/// In the parent, also if the fork has failed. A handler is not told that: then `errno` says why, and otherwise it is what
/// [`before_fork`] has left.
extern "C" fn after_fork() {
    if errno() == 0 {
        set_errno(thread_words::before_fork());
        return;
    }
    tracked().filter_map(users::shared).for_each(Shared::has_not_forked);
}

#[cfg(test)]
mod tests;
