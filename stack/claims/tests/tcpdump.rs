//! Compares our filters with tcpdump's, on the steering corpus and on frames and filters generated from a seed.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::fs::File;
use std::process::{Command, Stdio};

use fastrand::Rng;
use twinpath_claims::corpus;
use twinpath_test_rig::skip;
use twinpath_wire::filter::Filter;

const FILTERS: [&str; 56] = [
    "udp",
    "tcp",
    "icmp",
    "icmp6",
    "arp",
    "ip",
    "ip6",
    "host 10.0.0.2",
    "src host 10.0.0.1",
    "dst host 10.0.0.2",
    "src 10.0.0.1",
    "ip host 10.0.0.2",
    "arp host 10.0.0.2",
    "ip src 10.0.0.1 and udp",
    "host fd00::2",
    "src host fd00::1",
    "ip6 host fd00::2",
    "port 7",
    "src port 4000",
    "dst port 7",
    "udp port 7",
    "tcp dst port 7",
    "udp src port 4000",
    "sctp port 7",
    "net 10.0.0.0/8",
    "src net 10.0.0.0/30",
    "dst net 10.0.0.2/32",
    "net 0.0.0.0/0",
    "ip net 10.0.0.0/24",
    "net fd00::/8",
    "dst net fd00::/64",
    "net ::/0",
    "ether proto 0x88b5",
    "ether proto 0x8100",
    "ether proto 2048",
    "not udp",
    "not ( udp or tcp )",
    "udp or arp and ip",
    "udp and ( arp or ip )",
    "! udp && ip || arp",
    "not udp or not tcp and not arp",
    "not not udp port 7",
    "port 7 and not src host 10.0.0.1",
    "(ip or ip6) and (tcp or udp) and dst port 7",
    "vlan",
    "vlan 5",
    "not vlan",
    "vlan and udp",
    "vlan 5 and udp port 7",
    "vlan and vlan",
    "vlan 5 and vlan 6 and host 10.0.0.2",
    "vlan and ether proto 0x8100",
    "vlan or udp",
    "udp or vlan and host 10.0.0.2",
    "(vlan 5 or vlan 6) and arp",
    "vlan and net fd00::/8",
];

/// Whole frames, cut frames, and frames with bytes changed where headers are.
fn frames(rng: &mut Rng) -> Vec<Vec<u8>> {
    let known: Vec<_> = corpus::all().unwrap().cases.into_iter().map(|case| case.frame).collect();
    let mut frames = known.clone();
    for _ in 0..3_000 {
        let mut frame = rng.choice(&known).unwrap().clone();
        for _ in 0..rng.usize(0..4) {
            if let Some(byte) = rng.choice(0..frame.len().min(80)).map(|at| &mut frame[at]) {
                let any = rng.u8(..);
                *byte = *rng.choice(&[0, 1, 6, 7, 8, 17, 44, 58, 0x45, 0x86, 0xdd, any]).unwrap();
            }
        }
        if frame.len() >= 12 {
            for _ in 0..rng.u8(0..3) {
                let kind: u16 = *rng.choice(&[0x8100, 0x88a8, 0x9100, 0x9200]).unwrap();
                let control = rng.u16(5..7) | rng.u16(0..16) << 12;
                frame.splice(12..12, [kind.to_be_bytes(), control.to_be_bytes()].concat());
            }
        }
        if rng.bool() {
            frame.truncate(rng.usize(0..=frame.len().min(90)));
        }
        frames.push(frame);
    }
    frames
}

/// A filter of up to 12 conditions.
fn random(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.u8(..) < 60 {
        let simple: Vec<_> = FILTERS.into_iter().filter(|text| !text.contains([' ', '!'])).collect();
        let whole = [FILTERS[rng.usize(7..35)], *rng.choice(&simple).unwrap()];
        return whole[usize::from(rng.bool())].to_owned();
    }
    let (left, right) = (random(rng, depth - 1), random(rng, depth - 1));
    match rng.u8(0..5) {
        0 => format!("{left} and {right}"),
        1 => format!("{left} or {right}"),
        2 => format!("not {left} || {right}"),
        3 => format!("({left}) && not ({right})"),
        _ => format!("!({left} or ({right}))"),
    }
}

/// A capture file (pcap(5)) whose times are the frames' numbers.
fn write_capture(frames: &[Vec<u8>]) -> tempfile::NamedTempFile {
    let mut bytes = Vec::new();
    let words =
        |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    words(&mut bytes, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]);
    for (number, frame) in frames.iter().enumerate() {
        words(&mut bytes, &[number as u32, 0, frame.len() as u32, frame.len() as u32]);
        bytes.extend(frame);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

/// The numbers of the frames that tcpdump selects.
fn asked(capture: &tempfile::NamedTempFile, filter: &str) -> Option<Vec<usize>> {
    let output = Command::new("tcpdump")
        // Not optimised: tcpdump's optimiser may remove a read beyond the end of a frame, and with it the mismatch.
        .args(["-O", "-r", "-", "-w", "-", filter])
        .stdin(File::open(capture.path()).unwrap())
        .stderr(Stdio::piped())
        .output()
        .ok()?;
    assert!(output.status.success(), "tcpdump {filter}: {}", String::from_utf8_lossy(&output.stderr));
    let mut rest = &output.stdout[24..];
    let mut wanted = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        wanted.push(word(0));
        rest = &rest[16 + word(8)..];
    }
    Some(wanted)
}

#[test]
fn every_verdict_is_tcpdumps() {
    let mut rng = Rng::with_seed(0x7074_6370);
    let frames = frames(&mut rng);
    let capture = write_capture(&frames);
    let made: Vec<_> = (0..120).map(|_| random(&mut rng, 3)).collect();
    let mut both = [0; 2];
    for text in FILTERS.into_iter().chain(made.iter().map(String::as_str)) {
        let filter: Filter = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let Some(theirs) = asked(&capture, text) else {
            return skip("tcpdump is not installed: what a filter wants could not be compared with it");
        };
        let ours: Vec<_> = (0..frames.len()).filter(|number| filter.wants(&frames[*number], None)).collect();
        if ours != theirs {
            let differs = |number: &usize| ours.contains(number) != theirs.contains(number);
            let number = (0..frames.len()).find(differs).expect("they differ");
            panic!("`{text}`: we say {}, of {:02x?}", ours.contains(&number), frames[number]);
        }
        both[0] += ours.len();
        both[1] += frames.len() - ours.len();
    }
    assert!(both.iter().all(|count| *count > 10_000), "{both:?}: either answer is tested");
}
