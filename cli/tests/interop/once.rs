//! Tests that each datagram is answered once while the fast path is attached and detached: requests come at a steady
//! rate, and the replies to each of them are counted.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::process::{Signal, kill_process};
use rustix::time::Timespec;

use crate::rig::{CLIENT, PORT, Rig, SERVER, Server, until};
use crate::root_or_skip;

/// Requests per second: fast enough that a short gap shows, and slow enough that no ring fills while other tests use
/// the CPU.
const FAST: u64 = 20_000;
const SLOW: u64 = 2_000;
/// Number of flows, so that several workers have some.
const FLOWS: usize = 8;
/// The interval at which the clock is checked.
const BREAK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };
/// After this time without a reply, all have come.
const SILENCE: Duration = Duration::from_millis(300);

/// The results of the requests.
#[derive(Debug, Default)]
struct Outcome {
    sent: u64,
    answered: u64,
    /// Replies beyond the first to a request.
    doubled: u64,
}

/// Numbered requests at a steady rate during an event.
struct Load {
    rate: u64,
    answered: AtomicU64,
    over: AtomicBool,
}

/// Dropping it ends the load, also after a failure.
struct EndsLoad<'a>(&'a Load);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

impl Load {
    /// Runs `during` under load, with some load before and after it.
    fn on(rig: &Rig, rate: u64, during: impl FnOnce(&Self)) -> Outcome {
        let load = Self { rate, answered: 0.into(), over: false.into() };
        let sockets: Vec<_> = (0..FLOWS).map(|_| rig.client_udp(CLIENT, 0)).collect();
        for socket in &sockets {
            set_socket_recv_buffer_size_force(socket, 8 << 20).unwrap();
            socket.set_nonblocking(true).unwrap();
        }
        std::thread::scope(|scope| {
            let ends = EndsLoad(&load);
            let outcome = scope.spawn(|| load.run(&sockets));
            load.goes_on();
            during(&load);
            drop(ends);
            outcome.join().unwrap()
        })
    }

    /// Waits for some replies.
    fn goes_on(&self) {
        let before = self.answered.load(Ordering::SeqCst);
        until("the load goes on", || self.answered.load(Ordering::SeqCst) > before + self.rate / 10);
    }

    /// Sends, and receives in between. One thread does both, and is woken by no reply: so most of the CPU time is the server's.
    fn run(&self, sockets: &[UdpSocket]) -> Outcome {
        let (begun, mut last_reply) = (Instant::now(), Instant::now());
        let (mut outcome, mut seen) = (Outcome::default(), Vec::new());
        loop {
            let over = self.over.load(Ordering::SeqCst);
            let due = begun.elapsed().as_micros() as u64 * self.rate / 1_000_000;
            while !over && outcome.sent < due {
                let socket = &sockets[outcome.sent as usize % sockets.len()];
                // If the port was closed for a moment, the error of an earlier send appears here.
                while socket.send_to(&outcome.sent.to_be_bytes(), (SERVER, PORT)).is_err() {}
                outcome.sent += 1;
            }
            // A pause without descriptors, as there is nothing to wait for.
            rustix::event::poll(&mut [], Some(&BREAK)).unwrap();
            seen.resize(outcome.sent as usize, false);
            for socket in sockets {
                outcome.receive(socket, &mut seen);
            }
            if self.answered.swap(outcome.answered, Ordering::SeqCst) != outcome.answered {
                last_reply = Instant::now();
            }
            if over && last_reply.elapsed() > SILENCE {
                return outcome;
            }
        }
    }
}

