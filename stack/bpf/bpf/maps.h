/* The rules and the counters of one interface of one process.
 *
 * Every rule but a flow exists in one of two generations; `state.active` says which one is in force. A change is
 * written into the other generation and then put in force by one store, so a frame is decided by the old rules or by
 * the new ones, never by a mixture. src/layout.rs has the same layouts. */
#ifndef TWINPATH_MAPS_H
#define TWINPATH_MAPS_H

#include "kernel.h"
#include "pending.h"

/* Numbers of Verdict and PassReason in stack/claims; one counter each. */
enum number {
	CLAIMED = 0,
	UNCLAIMED = 1,
	NOT_FOR_THIS_HOST = 2,
	MULTICAST = 3,
	NOT_OWN_ADDRESS = 4,
	VLAN_TAG = 5,
	FRAGMENT = 6,
	HEADER_NOT_UNDERSTOOD = 7,
	TRUNCATED = 8,
	BAD_LENGTH = 9,
	TOO_LONG = 10,
	COALESCED = 11,
	TCP_NOT_OPENING = 12,
	SOURCE_NOT_ALLOWED = 13,
	TCP_AUTHENTICATED = 14,
	TCP_SYN_DATA = 15,
	TCP_DECLINED_BY_WORKER = 16,
	TCP_OPENING = 17,
	CLAIMED_LARGE = 18,
	/* Counters that only the programs have. */
	NO_SOCKET = 24,   /* claimed, but nobody takes it (XDP: the queue has no socket): passed */
	WITHHELD = 25,    /* tcx: the kernel's copy of a claimed frame was dropped */
	OTHER_FRAME = 26, /* tcx: the note was about another frame: passed */
	WORKER_STUCK = 27, /* a claim matched, but the worker is stuck: passed */
	BY_REFLEX = 28,	   /* a claim matched, and the program has replied */
	/* What becomes of a SYN that a worker may get. */
	TCP_SYN_OF_KERNEL = 29, /* the kernel has a socket for the tuple, or no listener: passed */
	TCP_NO_ROOM = 30,   /* the worker takes no more: passed */
	TCP_TABLE_FULL = 31,	/* passed */
	TCP_SYNS_FULL = 32, /* the ring of SYNs is full: passed */
	TCP_SYN_TWICE = 33, /* another CPU has handed over the same one: dropped */
	/* Segments of connections that workers have. */
	TCP_TOO_LARGE = 34, /* nobody takes a frame of this size: dropped */
	TCP_STUCK = 35,	    /* the worker is stuck: dropped */
	TCP_MARTIAN = 36,   /* a SYN from an address that no other host can have: passed */
	TCP_BAD_CHECKSUM = 37, /* a SYN whose checksum is wrong: passed */
	COUNTERS = 64,
};

/* Which kinds of rules exist, so that most look-ups can be skipped. */
enum flag {
	HAS_VLANS = 1,
	HAS_ETHERTYPES = 2,
	HAS_FLOWS = 4,
	HAS_ADDRESS_CLAIMS = 8,
	HAS_IPV4 = 16,
	HAS_IPV6 = 32,
	MANY_IPV4 = 64, /* more local addresses than the configuration holds */
	MANY_IPV6 = 128,
	HAS_CONNECTIONS = 256,
};

struct config {
	__u16 mac[3]; /* as on the wire */
	__u16 flags;
	__u32 frame_len_max;
	__u32 reserved;
	/* Local addresses; unused slots repeat the last one. */
	__u32 ipv4[4];
	__u32 ipv6[2][4];
};

/* A plain claim on a port, the only one on it: untagged, at every local address, from every source. It is found by the low
 * byte of the port; if two collide, the claim is found in `claims`. */
struct plain {
	__u16 port;    /* as on the wire */
	__u8 protocol; /* 0: none */
	__u8 connections; /* as of a claim */
	__u16 index;
	__u16 reflex; /* as of a claim */
};

/* The protocols that can be claimed; each has an index in tables by protocol. `Protocol::index` in core/wire.
 * */
