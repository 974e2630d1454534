/* The XDP path: a claimed frame goes to the AF_XDP socket of its queue, all others to the kernel. A request that can be
 * replied to here is handed to the program at tc ingress, which does (handed.h).
 *
 * XDP sees neither a VLAN tag that the device removed from the frame, nor that segments were coalesced: the tag looks
 * absent, the coalesced frame like a single one. Do not attach where either happens. */
#include "again.h"
#include "kernel.h"

#define HAS(frame, n) ((const void *)((frame)->bytes + (n)) <= (frame)->end)

#define CONTEXT struct xdp_md
#define LOAD_BYTES xdp_load_bytes

#include "handed.h"

struct {
	MAP_UINT(type, BPF_MAP_TYPE_XSKMAP);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, QUEUES_MAX);
} sockets SECTION(".maps");

SECTION("xdp") int twinpath_xdp(struct xdp_md *context)
{
	struct frame frame = {
		.bytes = (const __u8 *)(unsigned long)context->data,
		.end = (const void *)(unsigned long)context->data_end,
		.vlan = VLAN_NONE,
	};
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	verdict_t verdict;
	int action = XDP_PASS;

	if (!cpu)
		return XDP_PASS;
	frame.len = (const __u8 *)frame.end - frame.bytes;
	verdict = decide(&frame);
	__u32 number = verdict & 0xff;
	if (number == CLAIMED) {
		action = redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
		if (action != XDP_REDIRECT) {
			number = NO_SOCKET;
		} else if (!test_run && is_for_reflex(&frame, context->rx_queue_index) &&
			   hand_over(context, frame.len, frame.reflex)) {
			/* It is counted when tc has replied. */
			return XDP_PASS;
		} else if (!test_run && !may_hand_over(context->rx_queue_index)) {
			number = WORKER_STUCK;
			action = XDP_PASS;
		}
	}
	cpu->counters[number & (COUNTERS - 1)]++;
	return test_run ? verdict : action;
}

/* A frame to which it has not replied is passed on, to twinpath_ingress_again if that is attached as well. */
SECTION("classifier") int twinpath_ingress(struct __sk_buff *skb)
{
	return reply_to_handed(skb);
}

char terms[] SECTION("license") = "Dual MIT/GPL";
