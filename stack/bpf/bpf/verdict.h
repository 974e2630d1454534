/* The verdict on one frame: stack/claims/src/verdict.rs in C, check by check and in the same order.
 *
 * The including program defines HAS(frame, n): whether the first n bytes of the frame can be read. It defines CONNECTIONS if
 * it can claim connections of TCP. */
#ifndef TWINPATH_VERDICT_H
#define TWINPATH_VERDICT_H

#include "maps.h"
#ifdef CONNECTIONS
#include "connections.h"
#endif

enum { ETH_LEN = 14, TAG_LEN = 4, IPV4_LEN = 20, IPV6_LEN = 40, UDP_LEN = 8, TCP_LEN = 20 };
enum { IPV4 = 0x0800, IPV6 = 0x86dd, VLAN = 0x8100, SERVICE_VLAN = 0x88a8 };
enum { TCP = 6, UDP = 17, FRAGMENT_HEADER = 44 };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

struct frame {
	const __u8 *bytes;
	const void *end; /* XDP only */
	__u32 len;       /* from the MAC header on */
	__u32 generation;
	__u16 vlan; /* host order, or VLAN_NONE */
	__u8 service_tag;
	__u8 coalesced;
	__u16 reflex; /* of the claim, once that is found */
	__u16 queue;  /* of the worker that has the connection */
	__u8 is_known; /* a worker has the connection, and its segments are not the kernel's */
	__u8 opens; /* it is known, and is a SYN */
	__u32 segment_len; /* of coalesced datagrams that a worker takes apart; 0: they are the kernel's */
	__u32 segments;	   /* how many the kernel has counted, with a segment_len */
	__u8 leaves_tcp; /* not 0: another program decides segments to ports where workers may have connections */
};

/* A verdict: its number in the low byte, and the claim's index above it. */
typedef __u32 verdict_t;
#define BY(number, index_) ((number) | (verdict_t)(index_) << 8)
#define CLAIMED_BY(claim_) ((frame)->reflex = (claim_)->reflex, BY(CLAIMED, (claim_)->index))

#define AT16(frame, offset) (*(const __u16 *)((frame)->bytes + (offset)))
#define AT32(frame, offset) (*(const __u32 *)((frame)->bytes + (offset)))

INLINE verdict_t unclaimed(const struct frame *frame)
{
	return frame->vlan != VLAN_NONE ? VLAN_TAG : UNCLAIMED;
}

INLINE const struct config *config_of(const struct frame *frame)
{
	return &state.config[frame->generation & 1];
}

INLINE void copy_address(__u32 to[4], const struct frame *frame, __u32 at, int words)
{
	to[0] = AT32(frame, at);
	if (words == 4) {
		to[1] = AT32(frame, at + 4);
		to[2] = AT32(frame, at + 8);
		to[3] = AT32(frame, at + 12);
	}
}

/* The checks that apply to a frame for every claim; 0 if all pass. */
INLINE verdict_t check_frame(const struct frame *frame)
{
	const struct config *config = config_of(frame);

	if (frame->coalesced)
		return COALESCED;
	if (frame->bytes[0] & 1)
		return MULTICAST;
	if (AT16(frame, 0) != config->mac[0] || AT16(frame, 2) != config->mac[1] || AT16(frame, 4) != config->mac[2])
		return NOT_FOR_THIS_HOST;
	if (frame->len > config->frame_len_max)
		return TOO_LONG;
	return 0;
}

INLINE verdict_t decide_other(struct frame *frame, __u16 ethertype)
{
	struct claim_key key = {};
	const struct claim *claim;
	verdict_t wrong;

	if (!(config_of(frame)->flags & HAS_ETHERTYPES))
		return unclaimed(frame);
	key.generation = frame->generation;
	key.kind = KIND_ETHERTYPE;
	key.vlan = frame->vlan;
	key.number = ethertype;
	claim = map_lookup(&claims, &key);
	if (!claim)
		return unclaimed(frame);
	wrong = check_frame(frame);
	return wrong ? wrong : CLAIMED_BY(claim);
}

