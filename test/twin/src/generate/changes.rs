//! Moves that change something: of a socket, of its descriptor, of the host.

use super::Generator;

impl Generator {
    /// An option changes, in use.
    pub(super) fn option(&mut self) {
        let socket = self.socket();
        let name = socket.name.clone();
        match self.rng.u32(..12) {
            0 => {
                let us = self.one(&[1000, 5000, 0]);
                self.call(&format!("settime {name} SO_RCVTIMEO {us}"));
                for other in &mut self.sockets {
                    if other.name == name {
                        other.has_timeout = us > 0;
                    }
                }
            }
            1 => {
                let value = self.one(&[0, 2048, 8192, 65_536, 1_000_000]);
                self.call(&format!("setsockopt {name} SOL_SOCKET SO_RCVBUF {value}"));
            }
            2 => {
                let value = self.one(&[0, 5, 100, -1]);
                self.call(&format!("setsockopt {name} SOL_SOCKET SO_PEEK_OFF {value}"));
                self.good_frame(&socket);
                self.call(&format!("recv {name} 10 MSG_PEEK|MSG_DONTWAIT"));
                self.call(&format!("recv {name} 10 MSG_PEEK|MSG_DONTWAIT"));
            }
            3 => self.call(&format!("setsockopt {name} SOL_SOCKET SO_RCVLOWAT 100")),
            4 => {
                let value = u32::from(self.chance(50));
                self.call(&format!("nonblock {name} {value}"));
                for other in &mut self.sockets {
                    if other.name == name {
                        other.is_nonblocking = value == 1;
                    }
                }
            }
            5 => {
                let option = self.one(&["SO_ERROR", "SO_RCVBUF", "SO_RCVLOWAT", "SO_TYPE", "SO_PEEK_OFF"]);
                self.call(&format!("getsockopt {name} SOL_SOCKET {option}"));
            }
            6 if socket.is_v6 => self.call(&format!("setsockopt {name} SOL_UDP UDP_NO_CHECK6_RX 1")),
            7 => self.call(&format!("setsockopt {name} IPPROTO_IP IP_MINTTL {}", 65)),
            8 if socket.is_v6 => self.call(&format!("setsockopt {name} IPPROTO_IPV6 IPV6_MINHOPCOUNT 65")),
            9 => self.call(&format!("setbytes {name} SOL_SOCKET SO_BINDTODEVICE in1")),
            10 => self.call(&format!("setbytes {name} SOL_SOCKET SO_BINDTODEVICE in0")),
            _ => {
                let value = u32::from(self.chance(70));
                self.call(&format!("setsockopt {name} IPPROTO_IP IP_RECVERR {value}"));
            }
        }
    }

    /// Control data are asked for, or no longer, with datagrams on both sides of it.
    pub(super) fn control(&mut self) {
        let socket = self.socket();
        if self.chance(50) {
            self.look(&socket);
            self.good_frame(&socket);
        }
        self.ask_for_control(&socket);
        if self.chance(70) {
            self.look(&socket);
            self.good_frame(&socket);
        }
        for _ in 0..2 {
            let room = self.one(&[256, 256, 40, 20]);
            self.call(&format!("recvmsg {} 2000 MSG_DONTWAIT 28 {room}", socket.name));
        }
    }

