//! Valid inputs, and functions that corrupt them.

pub mod datapath;
pub mod handshakes;
pub mod openflow;
pub mod wrong;

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use twinpath_rpc::client::{Auth, Call, handle_arguments, mount_arguments};
use twinpath_rpc::nfs3::{ROOT, Tree};
use twinpath_rpc::nfs3_types::{mount, nfs3};
use twinpath_rpc::record::mark;
use twinpath_wire::udp_frame::{UdpFrameRepr, write_headers};
use twinpath_wire::{EtherType, Mac, Protocol, Tag, eth, ipv4};

/// MAC address of the receiving host.
pub const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Its IPv4 address.
pub const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Its IPv6 address.
pub const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// The port that is claimed, for UDP and TCP.
pub const PORT: u16 = 7;
/// The VLAN on which [`PORT`] is also claimed for UDP.
pub const VLAN: u16 = 100;

/// One frame of each kind that the verdict distinguishes, all but one of them well formed.
#[must_use]
pub fn frames() -> Vec<Vec<u8>> {
    let v4 = (SocketAddr::from(([192, 0, 2, 9], 40000)), SocketAddr::from((OWN_V4, PORT)));
    let v6 = (SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], 40000)), SocketAddr::from((OWN_V6, PORT)));
    let other_port = (v4.0, SocketAddr::from((OWN_V4, PORT + 1)));
    let tag = |control| Some(Tag { protocol: EtherType::VLAN, control });
    vec![
        udp(v4, None, b"sixteen bytes..."),
        udp(v6, None, b"sixteen bytes..."),
        udp(v4, tag(VLAN), b"tagged"),
        udp(v6, tag(VLAN + 1), b"tagged otherwise"),
        udp(other_port, None, b""),
        udp(v4, None, &[0x5a; 1400]),
        tcp_syn(),
        eth_header(EtherType(0x0806), &[0; 46]),
        Vec::new(),
    ]
}

/// A whole UDP frame to [`OWN_MAC`].
fn udp((source, destination): (SocketAddr, SocketAddr), tag: Option<Tag>, payload: &[u8]) -> Vec<u8> {
    let repr = UdpFrameRepr {
        source_mac: Mac([2, 0, 0, 0, 0, 9]),
        destination_mac: OWN_MAC,
        tag,
        source,
        destination,
        hop_limit: 64,
        identification: 1,
    };
    let headers = repr.header_len();
    let mut frame = vec![0; headers + payload.len()];
    frame[headers..].copy_from_slice(payload);
    write_headers(&mut frame, &repr, payload.len()).expect("one family, and room for the headers");
    frame
}

/// A TCP segment that opens a connection to [`PORT`]; its checksum is left to hardware, as on a veth.
fn tcp_syn() -> Vec<u8> {
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&40000_u16.to_be_bytes());
    segment[2..4].copy_from_slice(&PORT.to_be_bytes());
    // A header of five words; SYN.
    segment[12] = 5 << 4;
    segment[13] = 2;
    let repr = ipv4::Repr {
        source: Ipv4Addr::new(192, 0, 2, 9),
        destination: OWN_V4,
        protocol: Protocol::Tcp.number(),
        hop_limit: 64,
        identification: 1,
        payload_len: segment.len(),
    };
    let mut packet = vec![0; ipv4::HEADER_LEN];
    packet.extend_from_slice(&segment);
    repr.emit(&mut packet).expect("room for the header");
    eth_header(EtherType::IPV4, &packet)
}

fn eth_header(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let repr = eth::Repr { destination: OWN_MAC, source: Mac([2, 0, 0, 0, 0, 9]), tag: None, ethertype };
    let mut frame = vec![0; eth::HEADER_LEN];
    repr.emit(&mut frame).expect("room for the header");
    frame.extend_from_slice(payload);
    frame
}

