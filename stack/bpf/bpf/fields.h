/* The fields of a frame, as the entries of offload.h have them.
 *
 * Fields are read as workers read them (switch/forwarding/src/openflow/pipeline/parse.rs, into the positions that key.rs
 * defines there). Frames with headers that are not read here are left to workers: tags among the bytes, LLC and SNAP, fragments, options
 * and extension headers, MPLS and PBB, ND messages (RFC 4861), and all headers that are truncated or contradict themselves. */
#ifndef TWINPATH_FIELDS_H
#define TWINPATH_FIELDS_H

#include "kernel.h"

enum { WORDS = 8 };

struct key {
	__u64 words[WORDS];
};

/* A word of the key whose 32 bits hold no field of a frame. They hold the number of the mask, so that entries with
 * different masks have different keys. */
enum { MASK_WORD = 3 };

/* Layers in the key. */
enum {
	L_IPV4 = 1, L_IPV6 = 1 << 1, L_ARP = 1 << 2, L_TCP = 1 << 3, L_UDP = 1 << 4, L_SCTP = 1 << 5,
	L_ICMPV4 = 1 << 6, L_ICMPV6 = 1 << 7, L_TAG = 1 << 13,
};

/* The head of a frame as big-endian words. It begins at offset 2, so that the IP header and IPv6's addresses begin with a
 * word. */
enum { FRAME_WORDS = 10, FRAME_AT = 2, FRAME_LEN = FRAME_WORDS * 8 - FRAME_AT };

enum { ODD = -1, OTHER = 0 };

/* Reads a transport header whose first eight bytes are `first`. Returns the header length for TCP or UDP, OTHER for other
 * protocols, ODD if it is truncated or left to workers. `room` is the length of the frame from here on. */
INLINE int read_transport(struct key *key, __u8 protocol, int is_ipv6, __u32 first, __u32 data_offset, int room)
{
	__u64 layer = 0;
	int len = 0, result = OTHER;

	switch (protocol) {
	case 6:
		layer = L_TCP;
		len = 20;
		result = (int)(data_offset >> 4) * 4;
		break;
	case 17:
		layer = L_UDP;
		result = len = 8;
		break;
	case 132:
		layer = L_SCTP;
		len = 12;
		break;
	case 1:
		if (is_ipv6)
			return OTHER;
		layer = L_ICMPV4;
		len = 4;
		break;
	case 58:
		if (!is_ipv6)
			return OTHER;
		layer = L_ICMPV6;
		len = 4;
		break;
	default:
		return OTHER;
	}
	if (room < len)
		return ODD;
	key->words[0] |= layer;
	if (layer & (L_ICMPV4 | L_ICMPV6)) {
		__u64 type = first >> 24;

		/* These ND messages have fields of their own. */
		if (layer == L_ICMPV6 && (type == 135 || type == 136))
			return ODD;
		key->words[3] = type << 48 | (__u64)(first >> 16 & 0xff) << 32;
	} else {
		key->words[3] = (__u64)first << 32;
	}
	return result;
}

/* Reads the fields of a frame of `room` bytes, at least an Ethernet header, whose head has been loaded as it is in memory.
 * Returns where its payload begins, which is known for TCP and UDP; 0 for others; ODD if workers are to read it. No byte
 * decides that lies beyond the end of the frame. */
