//! Writes the first inputs of the corpora: `cargo run -p twinpath-test-fuzz --example corpus`.
//!
//! Run it when a target or a seed is added. It adds and replaces files named `seed-*`, and removes nothing: inputs
//! that once broke something have other names.

use std::fs;
use std::io;
use std::path::Path;

use twinpath_config::EXAMPLE;
use twinpath_rds_wire::{Flags, Handshake, Header, PAYLOAD_MAX};
use twinpath_test_fuzz::seed;
use twinpath_wire::vxlan::header;

/// Edits that reach beyond the first check: none, a truncation, and one field each of Ethernet, IP and UDP.
const EDITS: [&[u8]; 8] = [
    &[],
    &[0x80, 20, 0],
    &[0x80, 33, 0],
    &[0, 0, 1],
    &[0, 12, 0xff],
    &[0, 14, 0x02],
    &[0, 20, 0x20],
    &[0, 38, 0xff, 0, 39, 0xff],
];

fn write(target: &str, inputs: impl IntoIterator<Item = Vec<u8>>) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/__fuzz__").join(target).join("corpus");
    fs::create_dir_all(&folder)?;
    for (number, input) in inputs.into_iter().enumerate() {
        fs::write(folder.join(format!("seed-{number:02}")), input)?;
    }
    println!("{}", folder.display());
    Ok(())
}

/// A handshake, a connection with data in both directions, and its ends, as `test/fuzz/src/tcp.rs` reads them.
fn conversations() -> Vec<Vec<u8>> {
    let syn = [0, 0, 2, 0, 0, 0, 0, 7, 200, 0];
    let stamped_syn = [0, 0, 2, 0, 0, 1, 0, 0, 0, 7, 200, 0];
    let ack = [0, 0, 0, 0, 0, 0, 200, 0];
    let stamped_ack = [0, 0, 0, 0, 0, 1, 0, 0, 200, 0];
    let data = [0, 0, 1, 0, 0, 0x10, 200, 20, 1];
    let ahead = [0, 0, 1, 4, 160, 0, 0x10, 200, 20, 1];
    let blocks = [0, 0, 0, 0, 0, 6, 4, 10, 4, 0, 200, 0];
    let (fin, reset) = ([0, 0, 4, 0, 0, 0, 200, 0], [0, 0, 5, 0, 0, 0, 200, 0]);
    let (accept, write, read, close): (&[u8], &[u8], &[u8], &[u8]) =
        (&[6], &[3, 7, 40], &[3, 4, 50], &[3, 0, 0]);
    let (short, long, connect) = ([4, 24], [4, 35], [7, 0]);
    let open = [&[0xff], &syn[..], &ack, accept].concat();
    let stamped = [&[0xff], &stamped_syn[..], &stamped_ack, accept].concat();
    vec![
        [&open[..], &data, read, write, &ack, &fin, close, &ack, &long].concat(),
        [&open[..], &ahead, &data, read, &fin, close].concat(),
        [&open[..], write, &short, &blocks, &short, &blocks, &long, &long, &ack, &reset].concat(),
        [&stamped[..], &data, write, &short, &stamped_ack, &fin, close, &long].concat(),
        [&open[..], write, close, &short, &ack, &ack, &fin, &long, &syn].concat(),
        [
            &[0x0f],
            &connect[..],
            &short,
            &[0, 0, 3, 0, 0, 0, 0, 7, 200, 0],
            write,
            &ack,
            &[5, 0, 5, 0, 0, 0, 0, 0],
        ]
        .concat(),
    ]
}

/// Messages of Reliable Datagram Sockets: data, a ping, probes of both forms, a map.
fn reliable_datagrams() -> Vec<Vec<u8>> {
    let header = Header { sequence: 7, source: 4096, destination: 4000, ..Header::default() };
    let old = Handshake { paths: Some(8), ..Handshake::default() };
    let new = Handshake { paths: Some(8), generation: Some(0x1122_3344), port_path: Some(0) };
    let probe = |handshake: Handshake| Header {
        source: 1,
        destination: 0,
        extensions: handshake.extensions(),
        ..header
    };
    let map = Header { len: 8192, flags: Flags::CONGESTION_MAP, ..Header::default() };
    let headers = [
        Header { flags: Flags::RETRANSMITTED, ..header },
        Header { destination: 0, ..header },
        probe(old),
        probe(new),
        Header { source: 0, destination: 1, ..probe(new) },
        map,
        Header { len: PAYLOAD_MAX as u32, ..header },
    ];
    headers.map(|header| header.to_bytes().to_vec()).to_vec()
}

