//! An owner that says nothing. The requests of a process are all its sockets', so no other test is in this one.
#![allow(unsafe_code, reason = "handlers of signals are the C library's")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;
use std::sync::mpsc;
use std::time::Duration;

use libc::c_int;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use twinpath_calls::table::{
    Next, after_step, ask, is_asked, is_known, keep_with_kernel, set_earning, set_undecided, take_steps,
    take_up,
};
use twinpath_calls::{Access, WhyKernel};
use twinpath_preloader::stack;
use twinpath_sys::clock;
use twinpath_worker::idle::Mode;

thread_local! {
    /// How often this thread has run the handler.
    static HANDLED: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn handled(_: c_int) {
    HANDLED.set(HANDLED.get() + 1);
}

/// As the hook of `bind` does it. Returns what the last step has said.
fn lease_at_bind(descriptor: c_int, patience: Duration) -> Option<WhyKernel> {
    let mut why = None;
    take_steps(patience, |waited| {
        let step = || {
            assert!(matches!(take_up(descriptor, Mode::Poll), Ok(None)));
            after_step(descriptor, waited, patience)
        };
        stack::with_room(step).expect("memory").unwrap_or_else(|error| {
            keep_with_kernel(descriptor);
            why = Some(error);
            Next::Done
        })
    });
    why
}

/// An owner that was stopped is such a one: the kernel takes what is sent to it.
#[test]
fn a_silent_owner_is_waited_for_until_a_deadline_and_handlers_of_signals_run_meanwhile() {
    const PATIENCE: Duration = Duration::from_millis(300);
    let path = std::env::temp_dir().join(format!("twinpath-silent-{}", std::process::id()));
    let owner = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let owner = owner.expect("a socket");
    bind(&owner, &SocketAddrUnix::new(&path).expect("its address")).expect("to bind");
    listen(&owner, 4).expect("to listen");
    let access = Access::Owner(path.clone());
    let asks = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        set_undecided(socket.as_raw_fd());
        set_earning(socket.as_raw_fd());
        while ask(socket.as_raw_fd(), "lo", &access).is_err_and(|why| why.is_brief()) {
            std::thread::yield_now();
        }
        assert!(is_asked(socket.as_raw_fd()));
        socket
    };
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid value of it, and the handler only counts.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = handled as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, action.as_ptr(), null_mut()), 0);
    }
    let waits = |begun: mpsc::Sender<libc::pthread_t>| {
        let (socket, at) = (asks(), clock::now());
        // SAFETY: it takes nothing.
        begun.send(unsafe { libc::pthread_self() }).expect("the test");
        drop(begun);
        let why = lease_at_bind(socket.as_raw_fd(), PATIENCE);
        (socket, why, HANDLED.get(), clock::now().since(at))
    };
    let (begun, threads) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiting = [begun.clone(), begun].map(|begun| scope.spawn(|| waits(begun)));
        let threads: Vec<_> = threads.iter().collect();
        let (_tell, tick) = mpsc::channel::<()>();
        while waiting.iter().any(|waiting| !waiting.is_finished()) {
            let _ = tick.recv_timeout(PATIENCE / 60);
            for thread in &threads {
                // SAFETY: the threads are joined below, so these are still theirs.
                unsafe { libc::pthread_kill(*thread, libc::SIGUSR1) };
            }
        }
        for waited in waiting {
            let (socket, why, handled, took) = waited.join().expect("a thread");
            assert_eq!(why, Some(WhyKernel::Silent(PATIENCE.as_secs())));
            assert!((PATIENCE..20 * PATIENCE).contains(&took), "{took:?}");
            // One that is held back runs once.
            assert!(handled > 3, "{handled}");
            assert!(!is_known(socket.as_raw_fd()));
            let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            sender.send_to(b"kernel", socket.local_addr().expect("its address")).expect("to send");
            assert_eq!(socket.recv(&mut [0; 16]).expect("a datagram"), 6);
        }
    });
    // The next one does not wait for an owner that was waited for in vain. It is asked yet.
    let socket = asks();
    assert_eq!(
        (lease_at_bind(socket.as_raw_fd(), Duration::from_secs(20)), is_asked(socket.as_raw_fd())),
        (None, true)
    );
    keep_with_kernel(socket.as_raw_fd());
    let _ = std::fs::remove_file(path);
}
