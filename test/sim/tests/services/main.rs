//! Services over the TCP engine: the server that hosts the kernel's connections hosts the engine's, and echo, discard,
//! chargen and ONC RPC run over it unchanged, over a network that loses, delays and reorders.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod rig;

use std::sync::Arc;

use twinpath_rpc::client::{Auth, Call, Reply};
use twinpath_rpc::mount3::Mount3;
use twinpath_rpc::nfs3::{Nfs3, Tree};
use twinpath_rpc::nfs3_types::nfs3;
use twinpath_rpc::record::{RecordLimits, RecordReader};
use twinpath_rpc::{DuplicateLimits, Program, RpcService, Server};
use twinpath_service::{Chargen, Discard, Duration, Echo};

use self::rig::{Client, Rig};

const SEEDS: u64 = 60;

/// Bytes that a client sends in pieces, half of them at random times.
fn text(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = random.usize(1..60_000);
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn echo_returns_every_byte() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new(Echo, seed);
        let text = text(&mut rig.random);
        let clients: Vec<_> =
            (0..rig.random.usize(1..5)).map(|_| rig.connect(Client::saying(&text))).collect();
        rig.run();
        for client in clients {
            assert_eq!(rig.client(client).heard, text, "seed {seed}");
            assert!(rig.client(client).is_over, "seed {seed}");
        }
        rig.holds_nothing();
    }
}

#[test]
fn discard_takes_every_byte_and_ends() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new(Discard::default(), seed);
        let text = text(&mut rig.random);
        let client = rig.connect(Client::saying(&text));
        rig.run();
        assert_eq!(rig.client(client).heard, [], "seed {seed}");
        assert_eq!(rig.counters.stream_bytes_in.get(), text.len() as u64, "seed {seed}");
        rig.holds_nothing();
    }
}

#[test]
fn chargen_sends_until_its_peer_has_enough() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new(Chargen, seed);
        let enough = rig.random.usize(1..300_000);
        let client = rig.connect(Client::hearing(enough));
        rig.run();
        let heard = &rig.client(client).heard;
        assert!(heard.len() >= enough, "seed {seed}: {}", heard.len());
        let line = heard.split(|byte| *byte == b'\n').nth(1).map(<[u8]>::len);
        assert!(heard.len() < 200 || line == Some(73), "seed {seed}: {line:?}");
        rig.holds_nothing();
    }
}

#[test]
fn calls_of_rpc_are_answered_in_order() {
    for seed in 0..SEEDS {
        let tree = Arc::new(Tree::small());
        let programs: Vec<Box<dyn Program>> =
            vec![Box::new(Nfs3::new(Arc::clone(&tree))), Box::new(Mount3::new(tree))];
        let duplicates = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
        let server = Server::new(programs, duplicates, 7).unwrap();
        let limits = RecordLimits { record_bytes: 65_536, fragments: 32 };
        let mut rig = Rig::new(RpcService::new(server, limits), seed);
        let (mut calls, auth) = (Vec::new(), Auth::none());
        let count = rig.random.u32(1..400);
        for xid in 0..count {
            let call = Call {
                xid,
                program: nfs3::PROGRAM,
                version: nfs3::VERSION,
                procedure: 0,
                auth: &auth,
                args: &[],
            };
            call.write_record(rig.random.usize(1..4), &mut calls);
        }
        let client = rig.connect(Client::saying(&calls));
        rig.run();
        let heard = rig.client(client).heard.clone();
        let (mut input, mut reader) = (&heard[..], RecordReader::new(limits));
        for xid in 0..count {
            let record = reader.next(&mut input).unwrap().expect("a reply");
            let reply = Reply::parse(record).unwrap();
            assert_eq!(reply.xid, xid, "seed {seed}");
            reply.verify_null().unwrap();
        }
        rig.holds_nothing();
    }
}

#[test]
fn a_drain_answers_what_has_come_and_ends() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new(Echo, seed);
        let text = text(&mut rig.random);
        let client = rig.connect(Client::staying(&text));
        rig.run_until(|rig| rig.client(client).heard.len() == text.len());
        rig.drain();
        rig.run();
        assert_eq!(rig.client(client).heard, text, "seed {seed}");
        assert!(rig.is_drained(), "seed {seed}");
        rig.holds_nothing();
    }
}
