//! A script from a seed: sockets, and then moves, each of a few steps.

mod calls;
mod changes;
mod frames;
mod moves;
mod processes;

use fastrand::Rng;
use twinpath_worker::idle::Mode;

use crate::twin::Script;

/// A socket of the script, with what is known of it.
#[derive(Clone, Debug)]
struct Socket {
    name: String,
    is_v6: bool,
    host: &'static str,
    port: u16,
    is_nonblocking: bool,
    /// With SO_RCVTIMEO.
    has_timeout: bool,
}

/// A set of epoll(7).
#[derive(Clone, Debug)]
struct Set {
    name: String,
    members: Vec<String>,
}

/// A script in the making.
struct Generator {
    rng: Rng,
    steps: Vec<String>,
    sockets: Vec<Socket>,
    sets: Vec<Set>,
    /// Of the next datagram, and of the next packet.
    id: u32,
    packet: u16,
    /// Of the next descriptor, set, duplicate, and member of a group.
    named: [u32; 4],
    /// Threads and processes beside the first.
    started: usize,
    /// The actor that has the sockets.
    me: String,
    /// Its further thread.
    other: Option<String>,
}

type Move = fn(&mut Generator);

/// The kinds of moves, with how often each is chosen.
const MOVES: &[(&str, u32, Move)] = &[
    ("blocked-receive", 30, Generator::blocked_receive),
    ("blocked-wait", 18, Generator::blocked_wait),
    ("odd-frame", 22, Generator::odd_frame),
    ("other-interface", 3, Generator::other_interface),
    ("receive", 14, Generator::receive),
    ("wait", 8, Generator::wait),
    ("option", 8, Generator::option),
    ("control", 8, Generator::control),
    ("epoll", 10, Generator::epoll),
    ("connect", 3, Generator::connect),
    ("ioctl", 4, Generator::ioctl),
    ("send", 3, Generator::send),
    ("error", 3, Generator::error),
    ("overflow", 2, Generator::overflow),
    ("wrong", 3, Generator::wrong),
    ("shutdown", 1, Generator::shutdown),
    ("duplicate", 2, Generator::duplicate),
    ("close", 2, Generator::close),
    ("filter", 1, Generator::filter),
    ("multicast", 2, Generator::multicast),
    ("net", 2, Generator::net),
    ("idle", 1, Generator::idle),
    ("meanwhile", 5, Generator::meanwhile),
    ("two-threads", 2, Generator::two_threads),
    ("signal", 3, Generator::signal),
    ("fork", 2, Generator::fork),
    ("exec", 1, Generator::exec),
    ("pass", 1, Generator::pass),
    ("daemon", 1, Generator::daemon),
    ("drop-root", 1, Generator::drop_root),
    ("in-handler", 2, Generator::in_handler),
    ("kernel-peer", 8, Generator::kernel_peer),
    ("another-socket", 2, Generator::another_socket),
    ("group", 2, Generator::group),
    ("confine", 1, Generator::confine),
];

/// The names of the kinds of moves, and how often each of them is in 1,000 moves.
pub fn kinds() -> impl Iterator<Item = (&'static str, u32)> {
    let all: u32 = MOVES.iter().map(|(_, weight, _)| weight).sum();
    MOVES.iter().map(move |(name, weight, _)| (*name, weight * 1000 / all))
}

/// The script of a seed. `only`: with these kinds of moves alone, if any are named.
#[must_use]
pub fn script(seed: u64, only: &[String]) -> Script {
    let mut rng = Rng::with_seed(seed);
    let mode = match rng.u32(..10) {
        0..=6 => Mode::Poll,
        7 | 8 => Mode::Adaptive,
        _ => Mode::Interrupt,
    };
    let mut generator = Generator {
        id: rng.u32(..) & 0x7fff_ffff,
        packet: rng.u16(1..),
        rng,
        steps: Vec::new(),
        sockets: Vec::new(),
        sets: Vec::new(),
        named: [0; 4],
        started: 0,
        me: "a0".to_owned(),
        other: None,
    };
    for _ in 0..1 + generator.rng.usize(..3) / 2 {
        generator.another_socket();
    }
    let moves: Vec<_> =
        MOVES.iter().filter(|(name, _, _)| only.is_empty() || only.iter().any(|only| only == name)).collect();
    let all: u32 = moves.iter().map(|(_, weight, _)| weight).sum();
    for _ in 0..4 + generator.rng.usize(..14) {
        let mut at = generator.rng.u32(..all.max(1));
        for (name, weight, make) in &moves {
            if at < *weight {
                generator.steps.push(format!("# {name}"));
                make(&mut generator);
                break;
            }
            at -= weight;
        }
    }
    generator.finish();
    Script { mode, steps: generator.steps }
}

impl Generator {
    fn step(&mut self, step: String) {
        self.steps.push(step);
    }

    /// A call of the actor that has the sockets.
    fn call(&mut self, call: &str) {
        self.steps.push(format!("{} {call}", self.me));
    }

    /// A call that may wait.
    fn waiting(&mut self, call: &str) {
        self.steps.push(format!("{}& {call}", self.me));
    }

    /// What has become of it.
    fn join(&mut self) {
        self.steps.push(format!("join {}", self.me));
    }

    fn one<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.rng.usize(..among.len())]
    }

    fn chance(&mut self, of_hundred: u32) -> bool {
        self.rng.u32(..100) < of_hundred
    }

    /// One of the sockets.
    fn socket(&mut self) -> Socket {
        let at = self.rng.usize(..self.sockets.len());
        self.sockets[at].clone()
    }

    fn name(&mut self, letter: char, kind: usize) -> String {
        self.named[kind] += 1;
        format!("{letter}{}", (self.named[kind] - 1) % 10)
    }

    /// A further socket, bound to a port of its own, with options of all kinds before that.
    fn another_socket(&mut self) {
        if self.sockets.len() >= 5 {
            return;
        }
        let is_v6 = self.chance(35);
        let name = self.name('s', 0);
        let is_nonblocking = self.chance(25);
        let flags = if is_nonblocking { "SOCK_NONBLOCK" } else { "0" };
        let family = if is_v6 { "AF_INET6" } else { "AF_INET" };
        self.call(&format!("socket {name} {family} {flags}"));
        let host = match (is_v6, self.rng.u32(..10)) {
            (true, 0..=5) => "::",
            (true, 6..=8) => "fd09::1",
            (true, _) => "fe80::ff:fe00:1%in0",
            (false, 0..=5) => "0.0.0.0",
            (false, 6..=8) => "10.9.0.1",
            (false, _) => "10.9.0.11",
        };
        let port = 7000 + self.sockets.len() as u16;
        self.sockets.push(Socket {
            name: name.clone(),
            is_v6,
            host,
            port,
            is_nonblocking,
            has_timeout: false,
        });
        if self.chance(40) {
            let socket = self.sockets[self.sockets.len() - 1].clone();
            self.ask_for_control(&socket);
        }
        self.call(&format!("bind {name} {host} {port}"));
    }

    /// Gives calls that still wait a datagram each, and looks at what is left.
    fn finish(&mut self) {
        self.step("# end".to_owned());
        for socket in self.sockets.clone() {
            self.good_frame(&socket);
            for actor in 0..=self.started {
                self.step(format!("join a{actor}"));
            }
            for _ in 0..3 {
                self.call(&format!("recv {} 2000 MSG_DONTWAIT", socket.name));
            }
            self.call(&format!("ioctl {} FIONREAD", socket.name));
        }
        self.call("descriptors");
    }
}
