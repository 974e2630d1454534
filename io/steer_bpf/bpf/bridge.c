/* An interface that user space owns wholly: the kernel's own stack neither receives from it nor sends by it.
 *
 * Packet sockets see a frame before tc ingress, so what is dropped here has reached the exception port already
 * (net/core/dev.c, __netif_receive_skb_core). Towards the device our frames carry a mark; everything else that the
 * kernel would send there (router solicitations, group reports, what a stray route leads to) is dropped. */
#include "kernel.h"

/* What our sockets mark their frames with. */
const volatile __u32 mark = 0;

SECTION("classifier") int twinpath_withhold(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_DROP;
}

SECTION("classifier") int twinpath_only_ours(struct __sk_buff *skb)
{
	if (skb->mark != mark)
		return TCX_DROP;
	/* Not to be seen by whoever is at the other end of a virtual cable. */
	skb->mark = 0;
	return TCX_NEXT;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
