//! `select(2)` and `pselect(2)`.
#![allow(unsafe_code, reason = "the caller's memory is described by pointers")]

use std::time::Duration;

use libc::{c_int, c_ulong, fd_set, sigset_t, timespec, timeval};
use twinpath_sys::clock;

use crate::kernel::{Kernel, set_errno};
use crate::limit;
use crate::pointers;
use crate::table;
use crate::times::{as_timespec, duration};
use crate::waiting::{Leased, Outcome, wait_among};

const BITS: usize = c_ulong::BITS as usize;
/// Words of the largest set: programs may have larger ones than `fd_set`.
const WORDS: usize = table::DESCRIPTORS / BITS;
/// Words of an `fd_set`.
const FEW_WORDS: usize = libc::FD_SETSIZE / BITS;

/// The caller's sets, for reading, writing and exceptions.
#[derive(Clone, Copy)]
struct Sets {
    limit: c_int,
    sets: [*mut fd_set; 3],
}

impl Sets {
    fn new(kernel: &Kernel, limit: c_int, sets: [*mut fd_set; 3]) -> Self {
        Self { limit: limit::cut(kernel, limit), sets }
    }

    fn words(self) -> usize {
        (self.limit.max(0) as usize).div_ceil(BITS)
    }

    /// Whether the sets can be read, and written as well; otherwise the kernel returns EFAULT.
    fn can_be_used(self) -> bool {
        let mut sets = self.sets.into_iter().map(|set| set.cast::<c_ulong>()).filter(|set| !set.is_null());
        sets.all(|set| pointers::can_read_of(set, self.words()) && pointers::can_change_of(set, self.words()))
    }

    /// The places of the words of a set, which may lie anywhere; none if there is no such set.
    fn of(self, set: usize) -> impl Iterator<Item = *mut c_ulong> {
        let words = self.sets[set].cast::<c_ulong>();
        let count = if words.is_null() { 0 } else { self.words() };
        (0..count).map(move |at| words.wrapping_add(at))
    }

    /// The words of a set.
    ///
    /// # Safety
    /// [`Self::can_be_used`]. The caller's sets have as many bits as its limit says, or as many as the kernel looks at if these are less.
    unsafe fn read(self, set: usize) -> impl Iterator<Item = c_ulong> {
        // SAFETY: the caller's promise; the kernel reads whole words, too.
        self.of(set).map(|word| unsafe { word.read_unaligned() })
    }

    /// Writes the words of all sets, by the number of the set and of the word.
    ///
    /// # Safety
    /// As [`Self::read`].
    unsafe fn write(self, to: impl Fn(usize, usize) -> c_ulong) {
        for set in 0..self.sets.len() {
            for (at, word) in self.of(set).enumerate() {
                // SAFETY: the caller's promise; the kernel writes whole words, too.
                unsafe { word.write_unaligned(to(set, at)) };
            }
        }
    }
}

impl Sets {
    /// The kernel's call.
    ///
    /// # Safety
    /// As for `pselect(2)`.
    unsafe fn ask(self, kernel: &Kernel, timeout: Option<&timespec>, mask: Option<&sigset_t>) -> c_int {
        let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
        let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
        let [read, write, except] = self.sets;
        // SAFETY: the caller's promise.
        unsafe { (kernel.pselect)(self.limit, read, write, except, timeout, mask) }
    }
}

/// As `select(2)`: as on Linux, what is left of the time-out is written back.
///
/// # Safety
/// As for `select(2)`.
pub unsafe fn select(kernel: &Kernel, limit: c_int, sets: [*mut fd_set; 3], timeout: *mut timeval) -> c_int {
    // SAFETY: the caller's promise.
    let given = match unsafe { pointers::optional(timeout) } {
        Ok(given) => given,
        Err(error) => return set_errno(error),
    };
    // The kernel takes more than a second of microseconds as well.
    let asked = given.map(|given| timespec {
        tv_sec: given.tv_sec.saturating_add(given.tv_usec / 1_000_000),
        tv_nsec: given.tv_usec % 1_000_000 * 1_000,
    });
    let Ok(wait_for) = duration(asked.as_ref()) else {
        return set_errno(libc::EINVAL);
    };
    let begun = clock::now();
    // SAFETY: the caller's promise.
    let ready = unsafe { select_for(kernel, Sets::new(kernel, limit, sets), wait_for, None) };
    // If it cannot be written, the call succeeds nevertheless (fs/select.c, poll_select_finish).
    if let Some(wait_for) = wait_for.filter(|_| pointers::can_change_of(timeout, 1)) {
        let passed = Duration::from_nanos(clock::now().nanos_since(begun));
        let left = wait_for.saturating_sub(passed);
        let left = timeval { tv_sec: left.as_secs() as i64, tv_usec: i64::from(left.subsec_micros()) };
        // SAFETY: the caller's promise.
        unsafe { timeout.write_unaligned(left) };
    }
    ready
}

