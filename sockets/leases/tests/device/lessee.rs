//! Leases of descriptors: closed, forked and given again at any moment.

use std::io::{Write as _, stderr};
use std::net::UdpSocket as KernelSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{scope, yield_now};
use std::time::Instant;

use twinpath_leases::WhyKernel;
use twinpath_leases::sockets::{Access, Call, Lessee, SocketPath, Step, UdpSocket, Wait};
use twinpath_sys::fork::fork;
use twinpath_worker::idle::Mode;

use crate::{Link, PATIENCE};

/// Each takes two changes of the rules, which wait for the kernel.
const LEASES: usize = 4;

fn bound(link: &Link) -> KernelSocket {
    link.ours.run(|| KernelSocket::bind("10.9.0.1:0").unwrap()).unwrap()
}

/// Waits while another thread does the same.
fn lend(lessee: &Lessee, socket: &KernelSocket, is_shared: bool) -> Result<(), WhyKernel> {
    let begun = Instant::now();
    loop {
        match lessee.lend(socket, "in0", &Access::Auto, is_shared).map(drop) {
            Err(why) if why.is_brief() && begun.elapsed() < PATIENCE => yield_now(),
            lent => return lent,
        }
    }
}

fn set_free(lessee: &Lessee) {
    let begun = Instant::now();
    while !lessee.is_free() {
        lessee.set_free();
        assert!(begun.elapsed() < PATIENCE, "the lease of a closed socket is lost");
        yield_now();
    }
}

#[test]
fn a_socket_that_is_closed_while_a_thread_receives_gives_its_lease_back() {
    let Some(link) = Link::new() else { return };
    let lessee = Lessee::new();
    for round in 0..LEASES {
        let socket = bound(&link);
        link.ours
            .run(|| lend(&lessee, &socket, false))
            .unwrap()
            .unwrap_or_else(|why| panic!("{round}: {why}"));
        lessee.set_mode(Mode::Poll);
        let [looks, is_over] = [(); 2].map(|()| AtomicBool::new(false));
        scope(|scope| {
            scope.spawn(|| {
                let call = Call {
                    peek: false,
                    wait: Wait::Until(twinpath_time::Instant::NEVER),
                    stays: true,
                    polled: false,
                };
                let mut is_interrupted = || {
                    looks.store(true, Ordering::Release);
                    is_over.load(Ordering::Acquire)
                };
                let _ = lessee.begin();
                while let Some(step) = lessee.step(&socket, call, &mut |_| (), &mut is_interrupted) {
                    match step {
                        Step::Read => lessee.was_empty(),
                        // It goes on by the kernel as soon as it has seen the end.
                        Step::Interrupted | Step::Sleep { .. } => break,
                        step => panic!("{step:?}"),
                    }
                }
            });
            let begun = Instant::now();
            while !looks.load(Ordering::Acquire) {
                assert!(begun.elapsed() < PATIENCE);
                yield_now();
            }
            lessee.end(&socket);
            is_over.store(true, Ordering::Release);
        });
        set_free(&lessee);
    }
}

/// Calls `work` this many times, each time while another thread gives a lease on the same interface.
fn beside(link: &Link, rounds: usize, mut work: impl FnMut(&dyn Fn())) {
    scope(|scope| {
        // They end with the closure, also when `work` panics: the thread would wait for ever otherwise.
        let ((begin, begun), (end, ended)) = (channel(), channel());
        scope.spawn(move || {
            while begun.recv().is_ok() {
                drop(link.socket("10.9.0.1:0"));
                let _ = end.send(());
            }
        });
        for _ in 0..rounds {
            work(&|| begin.send(()).unwrap());
            ended.recv_timeout(PATIENCE).unwrap();
        }
    });
}

#[test]
fn a_socket_that_is_closed_while_another_gets_a_lease_gives_its_own_back() {
    let Some(link) = Link::new() else { return };
    let lessee = Lessee::new();
    beside(&link, LEASES, |begin| {
        let socket = bound(&link);
        let lent = link.ours.run(|| lend(&lessee, &socket, false)).unwrap();
        begin();
        assert_eq!(lent, Ok(()));
        lessee.end(&socket);
        set_free(&lessee);
    });
}

#[test]
fn a_child_gets_leases_although_its_parent_was_giving_one_when_it_forked() {
    let Some(link) = Link::new() else { return };
    // A child that is forked while the first one is given has none.
    drop(link.socket("10.9.0.1:0"));
    beside(&link, 5, |begin| {
        let socket = bound(&link);
        begin();
        let child = link.ours.run(|| {
            fork(|| match lend(&Lessee::new(), &socket, false) {
                Ok(()) => 0,
                Err(why) => {
                    // What the macros write is kept for the parent's report, which a child has no part in.
                    let _ = writeln!(stderr(), "{why}");
                    1
                }
            })
        });
        assert_eq!(child.unwrap().unwrap().wait().unwrap(), Some(0));
    });
}

#[test]
fn a_socket_that_other_processes_have_leaves_nothing_in_the_ring() {
    let Some(link) = Link::new() else { return };
    let (lessee, socket) = (Lessee::new(), bound(&link));
    for is_shared in [true, false] {
        link.ours.run(|| lend(&lessee, &socket, is_shared)).unwrap().unwrap();
        assert_eq!(lessee.may_stay(), !is_shared);
        lessee.share();
        assert!(!lessee.may_stay());
        lessee.end(&socket);
        set_free(&lessee);
    }
}

#[test]
fn another_descriptor_of_a_socket_with_a_lease_gets_none() {
    let Some(link) = Link::new() else { return };
    let (lessee, socket) = (Lessee::new(), bound(&link));
    link.ours.run(|| lend(&lessee, &socket, false)).unwrap().unwrap();
    let other = UdpSocket::from(socket.try_clone().unwrap());
    let other = link.ours.run(|| other.on("in0")).unwrap();
    let SocketPath::Kernel { why } = other.path() else { panic!("{}", other.path()) };
    assert!(why.to_string().contains("descriptor"), "{why}");
    // The first one keeps its own.
    lessee.end(&socket);
    set_free(&lessee);
    let other = link.ours.run(|| UdpSocket::from(socket).on("in0")).unwrap();
    assert!(matches!(other.path(), SocketPath::Fast { .. }), "{}", other.path());
}
