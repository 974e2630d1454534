//! How many descriptors `select(2)` looks at.
#![allow(unsafe_code, reason = "the kernel's calls take pointers")]

use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, c_ulong, fd_set, timespec};

use crate::kernel::{Kernel, errno};

const BITS: usize = c_ulong::BITS as usize;
/// The bits of an `fd_set`: every table has room for this many descriptors.
const LEAST: usize = libc::FD_SETSIZE;
/// Descriptors that are looked for.
const MOST: usize = 1 << 16;

/// Number of descriptors that the kernel's table of this process has room for. The table only grows.
static KNOWN: AtomicUsize = AtomicUsize::new(LEAST);

/// The limit of a call of `select(2)`, cut as the kernel does (`core_sys_select`): to the room in its table of descriptors. A program
/// may pass the largest number that descriptors can have, with sets that are shorter. Limits above `MOST` are returned as they are if
/// the table has more room than that.
pub(crate) fn cut(kernel: &Kernel, limit: c_int) -> c_int {
    let Some(asked) = usize::try_from(limit).ok().filter(|asked| *asked > KNOWN.load(Ordering::Relaxed))
    else {
        return limit;
    };
    // Words that have room, and the first one that is not known to have room.
    let (mut has_room, mut none) = (KNOWN.load(Ordering::Relaxed) / BITS, asked.min(MOST).div_ceil(BITS));
    let mut next = has_room;
    while has_room < none {
        if has_word(kernel, next) {
            has_room = next + 1;
        } else {
            none = next;
        }
        next = has_room + (none - has_room) / 2;
    }
    KNOWN.fetch_max(has_room * BITS, Ordering::Relaxed);
    if has_room * BITS >= asked.min(MOST) { limit } else { (has_room * BITS) as c_int }
}

/// In a child: its table may have less room.
pub(crate) fn forget() {
    if KNOWN.load(Ordering::Relaxed) != LEAST {
        KNOWN.store(LEAST, Ordering::Relaxed);
    }
}

/// Whether the kernel's table has room for the descriptors of that word of a set. It reads and writes no others: so a bit in a word
/// outside is neither refused nor cleared.
#[inline(never)]
fn has_word(kernel: &Kernel, word: usize) -> bool {
    let mut set: [c_ulong; MOST / BITS] = [0; MOST / BITS];
    let (limit, none) = (((word + 1) * BITS) as c_int, std::ptr::null_mut());
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        set[word] = 1;
        let read = set.as_mut_ptr().cast::<fd_set>();
        // SAFETY: the set has as many bits as the limit says.
        let ready = unsafe { (kernel.pselect)(limit, read, none, none, &raw const now, std::ptr::null()) };
        if ready == 0 {
            return set[word] == 0;
        }
        if ready > 0 {
            return true;
        }
        match errno() {
            libc::EINTR => {}
            error => return error == libc::EBADF,
        }
    }
}
