/* For tests: programs as others put them on an interface. */
#include "kernel.h"

SECTION("xdp") int neighbour_xdp(struct xdp_md *context)
{
	(void)context;
	return XDP_PASS;
}

/* Ends the chain at tc ingress: who stands behind it is not asked. */
SECTION("classifier/pass") int neighbour_pass(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_PASS;
}

/* Leaves everything to the next program. */
SECTION("classifier/next") int neighbour_next(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_NEXT;
}

SECTION("classifier/drop") int neighbour_drop(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_DROP;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
