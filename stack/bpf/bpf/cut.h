/* Coalesced datagrams in a direct ring: each has a slot of its own, as if it had come alone.
 *
 * All slots of a frame are taken by one exchange, so the ring takes all of its datagrams or none. The last slot is free only if
 * those before it are, because the reader gives slots back in their order.
 *
 * The including program defines SLOT_AT(place): the slot at a place of 64 bits, which may be null. */
#ifndef TWINPATH_CUT_H
#define TWINPATH_CUT_H

#include "direct.h"

enum { IPV4_HEADERS = ETH_LEN + IPV4_LEN + UDP_LEN, IPV6_HEADERS = ETH_LEN + IPV6_LEN + UDP_LEN };

/* Beside the length of a datagram. */
enum { OF_IPV6 = 1 << 16 };

struct cut {
	__u32 headers_len; /* IPV4_HEADERS or IPV6_HEADERS */
	__u32 payload_len; /* of all datagrams */
	__u32 segment_len; /* of the payload of each but the last */
	__u32 count;	   /* 0: they do not go into a ring */
};

/* How a claimed frame is cut. The verdict has found its lengths right, and at most DATAGRAMS_MAX datagrams. */
INLINE struct cut cut_of(const struct frame *frame)
{
	struct cut cut = { .segment_len = frame->segment_len };
	__u16 ethertype = AT16(frame, 12);

	if (ethertype == be16(IPV4))
		cut.headers_len = IPV4_HEADERS;
	else if (ethertype == be16(IPV6))
		cut.headers_len = IPV6_HEADERS;
	else
		/* A tag within the frame. */
		return cut;
	if (!cut.segment_len || cut.headers_len + cut.segment_len > SLOT_DATA)
		return cut;
	cut.payload_len = frame->len - cut.headers_len;
	cut.count = (cut.payload_len + cut.segment_len - 1) / cut.segment_len;
	return cut;
}

/* A one's complement sum with one of its terms exchanged. */
INLINE __u16 with(__u32 sum, __u16 former, __u16 present)
{
	return (__u16)fold(sum + (__u16)~former + present);
}

#define SLOT16(slot, at) (*(__u16 *)((slot)->bytes + (at)))

/* Writes the length of a datagram into the headers that all have in common: of `len` bytes of payload, the `number`th. */
INLINE void write_headers(struct slot *slot, __u32 headers_len, __u32 len, __u32 number)
{
	const __u32 udp_at = headers_len - UDP_LEN, ip_at = ETH_LEN;
	__u16 former = SLOT16(slot, udp_at + 4), present = be16((__u16)(UDP_LEN + len));

	SLOT16(slot, udp_at + 4) = present;
	/* The sum of the pseudo-header: the rest is left to hardware. */
	SLOT16(slot, udp_at + 6) = with(SLOT16(slot, udp_at + 6), former, present);
	if (headers_len == IPV6_HEADERS) {
		SLOT16(slot, ip_at + 4) = present;
	} else {
		__u16 id = SLOT16(slot, ip_at + 4), next_id = be16((__u16)(be16(id) + number));
		__u16 ip_len = be16((__u16)(IPV4_LEN + UDP_LEN + len));
		__u16 sum = with((__u16)~SLOT16(slot, ip_at + 10), SLOT16(slot, ip_at + 2), ip_len);

		SLOT16(slot, ip_at + 2) = ip_len;
		SLOT16(slot, ip_at + 4) = next_id;
		SLOT16(slot, ip_at + 10) = ~with(sum, id, next_id);
	}
}

/* Loads a datagram: `len` bytes at `at` of the payload. Not 0 if that fails. */
INLINE long load_datagram(struct __sk_buff *skb, struct slot *slot, const __u32 headers_len, __u32 at, __u64 len)
{
	if (len < 1 || len > SLOT_DATA - headers_len || skb_load_bytes(skb, 0, slot->bytes, headers_len) != 0)
		return -1;
	WITHIN(len, 1, SLOT_DATA - headers_len);
	return skb_load_bytes(skb, headers_len + at, slot->bytes + headers_len, (__u32)len);
}

/* Fills a slot that was taken with the `number`th datagram: `len` bytes at `at` of the payload, of which `at` is in the upper half
 * of `part`. `place` is the slot's, of the ring or rings that SLOT_AT() knows. The verifier looks at this once, and not for each
 * datagram. */
GLOBAL int fill_datagram(struct __sk_buff *skb, __u64 place, __u64 filled, __u64 part, __u32 number)
{
	const __u32 at = part >> 32, len = (__u32)part & 0xffff;
	struct slot *slot = SLOT_AT(place);
	long failed;

	if (!slot)
		return 0;
	if ((__u32)part & OF_IPV6) {
		failed = load_datagram(skb, slot, IPV6_HEADERS, at, len);
		write_headers(slot, IPV6_HEADERS, len, number);
		slot->len = IPV6_HEADERS + len;
	} else {
		failed = load_datagram(skb, slot, IPV4_HEADERS, at, len);
		write_headers(slot, IPV4_HEADERS, len, number);
		slot->len = IPV4_HEADERS + len;
	}
	/* As in fill(). */
	if (failed)
		slot->len = 0;
	slot->vlan = skb->vlan_present ? (__u16)skb->vlan_tci : VLAN_NONE;
	slot->is_cut = 1;
	__sync_lock_test_and_set(&slot->sequence, filled);
	return 0;
}

/* Fills the slots that were taken for a frame, from position `first` on. `base` is the place of the ring's first slot. The first
 * one is filled last: a reader on another CPU then finds all of them, and can reply to all at once. */
INLINE void fill_datagrams(struct __sk_buff *skb, __u64 base, __u64 first, const struct cut *cut)
{
	const __u32 family = cut->headers_len == IPV6_HEADERS ? OF_IPV6 : 0;

	for (__u32 left = cut->count; left > 0 && left <= DATAGRAMS_MAX; left--) {
		__u32 number = left - 1, at = number * cut->segment_len, len = cut->payload_len - at;
		__u64 position = first + number, lap = position & ~(__u64)slot_mask;

		if (len > cut->segment_len)
			len = cut->segment_len;
		fill_datagram(skb, base + (position - lap), lap + 1, (__u64)at << 32 | family | len, number);
	}
}

#endif
