//! Our segmentation against the kernel's: the same super-frame gives the same packets, byte by byte.
#![allow(unsafe_code, reason = "a TAP queue's offloads are switched off by an ioctl")]

use std::os::fd::AsRawFd;

use twinpath_frame::{Gso, Meta};
use twinpath_port::fit::fit;
use twinpath_port::{Capabilities, PortCounters};

use super::*;

/// A packet, and what a sender with all offloads says beside it.
struct Sent {
    bytes: Vec<u8>,
    transport_at: u16,
    kind: GsoKind,
}

/// An IP packet whose transport header follows, with a payload of known bytes; its checksum is left to hardware.
fn packet(is_ipv6: bool, is_tcp: bool, tag: bool, payload: usize) -> Sent {
    let (protocol, header_len) = if is_tcp { (6, 32) } else { (17, 8) };
    let len = header_len + payload;
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if tag {
        bytes.extend([0x81, 0x00, 0x60, 0x64]);
    }
    let addresses = if is_ipv6 {
        bytes.extend([0x86, 0xdd, 0x61, 0x23, 0x45, 0x67]);
        bytes.extend((len as u16).to_be_bytes());
        bytes.extend([protocol, 63]);
        let mut addresses = [0; 32];
        (addresses[0], addresses[15], addresses[16], addresses[31]) = (0xfd, 1, 0xfd, 2);
        bytes.extend(addresses);
        addresses.to_vec()
    } else {
        bytes.extend([0x08, 0x00, 0x45, 0x02]);
        bytes.extend((20 + len as u16).to_be_bytes());
        // The identification passes the largest number.
        bytes.extend([0xff, 0xfe, 0x40, 0, 63, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let (ip, at) = (bytes.len() - 20, bytes.len() - 10);
        let sum = !rfc_1071(&bytes[ip..]);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        vec![10, 0, 0, 1, 10, 0, 0, 2]
    };
    let transport_at = bytes.len();
    let pseudo = [&addresses[..], &[0, 0, 0, protocol], &(len as u32).to_be_bytes()].concat();
    let pseudo = rfc_1071(&pseudo).to_be_bytes();
    bytes.extend([0x30, 0x39, 0x10, 0xe1]);
    if is_tcp {
        // The sequence number passes zero. CWR, ACK, PSH, FIN; an option of time stamps.
        bytes.extend([0xff, 0xff, 0xf0, 0, 1, 2, 3, 4, 0x80, 0x99, 2, 0, pseudo[0], pseudo[1], 0, 0]);
        bytes.extend([1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9]);
    } else {
        bytes.extend((len as u16).to_be_bytes());
        bytes.extend(pseudo);
    }
    bytes.extend((0..payload).map(|at| (at % 251) as u8));
    let kind = match (is_tcp, is_ipv6) {
        (true, false) => GsoKind::TcpV4,
        (true, true) => GsoKind::TcpV6,
        (false, _) => GsoKind::UdpSegments,
    };
    Sent { bytes, transport_at: transport_at as u16, kind }
}

fn rfc_1071(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[test]
fn segments_are_those_of_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let namespace = quiet();
    let mut tap = namespace.run(|| Tap::make("tap8", 1)).unwrap().unwrap();
    let handle = TapHandle::of(&tap).unwrap();
    handle.set_carrier(true).unwrap();
    ip(&namespace, &["link", "set", "tap8", "up"]);
    let queue = tap.queues.remove(0);
    // SAFETY: the request takes its argument by value and touches none of our memory.
    let off = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETOFFLOAD, 0) };
    assert_eq!(off, 0, "the kernel segments before it puts packets into the queue");
    let mut from_kernel = End::new(VnetPort::tap(PORT, tap.ifindex, queue));
    let mut to_kernel = End::new(VnetPort::socket(PORT, tap.ifindex, socket(&namespace, "tap8")));
    let plain = Capabilities { frame_len_max: 1_792, ..Capabilities::default() };
    let mut pool = Pool::new(256).unwrap();
    for (is_ipv6, is_tcp, tag) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
        for (payload, size) in [(9_000, 1_400), (2_801, 1_400), (1_401, 1_400), (40_000, 1_001), (700, 64)] {
            let what = format!("IPv6 {is_ipv6}, TCP {is_tcp}, tag {tag}, {payload} by {size}");
            let Sent { bytes: sent, transport_at, kind } = packet(is_ipv6, is_tcp, tag, payload);
            let mark = |meta: &mut Meta| {
                meta.checksum = Checksum::Partial;
                (meta.checksum_start, meta.checksum_offset) = (transport_at, if is_tcp { 16 } else { 6 });
                meta.headers_len = transport_at + if is_tcp { 32 } else { 8 };
                meta.gso = Gso { kind, ecn: is_tcp, size };
            };
            let mut frame = to_kernel.frame(&sent);
            mark(frame.meta_mut());
            to_kernel.send(frame);
            assert_eq!(to_kernel.port.counters().drops.happened().count(), 0, "{what}");

            let mut frame = pool.copy_of([&*sent]).unwrap();
            mark(frame.meta_mut());
            let (counters, mut ours) = (PortCounters::default(), Vec::new());
            fit(frame, &plain, &counters, &mut pool, |frame, pool| {
                ours.push(bytes(&frame));
                pool.release(frame);
            });
            assert_eq!(ours.len(), payload.div_ceil(usize::from(size)), "{what}");
            for (number, ours) in ours.iter().enumerate() {
                let theirs = from_kernel.next();
                assert_eq!(theirs.meta().gso.kind, GsoKind::None, "{what}");
                assert!(
                    bytes(&theirs) == *ours,
                    "{what}: packet {number}\n{:02x?}\n{:02x?}",
                    bytes(&theirs),
                    ours
                );
                from_kernel.release(theirs);
            }
        }
    }
}