/// A connection of a peer with 1 or 4 paths, what it sends, its end, and another one.
fn peers_of_datagrams() -> Vec<Vec<u8>> {
    let messages = |paths: u8| {
        reliable_datagrams().into_iter().map(move |mut message| {
            message.resize(96, 0);
            [&[paths, 9, 0, 3][..], &message, &[2, 0, 7], &message, &[1]].concat()
        })
    };
    messages(0).chain(messages(2)).collect()
}

fn write_rds() -> io::Result<()> {
    write("rds__headers", reliable_datagrams())?;
    write("rds__connections", peers_of_datagrams())
}

fn main() -> io::Result<()> {
    write_rds()?;
    write_frames()
}

fn write_frames() -> io::Result<()> {
    let frames = seed::frames();
    // UDP over both families, tagged in both forms, and TCP; other frames would take the same branches.
    let damaged: Vec<Vec<u8>> = [0_u8, 1, 2, 3, 6]
        .into_iter()
        .flat_map(|frame| EDITS.map(|edits| [&[frame], edits].concat()))
        .collect();
    let hinted = |hint: u8, inputs: &[Vec<u8>]| -> Vec<Vec<u8>> {
        inputs.iter().map(|input| [&[hint], input.as_slice()].concat()).collect()
    };
    // A tag outside the frame; coalesced segments.
    let beside = [hinted(0, &frames), hinted(1, &frames[..1]), hinted(4, &frames[..1])].concat();
    write("wire__frames", frames.clone())?;
    write("wire__damaged_frames", damaged.clone())?;
    write("steer__frames", beside)?;
    write("steer__damaged_frames", hinted(0, &damaged))?;
    let cases: [&[u8]; 6] = [
        &[0, 0],
        &[0, 1, 0, 0, 1],
        &[0, 60, 0x80, 40, 0],
        &[0, 90],
        &[0, 120, 0, 14, 2],
        &[0, 200, 0, 40, 9],
    ];
    write("steer__damaged_cases", cases.map(<[u8]>::to_vec))?;
    // A frame, the divisions of its chain, a port that takes nothing, all, and all but segmentation; kind and size.
    let offloads: [&[u8]; 10] = [
        &[0, 200, 0x01, 3, 5, 120, 34, 6, 0],
        &[1, 30, 0x01, 3, 5, 120, 54, 6, 0],
        &[2, 0, 0x01, 3, 5, 120, 38, 6, 0],
        &[3, 99, 0x01, 1, 5, 120, 34, 16, 0],
        &[3, 99, 0x01, 5, 1, 0, 34, 16, 101],
        &[3, 99, 0x3e, 1, 5, 120, 34, 16, 101],
        &[3, 99, 0x30, 1, 5, 120, 34, 16, 0],
        &[4, 0, 0x01, 0, 0, 0, 34, 6, 0],
        &[4, 0, 0x01, 0, 0, 0, 0, 0, 101],
        &[0, 200, 0x01, 3, 0, 1, 34, 6, 0, 0, 16, 1, 0, 38, 1],
    ];
    write("offload__frames", offloads.map(<[u8]>::to_vec))?;
    let lines = [
        "",
        "{",
        r#"{"show":"workers"}"#,
        r#"{"show":"all"}"#,
        r#"{"show":"nothing"}"#,
        r#"{"set":{"worker":0,"mode":"poll"}}"#,
        r#"{"set":{"mode":"adaptive"}}"#,
        r#"{"set":{"mode":"poll","mode":"poll"}}"#,
        r#"{"set":{"worker":-1,"mode":"poll"}}"#,
        r#"{"show":"all","set":{"mode":"poll"}}"#,
    ];
    write("command__lines", lines.map(Into::into))?;
    // {"show":"all"}, then {"set":{"worker":0,"mode":"poll"}}.
    let pieces: [&[u8]; 3] = [&[0, 6, 4, 8, 1], &[0, 7, 4, 0, 10, 4, 13, 5, 11, 4, 12, 1, 1], &[2, 2, 2, 2]];
    write("command__pieces", pieces.map(<[u8]>::to_vec))?;
    let texts = [
        "",
        "[service]\nudp = 7\n",
        "[service]\nudp = 0",
        "[servce]\n",
        "udp = ",
        "[interface]\npath = \"fast\"",
    ];
    write("config__texts", texts.into_iter().chain([EXAMPLE]).map(Into::into))?;
    let edits: [&[u8]; 5] = [&[], &[2, 0, 0], &[1, 1, 0], &[4, 2, 3, 17, 2, 5], &[13, 2, 11, 21, 2, 14]];
    write("config__damaged_examples", edits.map(<[u8]>::to_vec))?;
    let lists = ["", "0", "0,2-3", "3-1", "0-4294967295", "0-63,0-63,0-63", "1,,2", " 1 - 2 "];
    write("config__cpu_lists", lists.map(Into::into))?;
    write("load__replies", [vec![], vec![0; 7], vec![0; 27], vec![0xff; 28], vec![1; 200]])?;
    // A right reply, the same again, one with a wrong bit, a truncated one, and the others.
    let replies: [&[u8]; 3] =
        [&[0, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 3, 1, 1, 0x80, 8, 0], &[3, 0, 26, 0x80, 2, 0, 0, 0, 3, 0, 0, 0]];
    write("load__damaged_replies", replies.map(<[u8]>::to_vec))?;
    openflow()?;
    switch(&frames[0])?;
    connections()
}

