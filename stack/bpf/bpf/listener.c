/* The filter of the service's listening sockets: drops segments of connections that workers have, which would be answered
 * by a reset. They get here as fragments, with IP options, through other interfaces, or while claims are withdrawn.
 *
 * The same socket may be held by others, such as a stand-by instance, but nothing may be dropped once the workers have gone.
 * So the filter reaches its working part by a tail call. Only the owner holds a descriptor of the array, and the kernel
 * empties the array when that is closed (served.h). */
#include "leaked.h"

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
	MAP_UINT(max_entries, 1);
} guards SECTION(".maps");

/* Always 0, as in served.h. */
volatile __u32 guard SECTION(".data");

SECTION("socket") int twinpath_listener(struct __sk_buff *skb)
{
	tail_call(skb, &guards, guard);
	return ALL;
}

SECTION("socket") int twinpath_guard(struct __sk_buff *skb)
{
	return of_leaked(skb);
}

char terms[] SECTION("license") = "Dual MIT/GPL";
