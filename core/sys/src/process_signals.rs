//! Signals of the process as events: SIGINT, SIGTERM, SIGHUP.
//!
//! They come by a handler, not by signalfd(2): threads that were started before do not block the signals, and the kernel
//! may deliver them there.
#![allow(unsafe_code, reason = "a handler is installed by the C library, and calls the one before it")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{c_int, c_void, siginfo_t};

use crate::EventFd;

/// The signals.
const SIGNALS: [(c_int, ProcessSignal); 3] = [
    (libc::SIGINT, ProcessSignal::Interrupt),
    (libc::SIGTERM, ProcessSignal::Terminate),
    (libc::SIGHUP, ProcessSignal::Hangup),
];

/// How often each signal has come.
static CAME: [AtomicU32; SIGNALS.len()] = [const { AtomicU32::new(0) }; SIGNALS.len()];

/// The actions before ours.
static BEFORE: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; SIGNALS.len()];

/// The first of the places for watches.
static FIRST: Place = Place::new();

/// A place for a watch. There are as many as there were watches at a time; none goes, as the handler may run on any
/// thread at any time.
struct Place {
    /// Made for the first watch in this place, and never closed.
    event: OnceLock<EventFd>,
    is_taken: AtomicBool,
    next: OnceLock<Box<Self>>,
}

impl Place {
    const fn new() -> Self {
        Self { event: OnceLock::new(), is_taken: AtomicBool::new(false), next: OnceLock::new() }
    }

    /// All places. Waits for nothing.
    fn all() -> impl Iterator<Item = &'static Self> {
        std::iter::successors(Some(&FIRST), |place| place.next.get().map(AsRef::as_ref))
    }

    /// A place that was free.
    fn take() -> &'static Self {
        let mut place = &FIRST;
        while place.is_taken.swap(true, Ordering::AcqRel) {
            place = place.next.get_or_init(|| Box::new(Self::new()));
        }
        place
    }
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    Hangup,
}

/// Watches for the signals. The first watch of a process installs the handlers, which stay: from then on, these signals
/// do not end the process. A handler that was there before is called as well.
pub struct ProcessSignals {
    event: &'static EventFd,
    place: &'static Place,
    /// The number of each signal that was returned.
    seen: [u32; SIGNALS.len()],
}

impl ProcessSignals {
    /// Watches from now on.
    ///
    /// # Errors
    /// From `eventfd(2)` or `sigaction(2)`.
    pub fn new() -> io::Result<Self> {
        let new = EventFd::new()?;
        let place = Place::take();
        let event = place.event.get_or_init(|| new);
        let seen = std::array::from_fn(|at| CAME[at].load(Ordering::Acquire));
        let watch = Self { event, place, seen };
        install()?;
        Ok(watch)
    }

    /// The next signal that has come; several of the same kind are one. Does not wait: its descriptor is readable then.
    pub fn take(&mut self) -> Option<ProcessSignal> {
        self.event.drain();
        for ((came, seen), (_, signal)) in CAME.iter().zip(&mut self.seen).zip(SIGNALS) {
            let came = came.load(Ordering::Acquire);
            if std::mem::replace(seen, came) != came {
                return Some(signal);
            }
        }
        None
    }
}

impl AsFd for ProcessSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for ProcessSignals {
    fn drop(&mut self) {
        self.place.is_taken.store(false, Ordering::Release);
    }
}

/// Installs the handlers that are not installed yet. A handler that the program has installed since stays.
fn install() -> io::Result<()> {
    for ((signal, _), before) in SIGNALS.into_iter().zip(&BEFORE).filter(|(_, before)| before.get().is_none())
    {
        // SAFETY: a `sigaction` of zeros is one, which the call fills.
        let former = unsafe {
            let mut former: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut former);
            former
        };
        // Known before the handler can run. Another thread may be installing it at this moment.
        if before.set(former).is_err() {
            continue;
        }
        // SAFETY: the call reads the action; the handler calls only what a handler may (signal-safety(7)).
        let installed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        if installed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_signal(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(at) = SIGNALS.iter().position(|(signal, _)| *signal == number) else { return };
    CAME[at].fetch_add(1, Ordering::AcqRel);
    Place::all().filter_map(|place| place.event.get()).for_each(EventFd::signal);
    let Some(before) = BEFORE[at].get() else { return };
    if matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return;
    }
    // SAFETY: the program has installed this handler, with the arguments that its flags say (sigaction(2)).
    unsafe {
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                std::mem::transmute(before.sa_sigaction);
            handler(number, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(before.sa_sigaction);
            handler(number);
        }
    }
}
