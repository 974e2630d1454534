//! Tests of `twinpath capture`: it contains exactly the frames on the fast path, and does not affect them.

use std::io::{BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::rig::{CLIENT, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

/// Direction flags of an Enhanced Packet Block.
pub(crate) const INBOUND: u32 = 1;
pub(crate) const OUTBOUND: u32 = 2;

pub(crate) struct Seen {
    pub(crate) bytes: Vec<u8>,
    pub(crate) original_len: u32,
    pub(crate) direction: u32,
    pub(crate) time: Duration,
    /// The mark of what is given by reflex.
    pub(crate) comment: Option<String>,
}

/// Frames of a file, and how many were missed.
pub(crate) fn read(file: impl Read) -> (Vec<Seen>, Option<u64>) {
    let mut reader = PcapNgReader::new(BufReader::new(file)).expect("a pcapng file");
    let (mut frames, mut missed) = (Vec::new(), None);
    while let Some(block) = reader.next_block() {
        match block.expect("a whole block") {
            Block::EnhancedPacket(packet) => {
                let direction = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(flags) => Some(*flags & 3),
                    _ => None,
                });
                let comment = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(comment) => Some(comment.to_string()),
                    _ => None,
                });
                frames.push(Seen {
                    comment,
                    bytes: packet.data.to_vec(),
                    original_len: packet.original_len,
                    direction: direction.expect("a direction"),
                    time: packet.timestamp,
                });
            }
            Block::InterfaceStatistics(statistics) => {
                missed = statistics.options.iter().find_map(|option| match option {
                    InterfaceStatisticsOption::IsbIfDrop(missed) => Some(*missed),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    (frames, missed)
}

/// Whether the UDP checksum of a frame over IPv4 without options is right (RFC 768).
pub(crate) fn has_right_checksum(frame: &[u8]) -> bool {
    let (addresses, udp) = (&frame[26..34], &frame[34..]);
    let summed = [addresses, &[0, 17], &udp[4..6], udp].concat();
    let sum: u32 =
        summed.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) as u16 + sum as u16 == 0xffff
}

pub(crate) fn capture(server: &Server, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_twinpath"))
        .args(["capture", "--on", "vs", "-w", "-", "--socket"])
        .arg(&server.socket)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("twinpath runs")
}

/// The error of a refused capture.
fn refused(server: &Server, arguments: &[&str]) -> String {
    let output = capture(server, arguments).wait_with_output().expect("it ends");
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?} was not refused");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

#[test]
fn requests_and_replies_are_found_byte_by_byte_on_both_paths() {
    if !root_or_skip() {
        return;
    }
    for path in ["packet", "xdp"] {
        let rig = Rig::new();
        let server = rig.serve(&["--path", path]);
        let client = rig.client_udp(CLIENT, 0);
        until("replies leave by the fast path", || {
            ask(&client, SERVER, PORT, b"known");
            server.worker("frames_out") > 0
        });
        let begun = now();
        let mine = format!("udp port {} and host {CLIENT}", client.local_addr().unwrap().port());
        let mut child = capture(&server, &["--count", "40", &mine]);
        let other = rig.client_udp(CLIENT, 0);
        let mut number = 0u32;
        until("40 frames are captured", || {
            number += 1;
            ask(&client, SERVER, PORT, &number.to_be_bytes());
            ask(&other, SERVER, PORT, b"not wanted");
            child.try_wait().unwrap().is_some()
        });
        let (frames, missed) = read(child.stdout.take().unwrap());
        assert_eq!((frames.len(), missed), (40, Some(0)), "{path}");
        let first = u32::from_be_bytes(frames[0].bytes[42..46].try_into().unwrap());
        for (pair, number) in frames.chunks(2).zip(first..) {
            let [request, reply] = pair else { panic!("pairs") };
            assert_eq!((request.direction, reply.direction), (INBOUND, OUTBOUND), "{path}");
            assert_eq!(request.bytes[42..46], number.to_be_bytes(), "{path}: each, in order");
            assert_eq!(request.bytes[42..], reply.bytes[42..], "{path}: the payload");
            for frame in [request, reply] {
                assert!(has_right_checksum(&frame.bytes), "{path}: {:02x?}", frame.bytes);
            }
            // Addresses and ports are swapped, at every layer.
            for (from, to, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
                assert_eq!(request.bytes[from..from + len], reply.bytes[to..to + len], "{path}");
                assert_eq!(request.bytes[to..to + len], reply.bytes[from..from + len], "{path}");
            }
            assert!(begun <= request.time && request.time <= reply.time && reply.time <= now(), "{path}");
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn under_load_nobody_waits_for_a_capture_and_it_may_be_killed() {
    if !root_or_skip() {
        return;
    }
    let target = format!("{SERVER}:{PORT}");
    for path in ["packet", "xdp"] {
        let rig = Rig::new();
        let server = rig.serve(&["--path", path]);
        rig.bench(&target, &["--count", "1000"]);
        let allocations = server.worker("allocations");
        // One is read; one is not read, so that its pipe and ring fill; one ends with its client.
        let replies = format!("udp src port {PORT}");
        let mut read_one = capture(&server, &["--count", "5000", "--snaplen", "50", &replies]);
        let deaf = capture(&server, &[]);
        let doomed = capture(&server, &["udp"]);
        let stdout = read_one.stdout.take().unwrap();
        let reading = std::thread::spawn(move || read(stdout));
        let report = rig.bench(&target, &["--count", "30000"]);
        assert_eq!((report["received"].as_u64(), report["lost"].as_u64()), (Some(30_000), Some(0)), "{path}");
        kill(doomed);
        let (frames, _) = reading.join().unwrap();
        assert_eq!(frames.len(), 5_000, "{path}");
        assert!(frames.iter().all(|frame| frame.direction == OUTBOUND && frame.bytes.len() == 50));
        assert!(frames.iter().all(|frame| frame.original_len > 50));
        assert_eq!(read_one.wait().unwrap().code(), Some(0));
        assert!(server.drops("capture_missed") > 0, "{path}: the deaf one missed what it did not read");
        let report = rig.bench(&target, &["--count", "5000"]);
        assert_eq!(report["lost"].as_u64(), Some(0), "{path}");
        assert_eq!(server.worker("allocations"), allocations, "{path}: none while frames are copied");
        // The instance does not wait for the one that is not read, either.
        assert_eq!(server.interrupt(), Some(0));
        kill(deaf);
    }
}

#[test]
fn captures_are_bounded_and_refusals_say_why() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&[]);
    let said = refused(&server, &["udp dst prt 7"]);
    assert!(said.contains("not `prt`") && said.contains("^^^"), "{said}");
    let said = refused(&server, &["--on", "vx"]);
    assert!(said.contains("cannot be used multiple times"), "{said}");
    let mut held: Vec<_> = (0..4).map(|_| capture(&server, &[])).collect();
    // Each has begun when its file has.
    for child in &mut held {
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    }
    assert!(refused(&server, &[]).contains("4 captures"), "the fifth");
    held.into_iter().for_each(kill);
    until("their places are free again", || {
        let mut child = capture(&server, &["--seconds", "0"]);
        let (mut file, mut said) = (Vec::new(), String::new());
        child.stdout.take().unwrap().read_to_end(&mut file).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap().success() && read(file.as_slice()).1 == Some(0) && said.contains("0 missed")
    });
    assert_eq!(server.interrupt(), Some(0));

    let kernel = rig.serve(&["--path", "kernel"]);
    assert!(refused(&kernel, &[]).contains("tcpdump sees all of it"));
}

#[test]
fn a_capture_of_an_instance_that_is_killed_fails_and_says_so() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    for stops in [false, true] {
        let server = rig.serve(&[]);
        let mut child = capture(&server, &[]);
        // It has begun when its file has.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
        if stops {
            assert_eq!(server.interrupt(), Some(0));
        } else {
            server.kill();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), stops, "{said}");
        assert_eq!(said.contains("the instance ended before the capture did"), !stops, "{said}");
    }
}
