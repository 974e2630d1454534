//! What is sent as a frame is what the kernel would send.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket as KernelSocket};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_leases::sockets::{SendBy, UdpSocket};
use twinpath_sys::PacketSocket;
use twinpath_sys::packet_socket::interface_index;
use twinpath_wire::{ChecksumTrust, EtherType, udp_frame};

use crate::{Link, ip_here};

/// Frames of the peer's interface.
fn tap(link: &Link) -> PacketSocket {
    link.peers
        .run(|| PacketSocket::open(interface_index("out0").unwrap(), EtherType::IPV4.0).unwrap())
        .unwrap()
}

/// Waits for the frame with that payload.
fn seen(tap: &PacketSocket, payload: &[u8]) -> udp_frame::UdpFrame {
    let mut buffer = [0; 2048];
    let begun = Instant::now();
    while begun.elapsed() < crate::PATIENCE {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        if poll(&mut [PollFd::new(tap, PollFlags::IN)], Some(&second)).unwrap() == 0 {
            continue;
        }
        let len = tap.receive(&mut buffer).unwrap();
        if let Ok(frame) = udp_frame::parse(&buffer[..len], ChecksumTrust::AcceptPartial)
            && &buffer[frame.payload.clone()] == payload
        {
            return frame;
        }
    }
    panic!("it was not sent")
}

/// Sends until `is_done` says so of what was sent last; it is asked after each datagram.
fn send_until(socket: &UdpSocket, to: SocketAddr, mut is_done: impl FnMut(&[u8]) -> bool) {
    let begun = Instant::now();
    for number in 0u64.. {
        let text = number.to_ne_bytes();
        assert_eq!(socket.send_to(&text, to).unwrap(), text.len());
        if is_done(&text) {
            return;
        }
        assert!(begun.elapsed() < crate::PATIENCE, "{:?}", socket.counts());
    }
}

fn is_by_frame(socket: &UdpSocket) -> impl FnMut(&[u8]) -> bool {
    let before = socket.counts().sent_by_frame;
    move |_| socket.counts().sent_by_frame > before + 2
}

fn read(peer: &KernelSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    peer.recv_from(buffer).unwrap()
}

#[test]
fn datagrams_are_whole_and_come_in_order() {
    let Some(link) = Link::new() else { return };
    for (ours, theirs) in [("0.0.0.0:7020", "10.9.0.2:0"), ("[::]:7021", "[fd00:9::2]:0")] {
        let socket = link.socket(ours);
        socket.set_sending(SendBy::Frames);
        let peer = link.peer(theirs);
        let to = peer.local_addr().unwrap();
        let mut buffer = vec![0; 10_000];
        let (mut sent, mut from) = (0u32, None);
        // Of all lengths, those of fragments too; the peer reads each before its buffer is full.
        let begun = Instant::now();
        while socket.counts().sent_by_frame < 3000 {
            let len = 4 + sent as usize * 7 % if sent % 50 == 49 { 5000 } else { 1400 };
            let mut text = vec![sent as u8; len];
            text[..4].copy_from_slice(&sent.to_ne_bytes());
            assert_eq!(socket.send_to(&text, to).unwrap(), len);
            let (read, source) = read(&peer, &mut buffer);
            assert_eq!(&buffer[..read], text);
            assert_eq!(*from.get_or_insert(source), source);
            sent += 1;
            assert!(begun.elapsed() < crate::PATIENCE, "{:?}", socket.counts());
        }
        let counts = socket.counts();
        println!("{counts:?}");
        assert_eq!(counts.sent_by_frame + counts.sent_by_kernel, u64::from(sent));
        assert_eq!(from.unwrap().port(), socket.local_addr().unwrap().port());
    }
}

