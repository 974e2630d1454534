//! Which definitions of the kernel's programs are written in Rust, and where.

/// Among the fields of [`Item::Places`]: the length of the struct.
pub(super) const LEN: &str = "";

/// A file in Rust, and what of the sources it has.
pub(super) struct Made {
    pub(super) path: &'static str,
    pub(super) about: &'static str,
    pub(super) items: &'static [Item],
}

/// A definition in a source, by its file there.
pub(super) enum Item {
    /// Numbers, as constants of this type.
    Numbers(&'static str, &'static str, &'static [&'static str]),
    /// The places of these fields of a struct, and its length ([`LEN`]), in bytes.
    Places(&'static str, &'static str, &'static [&'static str]),
    /// A struct.
    Struct(&'static str, &'static str, Struct),
}

/// How a struct is written in Rust.
pub(super) struct Struct {
    pub(super) name: &'static str,
    /// Fields whose integers are bytes in the order of the wire; those of the last dimension together.
    pub(super) bytes: &'static [&'static str],
    /// The same, each integer by itself.
    pub(super) each: &'static [&'static str],
    /// The first field, if Rust has it elsewhere.
    pub(super) without: &'static str,
    pub(super) derives: &'static str,
    pub(super) is_public: bool,
}

pub(super) const PLAIN: Struct =
    Struct { name: "", bytes: &[], each: &[], without: "", derives: "Clone, Copy, Debug", is_public: false };

const KEY: &str = "Clone, Copy, Debug, PartialEq, Eq, Hash";
const VALUE: &str = "Clone, Copy, Debug, Default, PartialEq, Eq";

