//! Handshakes and connections in TIME_WAIT as the fast path ends: no segment of their peers is answered by a reset. The peers
//! say what a test has them say, as no kernel has their address.

use std::net::{IpAddr, SocketAddr, TcpStream};

use rustix::process::{Signal, kill_process};
use twinpath_sys::PacketSocket;
use twinpath_test_rig::ip;
use twinpath_wire::checksum::Sum;
use twinpath_wire::tcp::{Flags, Header};
use twinpath_wire::tcp_frame::{self, TcpFrameRepr};
use twinpath_wire::{ChecksumTrust, Mac};

use crate::claims::next;
use crate::rig::{PORT, Rig, SERVER, SERVER_V6, Server, until};
use crate::root_or_skip;
use crate::tcp::{FAST, count_of_kernel, permit_claims, resets_of_kernel, service};

const OPENS: u8 = Flags::SYN | Flags::ACK;
/// How long is waited for an answer that is not to come, or that is asked for again, ms.
const SHORT_MS: i64 = 200;

const IPV4_AT: usize = 14;
const IPV4_OPTIONS_AT: usize = IPV4_AT + 20;

/// What a peer hears.
struct Heard {
    flags: u8,
    sequence: u32,
    payload: Vec<u8>,
}

/// A peer of the server's, with a port.
struct Peer {
    socket: PacketSocket,
    macs: (Mac, Mac),
    source: SocketAddr,
    destination: SocketAddr,
    /// The next number that it says, and the one that it has heard everything before.
    next: u32,
    heard: u32,
}

impl Peer {
    fn of(rig: &Rig, server: &str, port: u16) -> Self {
        let destination: IpAddr = server.parse().unwrap();
        let (ethertype, source) = match destination {
            IpAddr::V4(_) => (0x0800, "10.7.0.9"),
            IpAddr::V6(_) => (0x86dd, "fd07::9"),
        };
        let (client, mac) = rig.macs();
        let lladdr = Mac(client).to_string();
        let entry = ["neigh", "replace", source, "lladdr", &lladdr, "dev", "vs", "nud", "permanent"];
        ip(&rig.server, &entry[..]);
        Self {
            socket: rig.client_frames(ethertype),
            macs: (Mac(client), Mac(mac)),
            source: SocketAddr::new(source.parse().unwrap(), port),
            destination: SocketAddr::new(destination, PORT),
            next: 1000,
            heard: 0,
        }
    }

    fn say(&self, flags: u8, payload: &[u8]) {
        self.socket.send(&self.frame(flags, payload)).unwrap();
    }

