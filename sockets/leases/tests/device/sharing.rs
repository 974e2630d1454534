//! A socket that several threads and processes have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use twinpath_leases::sockets::UdpSocket;
use twinpath_sys::fork::fork;
use twinpath_worker::idle::Mode;

use crate::Link;

/// Round trips until one came by the ring.
fn until_by_ring(socket: &UdpSocket, peer: &std::net::UdpSocket, to: &str) {
    let (begun, before, mut buffer) = (Instant::now(), socket.counts().by_ring, [0; 64]);
    let mut number = 0u64;
    while socket.counts().by_ring == before {
        number += 1;
        let sent = number.to_ne_bytes();
        peer.send_to(&sent, to).unwrap();
        // What was sent to a child that has ended may be there as well. If it stayed, the socket would never be found empty.
        let from = loop {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            if buffer[..len] == sent {
                break from;
            }
        };
        socket.send_to(&sent, from).unwrap();
        peer.recv(&mut buffer).unwrap();
        assert!(begun.elapsed() < crate::PATIENCE, "{:?}", socket.counts());
    }
}

#[test]
fn a_child_has_the_kernels_socket_and_the_parent_keeps_the_ring() {
    let Some(link) = Link::new() else { return };
    let to = "10.9.0.1:7030";
    let mut socket = Some(link.socket("0.0.0.0:7030"));
    let peer = link.peer("10.9.0.2:0");
    socket.as_ref().unwrap().set_mode(Mode::Poll);
    for _ in 0..3 {
        until_by_ring(socket.as_ref().unwrap(), &peer, to);
        let before = socket.as_ref().unwrap().counts();
        let child = fork(|| {
            let socket = socket.take().unwrap();
            let mut buffer = [0; 64];
            let seen = socket.counts();
            // The parent does not look, so its lease lapses, and what comes is the kernel's.
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { return 1 };
            if socket.send_to(&buffer[..len], from).is_err() || seen != socket.counts() {
                return 2;
            }
            drop(socket);
            0
        });
        peer.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        let (begun, mut answered) = (Instant::now(), false);
        while !answered {
            // Those that came before the lease lapsed are the parent's.
            peer.send_to(b"for the child", to).unwrap();
            answered = peer.recv(&mut [0; 64]).is_ok();
            assert!(begun.elapsed() < crate::PATIENCE);
        }
        peer.set_read_timeout(Some(crate::PATIENCE)).unwrap();
        assert_eq!(child.unwrap().wait().unwrap(), Some(0));
        let after = socket.as_ref().unwrap().counts();
        assert_eq!((after.by_ring, after.by_kernel), (before.by_ring, before.by_kernel));
    }
    until_by_ring(socket.as_ref().unwrap(), &peer, to);
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Datagrams of a burst, and threads.
const THREADS: usize = 3;
/// Bursts at least, and the number of the last one.
const ROUNDS: u64 = 300;
const LAST: u64 = u64::MAX;

#[test]
fn what_a_busy_thread_has_left_is_received_by_others() {
    receive_bursts(0);
}

/// A thread that only asks must not have the ring at a moment when another one would leave it to those that wait.
#[test]
fn threads_that_ask_for_counts_and_set_modes_keep_nothing_from_those_that_receive() {
    receive_bursts(2);
}

/// `asking`: threads that ask for counts all the time.
fn receive_bursts(asking: usize) {
    let Some(link) = Link::new() else { return };
    let (socket, peer) = (link.socket("0.0.0.0:7031"), link.peer("10.9.0.2:0"));
    socket.set_mode(Mode::Poll);
    let (received, changed) = (Mutex::new(HashMap::<u64, usize>::new()), Condvar::new());
    let (begun, mut sent, has_ended) = (Instant::now(), 0, AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Also if this thread panics.
        let _ends = Ends(&has_ended);
        for _ in 0..asking {
            let (socket, has_ended) = (socket.try_clone().unwrap(), &has_ended);
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    let _ = socket.counts();
                    socket.set_mode(Mode::Poll);
                }
            });
        }
        for _ in 0..THREADS {
            let (socket, received, changed) = (socket.try_clone().unwrap(), &received, &changed);
            scope.spawn(move || {
                let mut buffer = [0; 8];
                // Each thread gets one datagram of a burst, as it is busy until all of them have been received.
                loop {
                    assert_eq!(socket.recv(&mut buffer).unwrap(), 8);
                    let round = u64::from_ne_bytes(buffer);
                    let mut counts = received.lock().unwrap();
                    *counts.entry(round).or_default() += 1;
                    changed.notify_all();
                    let waited = changed
                        .wait_timeout_while(counts, crate::PATIENCE, |counts| counts[&round] < THREADS);
                    let (counts, waited) = waited.unwrap();
                    assert!(
                        !waited.timed_out() && counts[&round] == THREADS,
                        "{round}: {:?}",
                        socket.counts()
                    );
                    if round == LAST {
                        break;
                    }
                }
            });
        }
        loop {
            // On a machine that is busy, leases lapse before a datagram comes.
            let is_last =
                sent >= ROUNDS && (socket.counts().by_ring > 0 || begun.elapsed() > crate::PATIENCE);
            let round = if is_last { LAST } else { sent };
            for _ in 0..THREADS {
                peer.send_to(&round.to_ne_bytes(), "10.9.0.1:7031").unwrap();
            }
            sent += 1;
            let counts = received.lock().unwrap();
            let is_missing =
                |counts: &mut HashMap<_, _>| counts.get(&round).is_none_or(|count| *count < THREADS);
            let (counts, waited) = changed.wait_timeout_while(counts, crate::PATIENCE, is_missing).unwrap();
            assert!(!waited.timed_out(), "{round}: {:?} of them, {:?}", counts.get(&round), socket.counts());
            if is_last {
                break;
            }
        }
    });
    let counts = socket.counts();
    println!("{counts:?}");
    assert_eq!(counts.by_ring + counts.by_kernel, THREADS as u64 * sent);
    assert!(counts.by_ring > 0, "{counts:?}");
}
