//! Tests super-frames of runs of datagrams against kernel sockets as receivers, without any BPF program: on a veth pair, with
//! a bridge or a router between, and where the kernel has to cut and complete them.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]
#![allow(unsafe_code, reason = "a socket option and an ioctl have no safe wrapper")]

use std::convert::Infallible;
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use twinpath_frame::{Burst, Frame, Pool};
use twinpath_packet::{PacketConfig, PacketPort};
use twinpath_port::{LinkState, PortId, PortQueue};
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::interface_index;
use twinpath_test_rig::{batch, ifindex, ip_here, name_of, root_or_skip, run, until};
use twinpath_wire::udp_frame::{UdpFrameRepr, parse, write_headers};
use twinpath_wire::{ChecksumTrust, Mac};

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
    if !root_or_skip() {
        return;
    }
    Namespace::new().unwrap().run(check).unwrap();
}

/// A port that joins datagrams.
fn joining_port(ifindex: u32) -> PacketPort {
    let config = PacketConfig {
        id: PortId::default(),
        ifindex,
        ring_slots: 32,
        fanout_group: None,
        binds_late: false,
        bypass_qdisc: true,
        super_frames: false,
        datagrams: false,
    };
    let filter = |_: std::os::fd::BorrowedFd<'_>| Ok::<(), Infallible>(());
    let mut port = PacketPort::open(&config, filter, None, None).unwrap();
    port.changed(LinkState { mtu: 1500, takes_super_frames: true });
    port
}

/// Sends datagrams of these payloads in one turn.
fn send(port: &mut PacketPort, pool: &mut Pool, family: usize, payloads: &[Vec<u8>]) {
    let mut burst = Burst::new();
    for payload in payloads {
        burst.push(datagram(pool, family, payload)).unwrap();
    }
    port.transmit(pool, &mut burst);
    port.flush(pool);
    assert_eq!(pool.free(), pool.frames());
}

