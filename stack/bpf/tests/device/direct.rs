//! Tests the direct rings, which the socket's filter fills while a worker does not sleep, or the program at tc ingress
//! while the worker has no socket.

use std::net::UdpSocket;
use std::sync::Arc;

use twinpath_bpf::{DIRECT_SLOTS, Path, Steering, TcAttach};
use twinpath_claims::Claim;
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};
use twinpath_sys::packet_socket::FanoutGroup;
use twinpath_time::Duration;
use twinpath_wire::Protocol;

use super::lab::{Lab, PacketSocket, near_udp, set_option, take};
use super::{PAYLOAD_AT, counter, each_way, fence, packet_path, table_of};

const FLOWS: usize = 64;

pub(crate) fn ring(steering: &Steering, queue: u32) -> DirectRing {
    let [states, slots] = steering.direct().unwrap();
    let bytes = DIRECT_SLOTS as usize * SLOT_LEN;
    let slots = Mapping::of_fd(slots, bytes, u64::from(queue) * bytes as u64).unwrap();
    let states = Mapping::of_fd(states, (queue as usize + 1) * STATE_LEN, 0).unwrap();
    DirectRing::new(Arc::new(states), queue, slots, DIRECT_SLOTS as usize).unwrap()
}

fn payloads(ring: &mut DirectRing) -> Vec<u8> {
    std::iter::from_fn(|| ring.take(|frame| frame.bytes[PAYLOAD_AT])).collect()
}

fn of_socket(socket: &PacketSocket) -> Vec<u8> {
    std::iter::from_fn(|| socket.take()).map(|frame| frame[PAYLOAD_AT]).collect()
}

fn send(sender: &UdpSocket, numbers: std::ops::Range<u8>) {
    for number in numbers {
        sender.send_to(&[number], "10.0.0.2:7").unwrap();
    }
}

#[test]
fn while_the_ring_is_open_claimed_frames_come_only_through_it() {
    each_way(true, |lab, how| {
        let (steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let mut ring = ring(&steering, 0);
        let kernel = near_udp("10.0.0.2:7");
        let sender = lab.far_udp("10.0.0.1:4000");
        for round in 0..3 {
            send(&sender, 0..10);
            ring.open();
            send(&sender, 10..70);
            ring.close();
            send(&sender, 70..80);
            drop(fence(&sender, 99));
            assert_eq!(payloads(&mut ring), (10..70).collect::<Vec<u8>>());
            assert!(ring.is_drained());
            assert_eq!(of_socket(&socket), (0..10).chain(70..80).collect::<Vec<u8>>());
            assert_eq!(take(&kernel), None);
            let expected = 80 * (round + 1);
            let counts = (counter(&steering, "claimed"), counter(&steering, "withheld_from_kernel"));
            assert_eq!(counts, (expected, expected));
        }
        // A sender's super-frame still passes to the kernel.
        ring.open();
        set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 64);
        sender.send_to(&[1; 256], "10.0.0.2:7").unwrap();
        drop(fence(&lab.far_udp("10.0.0.1:4001"), 98));
        assert_eq!(std::iter::from_fn(|| take(&kernel)).count(), 4);
        set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        // Everything passes once the socket is gone, and its filter with it.
        drop(socket);
        send(&sender, 0..1);
        fence(&sender, 97);
        assert_eq!(take(&kernel).unwrap().0, [0]);
        assert!(!ring.look());
    });
}

