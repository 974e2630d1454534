/* Programs that do nothing, one for each hook of the others. They measure the cost of a hook itself, to separate it from
 * the cost of the verdict. */
#include "kernel.h"

SECTION("xdp") int empty_xdp(struct xdp_md *context)
{
	(void)context;
	return XDP_PASS;
}

SECTION("socket") int empty_filter(struct __sk_buff *skb)
{
	(void)skb;
	return 0;
}

SECTION("classifier") int empty_ingress(struct __sk_buff *skb)
{
	(void)skb;
	return TCX_NEXT;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