enum protocol_index {
	UDP_INDEX = 0,
	TCP_INDEX = 1,
	PROTOCOLS = 2,
};

/* Bitmaps of ports: by generation, by protocol, by destination port. A set bit means that some port or flow claim may
 * match the frame; a clear one that none does. */
struct state {
	__u32 active;
	__u32 reserved;
	struct config config[2];
	struct plain plain[2][256];
	__u64 ports[2][PROTOCOLS][1024];
};

struct state state;

enum { KIND_ETHERTYPE = 0 }; /* the other kinds are the IP protocol numbers */
enum { VLAN_NONE = 0xffff };

struct claim_key {
	__u8 generation;
	__u8 kind;
	__u8 family; /* 4 or 6, or 0: every local address */
	__u8 reserved;
	__u16 vlan;   /* host order */
	__u16 number; /* port or EtherType, as on the wire */
	__u32 address[4];
};

struct claim {
	__u16 index;
	__u16 has_sources;
	/* What the programs may answer by themselves (reflex.h): its place in the low byte, flags above it; 0: nothing. */
	__u16 reflex;
	/* Of a port of TCP, not 0: workers have whole connections (connections.h). */
	__u16 connections;
};

struct address_key {
	__u8 generation;
	__u8 family;
	__u16 reserved;
	__u32 address[4];
};

struct flow_key {
	__u8 family;
	__u8 protocol;
	__u16 vlan;
	__u16 source_port;
	__u16 destination_port;
	__u32 source[4];
	__u32 destination[4];
};

struct source_key {
	__u32 prefix_len; /* bits of all that follows */
	__u8 generation;
	__u8 family;
	__u16 claim; /* big-endian: a prefix is compared byte by byte */
	__u32 address[4];
};

/* A copy of the start of a frame, which also identifies it: addresses, ports, IP identification, lengths, the UDP
 * checksum. It begins at offset 2, which aligns the IP header to four (the verifier requires aligned stack reads). */
enum { HEAD_WORDS = 10, HEAD_AT = 2, HEAD_LEN = HEAD_WORDS * 8 - HEAD_AT };

enum note_opens {
	OPENS = 1,	/* a worker may get it */
	OPENS_AGAIN = 2, /* its tuple is that of a worker that is stuck */
};

struct per_cpu {
	__u64 counters[COUNTERS];
	/* The last frame that the filter claimed on this CPU; length 0: none, or the last frame was not claimed. */
	__u32 note_len;
	__u32 note_reflex; /* the claim's reflex, if tc is to reply to the frame */
	__u32 queue;	   /* of the socket whose filter goes on in another program */
	__u32 note_opens;  /* the frame is a SYN, for twinpath_opens: enum note_opens */
	__u64 note[HEAD_WORDS];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct claim_key);
	MAP_TYPE(value, struct claim);
	MAP_UINT(max_entries, 2 * 4096);
} claims SECTION(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address_key);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 2 * 256);
} addresses SECTION(".maps");

/* The value: the claim's index, and its reflex above that. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct flow_key);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 2 * 4096);
} flows SECTION(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct source_key);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 2 * 4096);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
} sources SECTION(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct per_cpu);
	MAP_UINT(max_entries, 1);
} per_cpu SECTION(".maps");

struct grace_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 1);
};

/* No program uses this map. The kernel lets an update of a map of maps return only when all programs that were running have
 * ended (maybe_wait_bpf_programs): afterwards no program uses the former generation. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct grace_inner *values[];
} grace SECTION(".maps");

struct grace_inner grace_token SECTION(".maps");

/* Not 0 if workers have connections of TCP. Constant once loaded; otherwise none of that code is left. */
const volatile __u32 connections = 0;

/* Set by tests before loading: the programs return the verdict's number and claim instead of acting on it, and expect
 * the context that BPF_PROG_TEST_RUN passes to a socket filter. Constant once loaded, so it costs nothing. */
const volatile __u32 test_run = 0;

#endif
