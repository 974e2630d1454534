//! Numbered datagrams while leases come and go: each is received once, and those of a sender in order.

use std::time::Duration;

use twinpath_sys::affinity;
use twinpath_worker::idle::Mode;

use crate::Link;

/// Datagrams of each sender.
const NUMBERS: u32 = 20_000;
const SENDERS: usize = 3;
/// Sent and not yet received, of each sender: the kernel's buffer has room for all.
const WINDOW: u32 = 4;

/// One in this many datagrams of a sender comes in fragments.
const FRAGMENTED: u32 = 997;

#[test]
fn each_once_and_in_order_while_leases_flap() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("0.0.0.0:7003");
    let mut next = [0u32; SENDERS];
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let peer = link.peer("10.9.0.2:0");
            scope.spawn(move || {
                // What a sender sends from two CPUs may change its order in the kernel.
                let cpus = affinity::allowed_cpus().unwrap();
                affinity::pin_current_thread(cpus[sender % cpus.len()]).unwrap();
                peer.connect("10.9.0.1:7003").unwrap();
                let mut long = vec![0; 4000];
                let mut acknowledged = 0;
                for number in 0..NUMBERS {
                    let len = if number % FRAGMENTED == FRAGMENTED - 1 { long.len() } else { 64 };
                    long[..4].copy_from_slice(&number.to_ne_bytes());
                    long[4] = sender as u8;
                    peer.send(&long[..len]).unwrap();
                    while number + 1 - acknowledged >= WINDOW {
                        let mut answer = [0; 4];
                        peer.recv(&mut answer).unwrap();
                        acknowledged = u32::from_ne_bytes(answer);
                    }
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(7);
        let mut buffer = vec![0; 5000];
        while next.iter().any(|next| *next < NUMBERS) {
            // Modes, time-outs and pauses of the application by which leases are given back, kept and lapse.
            match random.u32(..400) {
                0 => socket.set_mode(Mode::Interrupt),
                1..4 => socket.set_mode(Mode::Poll),
                4..7 => socket.set_mode(Mode::Adaptive),
                7 => pause(random.u64(..3000)),
                8..12 => socket.set_nonblocking(true).unwrap(),
                12..30 => socket.set_nonblocking(false).unwrap(),
                _ => {}
            }
            let (len, from) = match socket.recv_from(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let _ = socket.set_nonblocking(random.bool());
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let number = u32::from_ne_bytes(buffer[..4].try_into().unwrap());
            let sender = usize::from(buffer[4]);
            if number != next[sender] {
                let (mut rest, mut short) = (Vec::new(), vec![0; 64]);
                while let Ok((_, _)) = socket.recv_from(&mut short) {
                    rest.push((short[4], u32::from_ne_bytes(short[..4].try_into().unwrap())));
                }
                let expected = next[sender];
                panic!(
                    "{number} of sender {sender} instead of {expected}, {len} bytes, then {rest:?}; {:?}",
                    socket.counts()
                );
            }
            next[sender] += 1;
            if next[sender] % 2 == 0 {
                socket.send_to(&next[sender].to_ne_bytes(), from).unwrap();
            }
        }
    });
    let counts = socket.counts();
    println!("{counts:?}");
    assert_eq!(counts.by_ring + counts.by_kernel, u64::from(NUMBERS) * SENDERS as u64);
    assert!(counts.by_ring > 500 && counts.by_kernel > 1000 && counts.leases > 5, "{counts:?}");
}

/// The application is busy with something else.
fn pause(micros: u64) {
    let until = std::time::Instant::now() + Duration::from_micros(micros);
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
}
