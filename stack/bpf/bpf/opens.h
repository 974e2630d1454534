/* SYNs to a port at which workers have connections. The program at tc ingress asks the kernel whether it has a socket for the
 * tuple, which a socket filter cannot. If it has none but a listener, and the worker has room for one more connection, the
 * tuple becomes the worker's, and the worker gets the SYN by a ring of its own. In every other case the SYN is the kernel's,
 * whose own limits and cookies then apply. So a flood of SYNs takes no memory here beyond that room. */
#ifndef TWINPATH_OPENS_H
#define TWINPATH_OPENS_H

#include "connections.h"
#include "head.h"
#include "reflex.h"
#include "syns.h"

/* The Ethernet header, a tag, the IPv6 header, and the longest TCP header. */
enum { TCP_OPTIONS_MAX = 40, SYN_HEAD_MAX = ETH_LEN + TAG_LEN + IPV6_LEN + TCP_LEN + TCP_OPTIONS_MAX };
/* RFC 2385, RFC 5925. */
enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_MD5 = 19, OPTION_AO = 29 };

_Static_assert(SYN_HEAD_MAX <= sizeof(((struct syn *)0)->bytes), "a SYN with all its headers fits");

/* Ports that a worker may name. */
enum { FULL_PORTS = 24 };

/* How many more connections the worker of a queue takes: written by the worker, and counted down here. It may be below 0 for a
 * moment. A cache line for each. */
struct tcp_room {
	__u64 room;
	/* Changes before a SYN that the worker has not read is given to the kernel. */
	__u64 taken_back;
	/* Ports of services that have no room, whatever `room` says, in network byte order; 0: none. */
	__u16 full[FULL_PORTS];
};

struct tcp_rooms_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(key_size, sizeof(__u32));
	MAP_UINT(value_size, sizeof(struct tcp_room));
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct tcp_rooms_inner *values[];
} tcp_rooms SECTION(".maps");

/* Of the type that those in it have; not used. */
struct tcp_rooms_inner tcp_rooms_like SECTION(".maps");

/* What is read of a SYN. The verdict has checked its lengths. */
struct opening {
	struct flow_key key;
	__u32 tcp_at;
	__u32 header_len; /* of TCP, with options */
	__u32 len;	  /* of TCP with payload, by the IP header */
};

INLINE void read_opening(struct opening *opening, const __u8 *head, const __u32 at, __u16 ethertype)
{
	const struct frame copied = { .bytes = head }, *frame = &copied;
	const int is_ipv4 = ethertype == be16(IPV4);

	opening->key.protocol = TCP;
	if (is_ipv4) {
		opening->key.family = 4;
		copy_address(opening->key.source, frame, at + 12, 1);
		copy_address(opening->key.destination, frame, at + 16, 1);
		opening->tcp_at = at + IPV4_LEN;
		opening->len = be16(AT16(frame, at + 2)) - IPV4_LEN;
		opening->key.source_port = AT16(frame, at + IPV4_LEN);
		opening->key.destination_port = AT16(frame, at + IPV4_LEN + 2);
		opening->header_len = (head[at + IPV4_LEN + 12] >> 4) * 4;
	} else {
		opening->key.family = 6;
		copy_address(opening->key.source, frame, at + 8, 4);
		copy_address(opening->key.destination, frame, at + 24, 4);
		opening->tcp_at = at + IPV6_LEN;
		opening->len = be16(AT16(frame, at + 4));
		opening->key.source_port = AT16(frame, at + IPV6_LEN);
		opening->key.destination_port = AT16(frame, at + IPV6_LEN + 2);
		opening->header_len = (head[at + IPV6_LEN + 12] >> 4) * 4;
	}
}

/* Whether the peer wants to authenticate the connection, which the kernel can. Options that are not understood are the worker's
 * to judge. */
CALLED int is_authenticated(struct __sk_buff *skb, __u32 options_at, __u32 options_len)
{
	/* Zeros end the options. */
	__u8 options[64] = {};
	__u64 len = options_len;
	__u32 next = 0;

	if (!len)
		return 0;
	WITHIN(len, 1, TCP_OPTIONS_MAX);
	if (load_at(skb, options_at, options, (__u32)len) != 0)
		return 0;
	/* Each byte is read at a constant place: the verifiers of older Linux refuse others on the stack, and all look at every way
	 * through the options. */
#pragma unroll
	for (__u32 at = 0; at < TCP_OPTIONS_MAX; at++) {
		__u8 kind = options[at], size = options[at + 1];

		/* Within an option. */
		if (at != next)
			continue;
		if (kind == OPTION_END)
			break;
		if (kind == OPTION_MD5 || kind == OPTION_AO)
			return 1;
		if (kind == OPTION_NOP)
			size = 1;
		else if (size < 2)
			break;
		next += size;
	}
	return 0;
}