fn check() {
    let mut port = joining_port(pair());
    let mut pool = Pool::new(64).unwrap();
    // A run with a short last one; two that are too few for a run; a run of large ones, its short last one, and a
    // longer one.
    let lengths = [100, 100, 100, 100, 30, 50, 50, 1400, 1400, 1400, 1400, 1, 9];
    let sent = payloads(&lengths);
    for (family, far) in FAR.iter().enumerate() {
        let socket = UdpSocket::bind(far).unwrap();
        socket.set_read_timeout(Some(twinpath_test_rig::PATIENCE)).unwrap();
        let mut kicks = Vec::new();
        for (joined, coalesced) in [(true, false), (true, true), (false, false)] {
            port.changed(LinkState { mtu: 1500, takes_super_frames: joined });
            if coalesced {
                coalesce(&socket);
            }
            let before = port.counters().kicks.get();
            send(&mut port, &mut pool, family, &sent);
            kicks.push(port.counters().kicks.get() - before);
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

/// What is between the port and the peer's socket.
#[derive(Clone, Copy, Debug)]
enum Between {
    /// A device that leaves no checksum to its peer.
    NoChecksums,
    /// A device that is passed no coalesced datagrams.
    NoSegmentation,
    Bridge,
    Router,
}

/// Makes the way from the returned interface to `far`.
fn way(here: &Namespace, far: &Namespace, between: Between) -> u32 {
    let (name, near) = (name_of(far), "link add near address 02:00:00:00:00:01 type veth peer");
    let end = "name far address 02:00:00:00:00:02";
    let behind =
        |middle: &str, end: &str| format!("link add out type veth peer {end} netns {name}\n{middle}");
    let at_far = "link set far up\naddress add 10.0.0.2/24 dev far\naddress add fd00::2/64 dev far nodad";
    let lines = match between {
        Between::NoChecksums | Between::NoSegmentation => {
            format!("{near} {end} netns {name}")
        }
        Between::Bridge => {
            let bridge =
                "link add br0 type bridge\nlink set in master br0\nlink set out master br0\nlink set br0 up";
            format!("{near} name in\n{}", behind(bridge, end))
        }
        Between::Router => {
            // What leaves for the far end is for the router's address.
            let addresses = "address add 10.0.0.9/24 dev out\naddress add fd00::9/64 dev out nodad\n\
                             address add 10.0.1.9/24 dev in\naddress add fd01::9/64 dev in nodad\n\
                             neighbour add 10.0.0.2 lladdr 02:00:00:00:00:03 dev out\n\
                             neighbour add fd00::2 lladdr 02:00:00:00:00:03 dev out";
            let other_end = end.replace(":02", ":03");
            format!("{near} name in address 02:00:00:00:00:02\n{}", behind(addresses, &other_end))
        }
    };
    batch(here, &format!("{lines}\nlink set near up\n")).unwrap();
    if matches!(between, Between::Bridge | Between::Router) {
        batch(here, "link set in up\nlink set out up\n").unwrap();
    }
    batch(far, &format!("{at_far}\n")).unwrap();
    match between {
        Between::NoChecksums => _ = run(here, "ethtool", "-K near tx off"),
        Between::NoSegmentation => _ = run(here, "ethtool", "-K near tx-udp-segmentation off"),
        Between::Router => here.run(forward).unwrap(),
        Between::Bridge => {}
    }
    ifindex(here, "near")
}

/// Makes the current namespace a router that asks nothing of sources.
fn forward() {
    for (option, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/in/rp_filter", "0"),
        ("ipv6/conf/all/forwarding", "1"),
    ] {
        std::fs::write(format!("/proc/sys/net/{option}"), value).unwrap();
    }
}

#[test]
fn a_super_frame_reaches_a_socket_as_datagrams_whatever_is_between() {
    if !root_or_skip() {
        return;
    }
    let sent = payloads(&[100, 100, 100, 100, 30, 1400, 1400, 1400, 1]);
    for between in [Between::NoChecksums, Between::NoSegmentation, Between::Bridge, Between::Router] {
        let (here, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let ifindex = way(&here, &far, between);
        let mut port = here.run(|| joining_port(ifindex)).unwrap();
        let mut pool = Pool::new(64).unwrap();
        for (family, address) in FAR.iter().enumerate() {
            let socket = far.run(|| UdpSocket::bind(address)).unwrap().unwrap();
            socket.set_nonblocking(true).unwrap();
            let first = vec![b"first".to_vec()];
            until("the way is open", || {
                send(&mut port, &mut pool, family, &first);
                socket.recv(&mut [0; 16]).is_ok()
            });
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(twinpath_test_rig::PATIENCE)).unwrap();
            send(&mut port, &mut pool, family, &sent);
            let mut got = Vec::new();
            while got.len() < sent.len() {
                got.extend(Some(receive(&socket)).filter(|payload| *payload != first[0]));
            }
            assert!(got == sent, "{between:?}, {address}");
        }
        let counters = port.counters();
        assert_eq!(
            (counters.frames_joined.get(), counters.super_frames_refused.get()),
            (2 * 9, 0),
            "{between:?}"
        );
        assert_eq!(counters.drops.happened().count(), 0, "{between:?}");
    }
}

/// A TAP device, up, whose reader takes no offloads.
fn tap() -> File {
    let tap =
        File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
    // `struct ifreq` of linux/if.h: the name, then flags.
    let mut request = [0_u8; 40];
    request[..3].copy_from_slice(b"tap");
    request[16..18].copy_from_slice(&((libc::IFF_TAP | libc::IFF_NO_PI) as u16).to_ne_bytes());
    // SAFETY: the kernel reads and writes one `struct ifreq`, which `request` holds.
    assert_eq!(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) }, 0);
    ip_here("link set tap up");
    tap
}

#[test]
fn who_reads_a_tap_device_without_offloads_gets_datagrams_with_right_checksums() {
    if !root_or_skip() {
        return;
    }
    let check = || {
        let mut tap = tap();
        let mut port = joining_port(interface_index("tap").unwrap());
        let mut pool = Pool::new(64).unwrap();
        let sent = payloads(&[100, 100, 100, 100, 30, 1400, 1400, 1400, 1]);
        for family in [0, 1] {
            send(&mut port, &mut pool, family, &sent);
            let (mut got, mut frame) = (Vec::new(), vec![0; 70_000]);
            until("all are there", || {
                while let Ok(len) = tap.read(&mut frame) {
                    // The kernel has messages of its own for neighbours.
                    let found = parse(&frame[..len], ChecksumTrust::Verify).ok();
                    got.extend(found.map(|found| frame[found.payload].to_vec()));
                }
                got.len() >= sent.len()
            });
            assert!(got == sent, "{}", FAR[family]);
        }
        assert_eq!(port.counters().frames_joined.get(), 2 * 9);
    };
    Namespace::new().unwrap().run(check).unwrap();
}
