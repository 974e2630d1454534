//! Tests super-frames of runs of datagrams against kernel sockets as receivers: on a veth pair without any BPF program.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]
#![allow(unsafe_code, reason = "one socket option has no safe wrapper")]

use std::convert::Infallible;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use twinpath_frame::{Burst, Frame, Pool};
use twinpath_packet::{PacketConfig, PacketPort};
use twinpath_port::{LinkState, PortId, PortQueue};
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::interface_index;
use twinpath_test_rig::ip_here;
use twinpath_wire::Mac;
use twinpath_wire::udp_frame::{UdpFrameRepr, write_headers};

const FAR: [&str; 2] = ["10.0.0.2:7", "[fd00::2]:7"];
const NEAR: [&str; 2] = ["10.0.0.1:4000", "[fd00::1]:4000"];

/// Makes a pair in the current namespace; the sender's end has no address, so that the source addresses are not local
/// ones.
fn pair() -> u32 {
    ip_here("link add near address 02:00:00:00:00:01 type veth peer name far address 02:00:00:00:00:02");
    ip_here("addr add 10.0.0.2/24 dev far");
    ip_here("addr add fd00::2/64 dev far nodad");
    for name in ["near", "far"] {
        ip_here(&format!("link set {name} up"));
    }
    interface_index("near").unwrap()
}

fn datagram(pool: &mut Pool, family: usize, payload: &[u8]) -> Frame {
    let repr = UdpFrameRepr {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        tag: None,
        source: NEAR[family].parse::<SocketAddr>().unwrap(),
        destination: FAR[family].parse().unwrap(),
        hop_limit: 64,
        identification: 0,
    };
    let mut frame = pool.take().unwrap();
    frame.set_len(repr.header_len() + payload.len()).unwrap();
    frame.bytes_mut()[repr.header_len()..].copy_from_slice(payload);
    write_headers(frame.bytes_mut(), &repr, payload.len()).unwrap();
    frame
}

/// Payloads of these lengths, all different.
fn payloads(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths
        .iter()
        .enumerate()
        .map(|(at, len)| (0..*len).map(|byte| (byte + 7 * at) as u8).collect())
        .collect()
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let len = socket.recv(&mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

fn coalesce(socket: &UdpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and length describe `on`, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn kernel_sockets_get_every_datagram_of_a_super_frame_as_it_was() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    Namespace::new().unwrap().run(check).unwrap();
}

fn check() {
    let config = PacketConfig {
        id: PortId::default(),
        ifindex: pair(),
        ring_slots: 32,
        fanout_group: None,
        binds_late: false,
        bypass_qdisc: true,
        super_frames: false,
        datagrams: false,
    };
    let filter = |_: std::os::fd::BorrowedFd<'_>| Ok::<(), Infallible>(());
    let mut port = PacketPort::open(&config, filter, None, None).unwrap();
    let mut pool = Pool::new(64).unwrap();
    // A run with a short last one; two that are too few for a run; a run of large ones, its short last one, and a
    // longer one.
    let lengths = [100, 100, 100, 100, 30, 50, 50, 1400, 1400, 1400, 1400, 1, 9];
    let sent = payloads(&lengths);
    for (family, far) in FAR.iter().enumerate() {
        let socket = UdpSocket::bind(far).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut kicks = Vec::new();
        for (joined, coalesced) in [(true, false), (true, true), (false, false)] {
            port.changed(LinkState { mtu: 1500, cuts_super_frames: joined });
            if coalesced {
                coalesce(&socket);
            }
            let before = port.counters().kicks.get();
            let mut burst = Burst::new();
            for payload in &sent {
                burst.push(datagram(&mut pool, family, payload)).unwrap();
            }
            port.transmit(&mut pool, &mut burst);
            port.flush(&mut pool);
            kicks.push(port.counters().kicks.get() - before);
            assert_eq!(pool.free(), pool.frames());
            let whole = sent.concat();
            let mut got: Vec<Vec<u8>> = Vec::new();
            while got.concat().len() < whole.len() {
                got.push(receive(&socket));
            }
            assert!(got.concat() == whole, "{far}: in order, and nothing changed");
            if !coalesced && joined {
                assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{far}");
            }
        }
        // A super-frame, the two, a super-frame, the last one; or all at once.
        assert_eq!(kicks, [4, 4, 1], "{far}");
    }
    let counters = port.counters();
    assert_eq!(counters.frames_out.get(), 6 * lengths.len() as u64);
    // Five and five datagrams were sent as runs, twice each.
    assert_eq!((counters.frames_joined.get(), counters.super_frames_refused.get()), (4 * 10, 0));
    assert_eq!(counters.drops.happened().count(), 0);
}
