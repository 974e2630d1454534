//! What we share with the programs of the kernel: the keys and values of their maps, and numbers.
//!
//! Written by `cargo run -p xtask -- bpf` from the sources in stack/bpf/bpf: change those.
#![allow(unsafe_code, reason = "aya takes map keys and values as plain memory")]

use aya::Pod;

pub(crate) const HAS_VLANS: u16 = 1;
pub(crate) const HAS_ETHERTYPES: u16 = 2;
pub(crate) const HAS_FLOWS: u16 = 4;
pub(crate) const HAS_ADDRESS_CLAIMS: u16 = 8;
pub(crate) const HAS_IPV4: u16 = 16;
pub(crate) const HAS_IPV6: u16 = 32;
pub(crate) const MANY_IPV4: u16 = 64;
pub(crate) const MANY_IPV6: u16 = 128;
pub(crate) const HAS_CONNECTIONS: u16 = 256;
pub(crate) const VLAN_NONE: u16 = 65535;

pub(crate) const KIND_ETHERTYPE: u8 = 0;
pub(crate) const CLAIMED: u8 = 0;
pub(crate) const UNCLAIMED: u8 = 1;
pub(crate) const NOT_FOR_THIS_HOST: u8 = 2;
pub(crate) const MULTICAST: u8 = 3;
pub(crate) const NOT_OWN_ADDRESS: u8 = 4;
pub(crate) const VLAN_TAG: u8 = 5;
pub(crate) const FRAGMENT: u8 = 6;
pub(crate) const HEADER_NOT_UNDERSTOOD: u8 = 7;
pub(crate) const TRUNCATED: u8 = 8;
pub(crate) const BAD_LENGTH: u8 = 9;
pub(crate) const TOO_LONG: u8 = 10;
pub(crate) const COALESCED: u8 = 11;
pub(crate) const TCP_NOT_OPENING: u8 = 12;
pub(crate) const SOURCE_NOT_ALLOWED: u8 = 13;
pub(crate) const TCP_AUTHENTICATED: u8 = 14;
pub(crate) const TCP_SYN_DATA: u8 = 15;
pub(crate) const TCP_DECLINED_BY_WORKER: u8 = 16;
pub(crate) const TCP_OPENING: u8 = 17;
pub(crate) const CLAIMED_LARGE: u8 = 18;

pub(crate) const NO_SOCKET: usize = 24;
pub(crate) const WITHHELD: usize = 25;
pub(crate) const OTHER_FRAME: usize = 26;
pub(crate) const WORKER_STUCK: usize = 27;
pub(crate) const BY_REFLEX: usize = 28;
pub(crate) const TCP_SYN_OF_KERNEL: usize = 29;
pub(crate) const TCP_NO_ROOM: usize = 30;
pub(crate) const TCP_TABLE_FULL: usize = 31;
pub(crate) const TCP_SYNS_FULL: usize = 32;
pub(crate) const TCP_SYN_TWICE: usize = 33;
pub(crate) const TCP_TOO_LARGE: usize = 34;
pub(crate) const TCP_STUCK: usize = 35;
pub(crate) const TCP_MARTIAN: usize = 36;
pub(crate) const TCP_BAD_CHECKSUM: usize = 37;
pub(crate) const UDP_INDEX: usize = 0;
pub(crate) const TCP_INDEX: usize = 1;
pub(crate) const PROTOCOLS: usize = 2;

pub(crate) const DATAGRAMS_MAX: usize = 128;

/// `struct config` of maps.h.
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

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Config {}

/// `struct plain` of maps.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Plain {
    pub(crate) port: [u8; 2],
    pub(crate) protocol: u8,
    pub(crate) connections: u8,
    pub(crate) index: u16,
    pub(crate) reflex: u16,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Plain {}

/// `struct state` of maps.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct State {
    pub(crate) active: u32,
    pub(crate) reserved: u32,
    pub(crate) config: [Config; 2],
    pub(crate) plain: [[Plain; 256]; 2],
    pub(crate) ports: [[[u64; 1024]; 2]; 2],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for State {}

/// `struct claim_key` of maps.h.
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

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for ClaimKey {}

/// `struct claim` of maps.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ClaimValue {
    pub(crate) index: u16,
    pub(crate) has_sources: u16,
    pub(crate) reflex: u16,
    pub(crate) connections: u16,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for ClaimValue {}

/// `struct address_key` of maps.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct AddressKey {
    pub(crate) generation: u8,
    pub(crate) family: u8,
    pub(crate) reserved: u16,
    pub(crate) address: [u8; 16],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for AddressKey {}

/// `struct flow_key` of maps.h.
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

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for FlowKeyBytes {}

