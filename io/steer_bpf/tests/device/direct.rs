//! Tests the direct ring, which the program at tc ingress fills while a worker does not sleep.

use std::net::UdpSocket;

use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};
use twinpath_steer::Claim;
use twinpath_steer_bpf::{DIRECT_SLOTS, Steering, TcAttach};
use twinpath_wire::Protocol;

use super::lab::{Lab, near_udp, set_option, take};
use super::{PAYLOAD_AT, counter, fence, packet_path};

fn ring(steering: &Steering) -> DirectRing {
    let [state, slots] = steering.direct().unwrap();
    let slots = Mapping::of_fd(slots, DIRECT_SLOTS as usize * SLOT_LEN, 0).unwrap();
    DirectRing::new(Mapping::of_fd(state, STATE_LEN, 0).unwrap(), slots, DIRECT_SLOTS as usize).unwrap()
}

fn payloads(ring: &mut DirectRing) -> Vec<u8> {
    std::iter::from_fn(|| ring.take(|frame| frame.bytes[PAYLOAD_AT])).collect()
}

fn send(sender: &UdpSocket, numbers: std::ops::Range<u8>) {
    for number in numbers {
        sender.send_to(&[number], "10.0.0.2:7").unwrap();
    }
}

#[test]
fn while_the_ring_is_on_claimed_frames_come_only_through_it() {
    if !crate::tcx_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let (steering, socket) = packet_path(&lab, TcAttach::Tcx, &[Claim::port(Protocol::Udp, 7)]);
    let mut ring = ring(&steering);
    let kernel = near_udp("10.0.0.2:7");
    let sender = lab.far_udp("10.0.0.1:4000");
    send(&sender, 0..10);
    ring.set_on(true);
    send(&sender, 10..110);
    ring.set_on(false);
    send(&sender, 110..120);
    fence(&sender, 99);
    assert_eq!(payloads(&mut ring), (10..110).collect::<Vec<u8>>());
    let by_socket: Vec<_> = std::iter::from_fn(|| socket.take()).map(|frame| frame[PAYLOAD_AT]).collect();
    assert_eq!(by_socket, (0..10).chain(110..120).collect::<Vec<u8>>());
    assert_eq!(take(&kernel), None);
    assert_eq!((counter(&steering, "claimed"), counter(&steering, "withheld_from_kernel")), (120, 120));

    // Unclaimed frames, and a sender's super-frame, still pass to the kernel.
    ring.set_on(true);
    set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 64);
    sender.send_to(&[1; 256], "10.0.0.2:7").unwrap();
    fence(&lab.far_udp("10.0.0.1:4001"), 98);
    assert_eq!(std::iter::from_fn(|| take(&kernel)).count(), 4);
    assert!(!ring.look());
    // Everything passes to the kernel once the program is detached.
    drop(steering);
    set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    send(&sender, 0..1);
    fence(&lab.far_udp("10.0.0.1:4002"), 97);
    assert_eq!(take(&kernel).unwrap().0, [0]);
    assert!(!ring.look());
}

#[test]
fn a_full_ring_drops_what_comes_and_counts_it() {
    if !crate::tcx_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    let (steering, socket) = packet_path(&lab, TcAttach::Tcx, &[Claim::port(Protocol::Udp, 7)]);
    let mut ring = ring(&steering);
    let kernel = near_udp("10.0.0.2:7");
    let sender = lab.far_udp("10.0.0.1:4000");
    ring.set_on(true);
    for number in 0..DIRECT_SLOTS + 30 {
        sender.send_to(&[number as u8], "10.0.0.2:7").unwrap();
    }
    fence(&sender, 99);
    assert_eq!(payloads(&mut ring), (0..DIRECT_SLOTS).map(|number| number as u8).collect::<Vec<u8>>());
    assert_eq!((ring.lost(), socket.take(), take(&kernel)), (30, None, None));
    // There is room again, and the order is right.
    send(&sender, 5..8);
    fence(&sender, 98);
    assert_eq!((payloads(&mut ring), ring.lost()), (vec![5, 6, 7], 0));
}
