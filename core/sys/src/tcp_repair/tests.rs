//! Connections of the kernel's that are taken out of one socket and go on in another one.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{connect_unspec, sockopt};
use twinpath_test_rig::{ip_here, root_or_skip, until};

use super::*;
use crate::Namespace;
use crate::tcp_listener::{Group, listen, listen_group};

const PATIENCE: Duration = Duration::from_secs(20);
const BOTH: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Runs a test in a namespace of its own, for both families. No reset leaves in it.
fn for_both(test: impl Fn(IpAddr) + Sync) {
    for_both_with_resets(|address| {
        test(address);
        assert_eq!(resets(), 0, "resets were sent to {address}");
    });
}

fn for_both_with_resets(test: impl Fn(IpAddr) + Sync) {
    if !root_or_skip() {
        return;
    }
    for address in BOTH {
        let namespace = Namespace::new().unwrap();
        let work = || {
            ip_here("link set lo up");
            test(address);
        };
        namespace.run(work).unwrap();
    }
}

/// The number of resets that the calling thread's namespace has sent.
fn resets() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut named = names.split(' ').zip(values.split(' '));
    named.find(|(name, _)| *name == "OutRsts").unwrap().1.parse().unwrap()
}

/// Listeners that share a port, as those of several workers do, and a connection to one of them.
fn connected(address: IpAddr) -> (Group, TcpStream, TcpStream) {
    let group = listen_group(None, 0, 2, None).unwrap();
    let client = TcpStream::connect((address, group.port().unwrap())).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let listeners = group.listeners.iter().map(|fd| TcpListener::from(fd.try_clone().unwrap()));
    let mut accepted = None;
    let listeners: Vec<_> = listeners.collect();
    until("a connection", || {
        accepted = listeners.iter().find_map(|listener| listener.accept().ok());
        accepted.is_some()
    });
    (group, client, accepted.unwrap().0)
}

fn option<T: Default>(fd: impl AsFd, option: c_int) -> T {
    get(fd, libc::IPPROTO_TCP, option).unwrap()
}

fn number(socket: &TcpStream, queue: c_int) -> u32 {
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, queue).unwrap();
    option(socket, libc::TCP_QUEUE_SEQ)
}

/// Takes a connection without bytes out of its socket, silently.
fn take_out(socket: TcpStream) -> Established<'static> {
    values(socket, false)
}

/// The same; the socket keeps the connection if it `stays`.
fn values(socket: TcpStream, stays: bool) -> Established<'static> {
    set_int(&socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_ON).unwrap();
    let [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup] =
        option::<[u32; 5]>(&socket, libc::TCP_REPAIR_WINDOW);
    // Its eighth byte has both scales (struct tcp_info).
    let [_, _, _, _, _, _, scales, _] = option::<[u8; 8]>(&socket, libc::TCP_INFO);
    let unmapped = |ends: SocketAddr| SocketAddr::new(ends.ip().to_canonical(), ends.port());
    let taken = Established {
        local: unmapped(socket.local_addr().unwrap()),
        remote: unmapped(socket.peer_addr().unwrap()),
        mss: 32_000,
        scales: (scales & 15, scales >> 4),
        sack: true,
        timestamp: Some(option(&socket, libc::TCP_TIMESTAMP)),
        send_number: number(&socket, SEND_QUEUE),
        unacknowledged: &[],
        unsent: &[],
        fin: Fin::None,
        receive_number: number(&socket, RECEIVE_QUEUE),
        is_ended: false,
        is_orphan: false,
        windows: RepairWindow { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup },
        no_delay: true,
    };
    if !stays {
        // Closing alone may not free the ends at once: a process that another test is starting has the descriptor, too.
        connect_unspec(&socket).unwrap();
    }
    taken
}

fn stream(fd: OwnedFd) -> TcpStream {
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Bytes go both ways between them.
fn talk(near: &mut TcpStream, far: &mut TcpStream) {
    pass(near, far);
    pass(far, near);
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"some bytes").unwrap();
    let mut got = [0; 10];
    to.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"some bytes");
}