#[test]
fn options_and_what_the_kernel_knows_are_followed() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("0.0.0.0:7022");
    socket.set_sending(SendBy::Frames);
    let peer = link.peer("10.9.0.2:0");
    let to = peer.local_addr().unwrap();
    let tap = tap(&link);
    send_until(&socket, to, is_by_frame(&socket));
    // At once.
    socket.set_ttl(33).unwrap();
    socket.send_to(b"with another hop limit", to).unwrap();
    assert_eq!(seen(&tap, b"with another hop limit").hop_limit, 33);
    send_until(&socket, to, is_by_frame(&socket));
    socket.send_to(b"again", to).unwrap();
    assert_eq!(seen(&tap, b"again").hop_limit, 33);
    // Soon.
    let before = seen_source(&socket, to, &tap);
    link.ours
        .run(|| {
            ip_here("addr add 10.9.0.7/24 dev in0");
            ip_here("route replace 10.9.0.0/24 dev in0 src 10.9.0.7");
        })
        .unwrap();
    send_until(&socket, to, |text| seen(&tap, text).source.ip() != before.ip());
    assert_eq!(seen_source(&socket, to, &tap), "10.9.0.7:7022".parse().unwrap());
    link.ours.run(|| ip_here("neigh replace 10.9.0.2 lladdr 02:00:00:00:00:77 dev in0")).unwrap();
    send_until(&socket, to, |text| seen(&tap, text).destination_mac.0 == [2, 0, 0, 0, 0, 0x77]);
    // What was sent before counts no more once there is no way.
    send_until(&socket, to, is_by_frame(&socket));
    link.ours.run(|| ip_here("link set in0 down")).unwrap();
    assert!(socket.send_to(b"nowhere", to).is_err());
}

fn seen_source(socket: &UdpSocket, to: SocketAddr, tap: &PacketSocket) -> SocketAddr {
    socket.send_to(b"from where", to).unwrap();
    seen(tap, b"from where").source
}

#[test]
fn the_kernel_sends_for_sockets_whose_calls_say_more() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("0.0.0.0:7023");
    let peer = link.peer("10.9.0.2:0");
    let to = peer.local_addr().unwrap();
    // Nobody has asked for frames yet.
    for _ in 0..10 {
        socket.send_to(b"by the kernel", to).unwrap();
    }
    assert_eq!(socket.counts().sent_by_frame, 0);
    socket.set_sending(SendBy::Frames);
    send_until(&socket, to, is_by_frame(&socket));
    // Connected: an error that came back is told.
    socket.connect(to).unwrap();
    drop(peer);
    let begun = Instant::now();
    while socket.send_to(b"nobody is there", to).map_err(|error| error.kind())
        != Err(ErrorKind::ConnectionRefused)
    {
        assert!(begun.elapsed() < crate::PATIENCE);
    }
    let by_frame = socket.counts().sent_by_frame;
    // Its descriptor was given out: options may be set there.
    let other = link.socket("0.0.0.0:7024");
    other.set_sending(SendBy::Frames);
    let _ = std::os::fd::AsFd::as_fd(&other);
    for _ in 0..100 {
        let _ = socket.send(b"x");
        other.send_to(b"x", to).unwrap();
    }
    assert_eq!((socket.counts().sent_by_frame, other.counts().sent_by_frame), (by_frame, 0));
}

/// A device above the interface sends through it, from an address of its own, which rules for that device see.
#[test]
fn what_a_device_above_the_interface_sends_stays_with_the_kernel() {
    let Some(link) = Link::new() else { return };
    link.ours
        .run(|| {
            ip_here("link add above0 link in0 type macvlan mode bridge");
            ip_here("addr add 10.9.0.8/32 dev above0");
            ip_here("link set above0 up");
            ip_here("route replace 10.9.0.2/32 dev above0 src 10.9.0.8");
        })
        .unwrap();
    let socket = link.socket("0.0.0.0:7025");
    socket.set_sending(SendBy::Frames);
    let peer = link.peer("10.9.0.2:0");
    let (to, mut buffer) = (peer.local_addr().unwrap(), [0; 8]);
    for number in 0u64..300 {
        socket.send_to(&number.to_ne_bytes(), to).unwrap();
        assert_eq!(read(&peer, &mut buffer), (8, "10.9.0.8:7025".parse().unwrap()));
    }
    assert_eq!(socket.counts().sent_by_frame, 0);
    // By the interface itself.
    link.ours.run(|| ip_here("route del 10.9.0.2/32 dev above0")).unwrap();
    send_until(&socket, to, is_by_frame(&socket));
}