/* Offsets in a packet; all but the length are constant once inlined. */
struct packet {
	__u8 family;
	__u8 protocol;
	__u8 index; /* of the protocol, below PROTOCOLS */
	int words; /* words of an address */
	__u32 source_at;
	__u32 destination_at;
	__u32 transport_at;
	int transport_len; /* from the IP header; negative if that is invalid */
};

enum { OPENING = 0x100, NOT_OPENING = 0x200 };

/* The index of an IP protocol; PROTOCOLS if it cannot be claimed. */
INLINE __u8 index_of(__u8 protocol)
{
	switch (protocol) {
	case UDP:
		return UDP_INDEX;
	case TCP:
		return TCP_INDEX;
	default:
		return PROTOCOLS;
	}
}

/* The checks of each protocol's header give OPENING, NOT_OPENING, or the number of the check that failed. */

INLINE verdict_t check_udp(const struct frame *frame, const __u32 at, const int len)
{
	int udp_len;

	if (len < UDP_LEN || !HAS(frame, at + UDP_LEN))
		return BAD_LENGTH;
	udp_len = be16(AT16(frame, at + 4));
	if (udp_len < UDP_LEN || udp_len > len)
		return BAD_LENGTH;
	return OPENING;
}

INLINE verdict_t check_tcp(const struct frame *frame, const __u32 at, const int len)
{
	int header_len;

	if (len < TCP_LEN || !HAS(frame, at + 14))
		return BAD_LENGTH;
	header_len = (frame->bytes[at + 12] >> 4) * 4;
	if (header_len < TCP_LEN || header_len > len)
		return BAD_LENGTH;
	return (frame->bytes[at + 13] & (SYN | ACK | RST | FIN)) == SYN ? OPENING : NOT_OPENING;
}

INLINE verdict_t check_lengths(const struct frame *frame, const struct packet *packet)
{
	const __u32 at = packet->transport_at;
	const int len = packet->transport_len;

	if (len < 0 || at + len > frame->len)
		return BAD_LENGTH;
	switch (packet->protocol) {
	case UDP:
		return check_udp(frame, at, len);
	case TCP:
		return check_tcp(frame, at, len);
	default: /* index_of has refused it */
		return UNCLAIMED;
	}
}

INLINE const __u32 *find_flow(const struct frame *frame, const struct packet *packet)
{
	struct flow_key key = {};

	if (!(config_of(frame)->flags & HAS_FLOWS))
		return 0;
	key.family = packet->family;
	key.protocol = packet->protocol;
	key.vlan = frame->vlan;
	key.source_port = AT16(frame, packet->transport_at);
	key.destination_port = AT16(frame, packet->transport_at + 2);
	copy_address(key.source, frame, packet->source_at, packet->words);
	copy_address(key.destination, frame, packet->destination_at, packet->words);
	return map_lookup(&flows, &key);
}

INLINE const struct claim *find_port(const struct frame *frame, const struct packet *packet)
{
	const struct claim *claim;
	struct claim_key key = {};

	key.generation = frame->generation;
	key.kind = packet->protocol;
	key.vlan = frame->vlan;
	key.number = AT16(frame, packet->transport_at + 2);
	if (config_of(frame)->flags & HAS_ADDRESS_CLAIMS) {
		key.family = packet->family;
		copy_address(key.address, frame, packet->destination_at, packet->words);
		claim = map_lookup(&claims, &key);
		if (claim)
			return claim;
		key.family = 0;
		__builtin_memset(key.address, 0, sizeof(key.address));
	}
	return map_lookup(&claims, &key);
}

INLINE int source_allowed(const struct frame *frame, const struct packet *packet, __u16 index)
{
	struct source_key key = {};

	key.prefix_len = 32 + packet->words * 32;
	key.generation = frame->generation;
	key.family = packet->family;
	key.claim = be16(index);
	copy_address(key.address, frame, packet->source_at, packet->words);
	return map_lookup(&sources, &key) != 0;
}

INLINE int is_ipv6(const struct frame *frame, __u32 at, const __u32 address[4])
{
	return AT32(frame, at) == address[0] && AT32(frame, at + 4) == address[1] &&
	       AT32(frame, at + 8) == address[2] && AT32(frame, at + 12) == address[3];
}

