//! Frames for a socket: good ones, and odd ones.

use super::{Generator, Socket};

impl Generator {
    fn id(&mut self) -> u32 {
        self.id = (self.id + 1) & 0x7fff_ffff;
        self.id
    }

    fn packet(&mut self) -> u16 {
        self.packet = self.packet.wrapping_add(1).max(1);
        self.packet
    }

    /// Whether the next frame for it is an IPv6 one.
    fn by_v6(&mut self, socket: &Socket) -> bool {
        socket.is_v6 && (socket.host != "::" || self.chance(70))
    }

    /// The destination of a frame for the socket.
    fn destination(&mut self, socket: &Socket, by_v6: bool) -> &'static str {
        match (socket.host, by_v6) {
            ("fe80::ff:fe00:1%in0", _) => "fe80::ff:fe00:1",
            ("::", true) => self.one(&["fd09::1", "fd09::1", "fd09::1", "fd09::11", "fe80::ff:fe00:1"]),
            ("::", false) | ("0.0.0.0", _) => self.one(&["10.9.0.1", "10.9.0.1", "10.9.0.1", "10.9.0.11"]),
            (host, _) => host,
        }
    }

    fn source(&mut self, by_v6: bool, destination: &str) -> &'static str {
        match (by_v6, destination.starts_with("fe80")) {
            (true, true) => "fe80::ff:fe00:2",
            (true, false) => self.one(&["fd09::2", "fd09::2", "fd09::3", "fd07::5"]),
            (false, _) => self.one(&["10.9.0.2", "10.9.0.2", "10.9.0.3", "10.7.0.5"]),
        }
    }

    pub(super) fn len(&mut self) -> usize {
        match self.rng.u32(..12) {
            0 => 0,
            1 => self.rng.usize(1..9),
            2 => self.one(&[1471, 1472, 1452, 1451, 1024, 512]),
            3 | 4 => self.rng.usize(9..1452),
            _ => self.rng.usize(9..200),
        }
    }

    /// A frame that the socket gets, unless it is connected to another peer.
    pub(super) fn good_frame(&mut self, socket: &Socket) {
        let sport = 4000 + self.rng.u16(..2);
        self.good_frame_from(socket, sport);
    }

    pub(super) fn good_frame_from(&mut self, socket: &Socket, sport: u16) {
        let by_v6 = self.by_v6(socket);
        let destination = self.destination(socket, by_v6);
        let source = if self.chance(85) {
            match (by_v6, destination.starts_with("fe80")) {
                (true, true) => "fe80::ff:fe00:2",
                (true, false) => "fd09::2",
                (false, _) => "10.9.0.2",
            }
        } else {
            self.source(by_v6, destination)
        };
        let len = if by_v6 { self.len().min(1452) } else { self.len() };
        let id = self.id();
        let mut frame = format!(
            "frame udp src={source} dst={destination} sport={sport} dport={} id={id} len={len}",
            socket.port
        );
        if self.chance(15) {
            frame += &format!(" tos={}", self.one(&[1, 2, 3, 0x10, 0xb8, 0xff]));
        }
        if self.chance(15) {
            frame += &format!(" ttl={}", self.one(&[1, 2, 63, 128, 255]));
        }
        self.step(frame);
    }

    /// A frame that comes by another interface than the one of the ring.
    pub(super) fn frame_by_other(&mut self, socket: &Socket) {
        let by_v6 = self.by_v6(socket);
        let destination = self.destination(socket, by_v6);
        let source = if by_v6 {
            self.one(&["fd08::2", "fd09::2"])
        } else {
            self.one(&["10.8.0.2", "10.9.0.2", "10.7.0.5"])
        };
        if destination.starts_with("fe80") {
            return;
        }
        let (id, len) = (self.id(), self.len().min(1400));
        self.step(format!(
            "frame udp src={source} dst={destination} sport=4000 dport={} id={id} len={len} via=1",
            socket.port
        ));
    }

    /// A frame that is out of the ordinary, of which the kernel decides what becomes.
    pub(super) fn strange_frame(&mut self, socket: &Socket) {
        let by_v6 = self.by_v6(socket);
        let mut destination = self.destination(socket, by_v6);
        let mut source = self.source(by_v6, destination);
        let mut len = self.len();
        if by_v6 {
            len = len.min(1400);
        }
        let (id, packet, port) = (self.id(), self.packet(), socket.port);
        let mut words = format!("sport={} dport={port} id={id} ipid={packet}", 4000 + self.rng.u16(..2));
        if by_v6 {
            self.strange_v6(&mut words, &mut source, &mut destination, &mut len);
        } else {
            self.strange_v4(&mut words, &mut source, &mut destination, &mut len);
        }
        self.step(format!("frame udp src={source} dst={destination} {words} len={len}"));
    }

    fn strange_v4(
        &mut self,
        words: &mut String,
        source: &mut &'static str,
        destination: &mut &'static str,
        len: &mut usize,
    ) {
        match self.rng.u32(..19) {
            0 => *words += " udpsum=bad",
            1 => *words += " udpsum=zero",
            2 => *words += " ipsum=bad",
            3 => *words += &format!(" udplen={}", self.one(&[-1, 1, -9, 8, -60, 400])),
            4 => *words += &format!(" iplen={}", self.one(&[-1, 1, -8, -30, 100])),
            5 => {
                *words += &format!(
                    " opts={}",
                    self.one(&["nop", "alert", "record", "stamp", "source-route", "broken"])
                );
            }
            6 => self.fragments(words, len, 1480),
            7 => *words += &format!(" vlan={}", self.one(&[0, 0x6000, 0xe000, 10, 0x600a, 4095])),
            8 | 9 => {
                *source = self.one(&[
                    "0.0.0.0",
                    "0.1.2.3",
                    "127.0.0.1",
                    "240.0.0.1",
                    "255.255.255.255",
                    "224.0.0.1",
                    "10.9.0.1",
                    "10.9.0.11",
                    "10.8.0.1",
                    "10.8.0.2",
                    "192.168.77.7",
                    "10.9.0.255",
                    "169.254.1.1",
                    "10.9.0.250",
                    "10.7.0.5",
                ]);
            }
            10 => {
                *destination = self.one(&[
                    "10.9.0.11",
                    "10.8.0.1",
                    "127.0.0.1",
                    "10.9.0.255",
                    "255.255.255.255",
                    "224.0.0.1",
                    "239.1.2.3",
                    "10.9.0.77",
                    "10.66.0.1",
                    "0.0.0.0",
                    "240.0.0.1",
                    "10.9.0.0",
                ]);
                if self.chance(50) {
                    *words += &format!(" mac={}", self.one(&["broadcast", "multicast", "other"]));
                }
            }
            11 => *words += &format!(" ttl={}", self.one(&[0, 1])),
            12 => *words += " sport=0",
            13 => *words += &format!(" pad={}", self.one(&[1, 6, 18, 46])),
            14 => *words += &format!(" flags={}", self.one(&["df", "evil", "more"])),
            15 | 16 => *words += &format!(" mac={}", self.one(&["broadcast", "multicast", "other"])),
            17 => *words += &format!(" tos={}", self.rng.u8(..)),
            _ => {
                *destination = self.one(&["255.255.255.255", "10.9.0.255"]);
                *words += " mac=broadcast";
            }
        }
    }

    fn strange_v6(
        &mut self,
        words: &mut String,
        source: &mut &'static str,
        destination: &mut &'static str,
        len: &mut usize,
    ) {
        match self.rng.u32(..15) {
            0 => *words += " udpsum=bad",
            1 => *words += " udpsum=zero",
            2 => *words += &format!(" udplen={}", self.one(&[-1, 1, -9, 8, -60, 400])),
            3 => *words += &format!(" iplen={}", self.one(&[-1, 1, -8, -30, 100])),
            4 | 5 => {
                *words +=
                    &format!(" ext={}", self.one(&["hop", "alert", "dest", "route", "atom", "unknown"]));
            }
            6 => self.fragments(words, len, 1432),
            7 => *words += &format!(" vlan={}", self.one(&[0, 0x6000, 10])),
            8 | 9 => {
                *source = self.one(&[
                    "::",
                    "::1",
                    "::ffff:10.9.0.2",
                    "ff02::1",
                    "fd09::1",
                    "fd09::11",
                    "fd08::1",
                    "fd08::2",
                    "2001:db8::1",
                    "fe80::ff:fe00:2",
                    "fe80::ff:fe00:1",
                    "::10.9.0.2",
                    "fd07::5",
                    "fec0::1",
                ]);
            }
            10 => {
                *destination = self.one(&[
                    "fd09::11",
                    "fd08::1",
                    "::1",
                    "ff02::1",
                    "ff05::77",
                    "ff0e::1:2",
                    "fd09::77",
                    "2001:db8::9",
                    "fe80::ff:fe00:1",
                    "fd09::",
                ]);
                if self.chance(50) {
                    *words += &format!(" mac={}", self.one(&["broadcast", "multicast", "other"]));
                }
            }
            11 => *words += &format!(" ttl={}", self.one(&[0, 1])),
            12 => *words += " sport=0",
            13 => *words += &format!(" pad={}", self.one(&[1, 6, 18, 46])),
            _ => *words += &format!(" flow={} tos={}", self.rng.u32(..0xfffff), self.rng.u8(..)),
        }
    }

    fn fragments(&mut self, words: &mut String, len: &mut usize, most: usize) {
        let piece = self.one(&[most, most, 800, 512]);
        *len = match self.rng.u32(..8) {
            0 => 65_507,
            1 => self.rng.usize(20_000..60_000),
            _ => self.rng.usize(most..6000),
        };
        *words += &format!(" frag={piece}");
        if self.chance(40) {
            // Two large ones do not fit into a receive buffer, unless the first one is read before the second one comes.
            let twice = if *len > 6000 { "reverse" } else { "twice" };
            *words += &format!(" order={}", self.one(&["reverse", twice, "no-first", "no-last"]));
        }
    }

    /// A datagram that the peer's kernel sends.
    pub(super) fn datagram_of_kernel(&mut self, socket: &Socket) {
        let by_v6 = self.by_v6(socket);
        let destination = self.destination(socket, by_v6);
        if destination.starts_with("fe80") {
            return self.good_frame(socket);
        }
        let (id, mut len) = (self.id(), self.len());
        if self.chance(10) {
            len = self.one(&[1473, 3000, 65_507, 9000]);
        }
        let mut step = format!("send dst={destination} dport={} id={id} len={len}", socket.port);
        // Several datagrams in one frame, the last one perhaps shorter.
        if self.chance(20) {
            let segment = self.one(&[8, 100, 500, 1200]);
            len = segment * self.rng.usize(1..12) + self.rng.usize(1..=segment);
            step = format!("send dst={destination} dport={} id={id} len={len} gso={segment}", socket.port);
        }
        self.step(step);
    }

    /// An error message for what the socket has sent.
    pub(super) fn error_frame(&mut self, socket: &Socket) {
        let by_v6 = self.by_v6(socket);
        let (source, from) = match (by_v6, socket.host) {
            (true, "fe80::ff:fe00:1%in0") => ("fe80::ff:fe00:2", "fe80::ff:fe00:1"),
            (true, _) => ("fd09::2", "fd09::1"),
            (false, "10.9.0.11") => ("10.9.0.2", "10.9.0.11"),
            (false, _) => ("10.9.0.2", "10.9.0.1"),
        };
        let (kind, code) = if by_v6 {
            self.one(&[(1, 4), (1, 0), (2, 0), (3, 0), (4, 1)])
        } else {
            self.one(&[(3, 3), (3, 1), (3, 4), (11, 0), (12, 0), (3, 13)])
        };
        let (own, peer) = (socket.port, 4000 + self.rng.u16(..2));
        self.step(format!(
            "frame icmp src={source} dst={from} type={kind} code={code} info=1400 qsrc={from} qdst={source} qsport={own} qdport={peer}"
        ));
    }
}
