/* A second program at tc ingress that does the same as the first one. The kernel attaches a program only once per hook. So
 * to move to the front, the second one is attached there before the first one is detached. It reaches the first one by a
 * tail call, so that the kernel verifies that code only once. */
#ifndef TWINPATH_AGAIN_H
#define TWINPATH_AGAIN_H

#include "kernel.h"

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
	MAP_UINT(max_entries, 1);
} ingress_goes_on SECTION(".maps");

SECTION("classifier") int twinpath_ingress_again(struct __sk_buff *skb)
{
	tail_call(skb, &ingress_goes_on, 0);
	/* The array is empty, because the process has ended. */
	return TCX_NEXT;
}

#endif