INLINE int own_address(const struct frame *frame, const struct packet *packet)
{
	const struct config *config = config_of(frame);
	const __u32 at = packet->destination_at;
	const int ipv4 = packet->family == 4;
	struct address_key key = {};

	if (!(config->flags & (ipv4 ? HAS_IPV4 : HAS_IPV6)))
		return 0;
	if (ipv4) {
		__u32 address = AT32(frame, at);

		if (address == config->ipv4[0] || address == config->ipv4[1] || address == config->ipv4[2] ||
		    address == config->ipv4[3])
			return 1;
	} else if (is_ipv6(frame, at, config->ipv6[0]) || is_ipv6(frame, at, config->ipv6[1])) {
		return 1;
	}
	if (!(config->flags & (ipv4 ? MANY_IPV4 : MANY_IPV6)))
		return 0;
	key.generation = frame->generation;
	key.family = packet->family;
	copy_address(key.address, frame, at, packet->words);
	return map_lookup(&addresses, &key) != 0;
}

/* Decides by the plain claim on the packet's port, which is the only claim on it. */
INLINE const struct plain *find_plain(const struct frame *frame, const struct packet *packet, __u32 port)
{
	const struct plain *plain = &state.plain[frame->generation & 1][port & 0xff];

	if (frame->vlan != VLAN_NONE || plain->protocol != packet->protocol || plain->port != be16((__u16)port))
		return 0;
	return plain;
}

#ifdef CONNECTIONS
/* Not a verdict: see leaves_tcp. */
enum { LEFT_TO_OTHER = 0xff };

/* What is known of a packet's tuple: null if no worker has it. */
INLINE const struct tcp_flow *find_tuple(const struct frame *frame, const struct packet *packet)
{
	struct flow_key key = {};
	void *all = all_tcp_flows();

	if (!all)
		return 0;
	key.family = packet->family;
	key.protocol = TCP;
	key.source_port = AT16(frame, packet->transport_at);
	key.destination_port = AT16(frame, packet->transport_at + 2);
	copy_address(key.source, frame, packet->source_at, packet->words);
	copy_address(key.destination, frame, packet->destination_at, packet->words);
	return map_lookup(all, &key);
}

/* Decides by a claim on a port at which workers have connections. `wrong` is not 0 if the frame is too large, or coalesced. */
INLINE verdict_t decide_connection(struct frame *frame, const struct packet *packet, __u16 index, int has_sources,
				   verdict_t opening, verdict_t wrong)
{
	const struct tcp_flow *flow = find_tuple(frame, packet);

	if (flow && !(flow->flags & TCP_DECLINED)) {
		frame->queue = flow->queue;
		frame->is_known = 1;
		frame->opens = opening == OPENING;
		return wrong ? BY(CLAIMED_LARGE, index) : BY(CLAIMED, index);
	}
	if (wrong)
		return wrong;
	if (flow)
		return TCP_DECLINED_BY_WORKER;
	if (opening == NOT_OPENING)
		return TCP_NOT_OPENING;
	if (has_sources && !source_allowed(frame, packet, index))
		return SOURCE_NOT_ALLOWED;
	return BY(TCP_OPENING, index);
}

INLINE verdict_t decide_tcp_claims(struct frame *frame, const struct packet *packet, __u32 port, verdict_t opening,
				   verdict_t wrong)
{
	const struct plain *plain = find_plain(frame, packet, port);
	const struct claim *claim;
	const __u32 *flow;

	if (plain) {
		if (plain->connections)
			return decide_connection(frame, packet, plain->index, 0, opening, wrong);
		if (wrong)
			return wrong;
		return opening == OPENING ? CLAIMED_BY(plain) : TCP_NOT_OPENING;
	}
	flow = wrong ? 0 : find_flow(frame, packet);
	if (flow) {
		frame->reflex = *flow >> 16;
		return BY(CLAIMED, *flow & 0xffff);
	}
	claim = find_port(frame, packet);
	if (claim && claim->connections)
		return decide_connection(frame, packet, claim->index, claim->has_sources, opening, wrong);
	if (wrong)
		return wrong;
	if (opening == NOT_OPENING)
		return TCP_NOT_OPENING;
	if (!claim)
		return unclaimed(frame);
	if (claim->has_sources && !source_allowed(frame, packet, claim->index))
		return SOURCE_NOT_ALLOWED;
	return CLAIMED_BY(claim);
}

