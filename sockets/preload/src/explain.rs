//! Says which path each socket has, why, and at its end what it has received.
//!
//! A program may end in a signal handler, so nothing here allocates or waits for a lock.
#![allow(unsafe_code, reason = "files are written by the calls of the C library")]

use std::ffi::CStr;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::c_int;
use twinpath_calls::{SocketKind, WhyKernel, errno, set_errno, table};

use crate::started::started;
use crate::{own, preloader};

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

/// A descriptor, and the file that it was of: a program may have closed it, and the number may be that of another file since.
struct Known {
    descriptor: AtomicI32,
    file: [AtomicU64; 2],
}

impl Known {
    const fn none() -> Self {
        Self { descriptor: AtomicI32::new(-1), file: [const { AtomicU64::new(0) }; 2] }
    }

    /// The descriptor, if it is still of that file.
    fn get(&self) -> Option<c_int> {
        let descriptor = self.descriptor.load(Ordering::Acquire);
        let file = [0, 1].map(|at| self.file[at].load(Ordering::Relaxed));
        (descriptor >= 0 && own::file_of(descriptor) == Some(file)).then_some(descriptor)
    }

    fn set(&self, descriptor: c_int) {
        self.set_of(descriptor, own::file_of(descriptor).unwrap_or_default());
    }

    fn set_of(&self, descriptor: c_int, file: [u64; 2]) {
        self.file.iter().zip(file).for_each(|(known, part)| known.store(part, Ordering::Relaxed));
        self.descriptor.store(descriptor, Ordering::Release);
    }
}

/// The file that is written to. It is opened at the beginning and kept: later the program may have another root, fewer rights, or no
/// descriptor to spare.
static FILE: Known = Known::none();
/// Standard error as the program was started with it.
static ERRORS: Known = Known::none();
/// Lines that could not be written, and have not been told of; and the error of the last one.
static LOST: AtomicU64 = AtomicU64::new(0);
static ERROR: AtomicI32 = AtomicI32::new(0);

/// The name of the file, if it is not standard error.
fn named() -> Option<&'static CStr> {
    started()?.explain.as_deref().filter(|to| to.to_bytes() != b"-")
}

/// The program begins.
pub(crate) fn begin() {
    if let Some(to) = named() {
        match preloader::errors() {
            Some(file) => ERRORS.set_of(libc::STDERR_FILENO, file),
            None => ERRORS.set(libc::STDERR_FILENO),
        }
        if file(to).is_some() {
            // The program is not to close it with its own.
            table::begin_tracking();
        }
    }
}

/// In a child, for which nothing is the library's own so far.
pub(crate) fn in_child() {
    if let Some(file) = FILE.get() {
        own::remember(file);
    }
}

/// The file, opened again if the program has closed it all the same.
fn file(to: &CStr) -> Option<c_int> {
    if let Some(file) = FILE.get() {
        return Some(file);
    }
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: it is a string of C.
    let opened = unsafe { libc::open(to.as_ptr(), flags, 0o666) };
    if opened < 0 {
        return None;
    }
    let kept = match table::duplicate_out_of_the_way(opened) {
        Some(duplicate) => {
            table::close_own(opened);
            duplicate
        }
        None => opened,
    };
    own::remember(kept);
    FILE.set(kept);
    Some(kept)
}

/// Writes a line. `errno` stays as it is. What cannot be written is counted, and told of with the next line that can, or at the end.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let Some(to) = started().and_then(|started| started.explain.as_deref()) else { return };
    let error = errno();
    if named().is_none() {
        write(libc::STDERR_FILENO, text);
    } else {
        set_errno(0);
        let lost = LOST.load(Ordering::Relaxed);
        let is_written = file(to).is_some_and(|file| {
            let told =
                lost == 0 || write(file, format_args!("{lost} lines before this one {}", NotWritten(to)));
            if told && lost > 0 {
                LOST.fetch_sub(lost, Ordering::Relaxed);
            }
            told && write(file, text)
        });
        if !is_written {
            ERROR.store(errno(), Ordering::Relaxed);
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
    set_errno(error);
}

/// Why a line is not there.
struct NotWritten<'a>(&'a CStr);

impl fmt::Display for NotWritten<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.to_str().unwrap_or("the file");
        write!(f, "could not be written to {name} (error {})", ERROR.load(Ordering::Relaxed))
    }
}