    /// Says it with an IPv4 option: such packets are the kernel's.
    fn say_with_option(&self, flags: u8) {
        let mut frame = self.frame(flags, &[]);
        frame.splice(IPV4_OPTIONS_AT..IPV4_OPTIONS_AT, [1, 1, 1, 0]);
        let ip = &mut frame[IPV4_AT..IPV4_OPTIONS_AT + 4];
        (ip[0], ip[3]) = (0x46, ip[3] + 4);
        ip[10..12].fill(0);
        let checksum = Sum::ZERO.bytes(ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        self.socket.send(&frame).unwrap();
    }

    fn frame(&self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let repr = TcpFrameRepr {
            source_mac: self.macs.0,
            destination_mac: self.macs.1,
            source: self.source.ip(),
            destination: self.destination.ip(),
            hop_limit: 64,
            ecn_capable: false,
            id: None,
        };
        let header = Header {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
            sequence: self.next,
            acknowledgement: self.heard,
            flags: Flags(flags),
            window: 60_000,
            urgent: 0,
        };
        let mut frame = vec![0; repr.frame_len(0, payload.len())];
        repr.write(&mut frame, &header, &[], payload).unwrap();
        frame
    }

    /// The next segment for it; none in a while. None is a reset.
    fn hear(&self) -> Option<Heard> {
        loop {
            let frame = next(&self.socket, SHORT_MS)?;
            let Ok(found) = tcp_frame::parse(&frame, ChecksumTrust::Trusted) else { continue };
            if (found.source, found.destination) != (self.destination, self.source) {
                continue;
            }
            let flags = found.segment.flags().0;
            assert_eq!(flags & Flags::RST, 0, "{} is reset", self.source);
            let sequence = found.segment.sequence();
            return Some(Heard { flags, sequence, payload: found.segment.payload().to_vec() });
        }
    }

    /// Opens a connection as far as to the server's answer.
    fn half_open(&mut self) {
        self.say(Flags::SYN, &[]);
        until("an answer to its SYN", || {
            let Some(Heard { flags: OPENS, sequence, .. }) = self.hear() else { return false };
            self.heard = sequence.wrapping_add(1);
            true
        });
        self.next += 1;
    }

    /// Acknowledges the answer, and says something, until that comes back.
    fn echoes(&mut self, text: &[u8]) {
        until("it comes back", || {
            self.say(Flags::ACK | Flags::PSH, text);
            while let Some(Heard { sequence, payload, .. }) = self.hear() {
                if sequence == self.heard && payload == text {
                    return true;
                }
            }
            false
        });
        self.next = self.next.wrapping_add(text.len() as u32);
        self.heard = self.heard.wrapping_add(text.len() as u32);
        self.say(Flags::ACK, &[]);
    }
}

/// The fast path ends.
fn withheld(rig: &Rig, server: &Server) {
    permit_claims(rig, false);
    until("nothing is claimed", || server.claim("tcp port")["path"] == "kernel");
}

/// Runs a test with each family, and makes sure that the server's kernel has sent no reset.
fn for_both(arguments: &[&str], test: impl Fn(&Rig, &Server, Peer)) {
    if !root_or_skip() {
        return;
    }
    for address in [SERVER, SERVER_V6] {
        let rig = Rig::of_workers();
        let server = rig.serve(&[&FAST[..], arguments].concat());
        permit_claims(&rig, true);
        let peer = Peer::of(&rig, address, 4000);
        test(&rig, &server, peer);
        assert_eq!(resets_of_kernel(&rig.server), 0);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn a_peer_that_has_had_an_answer_to_its_syn_goes_on_in_the_kernel() {
    for_both(&[], |rig, server, mut peer| {
        peer.half_open();
        until("it is half-open", || service(server, "fast_half_open") == 1);
        withheld(rig, server);
        peer.echoes(b"hello");
        assert_eq!((service(server, "fast_accepted"), service(server, "fast_moved")), (1, 1));
        peer.echoes(b"again");
        // The kernel has taken part in no handshake.
        assert_eq!(count_of_kernel(&rig.server, "PassiveOpens"), 0);
    });
}

#[test]
fn a_peer_that_has_heard_no_answer_to_its_syn_gets_one_from_the_kernel() {
    for_both(&[], |rig, server, mut peer| {
        peer.half_open();
        let ours = peer.heard.wrapping_sub(1);
        until("it is half-open", || service(server, "fast_half_open") == 1);
        withheld(rig, server);
        peer.next -= 1;
        until("the kernel answers", || {
            peer.say(Flags::SYN, &[]);
            while let Some(Heard { flags, sequence, .. }) = peer.hear() {
                if flags == OPENS && sequence != ours {
                    peer.heard = sequence.wrapping_add(1);
                    return true;
                }
            }
            false
        });
        peer.next += 1;
        peer.echoes(b"hello");
        assert_eq!((service(server, "fast_accepted"), service(server, "accepted")), (0, 1));
        assert_eq!(service(server, "fast_declined"), 1);
    });
}

#[test]
fn what_a_peer_of_time_wait_repeats_is_answered_by_no_reset() {
    for_both(&["--idle-timeout-s", "1"], |rig, server, mut peer| {
        peer.half_open();
        peer.echoes(b"hello");
        // The server ends first.
        until("its end", || peer.hear().is_some_and(|heard| heard.flags & Flags::FIN != 0));
        peer.heard += 1;
        peer.say(Flags::FIN | Flags::ACK, &[]);
        until("TIME_WAIT", || service(server, "fast_time_wait") == 1);
        withheld(rig, server);
        until("the programs know", || service(server, "fast_time_wait") == 0);
        while peer.hear().is_some() {}
        for _ in 0..3 {
            peer.say(Flags::FIN | Flags::ACK, &[]);
            assert!(peer.hear().is_none(), "nobody answers");
        }
        // It begins anew.
        peer.next += 100_000;
        peer.half_open();
        peer.echoes(b"hello again");
        assert_eq!((service(server, "fast_accepted"), service(server, "accepted")), (1, 2));
    });
}

/// The listeners, and the filter at them, are gone then.
#[test]
fn in_a_drain_the_kernel_answers_nothing_that_belongs_to_a_connection_of_ours() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let mut server = rig.serve(&[&FAST[..], &["--drain-ms", "60000"]].concat());
    permit_claims(&rig, true);
    let mut peer = Peer::of(&rig, SERVER, 4000);
    peer.half_open();
    peer.echoes(b"hello");
    kill_process(server.pid(), Signal::TERM).unwrap();
    until("the server's end", || peer.hear().is_some_and(|heard| heard.flags & Flags::FIN != 0));
    peer.heard += 1;
    let connects = || rig.client.run(|| TcpStream::connect((SERVER, PORT))).unwrap();
    until("nobody listens", || connects().is_err());
    let (resets, came) = (resets_of_kernel(&rig.server), count_of_kernel(&rig.server, "InSegs"));
    peer.say_with_option(Flags::ACK);
    until("the kernel has it", || count_of_kernel(&rig.server, "InSegs") > came);
    assert_eq!(resets_of_kernel(&rig.server), resets);
    // The path ends while its peer goes on.
    permit_claims(&rig, false);
    until("it has moved", || {
        (0..1000).for_each(|_| peer.say(Flags::ACK, &[]));
        service(&server, "fast_moved") == 1
    });
    assert_eq!(resets_of_kernel(&rig.server), resets);
    peer.say(Flags::FIN | Flags::ACK, &[]);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    while peer.hear().is_some() {}
}
