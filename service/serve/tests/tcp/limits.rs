//! Limits on connections, in total and per source, and which connection is closed when a limit is reached.

use std::net::IpAddr;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::*;

impl Rig {
    /// Connects from one of the loopback addresses, so that the test has many sources.
    fn connect_from(&mut self, last: u8) -> TcpStream {
        let stream = self.connect_only_from(last);
        self.turns();
        stream
    }

    /// Connects in the same way, but does not accept yet.
    fn connect_only_from(&self, last: u8) -> TcpStream {
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&own, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
        connect(&own, &self.server).unwrap();
        let stream = TcpStream::from(own);
        stream.set_nonblocking(true).unwrap();
        assert!(matches!(stream.local_addr().unwrap().ip(), IpAddr::V4(v4) if v4.octets()[3] == last));
        stream
    }

    /// Whether the connection is still open; the server must not have sent anything.
    fn is_open(&mut self, stream: &mut TcpStream) -> bool {
        !self.read(stream, 0).1
    }

    fn is_answered(&mut self, stream: &mut TcpStream) -> bool {
        stream.write_all(b"4\n").unwrap();
        self.read(stream, 4) == (4, false)
    }
}

#[test]
fn a_source_has_no_more_than_its_limit_and_gets_places_back() {
    let mut rig = Rig::new(TcpLimits { connections: 100, connections_per_source: 3, ..LIMITS });
    let mut greedy: Vec<_> = (0..3).map(|_| rig.connect_from(1)).collect();
    for count in 1..=5 {
        let mut refused = rig.connect_from(1);
        assert!(!rig.is_open(&mut refused));
        assert_eq!(rig.dropped(Reason::SourceLimit), count);
    }
    let mut other = rig.connect_from(2);
    assert!(rig.is_answered(&mut other));
    greedy.remove(0);
    rig.turns();
    let mut again = rig.connect_from(1);
    assert!(rig.is_answered(&mut again) && greedy.iter_mut().all(|stream| rig.is_answered(stream)));
    assert_eq!((rig.serve.tcp.connections.get(), rig.dropped(Reason::SourceLimit)), (4, 5));
}

#[test]
fn the_idlest_goes_when_one_more_comes_than_there_may_be() {
    let mut rig = Rig::new(TcpLimits { connections: 4, ..LIMITS });
    let mut streams: Vec<_> = (1..=4).map(|source| rig.connect_from(source)).collect();
    // The third one has not been used since it was opened.
    for at in [1, 0, 3] {
        assert!(rig.is_answered(&mut streams[at]));
    }
    for (new, gone) in [2, 1, 0, 3].into_iter().enumerate() {
        let mut stream = rig.connect_from(10 + new as u8);
        assert!(!rig.is_open(&mut streams[gone]), "{gone}");
        assert_eq!(rig.closes(), [Closed::For(Reason::ConnectionDisplaced)]);
        assert!(rig.is_answered(&mut stream));
        streams.push(stream);
    }
    assert_eq!((rig.dropped(Reason::ConnectionDisplaced), rig.serve.tcp.connections.get()), (4, 4));
    assert_eq!((rig.dropped(Reason::ConnectionLimit), rig.totals.bytes()), (0, 0));
}

#[test]
fn the_source_with_most_makes_room_though_others_have_been_idle_for_longer() {
    let mut rig = Rig::new(TcpLimits { connections: 10, ..LIMITS });
    let mut single: Vec<_> = (1..=4).map(|source| rig.connect_from(source)).collect();
    let mut many: Vec<_> = (0..6).map(|_| rig.connect_from(100)).collect();
    for new in 0..4 {
        single.push(rig.connect_from(10 + new));
        assert!(!rig.is_open(&mut many.remove(0)), "the first of its own");
    }
    assert!(single.iter_mut().all(|stream| rig.is_open(stream)));
    // A further connection of the same source.
    many.push(rig.connect_from(100));
    assert!(!rig.is_open(&mut many.remove(0)));
    assert!(many.iter_mut().all(|stream| rig.is_open(stream)));
}

#[test]
fn a_request_under_way_is_never_displaced_and_with_nobody_idle_the_new_one_is_refused() {
    let mut rig = Rig::new(TcpLimits { connections: 5, ..LIMITS });
    let mut streams: Vec<_> = (1..=5).map(|source| rig.connect_from(source)).collect();
    // Half a request; a request whose bytes were consumed; and replies that the peer does not take.
    streams[0].write_all(b"12").unwrap();
    streams[1].write_all(b"+").unwrap();
    rig.fill(&mut streams[2]);
    let mut new = rig.connect_from(10);
    assert!(!rig.is_open(&mut streams[3]), "the first of those that are idle");
    streams[3] = rig.connect_from(11);
    assert!(!rig.is_open(&mut streams[4]), "the other one");
    new.write_all(b"1").unwrap();
    streams[3].write_all(b"1").unwrap();
    rig.turns();
    let mut refused = rig.connect_from(12);
    assert!(!rig.is_open(&mut refused));
    assert_eq!((rig.dropped(Reason::ConnectionLimit), rig.dropped(Reason::ConnectionDisplaced)), (1, 2));
    // The first connection has completed its request, so it may be closed again.
    streams[0].write_all(b"\n").unwrap();
    assert_eq!(rig.read(&mut streams[0], 12), (12, false));
    let mut last = rig.connect_from(13);
    assert!(!rig.is_open(&mut streams[0]));
    assert!(rig.is_answered(&mut last));
    // A request that has arrived but was not read yet counts as under way.
    let refused = rig.connect_only_from(14);
    last.write_all(b"4\n").unwrap();
    assert_eq!(rig.read(&mut last, 4), (4, false));
    assert_eq!(rig.dropped(Reason::ConnectionLimit), 2);
    drop((refused, streams, new, last));
    rig.turns();
    assert_eq!((rig.serve.tcp.connections.get(), rig.totals.bytes()), (0, 0));
}

#[test]
fn thousands_that_come_and_go_at_the_limit_leave_no_trace() {
    let limits = TcpLimits { connections: 50, connections_per_source: 20, ..LIMITS };
    let mut rig = Rig::new(limits);
    let mut streams = std::collections::VecDeque::new();
    for round in 0..3_000_u32 {
        streams.push_back(rig.connect_from(1 + (round * 7 % 90) as u8));
        if round % 3 == 0 {
            let at = (round as usize * 13) % streams.len();
            let _ = streams[at].write_all([&b"12"[..], b"3\n", b"+"][at % 3]);
        }
        if streams.len() > 60 {
            streams.pop_front();
        }
        assert!(rig.serve.tcp.connections.get() <= 50);
    }
    assert!(rig.dropped(Reason::ConnectionDisplaced) > 500);
    drop(streams);
    rig.turns();
    assert_eq!((rig.serve.tcp.connections.get(), rig.totals.bytes()), (0, 0));
    for source in 1..=2 {
        let mut again: Vec<_> = (0..20).map(|_| rig.connect_from(source)).collect();
        assert!(again.iter_mut().all(|stream| rig.is_answered(stream)), "all places are free again");
    }
}
