/* The head of a frame at tc or at a socket, where a program reads a copy. The including program defines HAS(frame, n) as
 * verdict.h says. */
#ifndef TWINPATH_HEAD_H
#define TWINPATH_HEAD_H

#include "verdict.h"

/* The last byte that decide() reads: TCP flags after a tag and an IPv6 header. */
_Static_assert(ETH_LEN + TAG_LEN + IPV6_LEN + 14 <= HEAD_LEN, "the copied head covers every header read");

/* Copies the start of the frame into zeroed memory; a frame shorter than an Ethernet header is refused. */
INLINE long load_head(const struct __sk_buff *skb, __u64 words[HEAD_WORDS], __u32 len)
{
	__u8 *head = (__u8 *)words + HEAD_AT;

	OWN_REGISTER(len);
	/* Both bounds are tested in one register: the verifiers of Linux before 6.4 would know neither bound of a
	 * copy. */
	if (len < ETH_LEN)
		return -1;
	if (len > HEAD_LEN)
		len = HEAD_LEN;
	/* In a test run the Ethernet header is in front of the data; on a device both start together. */
	if (test_run)
		return skb_load_bytes_relative(skb, 0, head, len, BPF_HDR_START_MAC);
	return skb_load_bytes(skb, 0, head, len);
}

/* Copies bytes of the frame that are further behind. */
INLINE long load_at(const struct __sk_buff *skb, __u32 at, void *to, __u32 len)
{
	if (test_run)
		return skb_load_bytes_relative(skb, at, to, len, BPF_HDR_START_MAC);
	return skb_load_bytes(skb, at, to, len);
}

INLINE verdict_t verdict_of(const struct __sk_buff *skb, struct frame *frame, __u64 head[HEAD_WORDS])
{
	frame->len = skb->len + (test_run ? ETH_LEN : 0);
	frame->coalesced = skb->gso_segs > 1 || skb->gso_size > 0;
	if (skb->vlan_present) {
		frame->vlan = skb->vlan_tci & 0xfff;
		frame->service_tag = skb->vlan_proto != be16(VLAN);
	}
	if (load_head(skb, head, frame->len) != 0)
		return TRUNCATED;
	return decide(frame);
}

#endif
