//! Says which path each socket has, why, and at its end what it has received.
//!
//! A program may end in a signal handler, so nothing here allocates or waits for a lock.
#![allow(unsafe_code, reason = "files are written by the calls of the C library")]

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;
use twinpath_calls::{errno, set_errno, table};

use crate::started::started;

/// A line of text: what does not fit is left out.
struct Line {
    text: [u8; 1024],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is for the end of the line.
        let room = self.text.len() - 1 - self.len;
        let piece = &text.as_bytes()[..text.len().min(room)];
        self.text[self.len..self.len + piece.len()].copy_from_slice(piece);
        self.len += piece.len();
        Ok(())
    }
}

/// Whether anything is to be said.
pub(crate) fn is_on() -> bool {
    started().is_some_and(|started| started.explain.is_some())
}

/// Writes a line. `errno` stays as it is. What cannot be written is left out.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let Some(started) = started() else { return };
    let Some(to) = &started.explain else { return };
    let error = errno();
    let mut line = Line { text: [0; 1024], len: 0 };
    let _ = write!(line, "twinpath run: {}[{}]: {text}", started.program, std::process::id());
    line.text[line.len] = b'\n';
    let line = &line.text[..=line.len];
    if to.as_bytes() == b"-" {
        write(libc::STDERR_FILENO, line);
    } else {
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
        // SAFETY: it is a string of C.
        let file = unsafe { libc::open(to.as_ptr(), flags, 0o666) };
        if file >= 0 {
            write(file, line);
            // SAFETY: it was opened above.
            unsafe { libc::close(file) };
        }
    }
    set_errno(error);
}

fn write(to: c_int, line: &[u8]) {
    // SAFETY: the bytes are there.
    let _ = unsafe { libc::write(to, line.as_ptr().cast(), line.len()) };
}

/// Writes a line about a socket.
pub(crate) fn socket(descriptor: c_int, text: fmt::Arguments<'_>) {
    if !is_on() {
        return;
    }
    match table::local_address(descriptor) {
        Some(local) => line(format_args!("UDP {local}: {text}")),
        None => line(format_args!("UDP not bound: {text}")),
    }
}

/// Sockets that never have a lease are named one by one, up to so many for each reason, as a program may open one for each query; of
/// more it is said how many there were.
const NAMED_MAX: u64 = 16;
/// Of reasons beyond so many no socket is named.
const REASONS_MAX: usize = 64;

/// A reason, by a sum of its text, and how many sockets it has kept with the kernel.
struct Reason {
    sum: AtomicU64,
    sockets: AtomicU64,
}

static REASONS: [Reason; REASONS_MAX] =
    [const { Reason { sum: AtomicU64::new(0), sockets: AtomicU64::new(0) } }; REASONS_MAX];
static UNNAMED: AtomicU64 = AtomicU64::new(0);

/// FNV-1a of a text, which is never 0 here.
struct Sum(u64);

impl fmt::Write for Sum {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 =
            text.bytes().fold(self.0, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Ok(())
    }
}

/// Counts a socket that is kept with the kernel for that reason. Returns whether it is to be named.
fn is_named(why: fmt::Arguments<'_>) -> bool {
    let mut sum = Sum(0xcbf2_9ce4_8422_2325);
    let _ = sum.write_fmt(why);
    let is_it = |reason: &&Reason| {
        let known = reason.sum.load(Ordering::Relaxed);
        known == sum.0
            || known == 0
                && reason.sum.compare_exchange(0, sum.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    let known = REASONS.iter().find(is_it);
    known.is_some_and(|reason| reason.sockets.fetch_add(1, Ordering::Relaxed) < NAMED_MAX)
}

/// Says of a socket that never had a lease why it has none.
pub(crate) fn without_lease(descriptor: c_int, why: fmt::Arguments<'_>) {
    if is_on() {
        if is_named(why) {
            socket(descriptor, format_args!("by the kernel: {why}"));
        } else {
            UNNAMED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The socket is about to be closed.
pub(crate) fn closing(descriptor: c_int) {
    if is_on() && table::is_undecided(descriptor) && table::is_own_process() {
        undecided(descriptor);
    }
    if table::is_last(descriptor) && table::is_own_process() {
        received(descriptor);
    }
}

/// The program ends.
pub(crate) fn ending() {
    if is_on() && table::is_own_process() {
        table::undecided_sockets().for_each(undecided);
        table::leased_sockets().for_each(received);
        let unnamed = UNNAMED.load(Ordering::Relaxed);
        if unnamed > 0 {
            line(format_args!("{unnamed} further sockets by the kernel, for reasons as above"));
        }
    }
}

fn why_by_rules(descriptor: c_int) -> Option<&'static str> {
    started()?.why_by_rules(table::local_address(descriptor)?)
}

/// The socket ends without a lease.
fn undecided(descriptor: c_int) {
    if table::is_asked(descriptor) {
        without_lease(descriptor, format_args!("the owner of the interface has not answered yet"));
    } else if let Some(why) = why_by_rules(descriptor) {
        without_lease(descriptor, format_args!("{why}"));
    } else {
        without_lease(
            descriptor,
            format_args!(
                "the calls that the library sees have received too little for a ring to pay ({} datagrams within {} ms)",
                table::ENOUGH,
                table::WINDOW_MS
            ),
        );
    }
}

/// The lease of a socket ends, as it does not pay.
pub(crate) fn pays_not(descriptor: c_int) {
    let why = "fewer than one of 8 datagrams came by the ring, which does not pay; it may earn another lease";
    socket(descriptor, format_args!("by the kernel from now on: {why}"));
}

/// What a socket has received that is closed, or that is the kernel's from now on.
pub(crate) fn received(descriptor: c_int) {
    let Some(counts) = table::counts(descriptor) else {
        return socket(descriptor, format_args!("another thread was receiving at the end"));
    };
    let all = counts.by_ring + counts.by_kernel;
    let share = if all == 0 { 0.0 } else { 100.0 * counts.by_ring as f64 / all as f64 };
    let (by_ring, by_kernel) = (counts.by_ring, counts.by_kernel);
    // A program in the kernel that ends a lease lets the kernel have what came while it was held, unless the lease had lapsed.
    let ended = counts.ended.saturating_sub(counts.lapsed);
    socket(
        descriptor,
        format_args!(
            "received {by_ring} by the ring, {by_kernel} by the kernel, {ended} of these under a lease: {share:.1} % by the ring{}{}",
            if counts.why_none_by_ring().is_some() { "; " } else { "" },
            counts.why_none_by_ring().unwrap_or_default()
        ),
    );
}
