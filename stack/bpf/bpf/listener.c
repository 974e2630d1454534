/* The filter of the service's listening sockets: drops segments of connections that workers have, which would be answered
 * by a reset. They get here as fragments, with IP options, through other interfaces, or while claims are withdrawn.
 *
 * The same socket may be held by others, such as a stand-by instance, but nothing may be dropped once the workers have gone.
 * So the filter reaches its working part by a tail call. Only the owner holds a descriptor of the array, and the kernel
 * empties the array when that is closed (served.h). */
#include "connections.h"
#include "kernel.h"

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
	MAP_UINT(max_entries, 1);
} guards SECTION(".maps");

/* Always 0, as in served.h. */
volatile __u32 guard SECTION(".data");

enum { ALL = ~0U };

SECTION("socket") int twinpath_listener(struct __sk_buff *skb)
{
	tail_call(skb, &guards, guard);
	return ALL;
}

enum { IPV4_ADDRESSES_AT = 12, IPV6_ADDRESSES_AT = 8 };

/* At a TCP socket, the data begins with the TCP header (tcp_filter, net/ipv4/tcp_ipv4.c). */
SECTION("socket") int twinpath_guard(struct __sk_buff *skb)
{
	struct flow_key key = { .protocol = 6 };
	const struct tcp_flow *flow;
	__u32 ipv4[2];
	void *all = all_tcp_flows();
	long failed;

	if (!all)
		return ALL;
	if (skb->protocol == be16(0x0800)) {
		failed = skb_load_bytes_relative(skb, IPV4_ADDRESSES_AT, ipv4, sizeof(ipv4), BPF_HDR_START_NET);
		key.family = 4;
		key.source[0] = ipv4[0];
		key.destination[0] = ipv4[1];
	} else {
		failed = skb_load_bytes_relative(skb, IPV6_ADDRESSES_AT, key.source,
						 sizeof(key.source) + sizeof(key.destination), BPF_HDR_START_NET);
		key.family = 6;
	}
	if (failed || skb_load_bytes(skb, 0, &key.source_port, 2 * sizeof(__u16)) != 0)
		return ALL;
	flow = map_lookup(all, &key);
	return flow && !(flow->flags & TCP_DECLINED) ? 0 : ALL;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