/// `struct source_key` of maps.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct SourceKey {
    pub(crate) generation: u8,
    pub(crate) family: u8,
    pub(crate) claim: [u8; 2],
    pub(crate) address: [u8; 16],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for SourceKey {}

/// `struct per_cpu` of maps.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PerCpu {
    pub(crate) counters: [u64; 64],
    pub(crate) note_len: u32,
    pub(crate) note_reflex: u32,
    pub(crate) queue: u32,
    pub(crate) note_opens: u32,
    pub(crate) note: [u64; 10],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for PerCpu {}

pub(crate) const TCP_DECLINED: u32 = 1;
pub(crate) const TCP_ENDED: u32 = 2;
pub(crate) const TCP_HALF_OPEN: u32 = 4;

/// `struct tcp_flow` of connections.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct TcpFlow {
    pub(crate) queue: u16,
    pub(crate) reserved: u16,
    pub(crate) flags: u32,
    pub(crate) syn_at: u64,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for TcpFlow {}

pub(crate) const SYN_QUEUES: usize = 64;

/// `struct syn` of syns.h: where its fields are, and its length, bytes.
pub(crate) mod syn {
    pub(crate) const LEN_AT: usize = 0;
    pub(crate) const LEAKED_AT: usize = 4;
    pub(crate) const BYTES_AT: usize = 8;
    pub(crate) const LEN: usize = 128;
}

pub(crate) const FULL_PORTS: usize = 24;

/// `struct tcp_room` of opens.h: where its fields are, and its length, bytes.
pub(crate) mod tcp_room {
    pub(crate) const ROOM_AT: usize = 0;
    pub(crate) const TAKEN_BACK_AT: usize = 8;
    pub(crate) const FULL_AT: usize = 16;
    pub(crate) const LEN: usize = 64;
}

pub(crate) const QUEUES_MAX: u32 = 1024;

/// `struct slot` of direct.h: where its fields are, and its length, bytes.
pub(crate) mod slot {
    pub(crate) const LEN: usize = 2048;
}

/// `struct direct` of direct.h: where its fields are, and its length, bytes.
pub(crate) mod direct {
    pub(crate) const LEN: usize = 128;
}

pub(crate) const KEPT_SERVICES: usize = 16;
pub(crate) const KEPT_SHAPES: usize = 4;
pub(crate) const KEPT_VARYING: usize = 4;
pub(crate) const KEPT_REQUEST: usize = 256;

/// `struct kept_range` of kept.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Range {
    pub(crate) start: u16,
    pub(crate) len: u16,
    pub(crate) to: u16,
    pub(crate) reserved: u16,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Range {}

/// `struct kept_shape` of kept.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ShapeWords {
    pub(crate) masks: [u64; 32],
    pub(crate) copies: [Range; 4],
    pub(crate) request_min: u32,
    pub(crate) reserved: u32,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for ShapeWords {}

/// `struct kept_service` of kept.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Service {
    pub(crate) shapes: u32,
    pub(crate) reserved: u32,
    pub(crate) shape: [ShapeWords; 4],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Service {}

pub(crate) const MIRRORS: u16 = 1;
pub(crate) const KEEPS: u16 = 2;

pub(crate) const WHYS: usize = 32;

pub(crate) const WHY_SUSPENDED: u8 = 1;
pub(crate) const WHY_HEADER: u8 = 2;
pub(crate) const WHY_NO_CHECKSUM: u8 = 3;
pub(crate) const WHY_PORT: u8 = 4;
pub(crate) const WHY_PEER: u8 = 5;
pub(crate) const WHY_MTU: u8 = 6;
pub(crate) const WHY_STUCK: u8 = 7;
pub(crate) const WHY_CANARY: u8 = 8;
pub(crate) const WHY_RATE: u8 = 9;
pub(crate) const WHY_CHECKSUM: u8 = 10;
pub(crate) const WHY_FAILED: u8 = 11;
pub(crate) const WHY_SOURCE_RATE: u8 = 12;
pub(crate) const WHY_TOO_LONG: u8 = 13;
pub(crate) const WHY_UNKNOWN: u8 = 14;
pub(crate) const WHY_EXPIRED: u8 = 15;
pub(crate) const WHY_WITHDRAWN: u8 = 16;
pub(crate) const WHY_LOAD: u8 = 17;

pub(crate) const PEER_CANARY_NS: u64 = 0x1dcd65000;

/// `struct reflex_control` of reflex.h: where its fields are, and its length, bytes.
pub(crate) mod reflex_control {
    pub(crate) const LEN: usize = 128;
    pub(crate) const SUSPENDED_AT: usize = 0;
    pub(crate) const INTERVAL_NS_AT: usize = 8;
    pub(crate) const FRAME_LEN_MAX_AT: usize = 16;
    pub(crate) const CREDITS_AT: usize = 24;
    pub(crate) const TAPS_AT: usize = 32;
}

