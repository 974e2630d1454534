//! Calls: those that receive, and those that wait.

use super::{Generator, Socket};

impl Generator {
    pub(super) fn room(&mut self) -> usize {
        match self.rng.u32(..8) {
            0 => 0,
            1 => self.rng.usize(1..9),
            2 => 65_536,
            3 => self.one(&[20, 100, 1472, 65_507]),
            _ => 2000,
        }
    }

    fn flags(&mut self, waits: bool) -> String {
        let mut flags = Vec::new();
        if !waits {
            flags.push("MSG_DONTWAIT");
        }
        for (flag, percent) in [
            ("MSG_PEEK", 12),
            ("MSG_TRUNC", 15),
            ("MSG_WAITALL", 4),
            ("MSG_CMSG_CLOEXEC", 4),
            ("MSG_NOSIGNAL", 4),
            ("MSG_CONFIRM", 2),
        ] {
            if self.chance(percent) {
                flags.push(flag);
            }
        }
        if !waits {
            for (flag, percent) in [("MSG_ERRQUEUE", 5), ("MSG_OOB", 1)] {
                if self.chance(percent) {
                    flags.push(flag);
                }
            }
        }
        if flags.is_empty() { "0".to_owned() } else { flags.join("|") }
    }

    fn pieces(&mut self) -> String {
        match self.rng.u32(..4) {
            0 => "0+10+0+50+3000".to_owned(),
            1 => format!("{}+{}", self.rng.usize(1..30), self.rng.usize(1..3000)),
            _ => self.room().to_string(),
        }
    }

    fn control_room(&mut self) -> usize {
        match self.rng.u32(..5) {
            0 => 0,
            1 => self.rng.usize(1..80),
            2 => self.one(&[15, 16, 20, 24, 32, 40, 56, 64]),
            _ => 256,
        }
    }

    /// A call that receives. `waits`: it may block. read(2) of no bytes waits for none.
    pub(super) fn receiving_call(&mut self, socket: &Socket, waits: bool) -> String {
        let name = &socket.name;
        let can_read = waits || socket.is_nonblocking || socket.has_timeout;
        match self.rng.u32(..if can_read { 10 } else { 8 }) {
            0 | 1 => format!("recv {name} {} {}", self.room(), self.flags(waits)),
            2 => {
                let flags = self.flags(waits);
                format!("recv_chk {name} {} {flags}", self.room().min(60_000))
            }
            3 | 4 => {
                let name_room = self.one(&[28, 28, 128, 16, 8, 0]);
                format!("recvfrom {name} {} {} {name_room}", self.room(), self.flags(waits))
            }
            5 | 6 => {
                let name_room = self.one(&[28, 28, 16, 3, 0]);
                format!(
                    "recvmsg {name} {} {} {name_room} {}",
                    self.pieces(),
                    self.flags(waits),
                    self.control_room()
                )
            }
            7 => {
                let mut flags = self.flags(waits);
                if waits || self.chance(30) {
                    flags += "|MSG_WAITFORONE";
                }
                let timeout = self.one(&["null", "null", "0", "5000", "2000"]);
                format!("recvmmsg {name} {} 2000 {flags} {timeout}", self.rng.u32(..6))
            }
            8 => format!("read {name} {}", self.room()),
            _ => format!("readv {name} {}", self.pieces()),
        }
    }

