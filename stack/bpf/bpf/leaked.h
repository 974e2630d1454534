/* What becomes of a segment that reaches a socket of the kernel, if its tuple is that of a connection which a worker has: the
 * kernel would answer it by a reset. */
#ifndef TWINPATH_LEAKED_H
#define TWINPATH_LEAKED_H

#include "connections.h"
#include "kernel.h"
#include "syns.h"

enum { ALL = ~0U };

enum { IPV4_ADDRESSES_AT = 12, IPV6_ADDRESSES_AT = 8 };

/* In a TCP header: its length and its flags. */
enum { TCP_LENGTH_AT = 12, TCP_OPENS = 0x02, TCP_OPENS_OR_NOT = 0x16 };
enum { ETHERTYPE_AT = 12, HEADER_MIN = 20, HEADER_MAX = 60, IPV4_HEADER_LEN = 20, IPV6_HEADER_LEN = 40, FRAME_HEADER_LEN = 14 };

/* Shows a segment to the worker of a queue: its headers. What of it is payload, its peer sends again. */
INLINE void show(struct __sk_buff *skb, __u32 queue, int is_ipv4, __u64 header_len)
{
	const __u32 ip_len = is_ipv4 ? IPV4_HEADER_LEN : IPV6_HEADER_LEN, tcp_at = FRAME_HEADER_LEN + ip_len;
	void *ring = map_lookup(&tcp_syns, &queue);
	struct syn *syn;
	long failed;

	if (!ring)
		return;
	syn = ringbuf_reserve(ring, sizeof(*syn), 0);
	if (!syn)
		return;
	WITHIN(header_len, HEADER_MIN, HEADER_MAX);
	syn->len = tcp_at + (__u32)header_len;
	syn->leaked = 1;
	__builtin_memset(syn->bytes, 0, sizeof(syn->bytes));
	syn->bytes[ETHERTYPE_AT] = (__u8)skb->protocol;
	syn->bytes[ETHERTYPE_AT + 1] = (__u8)(skb->protocol >> 8);
	failed = skb_load_bytes_relative(skb, 0, syn->bytes + FRAME_HEADER_LEN, ip_len, BPF_HDR_START_NET);
	if (failed || skb_load_bytes(skb, 0, syn->bytes + tcp_at, (__u32)header_len) != 0)
		ringbuf_discard(syn, 0);
	else
		ringbuf_submit(syn, 0);
}

/* What becomes of a segment whose tuple is in the map. */
INLINE int of_known_tuple(struct __sk_buff *skb, struct tcp_flow *flow, int is_ipv4)
{
	const __u32 flags = flow->flags, queue = flow->queue;
	__u8 field[2]; /* the length of the header in words, and the flags */
	int opens;

	if (!(flags & (TCP_ENDED | TCP_HALF_OPEN)))
		return flags & TCP_DECLINED ? ALL : 0;
	if (skb_load_bytes(skb, TCP_LENGTH_AT, field, sizeof(field)) != 0)
		return 0;
	/* Its peer has no connection, and begins one with the kernel. */
	opens = (field[1] & TCP_OPENS_OR_NOT) == TCP_OPENS;
	if (flags & TCP_HALF_OPEN) {
		show(skb, queue, is_ipv4, (field[0] >> 4) * 4);
		return 0;
	}
	/* The worker may have given the place of the tuple to another one. */
	if (opens)
		__sync_val_compare_and_swap(&flow->flags, TCP_DECLINED | TCP_ENDED, TCP_DECLINED);
	return opens ? ALL : 0;
}

/* How much of a segment the socket takes. At a TCP socket, the data begins with the TCP header (tcp_filter, net/ipv4/tcp_ipv4.c). */
INLINE int of_leaked(struct __sk_buff *skb)
{
	struct flow_key key = { .protocol = 6 };
	struct tcp_flow *flow;
	__u32 ipv4[2];
	void *all = all_tcp_flows();
	long failed;

	if (!all)
		return ALL;
	if (skb->protocol == be16(0x0800)) {
		failed = skb_load_bytes_relative(skb, IPV4_ADDRESSES_AT, ipv4, sizeof(ipv4), BPF_HDR_START_NET);
		key.family = 4;
		key.source[0] = ipv4[0];
		key.destination[0] = ipv4[1];
	} else {
		failed = skb_load_bytes_relative(skb, IPV6_ADDRESSES_AT, key.source,
						 sizeof(key.source) + sizeof(key.destination), BPF_HDR_START_NET);
		key.family = 6;
	}
	if (failed || skb_load_bytes(skb, 0, &key.source_port, 2 * sizeof(__u16)) != 0)
		return ALL;
	flow = map_lookup(all, &key);
	return flow ? of_known_tuple(skb, flow, key.family == 4) : ALL;
}

#endif