/// `struct peer_key` of reflex.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct PeerKey {
    pub(crate) family: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) address: [u8; 16],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for PeerKey {}

/// `struct peer` of reflex.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Peer {
    pub(crate) next_hop: [u8; 6],
    pub(crate) own: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) full_at_ns: [u64; 16],
    pub(crate) canary_ns: u64,
    pub(crate) to_worker: u32,
    pub(crate) reserved: u32,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Peer {}

/// `struct reflex_count` of reflex.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CountWords {
    pub(crate) replies: u64,
    pub(crate) bytes: u64,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for CountWords {}

/// `struct reflex_cpu` of reflex.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CpuWords {
    pub(crate) why: [u64; 32],
    pub(crate) credits: u64,
    pub(crate) replies_since: u64,
    pub(crate) replies_queue: u64,
    pub(crate) tick_ns: u64,
    pub(crate) requests: [u64; 16],
    pub(crate) since_canary: [u64; 16],
    pub(crate) chunk: [u8; 520],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for CpuWords {}

pub(crate) const TAPS: usize = 4;
pub(crate) const TAP_FRAME: usize = 2048;

/// `struct tapped` of tap.h: where its fields are, and its length, bytes.
pub(crate) mod tapped {
    pub(crate) const REQUEST_NS_AT: usize = 0;
    pub(crate) const REPLY_NS_AT: usize = 8;
    pub(crate) const REQUEST_LEN_AT: usize = 16;
    pub(crate) const REPLY_LEN_AT: usize = 20;
    pub(crate) const BYTES_AT: usize = 24;
}

pub(crate) const WORDS: usize = 8;
pub(crate) const MASK_WORD: usize = 3;

pub(crate) const MASKS: usize = 8;

pub(crate) const BY_XDP: u32 = 1;
pub(crate) const TIMED: u32 = 2;
pub(crate) const LEARNED: u32 = 4;
pub(crate) const COPIES: u32 = 64;

/// `struct key` of fields.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KeyWords {
    pub(crate) words: [u64; 8],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for KeyWords {}

/// `struct entry` of offload.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EntryWords {
    pub(crate) generation: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) peer: u64,
    pub(crate) number: u32,
    pub(crate) ifindex: u32,
    pub(crate) frame_len_max: u32,
    pub(crate) flags: u32,
    pub(crate) stations: [u16; 2],
    pub(crate) moves: u32,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for EntryWords {}

/// `struct offload` of offload.h: where its fields are, and its length, bytes.
pub(crate) mod offload {
    pub(crate) const LEN: usize = 576;
    pub(crate) const GENERATION_AT: usize = 0;
    pub(crate) const VERSION_AT: usize = 8;
    pub(crate) const MASKS_AT: usize = 64;
}

/// `struct passing` of offload.h: where its fields are, and its length, bytes.
pub(crate) mod passing {
    pub(crate) const LEN: usize = 64;
}

pub(crate) const MOVE_WORDS: usize = 16384;
pub(crate) const BRIDGED: usize = 16384;

/// `struct lease` of keep.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct LeaseWords {
    pub(crate) ended_ns: u64,
    pub(crate) keep_ns: u64,
    pub(crate) layout: u64,
    pub(crate) entries_max: u64,
    pub(crate) cpus: u64,
    pub(crate) reserved: [u64; 3],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for LeaseWords {}

pub(crate) const PROCESSES_LIMIT: u32 = 64;
pub(crate) const LEASES_LIMIT: u32 = 64;

pub(crate) const HOST_BITS: usize = 4096;

/// `struct lessee` of lease.c.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Lessee {
    pub(crate) number: u16,
    pub(crate) process: u16,
    pub(crate) lent: u32,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Lessee {}

/// `struct host` of lease.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct HostKey {
    pub(crate) family: u32,
    pub(crate) address: [u32; 4],
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for HostKey {}

/// `struct crossing` of bridge.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Crossing {
    pub(crate) port: u32,
    pub(crate) kernel: u32,
    pub(crate) only_when_stuck: u32,
    pub(crate) one_stuck: u32,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Crossing {}

/// `struct crossed` of bridge.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Crossed {
    pub frames_in: u64,
    pub bytes_in: u64,
    pub frames_out: u64,
    pub bytes_out: u64,
    pub given: u64,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for Crossed {}

pub(crate) const FAILS_OPEN: u32 = 1;

/// `struct port` of ports.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PortWords {
    pub(crate) flags: u32,
    pub(crate) number: u16,
    pub(crate) masks: u16,
}

// SAFETY: repr(C), of integers, without padding; any bytes are a value.
unsafe impl Pod for PortWords {}