/// Returns whether all of the line was written.
fn write(to: c_int, text: fmt::Arguments<'_>) -> bool {
    let Some(started) = started() else { return true };
    let mut line = Line { text: [0; 1024], len: 0 };
    let _ = write!(line, "twinpath run: {}[{}]: {text}", started.program, std::process::id());
    line.text[line.len] = b'\n';
    let line = &line.text[..=line.len];
    // SAFETY: the bytes are there.
    unsafe { libc::write(to, line.as_ptr().cast(), line.len()) == line.len() as isize }
}

/// The program ends: says what could not be written, if standard error is still the one that it was started with.
fn lost() {
    let (lost, Some(to)) = (LOST.swap(0, Ordering::Relaxed), named()) else { return };
    if lost > 0
        && let Some(errors) = ERRORS.get()
    {
        write(errors, format_args!("{lost} lines of --explain {}", NotWritten(to)));
    }
}

/// Writes a line about a socket.
pub(crate) fn socket(descriptor: c_int, text: fmt::Arguments<'_>) {
    if !is_on() {
        return;
    }
    match table::local_address(descriptor) {
        Some(local) => line(format_args!("{} {local}: {text}", SocketKind::Udp)),
        None => line(format_args!("{} not bound: {text}", SocketKind::Udp)),
    }
}

/// Sockets that never have a lease are named one by one, up to this many for each reason, as a program may open one for
/// each query. Of further ones only the number is given.
const NAMED_MAX: u64 = 16;
/// Maximum number of reasons; sockets with further ones are not named.
const REASONS_MAX: usize = 64;

/// A reason, by a sum of its text, and how many sockets it has kept with the kernel.
struct Reason {
    sum: AtomicU64,
    sockets: AtomicU64,
}

static REASONS: [Reason; REASONS_MAX] =
    [const { Reason { sum: AtomicU64::new(0), sockets: AtomicU64::new(0) } }; REASONS_MAX];
static UNNAMED: AtomicU64 = AtomicU64::new(0);
/// How many sockets have received too little: a reason as those above, which is known without its text.
static TOO_LITTLE: AtomicU64 = AtomicU64::new(0);

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
fn is_named(why: &WhyKernel) -> bool {
    let mut sum = Sum(0xcbf2_9ce4_8422_2325);
    let _ = write!(sum, "{why}");
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
pub(crate) fn without_lease(descriptor: c_int, why: &WhyKernel) {
    if is_on() {
        if is_named(why) {
            socket(descriptor, format_args!("by the kernel: {why}"));
        } else {
            UNNAMED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Says of a socket that has had a lease why it has none any more.
pub(crate) fn from_now_on(descriptor: c_int, why: &WhyKernel) {
    socket(descriptor, format_args!("by the kernel from now on: {why}"));
}

/// The socket is about to be closed, by the process to which the table belongs.
pub(crate) fn closing(descriptor: c_int) {
    if is_on() && table::is_undecided(descriptor) {
        undecided(descriptor);
    }
    if table::is_last(descriptor) {
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
        lost();
    }
}

fn why_by_rules(descriptor: c_int) -> Option<WhyKernel> {
    let started = started()?;
    // A program may close a socket for each query: of these the address is not asked for.
    if started.takes_all_named() {
        return None;
    }
    started.why_by_rules(table::local_address(descriptor)?)
}

/// The socket ends without a lease.
fn undecided(descriptor: c_int) {
    let too_little = WhyKernel::TooLittle { datagrams: table::ENOUGH, within_ms: table::WINDOW_MS };
    let why = match table::is_asked(descriptor) {
        true => Some(WhyKernel::NotAnswered),
        false => why_by_rules(descriptor),
    };
    match why {
        Some(why) => without_lease(descriptor, &why),
        // A program may close one for each query.
        None if TOO_LITTLE.fetch_add(1, Ordering::Relaxed) < NAMED_MAX => {
            socket(descriptor, format_args!("by the kernel: {too_little}"));
        }
        None => {
            UNNAMED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The lease of a socket ends, as it does not pay.
pub(crate) fn pays_not(descriptor: c_int) {
    from_now_on(descriptor, &WhyKernel::PaysNot);
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
    let received = format_args!(
        "received {by_ring} by the ring, {by_kernel} by the kernel, {ended} of these under a lease: {share:.1} % by the ring"
    );
    match counts.why_none_by_ring() {
        Some(why) => socket(descriptor, format_args!("{received}; {why}")),
        None => socket(descriptor, received),
    }
}
