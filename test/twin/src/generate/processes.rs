//! Moves of several threads or processes, and those of signals.

use super::Generator;

impl Generator {
    /// A further thread of the first process, or the one there is.
    fn thread(&mut self) -> String {
        if let Some(other) = &self.other {
            return other.clone();
        }
        let other = self.next_actor();
        // Some have the smallest stack that there is.
        let stack = if self.chance(25) { " 20480" } else { "" };
        self.call(&format!("thread {other}{stack}"));
        self.other = Some(other.clone());
        other
    }

    fn next_actor(&mut self) -> String {
        // The last one is taken again: it is not started twice.
        self.started = (self.started + 1).min(7);
        format!("a{}", self.started)
    }

    /// Another thread does something while a call waits.
    pub(super) fn meanwhile(&mut self) {
        let socket = self.socket();
        let other = self.thread();
        let name = &socket.name;
        let call = match self.rng.u32(..3) {
            _ if socket.has_timeout => self.waiting_call(&socket, "POLLIN", "null"),
            0 => self.waiting_call(&socket, "POLLIN", "null"),
            _ => self.receiving_call(&socket, true),
        };
        self.waiting(&call);
        let does = match self.rng.u32(..9) {
            0 | 1 => format!("shutdown {name} SHUT_RD"),
            2 => format!("shutdown {name} SHUT_RDWR"),
            3 => format!("close {name}"),
            4 => format!("setsockopt {name} IPPROTO_IP IP_PKTINFO 1"),
            5 => format!("setsockopt {name} SOL_SOCKET SO_TIMESTAMP 1"),
            6 => format!("filter {name} attach 2000"),
            7 => format!("recv {name} 2000 MSG_DONTWAIT"),
            _ => format!("setsockopt {name} SOL_SOCKET SO_RCVBUF 20000"),
        };
        let is_close = does.starts_with("close");
        self.step(format!("{other} {does}"));
        if is_close && self.chance(70) {
            // Its number has another meaning at once.
            let of = self.name('d', 2);
            self.step(format!("{other} open {of}"));
        }
        self.good_frame(&socket);
        self.join();
        if is_close {
            self.sockets.retain(|other| other.name != socket.name);
            if self.sockets.is_empty() {
                // A name of its own: the closed one is still in use.
                self.another_socket();
            }
        }
        self.call(&format!("recv {name} 2000 MSG_DONTWAIT"));
        self.call(&format!("poll 0 {name}:POLLIN"));
    }

    /// Two threads wait for one socket, and one datagram comes: one of them has it.
    pub(super) fn two_threads(&mut self) {
        let socket = self.socket();
        let other = self.thread();
        if socket.is_nonblocking || socket.has_timeout {
            return;
        }
        self.waiting(&format!("recv {} 2000 0", socket.name));
        self.step(format!("{other}& recv {} 2000 0", socket.name));
        self.good_frame(&socket);
        self.join();
        self.good_frame(&socket);
        // Whichever it is that still waits.
        self.join();
        self.step(format!("join {other}"));
    }

    /// A signal comes while a call waits.
    pub(super) fn signal(&mut self) {
        let socket = self.socket();
        let other = self.thread();
        let how = self.one(&["0", "SA_RESTART", "ignore"]);
        self.call(&format!("handle SIGUSR1 {how}"));
        let call = match self.rng.u32(..4) {
            _ if socket.has_timeout => self.waiting_call(&socket, "POLLIN", "null"),
            0 => self.waiting_call(&socket, "POLLIN", "null"),
            1 if !self.sets.is_empty() => {
                let set = self.sets[0].name.clone();
                self.epoll_waiting_call(&set, "null")
            }
            _ => self.receiving_call(&socket, true),
        };
        self.waiting(&call);
        let me = self.me.clone();
        self.step(format!("{other} signal {me} SIGUSR1"));
        self.join();
        self.good_frame(&socket);
        self.join();
        self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
    }