    pub(super) fn events(&mut self) -> &'static str {
        self.one(&[
            "POLLIN",
            "POLLIN",
            "POLLIN",
            "POLLIN|POLLOUT",
            "POLLOUT",
            "POLLIN|POLLPRI",
            "POLLRDNORM",
            "POLLERR",
            "0",
            "POLLIN|POLLRDHUP",
            "POLLRDBAND",
        ])
    }

    /// A call that waits for a socket, and perhaps others. `timeout`: microseconds, or `null`.
    pub(super) fn waiting_call(&mut self, socket: &Socket, events: &str, timeout: &str) -> String {
        let mut waited = format!("{}:{events}", socket.name);
        if self.chance(25) {
            let other = self.socket();
            if other.name != socket.name {
                let events = self.events();
                waited += &format!(" {}:{}", other.name, if timeout == "0" { events } else { "POLLIN" });
            }
        }
        if timeout == "0" && self.chance(5) {
            waited += " 77:POLLIN";
        }
        if timeout == "0" && self.chance(5) {
            waited += " -1:POLLIN";
        }
        let call = self.one(&["poll", "poll", "ppoll", "select", "pselect"]);
        format!("{call} {timeout} {waited}")
    }

    pub(super) fn epoll_waiting_call(&mut self, set: &str, timeout: &str) -> String {
        let call = self.one(&["epoll_wait", "epoll_wait", "epoll_pwait", "epoll_pwait2"]);
        let most = self.one(&[1, 2, 8, 16]);
        format!("{call} {set} {most} {timeout}")
    }

    /// Lets the ring of a socket be open for what comes next, if it has one: a call that has looked.
    pub(super) fn look(&mut self, socket: &Socket) {
        if self.chance(50) {
            self.call(&format!("poll 1000 {}:POLLIN", socket.name));
        } else {
            self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
        }
    }

    /// Options that ask for control data, which the socket may not know.
    pub(super) fn ask_for_control(&mut self, socket: &Socket) {
        let v4 = [
            "IPPROTO_IP IP_PKTINFO",
            "IPPROTO_IP IP_RECVTTL",
            "IPPROTO_IP IP_RECVTOS",
            "IPPROTO_IP IP_RECVORIGDSTADDR",
            "IPPROTO_IP IP_RECVOPTS",
            "IPPROTO_IP IP_RETOPTS",
            "IPPROTO_IP IP_CHECKSUM",
            "IPPROTO_IP IP_RECVFRAGSIZE",
            "IPPROTO_IP IP_PKTINFO",
            "IPPROTO_IP IP_RECVTTL",
            "IPPROTO_IP IP_RECVTOS",
        ];
        let v6 = [
            "IPPROTO_IPV6 IPV6_RECVPKTINFO",
            "IPPROTO_IPV6 IPV6_RECVHOPLIMIT",
            "IPPROTO_IPV6 IPV6_RECVTCLASS",
            "IPPROTO_IPV6 IPV6_RECVORIGDSTADDR",
            "IPPROTO_IPV6 IPV6_2292PKTINFO",
            "IPPROTO_IPV6 IPV6_2292HOPLIMIT",
            "IPPROTO_IPV6 IPV6_RECVHOPOPTS",
            "IPPROTO_IPV6 IPV6_RECVDSTOPTS",
            "IPPROTO_IPV6 IPV6_RECVRTHDR",
            "IPPROTO_IPV6 IPV6_2292HOPOPTS",
            "IPPROTO_IPV6 IPV6_2292DSTOPTS",
            "IPPROTO_IPV6 IPV6_2292RTHDR",
            "IPPROTO_IPV6 IPV6_RECVFRAGSIZE",
            "IPPROTO_IPV6 IPV6_FLOWINFO",
            "IPPROTO_IPV6 IPV6_RECVPKTINFO",
            "IPPROTO_IPV6 IPV6_RECVHOPLIMIT",
            "IPPROTO_IPV6 IPV6_RECVTCLASS",
        ];
        let both = [
            "SOL_SOCKET SO_TIMESTAMP",
            "SOL_SOCKET SO_TIMESTAMPNS",
            "SOL_SOCKET SO_RXQ_OVFL",
            "SOL_SOCKET SO_RCVMARK",
            "SOL_SOCKET SO_RCVPRIORITY",
            "SOL_UDP UDP_GRO",
        ];
        let is_rare = self.chance(15);
        let option = match (is_rare, socket.is_v6 && self.chance(80)) {
            (true, _) => self.one(&both),
            (false, true) => self.one(&v6),
            (false, false) => self.one(&v4),
        };
        let value = u32::from(self.chance(85));
        self.call(&format!("setsockopt {} {option} {value}", socket.name));
    }
}