/* As decide_transport(), for TCP where some claim says that workers have connections: a frame that is too large, or coalesced,
 * may be a segment of one. `transport` is the offset of the TCP header, and above it the family. One copy of the code serves all
 * headers in front of TCP. */
CALLED verdict_t decide_tcp(struct frame *frame, __u32 transport, int transport_len)
{
	const int is_ipv4 = transport >> 16 == 4;
	const struct config *config = config_of(frame);
	struct packet packet = {
		.family = transport >> 16,
		.protocol = TCP,
		.index = TCP_INDEX,
		.words = is_ipv4 ? 1 : 4,
		.transport_at = transport & 0xffff,
		.transport_len = transport_len,
	};
	verdict_t wrong, opening;

	packet.source_at = packet.transport_at - (is_ipv4 ? 8 : 32);
	packet.destination_at = packet.transport_at - (is_ipv4 ? 4 : 16);
	wrong = check_frame(frame);
	if (wrong && wrong != COALESCED && wrong != TOO_LONG)
		return wrong;
	if (AT16(frame, 0) != config->mac[0] || AT16(frame, 2) != config->mac[1] || AT16(frame, 4) != config->mac[2])
		return wrong;
	opening = check_lengths(frame, &packet);
	if (opening < OPENING)
		return wrong ? wrong : opening;
	if (!own_address(frame, &packet))
		return wrong ? wrong : NOT_OWN_ADDRESS;
	return decide_tcp_claims(frame, &packet, be16(AT16(frame, packet.transport_at + 2)), opening, wrong);
}

/* Keeps the frame's own fields out of memory where decide_tcp() is not called. */
INLINE verdict_t decide_tcp_of(struct frame *frame, const struct packet *packet)
{
	struct frame copied = *frame;
	verdict_t verdict =
		decide_tcp(&copied, packet->transport_at | (__u32)packet->family << 16, packet->transport_len);

	frame->reflex = copied.reflex;
	frame->queue = copied.queue;
	frame->is_known = copied.is_known;
	frame->opens = copied.opens;
	return verdict;
}
#endif

#include "datagrams.h"

INLINE verdict_t decide_transport(struct frame *frame, const struct packet *packet)
{
	const struct plain *plain;
	const struct claim *claim;
	const __u32 *flow;
	verdict_t wrong, opening;

	if (!HAS(frame, packet->transport_at + 4))
		return TRUNCATED;
	__u32 port = be16(AT16(frame, packet->transport_at + 2));
	__u64 bits = state.ports[frame->generation & 1][packet->index][port >> 6];
	if (!(bits >> (port & 63) & 1))
		return unclaimed(frame);
#ifdef CONNECTIONS
	if (connections && packet->protocol == TCP && config_of(frame)->flags & HAS_CONNECTIONS)
		return frame->leaves_tcp ? LEFT_TO_OTHER : decide_tcp_of(frame, packet);
#endif
	wrong = frame->segment_len && packet->protocol == UDP ? check_datagrams(frame, packet) : check_frame(frame);
	if (wrong)
		return wrong;
	opening = check_lengths(frame, packet);
	if (opening < OPENING)
		return opening;
	if (!own_address(frame, packet))
		return NOT_OWN_ADDRESS;
	plain = find_plain(frame, packet, port);
	if (plain)
		return opening == OPENING ? CLAIMED_BY(plain) : TCP_NOT_OPENING;
	flow = find_flow(frame, packet);
	if (flow) {
		frame->reflex = *flow >> 16;
		return CLAIMED | (*flow & 0xffff) << 8;
	}
	if (opening == NOT_OPENING)
		return TCP_NOT_OPENING;
	claim = find_port(frame, packet);
	if (!claim)
		return unclaimed(frame);
	if (claim->has_sources && !source_allowed(frame, packet, claim->index))
		return SOURCE_NOT_ALLOWED;
	return CLAIMED_BY(claim);
}