fn connections() -> io::Result<()> {
    write("tcp__segments_and_calls", conversations())?;
    rpc()
}

fn vxlan(frame: &[u8]) -> io::Result<()> {
    let payload = |header: [u8; 8]| [&header[..], frame].concat();
    let network = header(0x0001_0203);
    let no_network = [0xf7, 0, 0, 0, 1, 2, 3, 0];
    let payloads = [
        payload(network),
        payload([0xff; 8]),
        payload(no_network),
        payload(network)[..21].to_vec(),
        vec![8; 7],
    ];
    write("vxlan__payloads", payloads)
}

fn openflow() -> io::Result<()> {
    let controllers =
        ["tcp:192.0.2.1:6653", "tcp:[::1]", "tcp:host", "unix:/run/controller", "tcp:a:70000", "tcp::1"];
    write("config__controllers", controllers.map(Into::into))?;
    // Pairs of matches: none, disjoint, equal, one in the other by more fields, one in the other by its mask.
    let pairs: [&[u8]; 5] = [
        &[],
        &[5, 0, 0, 5, 1, 0],
        &[0, 1, 0, 5, 0, 0, 5, 0, 0, 0, 1, 0],
        &[5, 0, 0, 10, 1, 0, 5, 0, 0, 11, 7, 0, 10, 1, 0, 13, 9, 0],
        &[5, 0, 0, 11, 4, 9, 5, 0, 0, 11, 6, 0],
    ];
    write("openflow__matches", pairs.map(<[u8]>::to_vec))?;
    // Each type of message, and of multipart; further bytes choose what is in it.
    let choices = |head: &[u8], seed: u8| -> Vec<u8> {
        let chosen = (0..60_u8).map(|place| place.wrapping_mul(37).wrapping_add(seed.wrapping_mul(91)));
        head.iter().copied().chain(chosen).collect()
    };
    let types = (0..30).map(|kind| choices(&[kind], kind));
    let parts = (0..15).flat_map(|kind| [18, 19].map(|message| choices(&[message, 1, kind], kind)));
    let messages: Vec<_> = types.chain(parts).collect();
    write("openflow__messages", messages.clone())?;
    // A wrong length in the head, in the middle, an end that is missing, and a message as it should be.
    let edits: [&[u8]; 4] = [&[1, 0, 3, 8], &[2, 0, 58, 8, 60, 3], &[0, 4], &[0, 0]];
    let damaged =
        messages.iter().zip(edits.iter().cycle()).map(|(message, edit)| [edit, message.as_slice()].concat());
    write("openflow__damaged_messages", damaged)?;
    // Changes of flows, groups and meters, then questions; whole, in pieces, with damage.
    let changes =
        |seed: u8| choices(&[[14, 14, 15, 29, 14, 18, 20, 24][usize::from(seed) % 8]], seed)[..48].to_vec();
    let session: Vec<u8> = (0..60).flat_map(changes).collect();
    let sessions = [[255, 0], [6, 0], [60, 3], [255, 1]].map(|head| [&head[..], &session].concat());
    write("openflow_switch__controllers", sessions)?;
    write("openflow__streams", [0, 6, 7, 100].map(|piece| [&[piece], messages.concat().as_slice()].concat()))
}

