//! The maps' keys and values: bpf/maps.h in Rust.
#![allow(
    unsafe_code,
    reason = "aya takes map keys and values as plain memory, which only an unsafe trait can say"
)]

use std::net::IpAddr;

use aya::Pod;
use twinpath_steer::{Answers, Reflex};
use twinpath_wire::Protocol;
use twinpath_wire::flow_key::address_bytes;

pub(crate) const HAS_VLANS: u16 = 1;
pub(crate) const HAS_ETHERTYPES: u16 = 2;
pub(crate) const HAS_FLOWS: u16 = 4;
pub(crate) const HAS_ADDRESS_CLAIMS: u16 = 8;
pub(crate) const HAS_IPV4: u16 = 16;
pub(crate) const HAS_IPV6: u16 = 32;
pub(crate) const MANY_IPV4: u16 = 64;
pub(crate) const MANY_IPV6: u16 = 128;
pub(crate) const KIND_ETHERTYPE: u8 = 0;
pub(crate) const VLAN_NONE: u16 = 0xffff;

/// The names of the counters that only the programs have.
pub(crate) const PROGRAM_COUNTERS: [(usize, &str); 5] = [
    (24, "no_socket"),
    (25, "withheld_from_kernel"),
    (26, "note_of_other_frame"),
    (27, "worker_stuck"),
    (28, "answered_by_reflex"),
];
const COUNTERS: usize = 32;

/// The number of the IP family: 4 or 6.
pub(crate) const fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) mac: [u8; 6],
    pub(crate) flags: u16,
    pub(crate) frame_len_max: u32,
    pub(crate) reserved: u32,
    pub(crate) ipv4: [[u8; 4]; 4],
    pub(crate) ipv6: [[u8; 16]; 2],
}

/// A claim on a port that is found without a hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Plain {
    pub(crate) port: [u8; 2],
    pub(crate) protocol: u8,
    pub(crate) reserved: u8,
    pub(crate) index: u16,
    pub(crate) reflex: u16,
}

/// Indexed by the low byte of the port.
pub(crate) type PlainClaims = [Plain; 256];

/// Bitmaps of ports, by [`Protocol::index`].
pub(crate) type Ports = [[u64; 1024]; Protocol::COUNT];
/// No port of any protocol.
pub(crate) const NO_PORTS: Ports = [[0; 1024]; Protocol::COUNT];

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct State {
    pub(crate) active: u32,
    pub(crate) reserved: u32,
    pub(crate) config: [Config; 2],
    pub(crate) plain: [PlainClaims; 2],
    pub(crate) ports: [Ports; 2],
}

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
        plain: [[Plain { port: [0; 2], protocol: 0, reserved: 0, index: 0, reflex: 0 }; 256]; 2],
        ports: [NO_PORTS; 2],
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct ClaimKey {
    pub(crate) generation: u8,
    pub(crate) kind: u8,
    pub(crate) family: u8,
    pub(crate) reserved: u8,
    pub(crate) vlan: u16,
    pub(crate) number: [u8; 2],
    pub(crate) address: [u8; 16],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ClaimValue {
    pub(crate) index: u16,
    pub(crate) has_sources: u16,
    pub(crate) reflex: u16,
    pub(crate) reserved: u16,
}

/// `enum reflex_flag` of bpf/reflex.h, above the place.
const MIRRORS: u16 = 1 << 8;
const KEEPS: u16 = 1 << 9;

/// The word that says what the programs may answer of a claim's frames.
pub(crate) const fn reflex_word(reflex: Option<Reflex>) -> u16 {
    match reflex {
        Some(Reflex { place, answers: Answers::Mirrored, .. }) => MIRRORS | place as u16,
        Some(Reflex { place, answers: Answers::Kept, .. }) => KEEPS | place as u16,
        None => 0,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct AddressKey {
    pub(crate) generation: u8,
    pub(crate) family: u8,
    pub(crate) reserved: u16,
    pub(crate) address: [u8; 16],
}

impl AddressKey {
    pub(crate) fn new(generation: u8, address: IpAddr) -> Self {
        Self { generation, family: family(address), reserved: 0, address: address_bytes(address) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct FlowKeyBytes {
    pub(crate) family: u8,
    pub(crate) protocol: u8,
    pub(crate) vlan: u16,
    pub(crate) source_port: [u8; 2],
    pub(crate) destination_port: [u8; 2],
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
}

/// The part of an allow-list's key after the prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct SourceKey {
    pub(crate) generation: u8,
    pub(crate) family: u8,
    pub(crate) claim: [u8; 2],
    pub(crate) address: [u8; 16],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PerCpu {
    pub(crate) counters: [u64; COUNTERS],
    note_len: u32,
    note_reflex: u32,
    queue: u32,
    reserved: u32,
    note: [u64; 10],
}

/// `struct crossing` of bpf/bridge.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Crossing {
    pub(crate) port: u32,
    pub(crate) kernel: u32,
    /// Not 0: frames cross only while a worker is stuck.
    pub(crate) only_when_stuck: u32,
    /// Written by the programs.
    pub(crate) one_stuck: u32,
}

/// Counts of frames redirected within the kernel (`struct crossed` of bpf/bridge.c); a super-frame counts once. `in`
/// counts frames that arrived on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Crossed {
    pub frames_in: u64,
    pub bytes_in: u64,
    pub frames_out: u64,
    pub bytes_out: u64,
    /// Used by the programs.
    #[doc(hidden)]
    pub given: u64,
}

/// `struct port` of bpf/ports.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PortWords {
    pub(crate) flags: u32,
    pub(crate) number: u16,
    pub(crate) masks: u16,
}

const _: () = {
    assert!(size_of::<State>() == 8 + 2 * 64 + 2 * 256 * 8 + 2 * Protocol::COUNT * 8192);
    assert!(size_of::<ClaimKey>() == 24 && size_of::<ClaimValue>() == 8);
    assert!(size_of::<AddressKey>() == 20 && size_of::<FlowKeyBytes>() == 40 && size_of::<SourceKey>() == 20);
};

// SAFETY: repr(C), no padding (the fields' sizes add up to the size asserted above), any bytes are a value.
unsafe impl Pod for State {}
// SAFETY: as for `State`.
unsafe impl Pod for ClaimKey {}
// SAFETY: as for `State`.
unsafe impl Pod for ClaimValue {}
// SAFETY: as for `State`.
unsafe impl Pod for AddressKey {}
// SAFETY: as for `State`.
unsafe impl Pod for FlowKeyBytes {}
// SAFETY: as for `State`.
unsafe impl Pod for SourceKey {}
// SAFETY: repr(C); 32 and 10 words around two half words leave no padding; any bytes are a value.
unsafe impl Pod for PerCpu {}
// SAFETY: four plain integers, without padding.
unsafe impl Pod for Crossing {}
// SAFETY: five plain integers, without padding.
unsafe impl Pod for Crossed {}
// SAFETY: three plain integers, without padding.
unsafe impl Pod for PortWords {}
