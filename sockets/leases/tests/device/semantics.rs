//! The socket behaves as the standard library's, on either path.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket as KernelSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use twinpath_leases::WhyKernel;
use twinpath_leases::sockets::{SocketPath, UdpSocket};
use twinpath_sys::udp_socket::set_segment_size;
use twinpath_worker::idle::Mode;

use crate::Link;

/// One round trip; the address from which the socket saw the peer.
fn echo(socket: &UdpSocket, peer: &KernelSocket, to: &str, text: &[u8]) -> SocketAddr {
    peer.send_to(text, to).unwrap();
    let mut buffer = [0; 2048];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], text);
    socket.send_to(text, from).unwrap();
    assert_eq!(peer.recv(&mut buffer).unwrap(), len);
    from
}

#[test]
fn without_an_interface_or_the_right_one_the_kernel_serves() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let peer = KernelSocket::bind("127.0.0.1:0").unwrap();
    assert!(matches!(socket.path(), SocketPath::Kernel { .. }));
    assert_eq!(echo(&socket, &peer, &to.to_string(), b"one"), peer.local_addr().unwrap());
    let socket = socket.on("nowhere0");
    let SocketPath::Kernel { why } = socket.path() else { panic!("{}", socket.path()) };
    assert!(matches!(**why, WhyKernel::Lend(_)), "{why}");
    echo(&socket, &peer, &to.to_string(), b"two");
    assert_eq!(socket.counts(), Default::default());
}

#[test]
fn calls_mean_the_same_by_the_ring() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("0.0.0.0:7000");
    let peer = link.peer("10.9.0.2:0");
    socket.set_mode(Mode::Poll);
    let (begun, mut asked) = (Instant::now(), 0u32);
    // On a machine that is busy, leases lapse before a datagram comes.
    while asked < 200 || socket.counts().by_ring <= 100 {
        let from = echo(&socket, &peer, "10.9.0.1:7000", &asked.to_ne_bytes());
        assert_eq!(from, peer.local_addr().unwrap());
        asked += 1;
        assert!(begun.elapsed() < crate::PATIENCE, "{:?}", socket.counts());
    }
    let counts = socket.counts();
    assert_eq!(counts.by_ring + counts.by_kernel, u64::from(asked), "{counts:?}");
    // Shorter buffers get what fits; looking takes nothing away.
    peer.send_to(b"0123456789", "10.9.0.1:7000").unwrap();
    let mut short = [0; 4];
    assert_eq!(socket.peek_from(&mut short).unwrap().0, 4);
    assert_eq!((socket.recv(&mut short).unwrap(), &short), (4, b"0123"));
    // The time-out, and none.
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let begun = Instant::now();
    assert_eq!(socket.recv(&mut short).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= Duration::from_millis(5));
    socket.set_nonblocking(true).unwrap();
    assert_eq!(socket.recv(&mut short).unwrap_err().kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(None).unwrap();
    // What is empty is a datagram as well; what is in fragments comes by the kernel.
    peer.send_to(b"", "10.9.0.1:7000").unwrap();
    assert_eq!(socket.recv(&mut short).unwrap(), 0);
    peer.send_to(&[7; 9000], "10.9.0.1:7000").unwrap();
    let mut long = [0; 10_000];
    assert_eq!(socket.recv(&mut long).unwrap(), 9000);
    // From this host.
    let local = link.ours.run(|| KernelSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    local.set_read_timeout(Some(crate::PATIENCE)).unwrap();
    echo(&socket, &local, "127.0.0.1:7000", b"local");
    echo(&socket.try_clone().unwrap(), &peer, "10.9.0.1:7000", b"clone");
    // Connected: others are not heard any more.
    let other = link.peer("10.9.0.2:0");
    socket.connect(peer.local_addr().unwrap()).unwrap();
    other.send_to(b"x", "10.9.0.1:7000").unwrap();
    echo(&socket, &peer, "10.9.0.1:7000", b"connected");
}

/// The ring is opened early only where the kernel's socket is empty.
#[test]
fn what_waits_in_the_kernels_socket_is_received_by_calls_that_do_not_wait() {
    const COUNT: u8 = 4;
    let Some(link) = Link::new() else { return };
    let (socket, peer) = (link.socket("0.0.0.0:7004"), link.peer("10.9.0.2:0"));
    let local = link.ours.run(|| KernelSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let mut got = [0];
    for round in 0..50 {
        socket.set_mode(Mode::Poll);
        echo(&socket, &peer, "10.9.0.1:7004", b"ring");
        // The ring is closed by this call, and all that was passed to the kernel has been read.
        socket.set_mode(Mode::Interrupt);
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.recv(&mut got).unwrap_err().kind(), ErrorKind::WouldBlock);
        socket.set_mode(Mode::Poll);
        // No program sees these pass.
        for number in 0..COUNT {
            local.send_to(&[number], "127.0.0.1:7004").unwrap();
        }
        for number in 0..COUNT {
            assert_eq!(socket.recv(&mut got).unwrap_or_else(|error| panic!("{round}, {number}: {error}")), 1);
            assert_eq!(got, [number], "{round}");
        }
        socket.set_nonblocking(false).unwrap();
    }
}

/// What a peer sends by one call (`UDP_SEGMENT`) crosses the link as one frame.
#[test]
fn coalesced_datagrams_come_by_the_ring_each_by_itself() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("[::]:7012");
    socket.set_mode(Mode::Poll);
    let mut buffer = [0; 2048];
    for (from, to) in [("10.9.0.2:0", "10.9.0.1:7012"), ("[fd00:9::2]:0", "[fd00:9::1]:7012")] {
        let peer = link.peer(from);
        echo(&socket, &peer, to, b"first");
        for (segment, len) in [(100, 39 * 100 + 7), (1, 64), (1400, 5 * 1400 + 1)] {
            let sent: Vec<u8> = (0..len).map(|at| (at / segment) as u8).collect();
            set_segment_size(&peer, segment as u16).unwrap();
            let begun = Instant::now();
            // On a machine that is busy, leases lapse before a datagram comes.
            loop {
                let before = socket.counts().by_ring;
                peer.send_to(&sent, to).unwrap();
                for datagram in sent.chunks(segment) {
                    let (len, _) = socket.recv_from(&mut buffer).unwrap();
                    assert_eq!(&buffer[..len], datagram, "{segment}, {to}");
                }
                let by_ring = socket.counts().by_ring - before;
                if by_ring == len.div_ceil(segment) as u64 || begun.elapsed() > crate::PATIENCE {
                    break;
                }
            }
        }
        set_segment_size(&peer, 0).unwrap();
    }
    let counts = socket.counts();
    assert!(counts.by_ring > 200 && counts.refused == 0, "{counts:?}");
}