/// Frames with segmentation to be done, or as much payload: UDP and TCP over IPv4, with their checksums left to hardware.
#[must_use]
pub fn super_frames() -> Vec<Vec<u8>> {
    let v4 = (SocketAddr::from(([192, 0, 2, 9], 40000)), SocketAddr::from((OWN_V4, PORT)));
    let v6 = (SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], 40000)), SocketAddr::from((OWN_V6, PORT)));
    let tag = Some(Tag { protocol: EtherType::VLAN, control: VLAN });
    let payload: Vec<u8> = (0..4_000_u32).map(|at| (at % 251) as u8).collect();
    let mut tcp = tcp_syn();
    tcp.extend_from_slice(&payload);
    let len = (tcp.len() - eth::HEADER_LEN) as u16;
    tcp[16..18].copy_from_slice(&len.to_be_bytes());
    vec![
        udp(v4, None, &payload),
        udp(v6, None, &payload),
        udp(v4, tag, &payload),
        tcp,
        udp(v4, None, b"short"),
    ]
}

/// Corrupts `bytes` by `edits`, three bytes each: an offset (big-endian) and the value to XOR there. An offset of
/// 0x8000 or more truncates instead, so that random edits reach every header and every truncation.
pub fn damage(bytes: &mut Vec<u8>, edits: &[u8]) {
    for edit in edits.as_chunks::<3>().0 {
        let place = usize::from(u16::from_be_bytes([edit[0], edit[1]]));
        if bytes.is_empty() {
            return;
        } else if place >= 0x8000 {
            bytes.truncate((place - 0x8000) % (bytes.len() + 1));
        } else {
            // The decisions depend on the headers.
            let reach = bytes.len().min(80);
            bytes[place % reach] ^= edit[2];
        }
    }
}

/// The frame selected by the first byte of an input, corrupted by the others.
#[must_use]
pub fn damaged_frame(input: &[u8]) -> Vec<u8> {
    let frames = frames();
    let (first, edits) = input.split_first().unwrap_or((&0, &[]));
    let mut frame = frames[usize::from(*first) % frames.len()].clone();
    damage(&mut frame, edits);
    frame
}

/// The program and procedure selected by a byte: all of NFS, all of MOUNT, and one beyond each.
#[must_use]
pub fn procedure(number: u8) -> (u32, u32) {
    match u32::from(number) % 30 {
        nfs @ 0..23 => (nfs3::PROGRAM, nfs),
        mount => (mount::PROGRAM, mount - 23),
    }
}

/// A call of version 3 with AUTH_NONE.
#[must_use]
pub fn call(program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid: 0x0102_0304, program, version: 3, procedure, auth: &Auth::none(), args }.write(&mut message);
    message
}

/// One call of each kind that the server distinguishes; all but the last three are answered with results.
#[must_use]
pub fn calls() -> Vec<Vec<u8>> {
    let sys = Auth::sys("client", 1000, 100, &[4, 24]).expect("within limits");
    let handle = handle_arguments(&Tree::small().handle(ROOT));
    let mut named = Vec::new();
    Call { xid: 9, program: nfs3::PROGRAM, version: 3, procedure: 1, auth: &sys, args: &handle }
        .write(&mut named);
    let mut old = call(nfs3::PROGRAM, 0, &[]);
    old[19] = 2;
    vec![
        call(nfs3::PROGRAM, 0, &[]),
        call(nfs3::PROGRAM, 1, &handle),
        named,
        call(mount::PROGRAM, 1, &mount_arguments("/directory")),
        call(mount::PROGRAM, 5, &[]),
        call(nfs3::PROGRAM, 6, &handle),
        call(nfs3::PROGRAM + 1, 0, &[]),
        old,
    ]
}

/// A message as a record of this many fragments.
#[must_use]
pub fn record(message: &[u8], fragments: usize) -> Vec<u8> {
    let pieces = message.chunks(message.len().div_ceil(fragments).max(1));
    let last = pieces.len().saturating_sub(1);
    pieces
        .enumerate()
        .flat_map(|(at, piece)| [&mark(piece.len() as u32, at == last), piece].concat())
        .collect()
}
