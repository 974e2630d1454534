/* The shortest paths between two interfaces that the kernel has: every frame goes to the other one, unseen. */
#include "../../steer_bpf/bpf/kernel.h"

/* The index of the interface that frames leave by; set before loading. */
const volatile __u32 other = 0;

SECTION("xdp") int redirect_xdp(struct xdp_md *context)
{
	(void)context;
	return redirect(other, 0);
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
