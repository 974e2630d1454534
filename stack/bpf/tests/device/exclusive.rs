//! Tests a device that is withheld from the kernel's stack, in both directions.

use std::os::fd::AsFd;

use twinpath_bpf::{Exclusive, SteerError, TcAttach};
use twinpath_time::Duration;

use crate::lab::{Lab, PacketSocket, near_udp, set_option, take, wait_for};

const MARK: u32 = 0x7477_696e;

/// A frame of an EtherType that no stack answers, identified by its last byte.
fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(60, 0);
    frame.push(number);
    frame
}

#[test]
fn on_a_withheld_device_only_packet_sockets_receive_and_only_marked_frames_leave() {
    crate::each_way(true, withheld);
}

fn withheld(lab: Lab, how: TcAttach) {
    let (near, far) = (near_udp("10.0.0.2:4791"), lab.far_udp("10.0.0.1:4791"));
    let device = PacketSocket::receiver(lab.ifindex, |_| {});
    let (plain, ours) =
        (PacketSocket::new(lab.ifindex, 0, |_| {}), PacketSocket::new(lab.ifindex, 0, |_| {}));
    set_option(ours.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, MARK as i32);
    let mut held = Exclusive::load(MARK, 1, Duration::ZERO).unwrap();
    held.hold(lab.ifindex, how).unwrap();
    // Frames sent before are no longer in transit.
    let cable = lab.far_listener();
    let seen = |number: u8| {
        let mut all = Vec::new();
        loop {
            while let Some(frame) = cable.take() {
                all.push(frame.clone());
                if frame == self::frame(number) {
                    return all;
                }
            }
            wait_for(&[cable.as_fd()]);
        }
    };
    far.send_to(b"withheld", "10.0.0.2:4791").unwrap();
    while !device.take().is_some_and(|frame| frame.ends_with(b"withheld")) {
        wait_for(&[device.as_fd()]);
    }
    assert!(take(&near).is_none(), "the packet socket was served first, so the stack has had its turn");
    let _ = near.send_to(b"not let out", "10.0.0.1:4791");
    let refused = rustix::net::send(&plain, &frame(1), rustix::net::SendFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::NOBUFS), "and the sender hears of it");
    ours.send(&frame(2));
    assert_eq!(seen(2), [frame(2)], "what came before it did not leave");

    let mut again = Exclusive::load(MARK, 1, Duration::ZERO).unwrap();
    let again = again.hold(lab.ifindex, how).expect_err("held");
    assert!(matches!(again, SteerError::TcxHeld { .. }), "{again}");
    assert!(again.to_string().contains(&format!("(pid {})", std::process::id())), "{again}");

    held.release().unwrap();
    far.send_to(b"the stack's again", "10.0.0.2:4791").unwrap();
    wait_for(&[near.as_fd()]);
    assert!(take(&near).is_some_and(|(bytes, _)| bytes == b"the stack's again"));
    plain.send(&frame(3));
    assert!(seen(3).contains(&frame(3)));
}