    pub(super) fn connect(&mut self) {
        let socket = self.socket();
        let name = &socket.name;
        if self.chance(40) {
            self.look(&socket);
            self.good_frame_from(&socket, 4000);
            self.good_frame_from(&socket, 4001);
        }
        let host = match (self.rng.u32(..4), socket.is_v6) {
            (0, _) => "unspec",
            (_, true) if socket.host.starts_with("fe80") => "fe80::ff:fe00:2%in0",
            (1, true) if socket.host == "::" => "::ffff:10.9.0.2",
            (_, true) => "fd09::2",
            (_, false) => "10.9.0.2",
        };
        self.call(&format!("connect {name} {host} 4000"));
        self.call(&format!("names {name}"));
        self.look(&socket);
        self.good_frame_from(&socket, 4000);
        self.good_frame_from(&socket, 4001);
        for _ in 0..2 {
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
        if host != "unspec" && self.chance(50) {
            self.call(&format!("connect {name} unspec 0"));
            self.call(&format!("names {name}"));
        }
    }

    pub(super) fn shutdown(&mut self) {
        let socket = self.socket();
        self.look(&socket);
        if self.chance(50) {
            self.good_frame(&socket);
        }
        let how = self.one(&["SHUT_RD", "SHUT_WR", "SHUT_RDWR"]);
        self.call(&format!("shutdown {} {how}", socket.name));
        self.call(&format!("poll 0 {}:POLLIN|POLLRDHUP", socket.name));
        self.good_frame(&socket);
        self.call(&format!("poll 2000 {}:POLLIN|POLLRDHUP", socket.name));
        for _ in 0..3 {
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
    }

    /// A duplicate is used beside the first descriptor, and instead of it.
    pub(super) fn duplicate(&mut self) {
        let mut socket = self.socket();
        let other = self.name('d', 2);
        self.look(&socket);
        if self.chance(50) {
            self.good_frame(&socket);
        }
        match self.rng.u32(..4) {
            0 | 1 => self.call(&format!("dup {} {other}", socket.name)),
            2 => self.call(&format!("dupfd {} {other} 50", socket.name)),
            _ => {
                self.call(&format!("open {other}"));
                let call = self.one(&["dup2", "dup3"]);
                self.call(&format!("{call} {} {other}", socket.name));
            }
        }
        let first = socket.clone();
        if self.chance(40) {
            self.call(&format!("close {}", socket.name));
            self.sockets.retain(|other| other.name != socket.name);
            socket.name.clone_from(&other);
            self.sockets.push(socket.clone());
        } else {
            socket.name.clone_from(&other);
        }
        for _ in 0..2 {
            self.look(&socket);
            self.good_frame(&socket);
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
        self.call(&format!("recv {} 2000 MSG_DONTWAIT", first.name));
    }

    /// A socket is closed, and its number, or its port, used again.
    pub(super) fn close(&mut self) {
        let socket = self.socket();
        self.look(&socket);
        if self.chance(60) {
            self.good_frame(&socket);
        }
        let by_dup = self.chance(25);
        if by_dup {
            let other = self.name('d', 2);
            self.call(&format!("open {other}"));
            self.call(&format!("dup2 {other} {}", socket.name));
        } else {
            self.call(&format!("close {}", socket.name));
        }
        if self.chance(40) {
            self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
            self.call(&format!("poll 0 {}:POLLIN", socket.name));
        }
        let family = if socket.is_v6 { "AF_INET6" } else { "AF_INET" };
        self.call(&format!("socket {} {family} 0", socket.name));
        self.call(&format!("bind {} {} {}", socket.name, socket.host, socket.port));
        for other in &mut self.sockets {
            if other.name == socket.name {
                (other.is_nonblocking, other.has_timeout) = (false, false);
            }
        }
        for set in &mut self.sets {
            set.members.retain(|member| *member != socket.name);
        }
        self.look(&socket);
        self.good_frame(&socket);
        self.call(&format!("recvmsg {} 2000 MSG_DONTWAIT 28 256", socket.name));
    }

    pub(super) fn filter(&mut self) {
        let socket = self.socket();
        self.look(&socket);
        self.good_frame(&socket);
        let most = self.one(&[8, 60, 1000]);
        self.call(&format!("filter {} attach {most}", socket.name));
        for _ in 0..3 {
            self.look(&socket);
            self.good_frame(&socket);
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
        if self.chance(70) {
            self.call(&format!("filter {} detach", socket.name));
        }
    }

    pub(super) fn multicast(&mut self) {
        let socket = self.socket();
        let (group, option) = if socket.is_v6 && socket.host == "::" && self.chance(60) {
            ("ff05::77", "IPV6_ADD_MEMBERSHIP")
        } else {
            ("239.1.2.3", "IP_ADD_MEMBERSHIP")
        };
        if self.chance(80) {
            let device = self.one(&["in0", "in0", "in1"]);
            self.call(&format!("join {} {option} {group} {device}", socket.name));
        }
        self.look(&socket);
        let source = if group.contains(':') { "fd09::2" } else { "10.9.0.2" };
        for _ in 0..2 {
            let (id, len) = (self.id_of_next(), self.rng.usize(9..200));
            self.step(format!(
                "frame udp src={source} dst={group} mac=multicast sport=4000 dport={} id={id} len={len}",
                socket.port
            ));
            self.good_frame(&socket);
        }
        for _ in 0..4 {
            self.call(&format!("recvmsg {} 2000 MSG_DONTWAIT 28 256", socket.name));
        }
    }

    fn id_of_next(&mut self) -> u32 {
        self.id = (self.id + 1) & 0x7fff_ffff;
        self.id
    }

    /// Addresses, routes and settings of the host change.
    pub(super) fn net(&mut self) {
        let socket = self.socket();
        let change = self.one(&[
            "addr+ 10.9.0.77/24 in0",
            "addr- 10.9.0.11/24 in0",
            "addr+ 10.9.0.77/24 in1",
            "addr+ 10.66.0.1/24 in0",
            "addr+ fd09::77/64 in0",
            "addr- fd09::11/64 in0",
            "sysctl ipv4.conf.in0.rp_filter=1",
            "sysctl ipv4.conf.in0.rp_filter=2",
            "sysctl ipv4.conf.all.rp_filter=2",
            "route+ 192.168.77.0/24 via 10.9.0.2",
            "route+ 192.168.77.0/24 via 10.8.0.2",
            "route+ blackhole 10.7.0.0/24",
            "route+ prohibit 10.7.0.0/24",
            "sysctl ipv4.conf.in0.accept_local=1",
            "sysctl ipv4.conf.all.route_localnet=1",
            "sysctl ipv4.udp_early_demux=0",
            "sysctl ipv4.ip_early_demux=0",
            "route+ blackhole 10.9.0.2/32",
        ]);
        if self.steps.iter().any(|step| step.starts_with("net ") && step.ends_with(change)) {
            return;
        }
        if self.chance(50) {
            self.look(&socket);
            self.good_frame(&socket);
        }
        self.step(format!("net {change}"));
        for _ in 0..3 {
            self.look(&socket);
            self.strange_frame(&socket);
            self.good_frame(&socket);
            self.call(&format!("poll 0 {}:POLLIN", socket.name));
            self.call(&format!("recvmsg {} 65536 MSG_DONTWAIT 28 256", socket.name));
            self.call(&format!("recvmsg {} 65536 MSG_DONTWAIT 28 256", socket.name));
        }
    }
}