/* Whether the source is an address of this host, according to the rules in force. */
CALLED int is_from_this_host(const struct flow_key *key)
{
	const __u32 generation = *(volatile __u32 *)&state.active & 1;
	const struct config *config = &state.config[generation];
	struct address_key own = { .generation = generation, .family = key->family };
	const __u32 *source = key->source;

	if (key->family == 4) {
		if (source[0] == config->ipv4[0] || source[0] == config->ipv4[1] || source[0] == config->ipv4[2] ||
		    source[0] == config->ipv4[3])
			return config->flags & HAS_IPV4;
	} else {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const __u32 *of = config->ipv6[i];

			if (source[0] == of[0] && source[1] == of[1] && source[2] == of[2] && source[3] == of[3])
				return config->flags & HAS_IPV6;
		}
	}
	if (!(config->flags & (key->family == 4 ? MANY_IPV4 : MANY_IPV6)))
		return 0;
	__builtin_memcpy(own.address, source, sizeof(own.address));
	return map_lookup(&addresses, &own) != 0;
}

/* Whether no other host can have the source (RFC 1812 section 5.3.7; RFC 4291 sections 2.5 and 2.7). An IPv4 address that is
 * mapped into IPv6 is one of them: the worker would take the tuple for one of IPv4. */
INLINE int is_martian(const struct flow_key *key)
{
	const __u32 *source = key->source;
	const __u8 first = (__u8)source[0];

	if (key->family == 4)
		return first == 0 || first == 127 || first >= 224 || is_from_this_host(key);
	if (first == 0xff)
		return 1;
	if (source[0] == 0 && source[1] == 0 &&
	    (source[2] == be32(0xffff) || (source[2] == 0 && (source[3] == 0 || source[3] == be32(1)))))
		return 1;
	return is_from_this_host(key);
}

/* Not 0 if the checksum of a SYN must be right, as no device leaves it partial. Otherwise the worker takes a partial one, too.
 * Constant once loaded. */
const volatile __u32 verifies_syns = 0;