#[test]
fn a_socket_of_both_families_sees_mapped_addresses_on_both_paths() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("[::]:7001");
    let [v4, v6] = ["10.9.0.2:0", "[fd00:9::2]:0"].map(|address| link.peer(address));
    for mode in [Mode::Poll, Mode::Interrupt] {
        socket.set_mode(mode);
        let begun = Instant::now();
        for round in 0.. {
            // On a machine that is busy, leases lapse before a datagram comes.
            let is_enough =
                mode != Mode::Poll || socket.counts().by_ring > 0 || begun.elapsed() > crate::PATIENCE;
            if round >= 20 && is_enough {
                break;
            }
            let from = echo(&socket, &v4, "10.9.0.1:7001", b"four");
            let port = v4.local_addr().unwrap().port();
            assert_eq!(from, format!("[::ffff:10.9.0.2]:{port}").parse().unwrap());
            let from = echo(&socket, &v6, "[fd00:9::1]:7001", b"six");
            assert_eq!(from, v6.local_addr().unwrap());
        }
    }
    let counts = socket.counts();
    assert!(counts.by_ring > 0 && counts.by_kernel > 0 && counts.refused == 0, "{counts:?}");
}

/// A loop that waits with the kernel's own call: nothing may be left where the kernel does not see it.
#[test]
fn a_descriptor_that_was_given_out_can_be_waited_for_in_the_kernel() {
    let Some(link) = Link::new() else { return };
    let socket = link.socket("0.0.0.0:7002");
    let peer = link.peer("10.9.0.2:0");
    socket.set_mode(Mode::Poll);
    let to = "10.9.0.1:7002";
    let from = echo(&socket, &peer, to, b"before");
    let fd = socket.as_fd();
    let mut buffer = [0; 16];
    let mut received = 0;
    // It sends as many as it is told to, when the socket may be waited for already.
    let sender = std::thread::spawn(move || {
        let mut told = [0; 4];
        while peer.recv(&mut told).unwrap() > 0 {
            for number in 0..u32::from_ne_bytes(told) {
                peer.send_to(&number.to_ne_bytes(), to).unwrap();
            }
        }
    });
    let begun = Instant::now();
    for round in 0u32.. {
        // On a machine that is busy, leases lapse before a datagram comes.
        if round >= 300 && (socket.counts().by_ring > 0 || begun.elapsed() > crate::PATIENCE) {
            break;
        }
        socket.send_to(&(round % 3 + 1).to_ne_bytes(), from).unwrap();
        for number in 0..=round % 3 {
            // By turns with a call that spins.
            if number == round % 2 {
                assert!(
                    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout())).unwrap() > 0,
                    "{round}"
                );
            }
            assert_eq!(socket.recv(&mut buffer).unwrap(), 4);
            assert_eq!(buffer[..4], number.to_ne_bytes());
            received += 1;
        }
    }
    socket.send_to(b"", from).unwrap();
    sender.join().unwrap();
    let counts = socket.counts();
    println!("{counts:?}");
    assert_eq!(counts.by_ring + counts.by_kernel, received + 1);
    assert!(counts.by_ring > 0, "{counts:?}");
}