INLINE int read_fields(struct key *key, __u64 head[FRAME_WORDS], int room, __u16 in_port)
{
	__u16 ethertype;
	int header = OTHER, at;

#pragma unroll
	for (int word = 0; word < FRAME_WORDS; word++)
		head[word] = be64(head[word]);
	ethertype = (__u16)head[1];
	/* A length: the type is behind it, if there is one. */
	if (ethertype < 0x600)
		return ODD;
	key->words[0] = (__u64)ethertype << 48 | (__u64)in_port << 16;
	key->words[1] = head[0] << 16;
	key->words[2] = head[1] & ~0xffffULL;
	switch (ethertype) {
	case 0x0800: {
		__u8 protocol = head[3] >> 48;

		/* Version 4, no options; no fragment, which a controller may have dropped. */
		if (room < 34 || head[2] >> 56 != 0x45 || head[2] & 0x3fff)
			return ODD;
		key->words[0] |= L_IPV4;
		key->words[1] |= (__u64)protocol << 8 | (head[2] >> 48 & 0xff);
		key->words[4] = head[3] << 32 | head[4] >> 32;
		at = 34;
		header = read_transport(key, protocol, 0, head[4], head[6] >> 56, room - at);
		break;
	}
	case 0x86dd: {
		__u8 protocol = head[2] >> 8;

		if (room < 54 || head[2] >> 60 != 6)
			return ODD;
		switch (protocol) {
		case 0: case 43: case 44: case 50: case 51: case 59: case 60:
			return ODD;
		}
		key->words[0] |= L_IPV6;
		key->words[1] |= (__u64)protocol << 8 | (head[2] >> 52 & 0xff);
		key->words[4] = head[3];
		key->words[5] = head[4];
		key->words[6] = head[5];
		key->words[7] = head[6];
		at = 54;
		header = read_transport(key, protocol, 1, head[7] >> 32, head[8] >> 24 & 0xff, room - at);
		break;
	}
	case 0x0806:
		/* Ethernet and IPv4, and the lengths of their addresses. */
		if (room < 42 || head[2] >> 16 != 0x000108000604ULL)
			return ODD;
		key->words[0] |= L_ARP;
		key->words[2] |= head[2] & 0xffff;
		key->words[4] = (head[3] & 0xffff) << 48 | head[4] >> 48 << 32 | head[5] >> 32;
		key->words[5] = head[3] & ~0xffffULL;
		key->words[6] = head[4] << 16;
		return OTHER;
	case 0x8100: case 0x88a8: case 0x8847: case 0x8848: case 0x88e7:
		return ODD;
	default:
		return OTHER;
	}
	return header > 0 ? at + header : header;
}

/* The same for a frame at tc or at a socket. */
INLINE int read_skb(struct __sk_buff *skb, struct key *key, __u16 in_port)
{
	__u64 head[FRAME_WORDS] = {};
	__u64 len = skb->len;
	int room = (int)len, payload_at;

	if (len < 14)
		return ODD;
	WITHIN(len, 14, FRAME_LEN);
	if (skb_load_bytes(skb, 0, (__u8 *)head + FRAME_AT, (__u32)len) != 0)
		return ODD;
	payload_at = read_fields(key, head, room, in_port);
	if (skb->vlan_present) {
		__u32 tag = skb->vlan_tci;

		if (skb->vlan_proto != be16(0x8100))
			return ODD;
		key->words[0] |= (__u64)((tag & 0xfff) | 0x1000) << 35 | (__u64)(tag >> 13 & 7) << 32 | L_TAG;
	}
	return payload_at;
}

/* Copies four bytes of a frame that begin at `at`, if it is that long. All parts of headers that are read begin and end so. */
#define COPY_PART(at)                                                                                  \
	if (bytes + (at) + 4 > end)                                                                    \
		return 1;                                                                              \
	*(__u32 *)((__u8 *)head + FRAME_AT + (at)) = *(const __u32 *)(bytes + (at))

/* Copies the head of a frame in memory, into zeros. Returns 0 if it is shorter than an Ethernet header. */
INLINE int copy_head(__u64 head[FRAME_WORDS], const __u8 *bytes, const __u8 *end)
{
	if (bytes + 14 > end)
		return 0;
	head[0] = *(const __u64 *)bytes << 16;
	if (bytes + 54 <= end) {
#pragma unroll
		for (int word = 1; word < 7; word++)
			head[word] = *(const __u64 *)(bytes + word * 8 - FRAME_AT);
		COPY_PART(54);
		COPY_PART(58);
		COPY_PART(62);
		COPY_PART(66);
		COPY_PART(70);
		COPY_PART(74);
		return 1;
	}
	head[1] = *(const __u64 *)(bytes + 6);
	COPY_PART(14);
	COPY_PART(18);
	COPY_PART(22);
	COPY_PART(26);
	COPY_PART(30);
	COPY_PART(34);
	COPY_PART(38);
	COPY_PART(42);
	COPY_PART(46);
	return 1;
}

#endif