INLINE verdict_t decide_ipv4(struct frame *frame, const __u32 at)
{
	struct packet packet = {
		.family = 4,
		.words = 1,
		.source_at = at + 12,
		.destination_at = at + 16,
		.transport_at = at + IPV4_LEN,
	};

	if (!HAS(frame, at + IPV4_LEN))
		return TRUNCATED;
	if (frame->bytes[at] != 0x45)
		return HEADER_NOT_UNDERSTOOD;
	packet.protocol = frame->bytes[at + 9];
	packet.index = index_of(packet.protocol);
	if (packet.index == PROTOCOLS)
		return unclaimed(frame);
	if (AT16(frame, at + 6) & be16(0x3fff))
		return FRAGMENT;
	packet.transport_len = (int)be16(AT16(frame, at + 2)) - IPV4_LEN;
	return decide_transport(frame, &packet);
}

/* RFC 8200 section 4, RFC 4302, RFC 6275, RFC 7401, RFC 5533. */
INLINE int is_extension(__u8 next_header)
{
	return next_header == 0 || next_header == 43 || next_header == 51 || next_header == 60 ||
	       next_header == 135 || next_header == 139 || next_header == 140;
}

INLINE verdict_t decide_ipv6(struct frame *frame, const __u32 at)
{
	struct packet packet = {
		.family = 6,
		.words = 4,
		.source_at = at + 8,
		.destination_at = at + 24,
		.transport_at = at + IPV6_LEN,
	};

	if (!HAS(frame, at + IPV6_LEN))
		return TRUNCATED;
	if (frame->bytes[at] >> 4 != 6)
		return HEADER_NOT_UNDERSTOOD;
	packet.protocol = frame->bytes[at + 6];
	packet.index = index_of(packet.protocol);
	if (packet.index == PROTOCOLS) {
		if (packet.protocol == FRAGMENT_HEADER)
			return FRAGMENT;
		return is_extension(packet.protocol) ? HEADER_NOT_UNDERSTOOD : unclaimed(frame);
	}
	packet.transport_len = be16(AT16(frame, at + 4));
	return decide_transport(frame, &packet);
}

INLINE verdict_t decide_payload(struct frame *frame, __u16 ethertype, const __u32 at)
{
	if (ethertype == be16(IPV4))
		return decide_ipv4(frame, at);
	if (ethertype == be16(IPV6))
		return decide_ipv6(frame, at);
	return decide_other(frame, ethertype);
}

INLINE int is_tag(__u16 ethertype)
{
	return ethertype == be16(VLAN) || ethertype == be16(SERVICE_VLAN);
}

/* Whether some claim may name the tag, which is in the frame or outside it. */
INLINE int tag_may_be_named(const struct frame *frame)
{
	return !frame->service_tag && config_of(frame)->flags & HAS_VLANS;
}

INLINE verdict_t decide(struct frame *frame)
{
	__u16 ethertype;

	/* Read once, so that one generation decides the whole frame. */
	frame->generation = *(volatile __u32 *)&state.active & 1;
	if (!HAS(frame, ETH_LEN))
		return TRUNCATED;
	ethertype = AT16(frame, 12);
	if (is_tag(ethertype)) {
		if (!HAS(frame, ETH_LEN + TAG_LEN))
			return TRUNCATED;
		if (frame->vlan != VLAN_NONE || is_tag(AT16(frame, 16)))
			return VLAN_TAG;
		frame->vlan = be16(AT16(frame, 14)) & 0xfff;
		frame->service_tag = ethertype == be16(SERVICE_VLAN);
		if (!tag_may_be_named(frame))
			return VLAN_TAG;
		return decide_payload(frame, AT16(frame, 16), ETH_LEN + TAG_LEN);
	}
	if (frame->vlan != VLAN_NONE && !tag_may_be_named(frame))
		return VLAN_TAG;
	return decide_payload(frame, ethertype, ETH_LEN);
}

#endif