#[test]
fn without_a_socket_the_program_at_tc_fills_the_ring() {
    if !crate::tcx_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let mut steering = Steering::load(Path::Packet).unwrap();
    steering.apply(&table_of(&[Claim::port(Protocol::Udp, 7)])).unwrap();
    steering.attach_tc(lab.ifindex, TcAttach::Tcx).unwrap();
    let mut ring = ring(&steering, 0);
    let kernel = near_udp("10.0.0.2:7");
    let sender = lab.far_udp("10.0.0.1:4000");
    ring.open();
    send(&sender, 0..1);
    fence(&sender, 99);
    assert_eq!((take(&kernel).unwrap().0, ring.look()), (vec![0], false), "nobody was told");
    ring.set_without_socket(true);
    send(&sender, 1..100);
    fence(&sender, 98);
    assert_eq!(payloads(&mut ring), (1..100).collect::<Vec<u8>>());
    assert_eq!((take(&kernel), counter(&steering, "withheld_from_kernel")), (None, 99));
    // A program that finds the ring closed passes the frame to the kernel.
    ring.close();
    send(&sender, 100..101);
    fence(&sender, 97);
    assert_eq!((take(&kernel).unwrap().0, counter(&steering, "no_socket")), (vec![100], 1));
    // Unclaimed frames, and a sender's super-frame, pass to the kernel.
    ring.open();
    set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 64);
    sender.send_to(&[1; 256], "10.0.0.2:7").unwrap();
    fence(&lab.far_udp("10.0.0.1:4001"), 96);
    assert_eq!(std::iter::from_fn(|| take(&kernel)).count(), 4);
    assert!(!ring.look());
    // Everything passes to the kernel once the program is detached.
    drop(steering);
    set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    send(&sender, 0..1);
    fence(&lab.far_udp("10.0.0.1:4002"), 95);
    assert_eq!(take(&kernel).unwrap().0, [0]);
    assert!(!ring.look());
}

#[test]
fn each_of_several_workers_has_its_own_ring() {
    each_way(true, |lab, how| {
        let mut steering = Steering::load_for(Path::Packet, 2, Duration::ZERO).unwrap();
        steering.attach_tc(lab.ifindex, how).unwrap();
        let group = FanoutGroup::default();
        let sockets = [0, 1].map(|queue| {
            let socket = PacketSocket::receiver(lab.ifindex, |socket| {
                steering.attach_socket_filter(queue, socket).unwrap();
            });
            group.join(&socket).unwrap();
            socket
        });
        steering.apply(&table_of(&[Claim::port(Protocol::Udp, 7)])).unwrap();
        let mut rings = [0, 1].map(|queue| ring(&steering, queue));
        let kernel = near_udp("10.0.0.2:7");
        // So many flows that each worker has some. The first byte is the flow.
        let senders: Vec<_> =
            (0..FLOWS).map(|flow| lab.far_udp(&format!("10.0.0.1:{}", 4000 + flow))).collect();
        for open in [[true, true], [true, false], [false, true]] {
            rings.iter_mut().zip(open).filter(|(_, open)| *open).for_each(|(ring, _)| ring.open());
            for number in 0..4 {
                for (flow, sender) in senders.iter().enumerate() {
                    sender.send_to(&[flow as u8, number], "10.0.0.2:7").unwrap();
                }
            }
            fence(&senders[0], 99);
            rings.iter_mut().filter(|ring| ring.is_open()).for_each(DirectRing::close);
            let mut numbers = vec![Vec::new(); FLOWS];
            for queue in 0..2 {
                let by_ring: Vec<_> =
                    std::iter::from_fn(|| rings[queue].take(|frame| frame.bytes[PAYLOAD_AT..][..2].to_vec()))
                        .collect();
                let by_socket = std::iter::from_fn(|| sockets[queue].take())
                    .map(|frame| frame[PAYLOAD_AT..][..2].to_vec());
                let by_socket: Vec<_> = by_socket.collect();
                assert_eq!([by_ring.is_empty(), by_socket.is_empty()], [!open[queue], open[queue]]);
                for payload in by_ring.iter().chain(&by_socket) {
                    numbers[usize::from(payload[0])].push(payload[1]);
                }
            }
            assert!(numbers.iter().all(|numbers| *numbers == [0, 1, 2, 3]), "{numbers:?}");
            assert_eq!(take(&kernel), None);
        }
    });
}

#[test]
fn a_full_ring_drops_what_comes_and_counts_it() {
    each_way(true, |lab, how| {
        let (steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let mut ring = ring(&steering, 0);
        let kernel = near_udp("10.0.0.2:7");
        let sender = lab.far_udp("10.0.0.1:4000");
        ring.open();
        for number in 0..DIRECT_SLOTS + 30 {
            sender.send_to(&[number as u8], "10.0.0.2:7").unwrap();
        }
        drop(fence(&sender, 99));
        assert_eq!(payloads(&mut ring), (0..DIRECT_SLOTS).map(|number| number as u8).collect::<Vec<u8>>());
        assert_eq!((ring.lost(), socket.take(), take(&kernel)), (30, None, None));
        // There is room again, and the order is right.
        send(&sender, 5..8);
        fence(&sender, 98);
        assert_eq!((payloads(&mut ring), ring.lost()), (vec![5, 6, 7], 0));
    });
}