#[test]
fn a_connection_goes_on_beside_its_listeners() {
    for_both(|address| {
        let (_group, mut client, mut server) = connected(address);
        talk(&mut server, &mut client);
        let ends = (server.local_addr().unwrap().port(), server.peer_addr().unwrap().port());
        let mut moved = stream(restore(&take_out(server)).unwrap());
        assert_eq!(ends, (moved.local_addr().unwrap().port(), moved.peer_addr().unwrap().port()));
        assert!(sockopt::tcp_nodelay(&moved).unwrap());
        for _ in 0..3 {
            talk(&mut client, &mut moved);
        }
        // It ends as others do.
        drop(moved);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn bytes_that_were_sent_and_those_that_were_not_are_delivered() {
    for_both(|address| {
        let (_group, mut client, server) = connected(address);
        let taken = take_out(server);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        let (unacknowledged, unsent) = bytes.split_at(40_000);
        let moved = restore(&Established { unacknowledged, unsent, ..taken }).unwrap();
        let mut got = vec![0; bytes.len()];
        client.read_exact(&mut got).unwrap();
        assert!(got == bytes);
        talk(&mut stream(moved), &mut client);
    });
}

#[test]
fn numbers_wrap_among_the_bytes_that_wait() {
    for_both(|address| {
        let (_group, client, server) = connected(address);
        let (far, near) = (take_out(client), take_out(server));
        let (ours, theirs) = (u32::MAX - 10_000, u32::MAX - 5);
        let windows =
            |of: &Established<'_>, peers| RepairWindow { snd_wl1: peers, rcv_wup: peers, ..of.windows };
        let far_windows = windows(&far, ours);
        let far = Established { send_number: theirs, receive_number: ours, windows: far_windows, ..far };
        let near_windows = windows(&near, theirs);
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number / 7) as u8).collect();
        let (unacknowledged, unsent) = bytes.split_at(30_000);
        let near = Established {
            send_number: ours,
            receive_number: theirs,
            windows: near_windows,
            unacknowledged,
            unsent,
            ..near
        };
        // The peer is deaf until both are there: otherwise one would be told that there is no other.
        let client = super::connected(&far).unwrap();
        let moved = restore(&near).unwrap();
        set(&client, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, &far.windows).unwrap();
        socket_filter::detach(&client).unwrap();
        set_repair(&client, REPAIR_OFF).unwrap();
        sockopt::set_tcp_cork(&client, false).unwrap();
        let (mut client, mut moved) = (stream(client), stream(moved));
        let mut got = vec![0; bytes.len()];
        client.read_exact(&mut got).unwrap();
        assert!(got == bytes);
        for _ in 0..3 {
            talk(&mut client, &mut moved);
        }
    });
}

#[test]
fn bytes_for_a_small_window_find_room_in_the_send_queue() {
    for_both(|address| {
        let (_group, mut client, server) = connected(address);
        let taken = take_out(server);
        // The kernel bounds a piece of the queue by half of the largest window it knows, and each piece costs more memory
        // than its bytes.
        let windows = RepairWindow { snd_wnd: 600, max_window: 1072, ..taken.windows };
        socket_filter::drop_all(&client).unwrap();
        let moved = restore(&Established { mss: 536, windows, unsent: &[1; 400_000], ..taken }).unwrap();
        socket_filter::detach(&client).unwrap();
        client.read_exact(&mut vec![0; 400_000]).unwrap();
        talk(&mut stream(moved), &mut client);
    });
}

#[test]
fn an_end_that_was_sent_or_not_is_heard_once_and_the_peer_may_go_on() {
    for_both(|address| {
        for was_sent in [false, true] {
            let (_group, mut client, server) = connected(address);
            if was_sent {
                server.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
            }
            // Acknowledged, and so behind FIN.
            until("FIN_WAIT_2", || !was_sent || option::<[u8; 8]>(&server, libc::TCP_INFO)[0] == 5);
            let taken = take_out(server);
            let send_number = taken.send_number.wrapping_sub(u32::from(was_sent));
            let unsent: &[u8] = if was_sent { b"" } else { b"last" };
            let fin = if was_sent { Fin::Sent } else { Fin::Unsent };
            let moved = restore(&Established { send_number, unsent, fin, ..taken }).unwrap();
            let mut last = Vec::new();
            client.read_to_end(&mut last).unwrap();
            assert_eq!(last, unsent);
            let mut moved = stream(moved);
            client.write_all(b"more").unwrap();
            let mut got = [0; 4];
            moved.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"more");
            drop(client);
            assert_eq!(moved.read(&mut [0]).unwrap(), 0);
        }
    });
}

#[test]
fn segments_are_as_short_as_the_path_needs_them() {
    for_both(|address| {
        for (mss, most) in [(1024, 1024), (64, 88)] {
            let (_group, mut client, server) = connected(address);
            let taken = take_out(server);
            let moved = restore(&Established { mss, unsent: &[1; 10_000], ..taken }).unwrap();
            client.read_exact(&mut [0; 10_000]).unwrap();
            // Its options are not counted (do_tcp_getsockopt, net/ipv4/tcp.c).
            let now = option::<c_int>(&moved, libc::TCP_MAXSEG);
            assert!(now > most - 20 && now <= most, "{now} of {most}");
            talk(&mut stream(moved), &mut client);
        }
    });
}