/* Whether the checksum of a SYN without payload is right (RFC 9293 section 3.1). */
CALLED int has_right_checksum(struct __sk_buff *skb, const struct opening *opening)
{
	/* Zeros change no sum. */
	__u8 header[64] = {};
	__u64 len = opening->header_len;
	long long sum;

	if (csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return 1;
	WITHIN(len, TCP_LEN, TCP_LEN + TCP_OPTIONS_MAX);
	if (load_at(skb, opening->tcp_at, header, (__u32)len) != 0)
		return 0;
	sum = csum_diff(0, 0, opening->key.source, 2 * sizeof(opening->key.source), 0);
	sum = csum_diff(0, 0, header, sizeof(header), (__u32)sum);
	return fold((__u64)(__u32)sum + be16((__u16)len) + be16(TCP)) == 0xffff;
}

/* Whether the kernel has nothing but a listener for the tuple. */
CALLED int is_only_listened_to(struct __sk_buff *skb, const struct flow_key *key)
{
	struct bpf_sock *socket;
	int listens;

	if (key->family == 4) {
		struct tuple_v4 tuple = {
			.source = key->source[0],
			.destination = key->destination[0],
			.source_port = key->source_port,
			.destination_port = key->destination_port,
		};

		socket = skc_lookup_tcp(skb, &tuple, sizeof(tuple), BPF_F_CURRENT_NETNS, 0);
	} else {
		struct tuple_v6 tuple = {
			.source_port = key->source_port,
			.destination_port = key->destination_port,
		};

		__builtin_memcpy(tuple.source, key->source, sizeof(tuple.source));
		__builtin_memcpy(tuple.destination, key->destination, sizeof(tuple.destination));
		socket = skc_lookup_tcp(skb, &tuple, sizeof(tuple), BPF_F_CURRENT_NETNS, 0);
	}
	if (!socket)
		return 0;
	listens = socket->state == TCP_LISTEN;
	sk_release(socket);
	return listens;
}

/* Puts a SYN into the ring of its worker, which wakes the worker if it has read all others. Returns 0 if there is no room. */
CALLED int put_syn(struct __sk_buff *skb, __u32 queue, __u32 frame_len)
{
	void *ring = map_lookup(&tcp_syns, &queue);
	__u64 len = frame_len;
	struct syn *syn;

	if (!ring)
		return 0;
	syn = ringbuf_reserve(ring, sizeof(*syn), 0);
	if (!syn)
		return 0;
	WITHIN(len, ETH_LEN, SYN_HEAD_MAX);
	syn->len = (__u32)len;
	syn->leaked = 0;
	if (skb_load_bytes(skb, 0, syn->bytes, (__u32)len) != 0) {
		ringbuf_discard(syn, 0);
		return 0;
	}
	ringbuf_submit(syn, 0);
	return 1;
}

/* As in linux/bpf.h: up to where a ring has been read, and written. */
enum { RING_READ = 2, RING_WRITTEN = 3 };

CALLED __u64 position_of_syns(__u32 queue, __u64 which)
{
	void *ring = map_lookup(&tcp_syns, &queue);

	return ring ? ringbuf_query(ring, which) : 0;
}

INLINE struct tcp_room *room_of(__u32 queue)
{
	const __u32 zero = 0;
	void *rooms = map_lookup(&tcp_rooms, &zero);

	return rooms ? map_lookup(rooms, &queue) : 0;
}

/* Makes the tuple the worker's, and hands the SYN over. Returns the number under which the SYN is counted; only TCP_OPENING and
 * TCP_SYN_TWICE mean that the kernel must not get it. */
CALLED int hand_syn_over(struct __sk_buff *skb, const struct opening *opening, __u32 queue)
{
	struct tcp_flow flow = { .queue = (__u16)queue };
	void *all = all_tcp_flows();
	long failed;

	if (!all)
		return TCP_TABLE_FULL;
	if (!may_hand_over(queue))
		return WORKER_STUCK;
	flow.syn_at = position_of_syns(queue, RING_WRITTEN) + 1;
	failed = map_update(all, &opening->key, &flow, BPF_NOEXIST);
	if (failed) {
		not_handed_over(queue);
		return failed == -17 /* EEXIST */ ? TCP_SYN_TWICE : TCP_TABLE_FULL;
	}
	if (!put_syn(skb, queue, opening->tcp_at + opening->header_len)) {
		map_delete(all, &opening->key);
		not_handed_over(queue);
		return TCP_SYNS_FULL;
	}
	return TCP_OPENING;
}

/* Takes one connection to a port off the room of the worker. */
CALLED int take_room(__u32 queue, __u16 port)
{
	struct tcp_room *room = room_of(queue);

	if (!room || (long long)*(volatile __u64 *)&room->room <= 0)
		return 0;
#pragma unroll
	for (int i = 0; i < FULL_PORTS; i++) {
		if (((volatile struct tcp_room *)room)->full[i] == port)
			return 0;
	}
	if ((long long)__sync_fetch_and_add(&room->room, -1) > 0)
		return 1;
	__sync_fetch_and_add(&room->room, 1);
	return 0;
}

CALLED int give_room_back(__u32 queue)
{
	struct tcp_room *room = room_of(queue);

	if (room)
		__sync_fetch_and_add(&room->room, 1);
	return 0;
}

INLINE int read_syn(struct __sk_buff *skb, struct opening *opening)
{
	__u64 head[HEAD_WORDS] = {};
	const struct frame frame = { .bytes = (const __u8 *)head + HEAD_AT };

	if (load_head(skb, head, skb->len) != 0)
		return 0;
	if (is_tag(AT16(&frame, 12)))
		read_opening(opening, frame.bytes, ETH_LEN + TAG_LEN, AT16(&frame, 16));
	else
		read_opening(opening, frame.bytes, ETH_LEN, AT16(&frame, 12));
	return 1;
}

/* A SYN of a known tuple whose worker is stuck. If the worker has not read the first one, nobody has answered the peer: the
 * kernel gets the tuple. Returns WORKER_STUCK if so, and TCP_STUCK if the kernel must not get the SYN. */
CALLED __u32 take_syn_back(struct __sk_buff *skb)
{
	struct opening opening = {};
	void *all = all_tcp_flows();
	const struct tcp_flow *flow;
	struct tcp_room *room;
	__u64 syn_at, before;
	__u32 queue;

	if (!all || !read_syn(skb, &opening))
		return TCP_STUCK;
	flow = map_lookup(all, &opening.key);
	if (!flow)
		return WORKER_STUCK;
	queue = flow->queue;
	syn_at = flow->syn_at;
	room = room_of(queue);
	if (!room || position_of_syns(queue, RING_READ) >= syn_at)
		return TCP_STUCK;
	/* The worker looks at this after it has said that it has read a SYN, and gives up that SYN if it has changed. If another
	 * CPU changes it first, that is just as good. */
	before = *(volatile __u64 *)&room->taken_back;
	__sync_val_compare_and_swap(&room->taken_back, before, before + 1);
	if (position_of_syns(queue, RING_READ) >= syn_at)
		return TCP_STUCK;
	map_delete(all, &opening.key);
	return WORKER_STUCK;
}

/* The number under which a SYN is counted that the verdict has found to open a connection of the worker of this queue. */
CALLED __u32 open_connection(struct __sk_buff *skb, __u32 queue)
{
	struct opening opening = {};
	int number;

	if (!read_syn(skb, &opening))
		return TRUNCATED;
	/* Both would be cut off with the payload: the checksum covers it, and Fast Open is the kernel's. */
	if (opening.len > opening.header_len)
		return TCP_SYN_DATA;
	if (is_authenticated(skb, opening.tcp_at + TCP_LEN, opening.header_len - TCP_LEN))
		return TCP_AUTHENTICATED;
	if (test_run)
		return TCP_OPENING;
	if (verifies_syns && !has_right_checksum(skb, &opening))
		return TCP_BAD_CHECKSUM;
	if (is_martian(&opening.key))
		return TCP_MARTIAN;
	if (!is_only_listened_to(skb, &opening.key))
		return TCP_SYN_OF_KERNEL;
	if (!take_room(queue, opening.key.destination_port))
		return TCP_NO_ROOM;
	number = hand_syn_over(skb, &opening, queue);
	if (number != TCP_OPENING)
		give_room_back(queue);
	return number;
}

#endif
