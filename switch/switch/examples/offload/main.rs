//! The cost of flows that the kernel forwards: round trips of UDP sockets in two network namespaces, and TCP bulk. They
//! go through entries (past the interface, and through it), the kernel's bridge, and programs that redirect every frame
//! unseen.
//!
//! `cargo run --release -p twinpath-switch --example offload [ROUNDS]`, as root; `... offload xdp [ROUNDS]` for frames of XDP
//! programs. Each round has every mode once, in turns; the
//! medians of the rounds are compared.
#![allow(clippy::unwrap_used, reason = "the hosts are those of the tests")]

#[path = "../../tests/rig/mod.rs"]
mod rig;
mod xdp;

use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use rig::{Hosts, Switch, ip};
use twinpath_sys::affinity::pin_current_thread;
use twinpath_test_plain::TcRedirect;

type Failed = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Failed>;

const ROUNDS: usize = 7;
const ROUND_TRIPS: usize = 4000;
const WARM_UP: usize = 400;
const BULK: Duration = Duration::from_millis(500);
const CHUNK: usize = 256 << 10;

const MODES: [&str; 5] =
    ["bridge", "redirect_peer, bare", "redirect, bare", "entries, to the peer", "entries, by redirect"];

/// What keeps a mode open.
enum Open<'a> {
    Bridge(&'a Hosts),
    Bare { _programs: TcRedirect },
    Entries(Box<Switch>),
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        match self {
            Self::Bridge(hosts) => drop(ip(&hosts.switch, "link del br0")),
            Self::Bare { .. } => {}
            Self::Entries(switch) => {
                assert!(switch.count(2).0 as usize > ROUND_TRIPS, "the entries were used");
                assert_eq!(switch.take(), None, "and nothing else");
            }
        }
    }
}

fn open(hosts: &Hosts, mode: usize) -> Outcome<Open<'_>> {
    let bare = |past: bool| {
        let programs = hosts.switch.run(|| TcRedirect::attach(hosts.ifindexes, past))??;
        Ok::<_, Failed>(Open::Bare { _programs: programs })
    };
    Ok(match mode {
        0 => {
            ip(&hosts.switch, "link add br0 type bridge");
            ip(&hosts.switch, "link set br0 up");
            for port in 1..=2 {
                ip(&hosts.switch, &format!("link set port{port} master br0"));
            }
            Open::Bridge(hosts)
        }
        1 => bare(true)?,
        2 => bare(false)?,
        _ => Open::Entries(Box::new(Switch::new(hosts, mode == 3))),
    })
}

/// The time until the answer comes.
fn round_trip(socket: &UdpSocket) -> Outcome<Duration> {
    let mut buffer = [0; 64];
    loop {
        let sent = Instant::now();
        socket.send(&[1; 32])?;
        if socket.recv(&mut buffer).is_ok() {
            return Ok(sent.elapsed());
        }
    }
}

/// Medians of a mode: round trip and its 99th percentile, us; bulk, Gb/s.
fn measure(hosts: &Hosts, socket: &UdpSocket) -> Outcome<[f64; 3]> {
    for _ in 0..WARM_UP {
        round_trip(socket)?;
    }
    let mut times = (0..ROUND_TRIPS).map(|_| round_trip(socket)).collect::<Outcome<Vec<Duration>>>()?;
    times.sort_unstable();
    let us = |at: usize| times[at].as_secs_f64() * 1e6;
    Ok([us(ROUND_TRIPS / 2), us(ROUND_TRIPS * 99 / 100), bulk(hosts)?])
}

fn bulk(hosts: &Hosts) -> Outcome<f64> {
    let (mut client, mut server) = hosts.tcp();
    let receiver = thread::spawn(move || -> Outcome<f64> {
        pin_current_thread(1)?;
        let (mut buffer, mut bytes, begin) = (vec![0; CHUNK], 0, Instant::now());
        loop {
            match server.read(&mut buffer)? {
                0 => return Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9),
                len => bytes += len,
            }
        }
    });
    let (chunk, begin) = (vec![7; CHUNK], Instant::now());
    while begin.elapsed() < BULK {
        client.write_all(&chunk)?;
    }
    drop(client);
    receiver.join().map_err(|_| "the receiver panicked")?
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let is_xdp = arguments.next_if(|argument| argument == "xdp").is_some();
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    if is_xdp {
        return xdp::run(rounds);
    }
    let hosts = Hosts::new();
    let (client, server) = (hosts.udp(0), hosts.udp(1));
    client.connect("10.0.0.2:7000")?;
    client.set_read_timeout(Some(Duration::from_millis(200)))?;
    server.set_read_timeout(None)?;
    thread::spawn(move || {
        let _ = pin_current_thread(1);
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..len], from);
        }
    });
    pin_current_thread(0)?;
    let mut all: [Vec<[f64; 3]>; MODES.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..MODES.len() {
            let mode = (round + turn) % MODES.len();
            let open = open(&hosts, mode)?;
            all[mode].push(measure(&hosts, &client)?);
            drop(open);
        }
    }
    let of = |mode: usize, what: usize| median(all[mode].iter().map(|values| values[what]).collect());
    println!("{:22} {:>9} {:>9} {:>10}   medians of {rounds} rounds", "", "p50, us", "p99, us", "bulk, Gb/s");
    for (mode, name) in MODES.iter().enumerate() {
        println!("{name:22} {:9.2} {:9.2} {:10.1}", of(mode, 0), of(mode, 1), of(mode, 2));
    }
    // Of what was measured one after the other.
    let ratio = |one: usize, other: usize, what: usize| {
        median(all[one].iter().zip(&all[other]).map(|(one, other)| one[what] / other[what]).collect())
    };
    for (id, one, other, what) in [
        ("vs-bridge-rtt", 3, 0, 0),
        ("vs-bridge-rtt, by redirect", 4, 0, 0),
        ("offload-tc-rtt", 3, 1, 0),
        ("offload-tc-rtt, by redirect", 4, 2, 0),
        ("bulk-offloaded", 3, 0, 2),
        ("bulk-offloaded, by redirect", 4, 0, 2),
    ] {
        println!("{id:28} {:.2}", ratio(one, other, what));
    }
    Ok(())
}
