/* Copies of requests to which a program has replied, and of the replies, for captures (host/observe/src/capture).
 *
 * Each capture has its own ring, and a word that counts the frames for which the ring had no room. Control puts both into
 * the maps below, and then sets the capture's bit in `reflex_control.taps`. While that is 0, nothing else is looked at. The
 * request is copied before its frame is changed, and published together with the reply. A frame without a reply goes to a
 * worker, which copies it itself. src/taps.rs has the same layouts. */
#ifndef TWINPATH_TAP_H
#define TWINPATH_TAP_H

#include "reflex.h"

/* A claimed frame fits into the memory that workers receive into, of 2 KiB. */
enum { TAPS = 4, TAP_FRAME = 2048 };

/* The published data: both frames, one directly after the other, each truncated to TAP_FRAME bytes. */
struct tapped {
	__u64 request_ns; /* CLOCK_MONOTONIC */
	__u64 reply_ns;
	__u32 request_len; /* whole; 0: it could not be read */
	__u32 reply_len;
	__u8 bytes[2 * TAP_FRAME];
};
enum { TAP_HEAD = __builtin_offsetof(struct tapped, bytes) };

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct tapped);
	MAP_UINT(max_entries, 1);
} tapped SECTION(".maps");

struct tap_ring_inner {
	MAP_UINT(type, BPF_MAP_TYPE_RINGBUF);
	MAP_UINT(max_entries, 4096);
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, TAPS);
	struct tap_ring_inner *values[];
} tap_rings SECTION(".maps");

/* Of the type that those in it have; it takes the place of a ring whose capture has ended. */
struct tap_ring_inner tap_rings_none SECTION(".maps");

struct tap_missed_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, TAPS);
	struct tap_missed_inner *values[];
} tap_missed SECTION(".maps");

/* Of the type that those in it have; not used. */
struct tap_missed_inner tap_missed_none SECTION(".maps");

INLINE struct tapped *own_tapped(void)
{
	const __u32 zero = 0;

	return map_lookup(&tapped, &zero);
}

/* The captures that want copies, a bit for each. */
INLINE __u64 taps_now(void)
{
	const __u32 zero = 0;
	struct reflex_control *control = map_lookup(&reflex_control, &zero);

	return control ? *(volatile __u64 *)&control->taps : 0;
}

/* Copies a request on this CPU, as it came. */
CALLED int tap_request(struct __sk_buff *skb)
{
	struct tapped *copy = own_tapped();
	__u64 len = skb->len;

	if (!copy)
		return 0;
	copy->request_ns = ktime_get_ns();
	copy->request_len = (__u32)len;
	WITHIN(len, ETH_LEN, TAP_FRAME);
	if (skb_load_bytes(skb, 0, copy->bytes, (__u32)len) != 0)
		copy->request_len = 0;
	return 1;
}

INLINE void count_missed(__u32 number)
{
	const __u32 zero = 0;
	void *words = map_lookup(&tap_missed, &number);
	__u64 *missed = words ? map_lookup(words, &zero) : 0;

	if (missed)
		__sync_fetch_and_add(missed, 2);
}

/* Publishes the request that was copied, with the reply that has been made of its frame. */
CALLED int tap_reply(struct __sk_buff *skb, __u64 taps)
{
	struct tapped *copy = own_tapped();
	__u64 request_len, reply_len = skb->len;
	int is_whole;

	if (!copy)
		return 0;
	copy->reply_ns = ktime_get_ns();
	copy->reply_len = (__u32)reply_len;
	request_len = copy->request_len;
	WITHIN(request_len, 0, TAP_FRAME);
	WITHIN(reply_len, ETH_LEN, TAP_FRAME);
	is_whole = request_len != 0 && skb_load_bytes(skb, 0, copy->bytes + request_len, (__u32)reply_len) == 0;
	for (__u32 number = 0; number < TAPS; number++) {
		__u32 place = number;
		void *ring;

		if (!(taps >> number & 1))
			continue;
		ring = map_lookup(&tap_rings, &place);
		if (!is_whole || !ring || ringbuf_output(ring, copy, TAP_HEAD + request_len + reply_len, 0) != 0)
			count_missed(number);
	}
	return 1;
}

#endif