pub(super) const FILES: [Made; 4] = [
    Made {
        path: "core/rings/src/direct/layout.rs",
        about: "The state of a direct ring, and its head.",
        items: &[
            Item::Numbers("direct.h", "usize", &["SLOT_LEN"]),
            Item::Numbers("direct.h", "u64", &["OPEN", "SINGLE", "PASSED", "POSITION"]),
            Item::Places(
                "direct.h",
                "direct",
                &[
                    LEN,
                    "without_socket",
                    "wants_socket",
                    "until",
                    "ended",
                    "head",
                    "full",
                    "lapsed",
                    "passed",
                    "odd",
                ],
            ),
        ],
    },
    Made {
        path: "core/rings/src/layouts.rs",
        about: "What else rings and words beside them share with the programs of the kernel.",
        items: &[
            Item::Numbers("maps.h", "u16", &["VLAN_NONE"]),
            Item::Places("direct.h", "slot", &["bytes"]),
            Item::Numbers("pending.h", "u64", &["WITHDRAWN"]),
            Item::Numbers("reflex.h", "u64", &["GIVEN_BACK"]),
            Item::Places("pending.h", "pending", &[LEN, "since", "worker_until"]),
            Item::Numbers("lease.c", "usize", &["SAMPLE_LEN"]),
            Item::Numbers("lease.c", "u32", &["SAMPLE_NONE", "SAMPLE_ASKED", "SAMPLE_WRITTEN"]),
            Item::Places("lease.c", "sample", &[LEN, "state", "len", "head", "asked"]),
        ],
    },
    Made {
        path: "stack/reflex/src/layouts.rs",
        about: "Kept replies, as the programs of the kernel read them.",
        items: &[
            Item::Numbers(
                "kept.h",
                "usize",
                &["KEPT_SERVICES", "KEPT_SLOTS", "KEPT_REQUEST", "KEPT_REPLY", "KEPT_GENERATIONS"],
            ),
            Item::Places(
                "kept.h",
                "kept",
                &[
                    LEN,
                    "sequence",
                    "hash",
                    "generation",
                    "until_ns",
                    "name",
                    "service",
                    "shape",
                    "request_len",
                    "reply_len",
                    "used",
                    "request",
                    "reply",
                ],
            ),
        ],
    },
    Made {
        path: "stack/bpf/src/layouts.rs",
        about: "What we share with the programs of the kernel: the keys and values of their maps, and numbers.",
        items: &[
            Item::Numbers(
                "maps.h",
                "u16",
                &[
                    "HAS_VLANS",
                    "HAS_ETHERTYPES",
                    "HAS_FLOWS",
                    "HAS_ADDRESS_CLAIMS",
                    "HAS_IPV4",
                    "HAS_IPV6",
                    "MANY_IPV4",
                    "MANY_IPV6",
                    "HAS_CONNECTIONS",
                    "VLAN_NONE",
                ],
            ),
            Item::Numbers(
                "maps.h",
                "u8",
                &[
                    "KIND_ETHERTYPE",
                    "CLAIMED",
                    "UNCLAIMED",
                    "NOT_FOR_THIS_HOST",
                    "MULTICAST",
                    "NOT_OWN_ADDRESS",
                    "VLAN_TAG",
                    "FRAGMENT",
                    "HEADER_NOT_UNDERSTOOD",
                    "TRUNCATED",
                    "BAD_LENGTH",
                    "TOO_LONG",
                    "COALESCED",
                    "TCP_NOT_OPENING",
                    "SOURCE_NOT_ALLOWED",
                    "TCP_AUTHENTICATED",
                    "TCP_SYN_DATA",
                    "TCP_DECLINED_BY_WORKER",
                    "TCP_OPENING",
                    "CLAIMED_LARGE",
                ],
            ),
            Item::Numbers(
                "maps.h",
                "usize",
                &[
                    "NO_SOCKET",
                    "WITHHELD",
                    "OTHER_FRAME",
                    "WORKER_STUCK",
                    "BY_REFLEX",
                    "TCP_SYN_OF_KERNEL",
                    "TCP_NO_ROOM",
                    "TCP_TABLE_FULL",
                    "TCP_SYNS_FULL",
                    "TCP_SYN_TWICE",
                    "TCP_TOO_LARGE",
                    "TCP_STUCK",
                    "TCP_MARTIAN",
                    "TCP_BAD_CHECKSUM",
                    "UDP_INDEX",
                    "TCP_INDEX",
                    "PROTOCOLS",
                ],
            ),
            Item::Numbers("datagrams.h", "usize", &["DATAGRAMS_MAX"]),
            Item::Struct(
                "maps.h",
                "config",
                Struct {
                    name: "Config",
                    bytes: &["mac", "ipv6"],
                    each: &["ipv4"],
                    derives: "Clone, Copy, Debug, Default, PartialEq, Eq, Hash",
                    ..PLAIN
                },
            ),
            Item::Struct(
                "maps.h",
                "plain",
                Struct { name: "Plain", bytes: &["port"], derives: VALUE, ..PLAIN },
            ),
            Item::Struct("maps.h", "state", Struct { name: "State", derives: "Clone, Copy", ..PLAIN }),
            Item::Struct(
                "maps.h",
                "claim_key",
                Struct { name: "ClaimKey", bytes: &["number", "address"], derives: KEY, ..PLAIN },
            ),
            Item::Struct("maps.h", "claim", Struct { name: "ClaimValue", derives: VALUE, ..PLAIN }),
            Item::Struct(
                "maps.h",
                "address_key",
                Struct { name: "AddressKey", bytes: &["address"], derives: KEY, ..PLAIN },
            ),
            Item::Struct(
                "maps.h",
                "flow_key",
                Struct {
                    name: "FlowKeyBytes",
                    bytes: &["source_port", "destination_port", "source", "destination"],
                    derives: KEY,
                    ..PLAIN
                },
            ),
            Item::Struct(
                "maps.h",
                "source_key",
                Struct {
                    name: "SourceKey",
                    bytes: &["claim", "address"],
                    without: "prefix_len",
                    derives: KEY,
                    ..PLAIN
                },
            ),
            Item::Struct("maps.h", "per_cpu", Struct { name: "PerCpu", ..PLAIN }),
            Item::Numbers("connections.h", "u32", &["TCP_DECLINED", "TCP_ENDED", "TCP_HALF_OPEN"]),
            Item::Struct(
                "connections.h",
                "tcp_flow",
                Struct { name: "TcpFlow", derives: "Clone, Copy, Debug, Default", ..PLAIN },
            ),
            Item::Numbers("syns.h", "usize", &["SYN_QUEUES"]),
            Item::Places("syns.h", "syn", &["len", "leaked", "bytes", LEN]),
            Item::Numbers("opens.h", "usize", &["FULL_PORTS"]),
            Item::Places("opens.h", "tcp_room", &["room", "taken_back", "full", LEN]),
            Item::Numbers("pending.h", "u32", &["QUEUES_MAX"]),
            Item::Places("direct.h", "slot", &[LEN]),
            Item::Places("direct.h", "direct", &[LEN]),
            Item::Numbers(
                "kept.h",
                "usize",
                &["KEPT_SERVICES", "KEPT_SHAPES", "KEPT_VARYING", "KEPT_REQUEST"],
            ),
            Item::Struct(
                "kept.h",
                "kept_range",
                Struct { name: "Range", derives: "Clone, Copy, Debug, Default", ..PLAIN },
            ),
            Item::Struct(
                "kept.h",
                "kept_shape",
                Struct { name: "ShapeWords", derives: "Clone, Copy, Debug, Default", ..PLAIN },
            ),
            Item::Struct("kept.h", "kept_service", Struct { name: "Service", ..PLAIN }),
            Item::Numbers("reflex.h", "u16", &["MIRRORS", "KEEPS"]),
            Item::Numbers("reflex.h", "usize", &["WHYS"]),
            Item::Numbers(
                "reflex.h",
                "u8",
                &[
                    "WHY_SUSPENDED",
                    "WHY_HEADER",
                    "WHY_NO_CHECKSUM",
                    "WHY_PORT",
                    "WHY_PEER",
                    "WHY_MTU",
                    "WHY_STUCK",
                    "WHY_CANARY",
                    "WHY_RATE",
                    "WHY_CHECKSUM",
                    "WHY_FAILED",
                    "WHY_SOURCE_RATE",
                    "WHY_TOO_LONG",
                    "WHY_UNKNOWN",
                    "WHY_EXPIRED",
                    "WHY_WITHDRAWN",
                    "WHY_LOAD",
                ],
            ),
            Item::Numbers("reflex.h", "u64", &["PEER_CANARY_NS"]),
            Item::Places(
                "reflex.h",
                "reflex_control",
                &[LEN, "suspended", "interval_ns", "frame_len_max", "credits", "taps"],
            ),
            Item::Struct(
                "reflex.h",
                "peer_key",
                Struct { name: "PeerKey", bytes: &["address"], derives: KEY, ..PLAIN },
            ),
            Item::Struct("reflex.h", "peer", Struct { name: "Peer", bytes: &["next_hop", "own"], ..PLAIN }),
            Item::Struct("reflex.h", "reflex_count", Struct { name: "CountWords", ..PLAIN }),
            Item::Struct("reflex.h", "reflex_cpu", Struct { name: "CpuWords", ..PLAIN }),
            Item::Numbers("tap.h", "usize", &["TAPS", "TAP_FRAME"]),
            Item::Places("tap.h", "tapped", &["request_ns", "reply_ns", "request_len", "reply_len", "bytes"]),
            Item::Numbers("fields.h", "usize", &["WORDS", "MASK_WORD"]),
            Item::Numbers("offload.h", "usize", &["MASKS"]),
            Item::Numbers("offload.h", "u32", &["BY_XDP", "TIMED", "LEARNED", "COPIES"]),
            Item::Struct("fields.h", "key", Struct { name: "KeyWords", ..PLAIN }),
            Item::Struct("offload.h", "entry", Struct { name: "EntryWords", ..PLAIN }),
            Item::Places("offload.h", "offload", &[LEN, "generation", "version", "masks"]),
            Item::Places("offload.h", "passing", &[LEN]),
            Item::Numbers("moves.h", "usize", &["MOVE_WORDS", "BRIDGED"]),
            Item::Struct(
                "keep.h",
                "lease",
                Struct { name: "LeaseWords", derives: "Clone, Copy, Debug, Default", ..PLAIN },
            ),
            Item::Numbers("lease.c", "u32", &["PROCESSES_LIMIT", "LEASES_LIMIT"]),
            Item::Numbers("lease.c", "usize", &["HOST_BITS"]),
            Item::Struct("lease.c", "lessee", Struct { name: "Lessee", ..PLAIN }),
            Item::Struct("lease.c", "host", Struct { name: "HostKey", derives: KEY, ..PLAIN }),
            Item::Struct("bridge.c", "crossing", Struct { name: "Crossing", derives: VALUE, ..PLAIN }),
            Item::Struct(
                "bridge.c",
                "crossed",
                Struct { name: "Crossed", derives: VALUE, is_public: true, ..PLAIN },
            ),
            Item::Numbers("ports.c", "u32", &["FAILS_OPEN"]),
            Item::Struct(
                "ports.c",
                "port",
                Struct { name: "PortWords", derives: "Clone, Copy, Debug, Default", ..PLAIN },
            ),
        ],
    },
];
