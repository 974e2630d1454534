//! Constructors for the maps' keys and values. [`layouts`](crate::layouts) has their layout, generated from the
//! sources of the programs.

use std::net::IpAddr;

use twinpath_claims::{Answers, PassReason, REFLEX_SERVICES_MAX, Reflex, Verdict};
use twinpath_reflex::kept_table::SERVICES_MAX;
use twinpath_reflex::{NotReplied, REQUEST_MAX, SHAPES_MAX, VARYING_MAX};
use twinpath_wire::Protocol;
use twinpath_wire::flow_key::address_bytes;

pub(crate) use crate::layouts::*;

/// The names of the counters that only the programs have.
pub(crate) const PROGRAM_COUNTERS: [(usize, &str); 14] = [
    (NO_SOCKET, "no_socket"),
    (WITHHELD, "withheld_from_kernel"),
    (OTHER_FRAME, "note_of_other_frame"),
    (WORKER_STUCK, "worker_stuck"),
    (BY_REFLEX, "answered_by_reflex"),
    (TCP_SYN_OF_KERNEL, "tcp_syn_of_kernel"),
    (TCP_NO_ROOM, "tcp_no_room"),
    (TCP_TABLE_FULL, "tcp_table_full"),
    (TCP_SYNS_FULL, "tcp_syns_full"),
    (TCP_SYN_TWICE, "tcp_syn_twice"),
    (TCP_TOO_LARGE, "tcp_too_large"),
    (TCP_STUCK, "tcp_stuck"),
    (TCP_MARTIAN, "tcp_martian"),
    (TCP_BAD_CHECKSUM, "tcp_bad_checksum"),
];

/// The number of the IP family: 4 or 6.
pub(crate) const fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// Indexed by the low byte of the port.
pub(crate) type PlainClaims = [Plain; 256];

/// Bitmaps of ports, by [`Protocol::index`].
pub(crate) type Ports = [[u64; 1024]; Protocol::COUNT];
/// No port of any protocol.
pub(crate) const NO_PORTS: Ports = [[0; 1024]; Protocol::COUNT];

impl State {
    /// The kernel's initial state: nothing is claimed.
    pub(crate) const EMPTY: Self = Self {
        active: 0,
        reserved: 0,
        config: [Config {
            mac: [0; 6],
            flags: 0,
            frame_len_max: 0,
            reserved: 0,
            ipv4: [[0; 4]; 4],
            ipv6: [[0; 16]; 2],
        }; 2],
        plain: [[Plain { port: [0; 2], protocol: 0, connections: 0, index: 0, reflex: 0 }; 256]; 2],
        ports: [NO_PORTS; 2],
    };
}

/// The word that says which requests of a claim the programs may answer: the place, and flags above it.
pub(crate) const fn reflex_word(reflex: Option<Reflex>) -> u16 {
    match reflex {
        Some(Reflex { place, answers: Answers::Mirrored, .. }) => MIRRORS << 8 | place as u16,
        Some(Reflex { place, answers: Answers::Kept, .. }) => KEEPS << 8 | place as u16,
        None => 0,
    }
}

impl AddressKey {
    pub(crate) fn new(generation: u8, address: IpAddr) -> Self {
        Self { generation, family: family(address), reserved: 0, address: address_bytes(address) }
    }
}

// Values that lower crates define themselves must equal those of the programs.
const _: () = {
    assert!(Protocol::COUNT == PROTOCOLS && Protocol::Udp.index() == UDP_INDEX);
    assert!(Protocol::Tcp.index() == TCP_INDEX);
    assert!(REFLEX_SERVICES_MAX == KEPT_SERVICES && SERVICES_MAX == KEPT_SERVICES);
    assert!(SHAPES_MAX == KEPT_SHAPES && VARYING_MAX == KEPT_VARYING && REQUEST_MAX == KEPT_REQUEST);
    assert!(NotReplied::ALL.len() < WHYS);
};

// So must the numbers of verdicts, and of reasons for giving no reply.
const _: () = {
    assert!(CLAIMED == 0);
    assert!(PassReason::Unclaimed as u8 == UNCLAIMED);
    assert!(PassReason::NotForThisHost as u8 == NOT_FOR_THIS_HOST);
    assert!(PassReason::Multicast as u8 == MULTICAST);
    assert!(PassReason::NotOwnAddress as u8 == NOT_OWN_ADDRESS);
    assert!(PassReason::VlanTag as u8 == VLAN_TAG);
    assert!(PassReason::Fragment as u8 == FRAGMENT);
    assert!(PassReason::HeaderNotUnderstood as u8 == HEADER_NOT_UNDERSTOOD);
    assert!(PassReason::Truncated as u8 == TRUNCATED);
    assert!(PassReason::BadLength as u8 == BAD_LENGTH);
    assert!(PassReason::TooLong as u8 == TOO_LONG);
    assert!(PassReason::Coalesced as u8 == COALESCED);
    assert!(PassReason::TcpNotOpening as u8 == TCP_NOT_OPENING);
    assert!(PassReason::SourceNotAllowed as u8 == SOURCE_NOT_ALLOWED);
    assert!(PassReason::TcpAuthenticated as u8 == TCP_AUTHENTICATED);
    assert!(PassReason::TcpSynData as u8 == TCP_SYN_DATA);
    assert!(PassReason::TcpDeclined as u8 == TCP_DECLINED_BY_WORKER);
    assert!(twinpath_claims::DATAGRAMS_MAX == DATAGRAMS_MAX);
    assert!(Verdict::OPENS == TCP_OPENING && Verdict::CLAIMED_LARGE == CLAIMED_LARGE);
    assert!(NotReplied::Suspended.number() == WHY_SUSPENDED);
    assert!(NotReplied::Header.number() == WHY_HEADER);
    assert!(NotReplied::NoChecksum.number() == WHY_NO_CHECKSUM);
    assert!(NotReplied::Port.number() == WHY_PORT);
    assert!(NotReplied::Peer.number() == WHY_PEER);
    assert!(NotReplied::Mtu.number() == WHY_MTU);
    assert!(NotReplied::WorkerStuck.number() == WHY_STUCK);
    assert!(NotReplied::Canary.number() == WHY_CANARY);
    assert!(NotReplied::Rate.number() == WHY_RATE);
    assert!(NotReplied::Checksum.number() == WHY_CHECKSUM);
    assert!(NotReplied::Failed.number() == WHY_FAILED);
    assert!(NotReplied::SourceRate.number() == WHY_SOURCE_RATE);
    assert!(NotReplied::TooLong.number() == WHY_TOO_LONG);
    assert!(NotReplied::NotKept.number() == WHY_UNKNOWN);
    assert!(NotReplied::Expired.number() == WHY_EXPIRED);
    assert!(NotReplied::Withdrawn.number() == WHY_WITHDRAWN);
    assert!(NotReplied::Load.number() == WHY_LOAD);
};
