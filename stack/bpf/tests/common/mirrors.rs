//! Requests to mirrors, the replies of `stack/reflex`, and programs that may reply.

use std::net::{IpAddr, SocketAddr};

use twinpath_bpf::{ReflexPeer, Steering};
use twinpath_claims::{Answers, Claim, Context, Reflex, Table, Verdict, verdict};
use twinpath_reflex::NotReplied;
use twinpath_reflex::mirror::{self, Known, Way};
use twinpath_wire::Mac;
use twinpath_wire::udp_frame::{UdpFrameRepr, write_headers};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const PEERS: [&str; 2] = ["10.0.0.1", "fd00::1"];
const MTU: u32 = 1500;
/// A port of the table `basic` that is claimed with a mirror.
pub(crate) const PORT: u16 = 7;
/// Replies per second: more than the tests ask for.
pub(crate) const RATE: u32 = 10_000_000;

/// Tells the programs how replies to the peers leave.
pub(crate) fn know_peers(steering: &mut Steering) {
    let reflexes = steering.reflexes().unwrap();
    for peer in PEERS {
        let way = ReflexPeer { next_hop: PEER, own: OWN, mtu: MTU };
        reflexes.set_peer(peer.parse().unwrap(), Some(way), u64::MAX >> 1).unwrap();
    }
    reflexes.set_frame_len_max(MTU + 14);
}

/// The number of requests to which the programs did not reply for this reason.
pub(crate) fn not_replied(steering: &Steering, why: NotReplied) -> u64 {
    let counts = steering.counted_reflexes().unwrap().not_replied().unwrap();
    counts.iter().find(|(known, _)| *known == why).map_or(0, |(_, count)| *count)
}

/// The same table, with mirrors for all claims.
pub(crate) fn mirrored(table: &Table, source_rate: u32) -> Table {
    with_reflex(table, |place| Reflex { place, answers: Answers::Mirrored, source_rate })
}

/// The same table, with reflexes for all claims.
pub(crate) fn with_reflex(table: &Table, reflex: impl Fn(u8) -> Reflex) -> Table {
    let mut mirrored = Table::new(table.mac(), table.frame_len_max()).unwrap();
    for address in table.addresses() {
        mirrored.add_address(*address).unwrap();
    }
    for (place, claim) in table.claims().iter().enumerate() {
        mirrored.add_claim(Claim { reflex: Some(reflex(place as u8)), ..claim.clone() }).unwrap();
    }
    mirrored
}

pub(crate) fn way(peer: IpAddr) -> Option<Way> {
    let known = PEERS.iter().any(|known| *known == peer.to_string());
    known.then_some(Way { next_hop: PEER, own: OWN, mtu: MTU })
}

/// The expected result of a program; `None`: the frame is not a request to a mirror.
pub(crate) fn expected(frame: &[u8], table: &Table, known: Known) -> Option<Result<Vec<u8>, NotReplied>> {
    let Verdict::Claimed(_) = verdict(frame, &Context::default(), table) else { return None };
    match frame[12..14] {
        // Workers serve no frames with tags.
        [0x81, 0x00] => None,
        [0x08, 0x00] | [0x86, 0xdd] => Some(mirror::datagram(frame, known, way)),
        _ => Some(mirror::frame(frame, MTU + 14)),
    }
}

pub(crate) fn request(peer: &str, port: u16, payload: &[u8]) -> Vec<u8> {
    request_to(peer, port, PORT, payload)
}

pub(crate) fn request_to(peer: &str, port: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let own: IpAddr = if peer.contains(':') { "fd00::2" } else { "10.0.0.2" }.parse().unwrap();
    let repr = UdpFrameRepr {
        source_mac: PEER,
        destination_mac: OWN,
        tag: None,
        source: SocketAddr::new(peer.parse().unwrap(), port),
        destination: SocketAddr::new(own, to),
        hop_limit: 17,
        identification: 0x1234,
    };
    let mut frame = [&vec![0; repr.header_len()][..], payload].concat();
    write_headers(&mut frame, &repr, payload.len()).unwrap();
    frame
}

/// A request, with up to two bits changed, perhaps without a checksum, or with bytes behind it.
pub(crate) fn corrupted(random: &mut fastrand::Rng) -> Vec<u8> {
    let peer = PEERS[random.usize(..2)];
    let port = [4000, 7, 53, 0, 8][random.usize(..5)];
    let len = random.usize(..120);
    let payload: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    let mut frame = request(peer, port, &payload);
    for _ in 0..random.usize(..3) {
        let at = random.usize(..frame.len());
        frame[at] ^= 1 << random.u8(..8);
    }
    if random.u8(..16) == 0 {
        let at = if peer.contains(':') { 60 } else { 40 };
        frame[at..at + 2].fill(0);
    }
    if random.u8(..4) == 0 {
        frame.resize(frame.len() + random.usize(..40), random.u8(..));
    }
    frame
}
