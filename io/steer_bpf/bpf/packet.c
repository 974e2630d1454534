/* The packet path: a packet socket gets what is claimed, and tc ingress keeps the kernel from getting it too.
 *
 * Each frame is decided once. Packet sockets are served directly before tc ingress, for the same frame, on the same
 * CPU (net/core/dev.c, __netif_receive_skb_core). So the filter decides, and leaves a note of what it claimed; the
 * classifier drops the frame of the note, and nothing else. A frame the socket did not take is never dropped,
 * whatever happens to socket, process or rules in between. */
#include "kernel.h"

#define HAS(frame, n) ((n) <= (frame)->len)

#include "verdict.h"

/* The furthest byte that decide() reads: TCP flags behind a tag and an IPv6 header. */
_Static_assert(ETH_LEN + TAG_LEN + IPV6_LEN + 14 <= HEAD_LEN, "the copied head covers every header read");

/* Copies the start of the frame into zeroes. */
INLINE long load_head(const struct __sk_buff *skb, __u64 words[HEAD_WORDS], __u32 len)
{
	__u8 *head = (__u8 *)words + HEAD_AT;

	OWN_REGISTER(len);
	if (len > HEAD_LEN)
		len = HEAD_LEN;
	/* In a test run the Ethernet header stands before the data; on a device both start together. */
	if (test_run)
		return skb_load_bytes_relative(skb, 0, head, len, BPF_HDR_START_MAC);
	return skb_load_bytes(skb, 0, head, len);
}

SECTION("socket") int twinpath_filter(struct __sk_buff *skb)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = { .bytes = (const __u8 *)head + HEAD_AT, .vlan = VLAN_NONE };
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	verdict_t verdict = TRUNCATED;

	/* The socket should ignore outgoing frames by itself; no claim is on them in any case. */
	if (!cpu || skb->pkt_type == PACKET_OUTGOING)
		return 0;
	frame.len = skb->len + (test_run ? ETH_LEN : 0);
	frame.glued = skb->gso_segs > 1 || skb->gso_size > 0;
	if (skb->vlan_present) {
		frame.vlan = skb->vlan_tci & 0xfff;
		frame.service_tag = skb->vlan_proto != be16(VLAN);
	}
	if (frame.len >= ETH_LEN && load_head(skb, head, frame.len) == 0)
		verdict = decide(&frame);
	cpu->counters[verdict & (COUNTERS - 1)]++;
	if ((verdict & 0xff) != CLAIMED) {
		cpu->note_len = 0;
		return test_run ? verdict : 0;
	}
	cpu->note_len = frame.len;
	__builtin_memcpy(cpu->note, head, sizeof(head));
	return test_run ? verdict : ~0U;
}

INLINE int is_noted(const struct __sk_buff *skb, const struct per_cpu *cpu, __u32 len)
{
	__u64 head[HEAD_WORDS] = {};
	__u64 differs = 0;

	if (skb->len != len)
		return 0;
	OWN_REGISTER(len);
	/* Nothing shorter is noted, which the verifier cannot know. */
	if (len < ETH_LEN)
		return 0;
	if (len > HEAD_LEN)
		len = HEAD_LEN;
	if (skb_load_bytes(skb, 0, (__u8 *)head + HEAD_AT, len) != 0)
		return 0;
#pragma unroll
	for (int i = 0; i < HEAD_WORDS; i++)
		differs |= head[i] ^ cpu->note[i];
	return differs == 0;
}

SECTION("classifier") int twinpath_ingress(struct __sk_buff *skb)
{
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);

	if (!cpu || cpu->note_len == 0)
		return TCX_NEXT;
	__u32 len = cpu->note_len;
	cpu->note_len = 0;
	if (!is_noted(skb, cpu, len)) {
		cpu->counters[OTHER_FRAME]++;
		return TCX_NEXT;
	}
	cpu->counters[WITHHELD]++;
	return TCX_DROP;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
