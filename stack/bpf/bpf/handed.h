/* How the XDP program hands a request to the program at tc ingress, which replies to it (reply.h).
 *
 * On virtual devices XDP cannot reply by itself: checksums may be left to hardware, which is known only of a socket buffer,
 * and a frame that a program sends back may be lost. So the XDP program decides everything that can be decided there, and
 * passes a frame to which it may reply. It records this in front of the frame's first byte, in the XDP metadata, which the
 * kernel keeps with the frame. Several frames may be between the two programs, and they may run on different CPUs.
 *
 * If the program at tc cannot reply, the frame goes on to the service's kernel socket, because it has already passed the
 * worker's socket. So each request is answered once. That is rare: a wrong checksum, a kept reply that was withdrawn
 * meanwhile, several datagrams that the kernel has coalesced. */
#ifndef TWINPATH_HANDED_H
#define TWINPATH_HANDED_H

#include "head.h"
#include "reply.h"

/* Random: other programs have metadata as well. Constant once loaded. */
const volatile __u64 handed_key = 0;

/* A frame that takes longer between the programs is left to the kernel. Metadata may stay in front of bytes that leave as a
 * reply, and still be there if these come back. */
#define HANDED_NS 100000000ULL

/* As long as every kernel allows. */
struct handed {
	__u64 key;
	__u64 head; /* a sum of the frame's head */
	__u64 at_ns;
	__u32 len;
	__u32 reflex;
};

_Static_assert(sizeof(struct handed) == 32, "no longer than metadata may be, and a multiple of four bytes");

INLINE __u64 sum_of_head(const __u64 head[HEAD_WORDS])
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < HEAD_WORDS; i++)
		sum = (sum << 7 | sum >> 57) ^ head[i];
	return sum;
}

INLINE void count_failed(void)
{
	struct reflex_cpu *cpu = own_reflex_cpu();

	if (!cpu)
		return;
	/* It was counted as one that may be replied to. */
	cpu->why[MAY_REPLY]--;
	cpu->why[WHY_FAILED]++;
}

/* At XDP: hands over a claimed frame of `len` bytes, if it may be replied to. Returns 0 if not: a worker is to get it, and the
 * frame is as it was. */
CALLED int hand_over(struct xdp_md *context, __u32 len, __u32 reflex)
{
	__u64 head[HEAD_WORDS] = {}, some = len;
	struct handed *handed;

	/* The verdict claims nothing shorter, which the verifier cannot know. */
	WITHIN(some, ETH_LEN, HEAD_LEN);
	if (xdp_load_bytes(context, 0, (__u8 *)head + HEAD_AT, (__u32)some) != 0 ||
	    reflex_of(context, (const __u8 *)head + HEAD_AT, len, reflex, context->rx_queue_index) != MAY_REPLY)
		return 0;
	if (xdp_adjust_meta(context, -(int)sizeof(*handed)) != 0) {
		count_failed();
		return 0;
	}
	handed = (struct handed *)(unsigned long)context->data_meta;
	if ((const void *)(handed + 1) > (const void *)(unsigned long)context->data)
		return 0;
	handed->key = handed_key;
	handed->head = sum_of_head(head);
	handed->at_ns = ktime_get_coarse_ns();
	handed->len = len;
	handed->reflex = reflex;
	return 1;
}

/* At tc: whether the frame is as it was handed over, so that it may be replied to. Its head is then in the note of this CPU. */
INLINE int is_as_handed(struct __sk_buff *skb, struct per_cpu *cpu, const struct handed *handed)
{
	__u64 head[HEAD_WORDS] = {};

	if (skb->len != handed->len || skb->vlan_present || skb->gso_segs > 1 || skb->gso_size > 0 ||
	    ktime_get_coarse_ns() - handed->at_ns > HANDED_NS)
		return 0;
	if (load_head(skb, head, handed->len) != 0 || sum_of_head(head) != handed->head)
		return 0;
	__builtin_memcpy(cpu->note, head, sizeof(cpu->note));
	return 1;
}

/* At tc: replies to a frame that was handed over. Returns what the program returns. */
INLINE int reply_to_handed(struct __sk_buff *skb)
{
	const struct handed *found = (const struct handed *)(unsigned long)skb->data_meta;
	const __u32 zero = 0;
	struct per_cpu *cpu;
	struct handed handed;
	int action;

	if ((const void *)(found + 1) > (const void *)(unsigned long)skb->data || found->key != handed_key)
		return TCX_NEXT;
	handed = *found;
	cpu = map_lookup(&per_cpu, &zero);
	if (!cpu)
		return TCX_NEXT;
	if (!is_as_handed(skb, cpu, &handed)) {
		cpu->counters[OTHER_FRAME]++;
		count_failed();
		return TCX_NEXT;
	}
	action = reply_by_reflex(skb, cpu, handed.len, handed.reflex);
	/* What cannot be replied to is for the service's kernel socket. */
	if (action == TCX_NEXT)
		cpu->counters[NO_SOCKET]++;
	return action;
}

#endif