    /// A child receives as well, or instead.
    pub(super) fn fork(&mut self) {
        let socket = self.socket();
        if self.started >= 6 {
            return;
        }
        let child = self.next_actor();
        self.look(&socket);
        if self.chance(60) {
            self.good_frame(&socket);
        }
        if self.chance(30) {
            self.good_frame(&socket);
            self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
        }
        let how = self.one(&["fork", "fork", "_fork", "clone"]);
        self.call(&format!("{how} {child}"));
        for _ in 0..4 {
            let who = if self.chance(60) { child.clone() } else { self.me.clone() };
            match self.rng.u32(..4) {
                0 => {
                    self.step(format!("{who} poll 1000 {}:POLLIN", socket.name));
                    self.good_frame(&socket);
                }
                1 if !socket.has_timeout => {
                    self.step(format!("{who}& recv {} 2000 0", socket.name));
                    self.good_frame(&socket);
                    self.step(format!("join {who}"));
                }
                2 => self.good_frame(&socket),
                _ => {}
            }
            let call = self.receiving_call(&socket, false);
            self.step(format!("{who} {call}"));
        }
        if self.chance(40) {
            self.step(format!("{child} exit"));
        }
    }

    /// The process becomes another program, which has its sockets.
    pub(super) fn exec(&mut self) {
        let socket = self.socket();
        self.look(&socket);
        self.good_frame(&socket);
        self.good_frame(&socket);
        if self.chance(50) {
            self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
        }
        self.call("exec");
        // Its threads are gone.
        self.other = None;
        for _ in 0..3 {
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
    }

    /// The process goes on as its child.
    pub(super) fn daemon(&mut self) {
        if self.started >= 6 {
            return;
        }
        let socket = self.socket();
        let child = self.next_actor();
        self.look(&socket);
        if self.chance(50) {
            self.good_frame(&socket);
        }
        let how = self.one(&["fork", "fork", "_fork"]);
        self.call(&format!("{how} {child}"));
        self.call("exit");
        self.me = child;
        self.other = None;
        for _ in 0..3 {
            self.good_frame(&socket);
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
    }

    /// The process gives its rights up.
    pub(super) fn drop_root(&mut self) {
        let socket = self.socket();
        self.look(&socket);
        self.good_frame(&socket);
        self.call("setuid");
        self.look(&socket);
        self.good_frame(&socket);
        self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
    }

    /// The process gives up calls that it does not need, and goes on.
    pub(super) fn confine(&mut self) {
        let socket = self.socket();
        self.look(&socket);
        if self.chance(50) {
            self.good_frame(&socket);
        }
        self.call("confine");
        for _ in 0..3 {
            self.good_frame(&socket);
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
        self.another_socket();
        let socket = self.socket();
        self.look(&socket);
        self.good_frame(&socket);
        let call = self.receiving_call(&socket, false);
        self.call(&call);
    }

    /// A handler of a signal receives: while a call of the same thread waits, or while none does.
    pub(super) fn in_handler(&mut self) {
        let socket = self.socket();
        let other = self.thread();
        let me = self.me.clone();
        self.call(&format!("handle_receiving SIGUSR2 {}", socket.name));
        self.look(&socket);
        if self.chance(50) {
            self.good_frame(&socket);
            self.step(format!("{other} signal {me} SIGUSR2"));
        } else {
            self.waiting(&format!("poll null {}:POLLIN", socket.name));
            self.step(format!("{other} signal {me} SIGUSR2"));
            self.join();
            self.good_frame(&socket);
            self.join();
        }
        self.call("handled");
        self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
    }

    /// A descriptor is passed, and the first one closed.
    pub(super) fn pass(&mut self) {
        let mut socket = self.socket();
        self.look(&socket);
        self.good_frame(&socket);
        self.call(&format!("give {}", socket.name));
        let closes = self.chance(60);
        if closes {
            self.call(&format!("close {}", socket.name));
            self.sockets.retain(|other| other.name != socket.name);
        }
        if self.chance(50) {
            self.good_frame(&socket);
        }
        let other = self.name('d', 2);
        self.call(&format!("take {other}"));
        socket.name = other;
        if closes {
            self.sockets.push(socket.clone());
        }
        for _ in 0..3 {
            let call = self.receiving_call(&socket, false);
            self.call(&call);
        }
        self.look(&socket);
        self.good_frame(&socket);
        let call = self.receiving_call(&socket, false);
        self.call(&call);
    }
}