#[test]
fn an_end_that_was_sent_needs_no_window() {
    for_both(|address| {
        let (_group, mut client, server) = connected(address);
        server.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        until("FIN_WAIT_2", || option::<[u8; 8]>(&server, libc::TCP_INFO)[0] == 5);
        let taken = take_out(server);
        // As if the peer had not read what came before.
        let windows = RepairWindow { snd_wnd: 0, ..taken.windows };
        let send_number = taken.send_number.wrapping_sub(1);
        let moved = restore(&Established { send_number, windows, fin: Fin::Sent, ..taken }).unwrap();
        pass(&mut client, &mut stream(moved));
    });
}

#[test]
fn a_peer_that_has_sent_its_end_gets_the_rest() {
    for_both(|address| {
        let (_group, mut client, server) = connected(address);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        until("CLOSE_WAIT", || option::<[u8; 8]>(&server, libc::TCP_INFO)[0] == 8);
        let moved = restore(&Established { is_ended: true, ..take_out(server) }).unwrap();
        let mut moved = stream(moved);
        moved.write_all(b"the rest").unwrap();
        drop(moved);
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"the rest");
    });
}

#[test]
fn a_peer_that_goes_on_sending_gets_all_of_what_was_closed() {
    // Once it has all, what it sends again is for nobody.
    for_both_with_resets(|address| {
        let (_group, mut client, server) = connected(address);
        let taken = take_out(server);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        let (unacknowledged, unsent) = bytes.split_at(40_000);
        let closed = Established { unacknowledged, unsent, is_orphan: true, ..taken };
        let moved = restore(&closed).unwrap();
        client.write_all(&[1; 20_000]).unwrap();
        drop(moved);
        client.write_all(&[1; 20_000]).unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == bytes, "{} bytes", got.len());
    });
}

#[test]
fn listeners_can_have_the_port_whatever_state_a_connection_is_in() {
    for_both(|address| {
        let (group, mut client, server) = connected(address);
        let port = group.port().unwrap();
        let moved = stream(restore(&take_out(server)).unwrap());
        drop(group);
        // Another process that is just starting may have a copy of a listener.
        let may_listen = |state: &str| {
            until(state, || listen(None, port, None).is_ok() && listen_group(None, port, 2, None).is_ok());
        };
        may_listen("an open connection");
        drop(moved);
        may_listen("FIN_WAIT_2");
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop(client);
        may_listen("TIME_WAIT");
    });
}

#[test]
fn options_that_were_not_agreed_on_are_not_used() {
    for_both(|address| {
        for name in ["timestamps", "sack", "window_scaling"] {
            std::fs::write(format!("/proc/sys/net/ipv4/tcp_{name}"), "0").unwrap();
        }
        let (_group, mut client, server) = connected(address);
        let taken = take_out(server);
        let plain = Established { sack: false, timestamp: None, scales: (0, 0), ..taken };
        let mut moved = stream(restore(&plain).unwrap());
        // SACK is bit 1, timestamps bit 0 (TCPI_OPT_..., include/uapi/linux/tcp.h).
        let [_, _, _, _, _, options, scales, _] = option::<[u8; 8]>(&moved, libc::TCP_INFO);
        assert_eq!((options & 3, scales), (0, 0));
        talk(&mut client, &mut moved);
    });
}

#[test]
fn a_socket_that_cannot_be_made_says_why_and_sends_nothing() {
    for_both(|address| {
        let (_group, mut client, mut server) = connected(address);
        let elsewhere = match address {
            IpAddr::V4(_) => IpAddr::from([192, 0, 2, 9]),
            IpAddr::V6(_) => "2001:db8::9".parse().unwrap(),
        };
        let taken = values(server.try_clone().unwrap(), true);
        let error = restore(&Established { local: SocketAddr::new(elsewhere, 9), ..taken }).unwrap_err();
        assert_eq!((error.kind(), is_without_way(&error)), (io::ErrorKind::AddrNotAvailable, true));
        let error = restore(&taken).unwrap_err();
        let is_there = (io::ErrorKind::AddrInUse, false);
        assert_eq!((error.kind(), is_without_way(&error)), is_there, "it is still there");
        set_int(&server, libc::IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_OFF).unwrap();
        talk(&mut client, &mut server);
    });
}

#[test]
fn whether_it_can_be_done_is_known_before() {
    if root_or_skip() {
        probe().unwrap();
    }
}
