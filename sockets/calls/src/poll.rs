//! `poll(2)` and `ppoll(2)`.
#![allow(unsafe_code, reason = "the caller's memory is described by pointers")]

use std::time::Duration;

use libc::{c_int, nfds_t, pollfd, sigset_t, timespec};
use twinpath_sys::clock;

use crate::kernel::{Kernel, set_errno};
use crate::pointers;
use crate::table;
use crate::times::{as_timespec, duration};
use crate::waiting::{Leased, wait_among};

/// What a socket with a datagram is ready for.
const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

/// A call for more descriptors is the kernel's.
const DESCRIPTORS_MAX: nfds_t = table::DESCRIPTORS as nfds_t;

/// How many of the caller's descriptors can be read here: all of them, or none. Then the call is the kernel's as it is.
fn readable(waited: *const pollfd, count: nfds_t) -> usize {
    let is_looked_at = count <= DESCRIPTORS_MAX && pointers::can_read_of(waited, count as usize);
    if is_looked_at { count as usize } else { 0 }
}

/// The caller's descriptors; none if the call is the kernel's as it is.
///
/// # Safety
/// As for `poll(2)`, as long as this is used.
pub unsafe fn each(waited: *const pollfd, count: nfds_t) -> impl Iterator<Item = pollfd> {
    // SAFETY: the caller's promise.
    unsafe { pointers::values(waited, readable(waited, count)) }
}

/// As `poll(2)`, with a time-out in ms; a negative one is for ever.
///
/// # Safety
/// As for `poll(2)`.
pub unsafe fn poll(kernel: &Kernel, waited: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: the caller's promise.
    unsafe { poll_for(kernel, waited, count, timeout, None) }
}

/// As `ppoll(2)`.
///
/// # Safety
/// As for `ppoll(2)`.
pub unsafe fn ppoll(
    kernel: &Kernel,
    waited: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { pointers::optional(timeout).and_then(|limit| Ok((limit, pointers::mask(mask)?))) };
    let (limit, mask_value) = match given {
        Ok(given) => given,
        Err(error) => return set_errno(error),
    };
    match duration(limit.as_ref()) {
        // SAFETY: the caller's promise.
        Ok(timeout) => unsafe { poll_for(kernel, waited, count, timeout, mask_value.as_ref()) },
        // SAFETY: the caller's promise. The kernel says what is wrong.
        Err(()) => unsafe { (kernel.ppoll)(waited, count, timeout, mask) },
    }
}

/// # Safety
/// As for `poll(2)`.
unsafe fn poll_for(
    kernel: &Kernel,
    waited: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> c_int {
    let mut leased = Leased::that_goes_on();
    let count_looked_at = if table::is_any() { readable(waited, count) } else { 0 };
    // SAFETY: the caller's promise.
    let asked = unsafe { pointers::values(waited, count_looked_at) };
    for one in asked.filter(|one| one.events & READABLE != 0) {
        if let Some((place, _)) = table::place(one.fd) {
            leased.add(place, one.fd);
        }
    }
    let to_pointer = |mask: Option<&sigset_t>| mask.map_or(std::ptr::null(), std::ptr::from_ref);
    let ask = |timeout: Option<&timespec>, mask: Option<&sigset_t>| {
        let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the caller's promise; the call has returned when the entries are named again.
        let _renamed = unsafe { Renamed::of(waited, count_looked_at, &leased) };
        // SAFETY: the caller's promise.
        unsafe { (kernel.ppoll)(waited, count, timeout, to_pointer(mask)) }
    };
    if leased.is_empty() {
        return ask(as_timespec(timeout).as_ref(), mask);
    }
    // The kernel writes there at the end, whatever it has to say.
    if !pointers::can_change_of(waited, count_looked_at) {
        return set_errno(libc::EFAULT);
    }
    let began = clock::now();
    let Ok(outcome) = wait_among(kernel, &leased, timeout, mask, ask) else { return -1 };
    if outcome.closed != 0 {
        // The kernel has a closed socket while it waits, and then looks at all numbers once more (do_poll in fs/select.c).
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the caller's promise.
        let found = unsafe { (kernel.ppoll)(waited, count, &raw const now, std::ptr::null()) };
        if found < 0 {
            return -1;
        }
        let passed = Duration::from_nanos(clock::now().nanos_since(began));
        let rest = timeout.map(|timeout| timeout.saturating_sub(passed));
        if found == 0 && !outcome.is_any_ready() && rest != Some(Duration::ZERO) {
            // SAFETY: the caller's promise. What the numbers mean now is not ready.
            return unsafe { poll_for(kernel, waited, count, rest, mask) };
        }
    }
    let mut ready = 0;
    for at in 0..count_looked_at {
        let at = waited.wrapping_add(at);
        // SAFETY: as above.
        let mut one = unsafe { at.read_unaligned() };
        if outcome.kernel.is_none() && outcome.closed == 0 {
            one.revents = 0;
        }
        if leased.place_of(one.fd).is_some_and(|place| outcome.is_ready(place)) {
            one.revents |= one.events & READABLE;
        }
        ready += c_int::from(one.revents != 0);
        // SAFETY: as above, and it can be written.
        unsafe { at.write_unaligned(one) };
    }
    ready
}

/// Entries of sockets that another thread has closed: until this is dropped they name the descriptors that the library has kept, as the
/// numbers may have another meaning by now.
struct Renamed<'a> {
    waited: *mut pollfd,
    count: usize,
    leased: &'a Leased,
}

impl<'a> Renamed<'a> {
    /// # Safety
    /// There are so many entries, as long as this lives.
    unsafe fn of(waited: *mut pollfd, count: usize, leased: &'a Leased) -> Option<Self> {
        if !leased.has_kept() {
            return None;
        }
        let renamed = Self { waited, count, leased };
        renamed.each(|named| leased.descriptor_of(named));
        Some(renamed)
    }

    fn each(&self, name: impl Fn(c_int) -> c_int) {
        for at in 0..self.count {
            // SAFETY: [`Self::of`] was promised the entries, and the place of a descriptor may be computed.
            unsafe {
                let fd = &raw mut (*self.waited.add(at)).fd;
                fd.write_unaligned(name(fd.read_unaligned()));
            }
        }
    }
}

impl Drop for Renamed<'_> {
    fn drop(&mut self) {
        self.each(|kept| self.leased.named(kept));
    }
}
