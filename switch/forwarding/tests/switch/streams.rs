//! The twin of streams: the same messages, however they are cut and whatever goes before, have the same answers in the same
//! order, and none waits for anything from outside.

use fastrand::Rng;
use twinpath_forwarding::openflow::{CONTROLLERS_MAX, ControllerId};
use twinpath_openflow_wire::{Action, Frames, Header, Hello, Message, PacketOut, Role, RoleMessage, number};
use twinpath_test_fuzz::seed::handshakes::handshakes;
use twinpath_test_fuzz::seed::wrong::messages;

use crate::controller::Bench;

/// Conversations, and the messages of each beside packet-outs.
const SEEDS: u64 = 3;
const MESSAGES: usize = 100;
/// More than can ever wait in the switch.
const PACKET_OUTS: usize = 300;

fn encoded(xid: u32, message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(xid, &mut bytes).expect("it is short");
    bytes
}

/// Messages of all types, right and wrong, each with a number of its own; barriers and packet-outs between them.
fn conversation(random: &mut Rng) -> Vec<Vec<u8>> {
    let cases: Vec<_> = messages().iter().flat_map(|layout| layout.cases()).collect();
    // These have the longest replies, and are no different.
    let is_short = |field: &str| !field.starts_with("multipart.TableFeatures");
    let cases: Vec<_> = cases.into_iter().filter(|case| is_short(&case.field)).collect();
    let packet_out = Message::PacketOut(Box::new(PacketOut {
        buffer_id: number::NO_BUFFER,
        in_port: number::port::CONTROLLER,
        actions: [Action::Output { port: 1, max_len: 0 }].into(),
        data: [7; 60].into(),
    }));
    let equal = Message::RoleRequest(RoleMessage { role: Role::Equal, generation_id: 0 });
    let storm = random.usize(..MESSAGES);
    let mut all = Vec::new();
    for number in 0..MESSAGES {
        if number == storm {
            all.extend(std::iter::repeat_n(encoded(1, &packet_out), PACKET_OUTS));
        }
        all.push(match random.u8(..8) {
            0 => encoded(1, &Message::BarrierRequest),
            // It may have become a slave, who is refused most.
            1 => encoded(1, &equal),
            _ => cases[random.usize(..cases.len())].bytes.clone(),
        });
    }
    for (xid, message) in (1000_u32..).zip(&mut all) {
        message[4..8].copy_from_slice(&xid.to_be_bytes());
    }
    all
}

/// A switch with one controller, and the maximum number of others, which send nothing or half a message.
fn among_others() -> (Bench, ControllerId) {
    let mut bench = Bench::new();
    let hello = encoded(1, &Message::Hello(Hello { version: number::VERSION, versions: None }));
    for other in 1..CONTROLLERS_MAX {
        let id = bench.switch.connect(bench.now).expect("there is room");
        let said = [hello.as_slice(), &[number::VERSION, 14, 0, 80, 0, 0, 0, 1, 0]].concat();
        bench.switch.receive(bench.now, id, &said[..other % (said.len() + 1)]);
    }
    let id = bench.switch.connect(bench.now).expect("there is room");
    bench.switch.receive(bench.now, id, &hello);
    (bench, id)
}

/// Takes up to this many bytes of the output for a controller.
fn read(bench: &mut Bench, id: ControllerId, most: usize, output: &mut Vec<u8>) -> usize {
    let bytes = bench.switch.output(id);
    let len = bytes.len().min(most);
    output.extend_from_slice(&bytes[..len]);
    bench.switch.sent(bench.now, id, len);
    len
}

/// Writes pieces, and reads up to this many bytes after each. Returns everything that was read.
fn write(bench: &mut Bench, id: ControllerId, pieces: &[&[u8]], reads: usize) -> Vec<Vec<u8>> {
    let mut output = Vec::new();
    let turn = |bench: &mut Bench, piece: &mut &[u8], reads: usize, output: &mut Vec<u8>| {
        let used = bench.switch.receive(bench.now, id, piece);
        *piece = &piece[used..];
        // As workers do.
        bench.switch.datapath().take_all();
        let requests = bench.switch.take_requests(64).len();
        bench.switch.done_but(0);
        let was_due = bench.switch.deadline() <= bench.now;
        bench.switch.advance(bench.now);
        used + requests + read(bench, id, reads, output) + usize::from(was_due)
    };
    for piece in pieces {
        let mut piece = *piece;
        while !piece.is_empty() {
            let done = turn(bench, &mut piece, reads, &mut output);
            assert!(done > 0, "nothing goes on, with {} bytes to take", piece.len());
        }
    }
    while turn(bench, &mut &[][..], usize::MAX, &mut output) > 0 {}
    let (mut frames, mut rest, mut heard) = (Frames::new(), output.as_slice(), Vec::new());
    while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
        heard.push(message.to_vec());
    }
    assert!(!frames.is_unfinished());
    heard
}

/// Pieces of random lengths.
fn cut<'a>(random: &mut Rng, mut bytes: &'a [u8], most: usize) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(random.usize(1..=most).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

#[test]
fn the_same_messages_have_the_same_answers_however_they_are_cut() {
    for seed in 0..SEEDS {
        let mut random = Rng::with_seed(seed);
        let messages = conversation(&mut random);
        let bytes = messages.concat();
        let singly: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        // Answers, and what comes unasked, which may be anywhere between them.
        let answers = |pieces: &[&[u8]], reads: usize| {
            let (mut bench, id) = among_others();
            let heard = write(&mut bench, id, pieces, reads);
            let is_answer = |message: &Vec<u8>| Header::of(message).is_some_and(|header| header.xid != 0);
            let (answers, mut unasked): (Vec<_>, Vec<_>) = heard.into_iter().partition(is_answer);
            unasked.sort();
            (answers, unasked)
        };
        let expected = answers(&singly, usize::MAX);
        assert!(expected.0.len() > MESSAGES / 2, "{} answers", expected.0.len());
        let at_each_byte: Vec<&[u8]> = bytes.chunks(1).collect();
        let randomly = [30, 300, 3000].map(|most| cut(&mut random, &bytes, most));
        let cuts = [&[bytes.as_slice()][..], &at_each_byte, &randomly[0], &randomly[1], &randomly[2]];
        for (number, pieces) in cuts.into_iter().enumerate() {
            for reads in [usize::MAX, 1 + random.usize(..500)] {
                assert!(
                    answers(pieces, reads) == expected,
                    "seed {seed}, cuts {number}, {reads} bytes read at a time"
                );
            }
        }
    }
}

/// Which sources say so: `twinpath_test_fuzz::seed::handshakes`.
#[test]
fn floodlight_onos_and_open_daylight_come_to_rule() {
    for handshake in handshakes() {
        for piece in [1, 3, usize::MAX] {
            let mut bench = Bench::new();
            let id = bench.switch.connect(bench.now).expect("there is room");
            for (number, step) in handshake.steps.iter().enumerate() {
                let bytes = step.bytes();
                let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
                let heard = write(&mut bench, id, &pieces, usize::MAX);
                assert!(step.is_answered(&heard), "{}, step {number}: {heard:?}", handshake.name);
            }
            assert!(bench.switch.is_open(id));
        }
    }
}