impl Outcome {
    /// Counts the replies that have come. `seen` says of each request whether it has one.
    fn receive(&mut self, socket: &UdpSocket, seen: &mut [bool]) {
        let mut buffer = [0; 8];
        loop {
            match socket.recv(&mut buffer) {
                Ok(_) if std::mem::replace(&mut seen[u64::from_be_bytes(buffer) as usize], true) => {
                    self.doubled += 1;
                }
                Ok(_) => self.answered += 1,
                // As for sending.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }
}

/// The setups of a fast path: by the packet socket, by the direct ring without a socket, by several workers' rings, by
/// rings and sockets in turn, over XDP.
const SETUPS: [&[&str]; 5] = [
    &["--path", "packet", "--mode", "interrupt"],
    &["--path", "packet", "--mode", "poll"],
    &["--path", "packet", "--mode", "poll", "--workers", "2"],
    &["--path", "packet", "--mode", "adaptive", "--spin-us", "100", "--workers", "2"],
    &["--path", "xdp"],
];

fn socket_of(server: &Server) -> &str {
    server.socket.to_str().unwrap()
}

#[test]
fn a_take_over_under_load_answers_each_datagram_once() {
    if !root_or_skip() {
        return;
    }
    for (way, rate) in SETUPS.into_iter().flat_map(|way| [(way, FAST), (way, SLOW)]) {
        let rig = Rig::new();
        let mut former = rig.serve(way);
        let mut next = None;
        let outcome = Load::on(&rig, rate, |load| {
            next = Some(rig.serve(&[way, &["--take-over", socket_of(&former)]].concat()));
            assert_eq!(former.child.wait().unwrap().code(), Some(0));
            load.goes_on();
        });
        println!("{way:?}: {outcome:?}");
        assert_eq!(outcome.doubled, 0, "{way:?}: {outcome:?}");
        assert!(rate == FAST || outcome.answered == outcome.sent, "{way:?}: {outcome:?}");
    }
}

#[test]
fn an_instance_that_puts_its_programs_back_answers_each_datagram_once() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let rig = Rig::new();
        let former = rig.serve(&[way, &["--take-over-ms", "300"]].concat());
        let outcome = Load::on(&rig, FAST, |load| {
            for failed in 1..=2 {
                let path = former.path();
                let mut taker = UnixStream::connect(&former.socket).unwrap();
                taker.write_all(b"\"sockets\"\n").unwrap();
                BufReader::with_capacity(1, &taker).read_line(&mut String::new()).unwrap();
                taker.write_all(b"\"aside\"\n").unwrap();
                // They are off for 0.3 s, which may be over before anybody has looked.
                until("the programs are off, or were", || {
                    former.path() == "kernel" || former.drops("take_over_failed") == failed
                });
                until("it gives the new one up", || former.drops("take_over_failed") == failed);
                until("the former is as it was", || former.path() == path);
                load.goes_on();
            }
        });
        println!("{way:?}: {outcome:?}");
        assert_eq!(outcome.doubled, 0, "{way:?}: {outcome:?}");
    }
}

#[test]
fn addresses_that_come_and_go_double_nothing() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let rig = Rig::new();
        let server = rig.serve(way);
        let outcome = Load::on(&rig, FAST, |load| {
            for round in 0..10 {
                let address = format!("10.7.9.{round}/24");
                rig.ip_server(&["address", "add", &address, "dev", "vs"]);
                rig.ip_server(&["address", "del", &address, "dev", "vs"]);
                server.path();
            }
            load.goes_on();
        });
        println!("{way:?}: {outcome:?}");
        assert_eq!(outcome.doubled, 0, "{way:?}: {outcome:?}");
    }
}

#[test]
fn an_instance_that_ends_under_load_answers_nothing_twice() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        for by_command in [false, true] {
            let rig = Rig::new();
            let mut server = rig.serve(way);
            let outcome = Load::on(&rig, FAST, |_| {
                if by_command {
                    let mut drain = Command::new(env!("CARGO_BIN_EXE_twinpath"));
                    drain.args(["drain", "--socket", socket_of(&server)]).stderr(Stdio::null());
                    assert!(drain.status().unwrap().success());
                } else {
                    kill_process(server.pid(), Signal::INT).unwrap();
                }
                assert_eq!(server.child.wait().unwrap().code(), Some(0));
            });
            println!("{way:?}: {outcome:?}");
            assert_eq!(outcome.doubled, 0, "{way:?} {by_command}: {outcome:?}");
        }
    }
}