/// As `pselect(2)`.
///
/// # Safety
/// As for `pselect(2)`.
pub unsafe fn pselect(
    kernel: &Kernel,
    limit: c_int,
    sets: [*mut fd_set; 3],
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { pointers::optional(timeout).and_then(|limit| Ok((limit, pointers::mask(mask)?))) };
    let (limit_of_time, mask) = match given {
        Ok(given) => given,
        Err(error) => return set_errno(error),
    };
    let Ok(wait_for) = duration(limit_of_time.as_ref()) else {
        return set_errno(libc::EINVAL);
    };
    // SAFETY: the caller's promise.
    unsafe { select_for(kernel, Sets::new(kernel, limit, sets), wait_for, mask.as_ref()) }
}

/// # Safety
/// As for `select(2)`.
unsafe fn select_for(
    kernel: &Kernel,
    sets: Sets,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> c_int {
    // SAFETY: the caller's promise.
    let leased = unsafe { leased_in(sets) };
    if leased.is_empty() {
        // SAFETY: the caller's promise.
        return unsafe { sets.ask(kernel, as_timespec(timeout).as_ref(), mask) };
    }
    // The sets of most programs have 1,024 bits, which their threads have stacks for.
    if sets.words() <= FEW_WORDS {
        // SAFETY: the caller's promise.
        unsafe { wait_for::<FEW_WORDS>(kernel, sets, &leased, timeout, mask) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { wait_for::<WORDS>(kernel, sets, &leased, timeout, mask) }
    }
}

/// As [`select_for`], of sets that have no more words.
///
/// # Safety
/// As for `select(2)`.
#[inline(never)]
unsafe fn wait_for<const MOST: usize>(
    kernel: &Kernel,
    sets: Sets,
    leased: &Leased,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> c_int {
    // The kernel changes the sets each time that it is asked.
    let mut asked = [[0; MOST]; 3];
    for (number, asked) in asked.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        asked.iter_mut().zip(unsafe { sets.read(number) }).for_each(|(asked, word)| *asked = word);
    }
    // SAFETY: the caller's promise.
    let restore = || unsafe { sets.write(|number, at| asked[number][at]) };
    let ask = |timeout: Option<&timespec>, mask: Option<&sigset_t>| {
        restore();
        // SAFETY: the caller's promise.
        unsafe { sets.ask(kernel, timeout, mask) }
    };
    let Ok(outcome) = wait_among(kernel, leased, timeout, mask, ask) else {
        restore();
        return -1;
    };
    if outcome.kernel.is_none() {
        // SAFETY: the caller's promise.
        unsafe { sets.write(|_, _| 0) };
    }
    // SAFETY: the caller's promise.
    unsafe { with_rings(sets, &asked[0], leased, outcome) }
}

/// Passes each descriptor of a set, if it is not larger than the table.
///
/// # Safety
/// As for `select(2)`.
pub unsafe fn each(kernel: &Kernel, limit: c_int, set: *mut fd_set, of: &mut dyn FnMut(c_int)) {
    if set.is_null() {
        return;
    }
    let sets = Sets::new(kernel, limit, [set, std::ptr::null_mut(), std::ptr::null_mut()]);
    if sets.words() > WORDS || !sets.can_be_used() {
        return;
    }
    // SAFETY: the caller's promise.
    descriptors_in(unsafe { sets.read(0) }).for_each(of);
}

/// The sockets with a lease of which the caller wants to know whether they are readable.
///
/// # Safety
/// As for `select(2)`.
unsafe fn leased_in(sets: Sets) -> Leased {
    let mut leased = Leased::none();
    if !table::is_any() || sets.words() > WORDS || !sets.can_be_used() {
        return leased;
    }
    // SAFETY: the caller's promise.
    for descriptor in descriptors_in(unsafe { sets.read(0) }) {
        if let Some((place, _)) = table::place(descriptor) {
            leased.add(place, descriptor);
        }
    }
    leased
}

/// Adds what is in rings to what the kernel has said. Returns the number of bits.
///
/// # Safety
/// As for `select(2)`.
unsafe fn with_rings(sets: Sets, asked: &[c_ulong], leased: &Leased, outcome: Outcome) -> c_int {
    let is_ready = |descriptor| leased.place_of(descriptor).is_some_and(|place| outcome.is_ready(place));
    let read = sets.sets[0].cast::<c_ulong>();
    for descriptor in descriptors_in(asked[..sets.of(0).count()].iter().copied()).filter(|one| is_ready(*one))
    {
        let word = read.wrapping_add(descriptor as usize / BITS);
        // SAFETY: the caller's promise: the set has that word.
        unsafe { word.write_unaligned(word.read_unaligned() | 1 << (descriptor as usize % BITS)) };
    }
    // SAFETY: the caller's promise.
    let count = |set| unsafe { sets.read(set) }.map(|word| word.count_ones()).sum::<u32>();
    let ready: u32 = (0..3).map(count).sum();
    ready as c_int
}

fn descriptors_in(set: impl Iterator<Item = c_ulong>) -> impl Iterator<Item = c_int> {
    set.enumerate().filter(|(_, word)| *word != 0).flat_map(|(at, word)| {
        (0..BITS).filter(move |bit| word & 1 << bit != 0).map(move |bit| (at * BITS + bit) as c_int)
    })
}
