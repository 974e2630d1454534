//! Tests of the port without a device.
#![allow(unsafe_code, reason = "a test plays the program that marks a word")]
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use twinpath_frame::Mapping;
use twinpath_rings::pending::STRIDE;
use twinpath_time::Duration;

use super::*;

/// The test plays the kernel: it puts packets into the queue, and marks words.
#[test]
fn what_waited_for_a_stuck_worker_is_dropped_and_counted() {
    let words = Arc::new(Mapping::of_memfd("vnet-test", 2 * STRIDE).unwrap().0);
    let word = |number: u32| Pending::new(Arc::clone(&words), number, Duration::ZERO).unwrap();
    let mark = |number: usize| {
        // SAFETY: both words lie in the mapping, aligned to eight; a 64-bit atomic takes any bits.
        let word = unsafe { words.base().add(number * STRIDE).cast::<AtomicU64>().as_ref() };
        word.store(100 | 1 << 63, Ordering::SeqCst);
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (ours, kernels) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let packet = [0; vnet_header::LEN + 60];
    let comes = |count: usize| {
        for _ in 0..count {
            assert_eq!(rustix::io::write(&kernels, &packet), Ok(packet.len()));
        }
    };
    let mut pool = Pool::new(QUEUE_FRAMES).unwrap();
    let mut burst = Burst::new();
    let mut port =
        VnetPort::tap(PortId { port: 1, queue: 0 }, 1, ours).failing_open(Some([word(0), word(1)]));
    let dropped = |port: &VnetPort| port.counters().drops.get(Reason::WorkerStuck);

    comes(3);
    mark(0);
    assert!(port.is_withdrawn());
    port.receive(Instant::ZERO, &mut pool, &mut burst);
    assert!(burst.is_empty());
    assert_eq!((dropped(&port), port.counters().times_stuck.get()), (3, 1));
    assert!(!port.is_withdrawn(), "from here on it carries frames again");
    comes(1);
    port.receive(Instant::ZERO, &mut pool, &mut burst);
    assert_eq!((burst.len(), dropped(&port)), (1, 3));

    // Frames from the other side are late as well, and not sent.
    mark(1);
    port.transmit(&mut pool, &mut burst);
    assert_eq!((burst.len(), dropped(&port)), (0, 4));
    assert_eq!(rustix::io::read(&kernels, &mut [0; 128]), Err(Errno::AGAIN));
    word(1).resume();
    for frame in Box::new(port).close() {
        pool.release(frame);
    }
}
