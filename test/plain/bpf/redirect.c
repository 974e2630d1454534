/* The shortest paths between two interfaces that the kernel has: every frame goes to the other one, unseen. And the source and
 * the sink of frames that are never packets of the kernel's. */
#include "../../../stack/bpf/bpf/kernel.h"

/* The index of the interface that frames leave by; set before loading. */
const volatile __u32 other = 0;

/* The interface that XDP sends frames to. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_DEVMAP);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 1);
} devices SECTION(".maps");

SECTION("xdp") int redirect_xdp(struct xdp_md *context)
{
	(void)context;
	return redirect_map(&devices, 0, XDP_DROP);
}

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, 1);
} sunk SECTION(".maps");

/* Counts frames, and drops them. */
SECTION("xdp") int sink_xdp(struct xdp_md *context)
{
	__u32 first = 0;
	__u64 *count = map_lookup(&sunk, &first);

	(void)context;
	if (count)
		++*count;
	return XDP_DROP;
}

/* At tc ingress: the same; the frame is sent through the other interface. */
SECTION("classifier") int redirect_tc(struct __sk_buff *skb)
{
	(void)skb;
	return redirect(other, 0);
}

/* The same, but to the other end of the other interface, a veth pair. What was not for this interface is taken to be for that
 * other end, which would drop it otherwise. */
SECTION("classifier") int redirect_tc_peer(struct __sk_buff *skb)
{
	if (skb->pkt_type == PACKET_OTHERHOST)
		change_type(skb, PACKET_HOST);
	return redirect_peer(other, 0);
}

char terms[] SECTION("license") = "Dual MIT/GPL";
