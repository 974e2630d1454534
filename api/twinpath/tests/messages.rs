//! Tests the example of an application's own protocol over UDP: its state machines over a seeded network
//! that loses, duplicates and reorders, and its two programs over loopback.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

#[path = "../examples/messages/protocol.rs"]
mod protocol;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use protocol::{Connection, HEADER_LEN, MAGIC, MESSAGE_MAX, REPEATS_MAX, Refused, WINDOW};
use twinpath::{Duration, Instant};
use twinpath_test_rig::{loopback, root_or_skip, within};

const MESSAGES: u32 = 400;

/// Datagrams under way, by arrival time.
#[derive(Default)]
struct Wire {
    under_way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
}

impl Wire {
    /// Sends from `side` to the other one: the datagram may be lost, duplicated or late.
    fn send(&mut self, random: &mut fastrand::Rng, now: Instant, side: usize, datagram: &[u8]) {
        let copies = match random.u32(..10) {
            0..2 => 0,
            2 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = Duration::from_micros(random.u64(10..30_000));
            self.sent += 1;
            self.under_way.insert((now + delay, self.sent), (1 - side, datagram.to_vec()));
        }
    }
}

#[test]
fn messages_come_once_and_in_order_whatever_the_network_does() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut ends, mut wire, mut now) =
            ([Connection::default(), Connection::default()], Wire::default(), Instant::ZERO);
        let (mut accepted, mut seen, mut datagram) = ([0u32; 2], [0u32; 2], Vec::new());
        while seen != [MESSAGES; 2] || !ends.iter().all(Connection::is_quiet) {
            for side in 0..2 {
                while accepted[side] < MESSAGES && ends[side].send(now, &accepted[side].to_be_bytes()) {
                    accepted[side] += 1;
                }
                while ends[side].transmit(now, &mut datagram) {
                    wire.send(&mut random, now, side, &datagram);
                }
                // An application that does not always keep up.
                while random.u32(..4) > 0
                    && let Some(message) = ends[side].next()
                {
                    assert_eq!(message, seen[side].to_be_bytes(), "seed {seed}");
                    seen[side] += 1;
                }
            }
            let arrives = wire.under_way.first_key_value().map(|((at, _), _)| *at);
            let due = ends.iter().filter_map(Connection::deadline).min();
            let later = now + Duration::from_millis(1);
            now = arrives.into_iter().chain(due).min().unwrap_or(later).max(now);
            while let Some(entry) = wire.under_way.first_entry().filter(|entry| entry.key().0 <= now) {
                let (side, datagram) = entry.remove();
                // A duplicate may arrive so late that it is outside of the window.
                assert_ne!(ends[side].receive(&datagram), Err(Refused::Malformed), "seed {seed}");
            }
            assert!(!ends.iter().any(Connection::is_lost), "seed {seed}");
        }
    }
}

#[test]
fn a_full_window_and_a_peer_that_is_gone_are_noticed() {
    let (mut end, mut now, mut datagram) = (Connection::default(), Instant::ZERO, Vec::new());
    assert!(!end.send(now, &[0; MESSAGE_MAX + 1]));
    assert!((0..WINDOW).all(|_| end.send(now, &[0; MESSAGE_MAX])) && !end.has_room() && !end.send(now, b""));
    let mut sent = 0;
    while !end.is_lost() {
        now = end.deadline().unwrap().max(now);
        while end.transmit(now, &mut datagram) {
            assert_eq!(datagram.len(), HEADER_LEN + MESSAGE_MAX);
            sent += 1;
        }
    }
    assert_eq!(sent, WINDOW * (REPEATS_MAX + 1));
}

#[test]
fn what_is_not_of_the_protocol_changes_nothing() {
    let datagram = |kind: u8, number: u32, acknowledged: u32, message: &[u8]| {
        [&MAGIC[..], &[kind, 0], &number.to_be_bytes(), &acknowledged.to_be_bytes(), message].concat()
    };
    let refused = |datagram: &[u8]| {
        let mut end = Connection::default();
        let result = end.receive(datagram);
        assert!(end.next().is_none() || result.is_ok());
        result.err()
    };
    assert_eq!(refused(&datagram(1, 0, 0, b"first")), None);
    for malformed in [
        &b""[..],
        &datagram(0, 0, 0, b"x"),
        &datagram(2, 0, 0, b""),
        &datagram(1, 0, 0, &[0; MESSAGE_MAX + 1]),
    ] {
        assert_eq!(refused(malformed), Some(Refused::Malformed));
    }
    assert_eq!(refused(&datagram(1, WINDOW, 0, b"")), Some(Refused::OutsideWindow));
    assert_eq!(refused(&datagram(0, 0, 1, b"")), Some(Refused::OutsideWindow));
    let mut random = fastrand::Rng::with_seed(5);
    let mut end = Connection::default();
    for _ in 0..100_000 {
        let mut bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
        let prefix = datagram(1, random.u32(..), random.u32(..), b"");
        let len = bytes.len().min(random.usize(..=HEADER_LEN));
        bytes[..len].copy_from_slice(&prefix[..len]);
        let _ = end.receive(&bytes);
        end.next();
    }
}

#[test]
fn the_programs_send_and_answer_lines() {
    if !root_or_skip() {
        return;
    }
    let namespace = loopback();
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/messages");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&example);
        within(&namespace, &mut command).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // There is no fast path on loopback, and the example says why. Then the port is bound.
        assert!(said.next().unwrap().starts_with("UDP by the kernel: "));
        (child, said)
    };
    let (mut server, _said) = start(&["serve", "lo"]);
    let (mut client, said) = start(&["send", "lo", "127.0.0.1:7009"]);
    let mut input = client.stdin.take().unwrap();
    let lines = std::thread::spawn(move || {
        for number in 0..1000 {
            writeln!(input, "line {number}").unwrap();
        }
    });
    let answers: Vec<String> = said.collect();
    lines.join().unwrap();
    assert!(client.wait().unwrap().success());
    assert_eq!(answers, (0..1000).map(|number| format!("LINE {number}")).collect::<Vec<_>>());
    server.kill().unwrap();
    server.wait().unwrap();
}
