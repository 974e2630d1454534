//! Signals of the process. A test binary of its own, as the handlers are the whole process's.
#![allow(unsafe_code, reason = "a handler is installed, as a program would")]

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_sys::{ProcessSignal, ProcessSignals};

#[test]
fn each_watch_gets_each_signal_and_a_new_watch_none_of_before() {
    let (mut one, mut other) = (ProcessSignals::new().unwrap(), ProcessSignals::new().unwrap());
    assert_eq!(one.take(), None);
    let hang_up = || raise(libc::SIGHUP);
    let wait = |watch: &ProcessSignals| {
        let mut fds = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap()
    };
    hang_up();
    assert_eq!((wait(&one), wait(&other)), (1, 1));
    assert_eq!((one.take(), one.take()), (Some(ProcessSignal::Hangup), None));
    assert_eq!(other.take(), Some(ProcessSignal::Hangup));
    raise(libc::SIGTERM);
    raise(libc::SIGINT);
    assert_eq!(wait(&one), 1);
    let both = [Some(ProcessSignal::Interrupt), Some(ProcessSignal::Terminate), None];
    assert_eq!([one.take(), one.take(), one.take()], both);
    drop(other);
    let mut third = ProcessSignals::new().unwrap();
    assert_eq!(third.take(), None);
    hang_up();
    assert_eq!(wait(&third), 1);
    assert_eq!(third.take(), Some(ProcessSignal::Hangup));

    let mut many: Vec<_> = std::iter::repeat_with(|| ProcessSignals::new().unwrap()).take(100).collect();
    hang_up();
    assert!(many.iter_mut().all(|watch| wait(watch) == 1 && watch.take() == Some(ProcessSignal::Hangup)));

    // SAFETY: the handler adds to a number.
    unsafe { libc::signal(libc::SIGHUP, on_hang_up as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    let _another = ProcessSignals::new().unwrap();
    hang_up();
    assert_eq!(HEARD.load(Ordering::Acquire), 1, "what the program has installed since stays");
}

/// Sends a signal to this thread: its handler has run when this returns. A signal to the process may be handled by
/// another thread, later.
fn raise(signal: libc::c_int) {
    // SAFETY: the handlers of these tests may run at any time.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

static HEARD: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_hang_up(_: libc::c_int) {
    HEARD.fetch_add(1, Ordering::AcqRel);
}
