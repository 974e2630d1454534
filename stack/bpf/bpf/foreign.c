/* Foreign programs for tests, as other tools attach them to an interface. */
#include "kernel.h"

SECTION("xdp") int foreign_xdp(struct xdp_md *context)
{
	(void)context;
	return XDP_PASS;
}

/* Ends the chain at tc ingress: later programs do not run. */
SECTION("classifier/pass") int foreign_pass(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_PASS;
}

/* Passes every frame to the next program. */
SECTION("classifier/next") int foreign_next(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_NEXT;
}

SECTION("classifier/drop") int foreign_drop(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_DROP;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