fn switch(frame: &[u8]) -> io::Result<()> {
    // Frames between stations on all ports, tags of each kind, a step of time, a flush, another configuration.
    let frames = |ports: u8, kind: u8| -> Vec<u8> {
        let described = |number: u8| [1, number % ports, 2 + number % 8, 3 + number % 11, number, kind];
        [1].into_iter().chain((0..60).flat_map(described)).collect()
    };
    let changes = |what: u8| [0, what, 40, 1, 0, 3, 4, 0, 0, 0, what, 2].to_vec();
    let changed = (0..6).map(|what| [frames(6, 0), changes(what), frames(6, 2)[1..].to_vec()].concat());
    let plain = [0, 2, 3, 6, 0x42].map(|kind| frames(8, kind));
    write("switch__frames", plain.into_iter().chain(changed))?;
    let learned: Vec<u8> = (0..200_u8).flat_map(|number| [3, number, number]).collect();
    let table = [
        [3, 9, 1, 3, 9, 2].to_vec(),
        [learned.clone(), vec![0, 0, 2]].concat(),
        [learned, vec![2, 0, 0, 1, 8, 0]].concat(),
    ];
    write("switch__table", table)?;
    vxlan(frame)
}

fn rpc() -> io::Result<()> {
    let calls = seed::calls();
    let records: Vec<u8> = calls.iter().flat_map(|call| seed::record(call, 1)).collect();
    let fragments: Vec<u8> = calls.iter().flat_map(|call| seed::record(call, 3)).collect();
    let stream = |piece: u8, stream: &[u8]| [&[piece], stream].concat();
    let endless = [0; 40];
    let streams = [
        stream(1, &records),
        stream(3, &fragments),
        stream(255, &fragments),
        // Too many fragments, a record that is too large, an empty one, an incomplete one.
        stream(2, &[&records[..44], &endless].concat()),
        stream(4, &[0x80, 0, 2, 0x59]),
        stream(4, &[0x80, 0, 0, 0]),
        stream(4, &records[..30]),
        Vec::new(),
    ];
    write("rpc__streams", streams)?;
    // Calls in one to four fragments. The edits: none, a truncation, and single fields: a mark, the message type, the
    // RPC version, the program.
    let damaged: [&[u8]; 6] = [
        &[1, 0, 0, 0, 0, 0x41, 0, 0, 0, 0x82, 0, 0, 0, 0xc3, 0, 0, 0],
        &[7, 1, 0x80, 20, 0, 0, 0, 0, 0],
        &[9, 0, 0, 0, 0x80, 1, 0, 3, 1],
        &[9, 0, 0, 11, 1, 1, 0, 0, 0],
        &[9, 2, 0, 15, 1, 2, 0, 19, 4],
        &[200, 3, 0, 43, 0xff],
    ];
    write("rpc__damaged_streams", damaged.map(<[u8]>::to_vec))?;
    write("rpc__calls", calls.clone().into_iter().chain([vec![], vec![0; 39], vec![0xff; 44]]))?;
    let edits = (0..calls.len() as u8).flat_map(|call| EDITS.map(|edits| [&[call], edits].concat()));
    write("rpc__damaged_calls", edits)?;
    let arguments = calls
        .iter()
        .map(|call| &call[40..])
        .flat_map(|args| [0, 1, 2, 24, 25, 26, 27, 28, 29].map(|procedure| [&[procedure], args].concat()));
    let lies = [[1, 0xff, 0xff, 0xff, 0xff], [1, 0, 0, 0, 64], [24, 0, 0, 4, 1]].map(|lie| lie.to_vec());
    write("rpc__arguments", arguments.chain(lies))?;
    // Success without results and with a status, the refusals, and messages that no server sends.
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let attributes = [&words(&[9, 1, 0, 0, 0, 0, 0, 1])[..], &[0; 80]].concat();
    let replies = [
        words(&[9, 1, 0, 0, 0, 0]),
        words(&[9, 1, 0, 0, 0, 0, 70]),
        words(&[9, 1, 0, 0, 0, 0, 0, 16, 1, 2, 3, 4, 1, 1]),
        attributes,
        words(&[9, 1, 0, 0, 0, 1]),
        words(&[9, 1, 0, 0, 0, 2, 3, 4]),
        words(&[9, 1, 1, 0, 2, 2]),
        words(&[9, 1, 1, 1, 5]),
        words(&[9, 1, 0, 0, 401]),
        words(&[9, 0]),
    ];
    write("rpc__replies", replies)
}
