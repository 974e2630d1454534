//! Moves of one thread.

use super::{Generator, Set, Socket};

impl Generator {
    /// A call waits while datagrams come; what is left is received afterwards.
    pub(super) fn blocked_receive(&mut self) {
        let socket = self.socket();
        if socket.has_timeout {
            return self.receive();
        }
        let call = if self.chance(60) {
            format!("recvmsg {} 2000 0 28 256", socket.name)
        } else {
            self.receiving_call(&socket, true)
        };
        if socket.is_nonblocking || socket.has_timeout {
            self.look(&socket);
        }
        // How many are there when it wakes up is by chance.
        let is_many = call.starts_with("recvmmsg");
        self.waiting(&call);
        let count = if is_many { 1 } else { 1 + self.rng.usize(..6) };
        for _ in 0..count {
            if self.chance(6) { self.strange_frame(&socket) } else { self.good_frame(&socket) }
        }
        self.join();
        for _ in 0..count {
            if self.chance(8) {
                self.wait();
            }
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
    }

    /// A call waits until something can be received, which is received then.
    pub(super) fn blocked_wait(&mut self) {
        let socket = self.socket();
        let with_set =
            self.sets.iter().find(|set| set.members.contains(&socket.name)).map(|set| set.name.clone());
        let call = match with_set {
            Some(set) if self.chance(60) => self.epoll_waiting_call(&set, "null"),
            _ => self.waiting_call(&socket, "POLLIN", "null"),
        };
        self.waiting(&call);
        let count = 1 + self.rng.usize(..4);
        for _ in 0..count {
            if self.chance(10) { self.strange_frame(&socket) } else { self.good_frame(&socket) }
        }
        self.join();
        if self.chance(30) {
            self.call(&format!("ioctl {} FIONREAD", socket.name));
        }
        if self.chance(20) {
            self.wait();
        }
        for _ in 0..count {
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
        if self.chance(30) {
            self.wait();
        }
    }

    /// Datagrams of a kernel's socket: their checksums are left to the interface, and long ones are fragmented.
    pub(super) fn kernel_peer(&mut self) {
        let socket = self.socket();
        if self.chance(40) || socket.has_timeout {
            self.look(&socket);
        } else {
            let call = self.receiving_call(&socket, true);
            // How many are there when it wakes up is by chance.
            let call =
                if call.starts_with("recvmmsg") { format!("recv {} 2000 0", socket.name) } else { call };
            self.waiting(&call);
        }
        let count = 1 + self.rng.usize(..3);
        for _ in 0..count {
            self.datagram_of_kernel(&socket);
        }
        self.join();
        for _ in 0..count {
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
    }

    /// Frames of which the kernel decides what becomes, while the ring is open: first alone, then with a good one behind them.
    pub(super) fn odd_frame(&mut self) {
        let socket = self.socket();
        match self.rng.u32(..3) {
            0 => self.look(&socket),
            1 => self.call(&format!("poll 1000 {}:POLLIN", socket.name)),
            _ => {
                let call = if socket.has_timeout || self.chance(50) {
                    self.waiting_call(&socket, "POLLIN", "null")
                } else {
                    format!("recvmsg {} 65536 0 28 256", socket.name)
                };
                self.waiting(&call);
            }
        }
        if self.chance(20) {
            self.good_frame(&socket);
        }
        self.strange_frame(&socket);
        if self.chance(40) {
            self.good_frame(&socket);
        }
        self.join();
        self.call(&format!("poll 0 {}:POLLIN", socket.name));
        self.call(&format!("recvmsg {} 65536 MSG_DONTWAIT 28 256", socket.name));
        self.call(&format!("recvmsg {} 65536 MSG_DONTWAIT 28 256", socket.name));
        self.good_frame(&socket);
        self.join();
    }

    /// A datagram comes by another interface. It is alone: what comes by two of them has no order.
    pub(super) fn other_interface(&mut self) {
        let socket = self.socket();
        if self.chance(50) {
            self.look(&socket);
            self.frame_by_other(&socket);
        } else {
            let call = if socket.has_timeout || self.chance(50) {
                self.waiting_call(&socket, "POLLIN", "null")
            } else {
                self.receiving_call(&socket, true)
            };
            self.waiting(&call);
            self.frame_by_other(&socket);
            self.join();
        }
        self.call(&format!("poll 0 {}:POLLIN", socket.name));
        self.call(&format!("recvmsg {} 65536 MSG_DONTWAIT 28 256", socket.name));
    }

    pub(super) fn receive(&mut self) {
        let socket = self.socket();
        for _ in 0..1 + self.rng.usize(..3) {
            if self.chance(40) {
                self.good_frame(&socket);
            }
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
    }

    pub(super) fn wait(&mut self) {
        let socket = self.socket();
        let timeout = self.one(&["0", "0", "0", "1000", "3000", "-1000000"]);
        let timeout = if timeout == "-1000000" { "0" } else { timeout };
        let call = if !self.sets.is_empty() && self.chance(50) {
            let at = self.rng.usize(..self.sets.len());
            let set = self.sets[at].name.clone();
            self.epoll_waiting_call(&set, timeout)
        } else {
            let events = self.events();
            self.waiting_call(&socket, events, timeout)
        };
        self.call(&call);
    }

    pub(super) fn epoll(&mut self) {
        let socket = self.socket();
        if self.sets.is_empty() || self.sets.len() < 6 && self.chance(30) {
            let name = self.name('e', 1);
            self.call(&format!("epoll_create {name}"));
            self.sets.push(Set { name, members: Vec::new() });
        }
        let at = self.rng.usize(..self.sets.len());
        let set = self.sets[at].clone();
        let events = self.one(&[
            "EPOLLIN",
            "EPOLLIN",
            "EPOLLIN|EPOLLET",
            "EPOLLIN|EPOLLET|EPOLLOUT",
            "EPOLLIN|EPOLLONESHOT",
            "EPOLLIN|EPOLLOUT",
            "EPOLLIN|EPOLLEXCLUSIVE",
            "EPOLLIN|EPOLLRDHUP|EPOLLET",
            "EPOLLOUT",
            "0",
        ]);
        let number = socket.port;
        let operation = match (set.members.contains(&socket.name), self.rng.u32(..10)) {
            (false, 0..=8) | (true, 0) => "ADD",
            (true, 1..=7) | (false, _) => "MOD",
            _ => "DEL",
        };
        if self.chance(30) {
            self.look(&socket);
            self.good_frame(&socket);
        }
        self.call(&format!("epoll_ctl {} EPOLL_CTL_{operation} {} {events} {number}", set.name, socket.name));
        match operation {
            "ADD" => self.sets[at].members.push(socket.name.clone()),
            "DEL" => self.sets[at].members.retain(|member| *member != socket.name),
            _ => {}
        }
        if self.sets.len() > 1 && self.chance(15) {
            let inner = self.socket_set_other_than(at);
            self.call(&format!("epoll_ctl {} EPOLL_CTL_ADD {inner} EPOLLIN 99", set.name));
        }
        for _ in 0..self.rng.usize(..3) {
            self.good_frame(&socket);
            let timeout = self.one(&["0", "0", "1000"]);
            let call = self.epoll_waiting_call(&set.name, timeout);
            self.call(&call);
        }
    }

    fn socket_set_other_than(&mut self, at: usize) -> String {
        let other = (at + 1 + self.rng.usize(..self.sets.len() - 1)) % self.sets.len();
        self.sets[other].name.clone()
    }

    pub(super) fn ioctl(&mut self) {
        let socket = self.socket();
        if self.chance(50) {
            self.look(&socket);
            self.good_frame(&socket);
        }
        let which = self.one(&["FIONREAD", "FIONREAD", "SIOCOUTQ", "SIOCGSTAMPNS"]);
        self.call(&format!("ioctl {} {which}", socket.name));
        let call = self.receiving_call(&socket, false);
        self.call(&call);
        self.call(&format!("ioctl {} {which}", socket.name));
    }

    pub(super) fn send(&mut self) {
        let socket = self.socket();
        let peer = match (socket.is_v6, socket.host) {
            (true, "fe80::ff:fe00:1%in0") => "fe80::ff:fe00:2%in0",
            (true, _) => "fd09::2",
            (false, _) => "10.9.0.2",
        };
        let len = self.len();
        if self.chance(60) {
            let port = 4000 + self.rng.u16(..2);
            self.call(&format!("sendto {} {len} 0 {peer} {port}", socket.name));
        } else {
            self.call(&format!("send {} {len} 0", socket.name));
        }
        // The peer may have answered that the port is unreachable.
        let call = self.waiting_call(&socket, "POLLIN|POLLERR", "0");
        self.call(&call);
        let call = self.receiving_call(&socket, false);
        self.call(&call);
    }

    /// An error message comes for the socket.
    pub(super) fn error(&mut self) {
        let socket = self.socket();
        if self.chance(50) {
            let level = if socket.is_v6 { "IPPROTO_IPV6 IPV6_RECVERR" } else { "IPPROTO_IP IP_RECVERR" };
            self.call(&format!("setsockopt {} {level} 1", socket.name));
        }
        if self.chance(50) {
            let call = if socket.has_timeout || self.chance(50) {
                self.waiting_call(&socket, "POLLIN", "null")
            } else {
                self.receiving_call(&socket, true)
            };
            self.waiting(&call);
            self.error_frame(&socket);
            self.join();
            self.good_frame(&socket);
        } else {
            self.look(&socket);
            if self.chance(40) {
                self.good_frame(&socket);
            }
            self.error_frame(&socket);
            if self.chance(40) {
                self.good_frame(&socket);
            }
        }
        self.join();
        self.call(&format!("poll 0 {}:POLLIN", socket.name));
        for _ in 0..2 {
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
        self.call(&format!("recvmsg {} 2000 MSG_DONTWAIT|MSG_ERRQUEUE 28 256", socket.name));
        self.call(&format!("getsockopt {} SOL_SOCKET SO_ERROR", socket.name));
        self.good_frame(&socket);
        self.join();
    }

    /// More comes than the socket's buffer takes.
    pub(super) fn overflow(&mut self) {
        let socket = self.socket();
        self.call(&format!("setsockopt {} SOL_SOCKET SO_RXQ_OVFL 1", socket.name));
        let room = self.one(&[0, 4096, 16_384]);
        self.call(&format!("setsockopt {} SOL_SOCKET SO_RCVBUF {room}", socket.name));
        self.look(&socket);
        for _ in 0..10 + self.rng.usize(..40) {
            self.good_frame(&socket);
        }
        for _ in 0..14 {
            self.call(&format!("recvmsg {} 2000 MSG_DONTWAIT 28 256", socket.name));
        }
        self.call(&format!("recvmmsg {} 8 2000 MSG_DONTWAIT null", socket.name));
        self.call(&format!("setsockopt {} SOL_SOCKET SO_RCVBUF 200000", socket.name));
    }

    /// Pointers that lead nowhere, and numbers at their limits.
    pub(super) fn wrong(&mut self) {
        let socket = self.socket();
        let name = &socket.name;
        if self.chance(70) {
            self.look(&socket);
            self.good_frame(&socket);
        }
        let bad = self.one(&["null", "wild", "none", "fixed"]);
        // What a call reads there ends the program.
        let read = if bad == "null" { "null" } else { "wild" };
        let call = match self.rng.u32(..18) {
            0 => format!("recv {name} 100 MSG_DONTWAIT {bad}"),
            1 => format!("recvfrom {name} 100 MSG_DONTWAIT 28 {bad}"),
            2 => format!("recvfrom {name} 100 MSG_DONTWAIT 28 - {bad}"),
            3 => format!("recvfrom {name} 100 MSG_DONTWAIT 28 - - {read}"),
            4..=6 => {
                let which = self.one(&["message", "name", "pieces", "bytes", "control", "count"]);
                let bad = if ["name", "bytes", "control"].contains(&which) { bad } else { read };
                format!("recvmsg {name} 100 MSG_DONTWAIT 28 64 {bad} {which}")
            }
            7 => format!("recvmmsg {name} 3 100 MSG_DONTWAIT null {read}"),
            8 => format!("recvmmsg {name} 2 100 MSG_DONTWAIT {read}"),
            9 => format!("recvmmsg {name} 2 100 MSG_DONTWAIT -1"),
            10 => format!("recv {name} -1 MSG_DONTWAIT"),
            11 => format!("recvfrom {name} 100 MSG_DONTWAIT -1"),
            12 => format!("recv {name} 100 0x10000|MSG_DONTWAIT"),
            13 => format!("ppoll -1 {name}:POLLIN"),
            14 => format!("pselect -1 {name}:POLLIN"),
            15 => format!("select -1000000 {name}:POLLIN"),
            16 => match self.sets.first().map(|set| set.name.clone()) {
                Some(set) => {
                    let most = self.one(&[0, -1, 1]);
                    format!("epoll_wait {set} {most} 0 {read}")
                }
                None => format!("recv {name} 0x7fffffff MSG_DONTWAIT"),
            },
            _ => format!("readv {name} 100 {read} {}", self.one(&[1, 0, -1, 1025])),
        };
        self.call(&call);
        self.call(&format!("recvmsg {name} 2000 MSG_DONTWAIT 28 256"));
    }

    /// Two sockets of a group on one port (SO_REUSEPORT), of which one is closed.
    pub(super) fn group(&mut self) {
        let is_v6 = self.chance(35);
        let (family, host) = if is_v6 { ("AF_INET6", "::") } else { ("AF_INET", "0.0.0.0") };
        let port = 7100 + self.rng.u16(..50);
        let socket =
            |name: String| Socket { name, is_v6, host, port, is_nonblocking: false, has_timeout: false };
        let members = [self.name('g', 3), self.name('g', 3)].map(socket);
        for member in &members {
            let name = &member.name;
            self.call(&format!("socket {name} {family} 0"));
            self.call(&format!("setsockopt {name} SOL_SOCKET SO_REUSEPORT 1"));
            self.call(&format!("bind {name} {host} {port}"));
        }
        let [one, other] = members;
        let any = format!("{} {}", one.name, other.name);
        for _ in 0..2 + self.rng.usize(..4) {
            match self.rng.u32(..3) {
                0 => {
                    self.waiting(&format!("recv_any null 2000 {any}"));
                    self.good_frame(&one);
                    self.join();
                }
                1 => {
                    self.call(&format!("recv_any 0 2000 {any}"));
                    self.good_frame(&one);
                    self.call(&format!("recv_any 1000 2000 {any}"));
                }
                // Of one sender, so for one of them.
                _ => {
                    self.good_frame_from(&one, 4000);
                    self.call(&format!("recv_any 1000 2000 {any}"));
                }
            }
        }
        self.call(&format!("recv_any 0 2000 {any}"));
        self.call(&format!("close {}", one.name));
        for _ in 0..3 {
            if self.chance(50) {
                self.look(&other);
            }
            self.good_frame(&other);
            let call = self.receiving_call(&other, false);
            self.call(&call);
        }
        self.call(&format!("recv {} 2000 MSG_DONTWAIT", other.name));
        self.call(&format!("close {}", other.name));
    }

    /// Nothing comes for a while.
    pub(super) fn idle(&mut self) {
        let socket = self.socket();
        self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
        let call = match self.sets.first().map(|set| set.name.clone()) {
            Some(set) if self.chance(50) => self.epoll_waiting_call(&set, "60000"),
            _ => self.waiting_call(&socket, "POLLIN", "60000"),
        };
        self.call(&call);
    }
}