fn timeout() -> rustix::event::Timespec {
    rustix::event::Timespec { tv_sec: crate::PATIENCE.as_secs() as i64, tv_nsec: 0 }
}

#[test]
fn several_sockets_share_an_interface_and_leases_are_used_again() {
    let Some(link) = Link::new() else { return };
    let peer = link.peer("10.9.0.2:0");
    let first = link.socket("0.0.0.0:7010");
    for round in 0..20 {
        let [one, other] = [7011, 7012].map(|port| link.socket(&format!("10.9.0.1:{port}")));
        [&first, &one, &other].iter().for_each(|socket| socket.set_mode(Mode::Poll));
        let begun = Instant::now();
        while one.counts().by_ring == 0 {
            echo(&first, &peer, "10.9.0.1:7010", b"first");
            echo(&one, &peer, "10.9.0.1:7011", b"one");
            echo(&other, &peer, "10.9.0.1:7012", b"other");
            assert!(begun.elapsed() < crate::PATIENCE, "{round}: {:?}", one.counts());
        }
    }
}

/// What waits for a slow reader is bounded by its buffer (SO_RCVBUF) and the slots of its ring, and the kernel counts the rest.
#[test]
fn a_slow_reader_keeps_its_buffer_and_a_ring_of_datagrams_and_no_more() {
    const SENT: u32 = 3_000;
    const IN_RING: usize = 256;
    const BUFFER: usize = 16_384;
    let Some(link) = Link::new() else { return };
    let socket = link.ours.run(|| {
        let socket = KernelSocket::bind("0.0.0.0:7040").unwrap();
        set_socket_recv_buffer_size(&socket, BUFFER).unwrap();
        UdpSocket::from(socket).on("in0")
    });
    let socket = socket.unwrap();
    socket.set_read_timeout(Some(crate::PATIENCE)).unwrap();
    let peer = link.peer("10.9.0.2:0");
    socket.set_mode(Mode::Poll);
    let begun = Instant::now();
    while socket.counts().by_ring < 100 {
        assert!(begun.elapsed() < crate::PATIENCE, "{:?}", socket.counts());
        echo(&socket, &peer, "10.9.0.1:7040", b"by the ring");
    }
    let mut datagram = [0; 1_000];
    for number in 0..SENT {
        datagram[..4].copy_from_slice(&number.to_ne_bytes());
        peer.send_to(&datagram, "10.9.0.1:7040").unwrap();
    }
    socket.set_nonblocking(true).unwrap();
    let mut received = Vec::new();
    while let Ok(len) = socket.recv(&mut datagram) {
        assert_eq!(len, datagram.len());
        received.push(u32::from_ne_bytes(*datagram.first_chunk().unwrap()));
    }
    assert!(received.is_sorted_by(|one, next| one < next), "{received:?}");
    // The kernel doubles what is asked for, and charges each datagram with more than its bytes.
    let most = IN_RING + 2 * BUFFER / datagram.len() + 1;
    assert!(received.len() <= most, "{} of at most {most}", received.len());
    let dropped = link.ours.run(|| {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let own = sockets.lines().find(|line| line.contains(":1B80 ")).expect("the socket is listed");
        own.split_whitespace()
            .last()
            .and_then(|drops| drops.parse::<usize>().ok())
            .expect("drops are counted")
    });
    assert_eq!(received.len() + dropped.unwrap(), SENT as usize, "received and dropped");
}
