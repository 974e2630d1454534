/* While a service drains, its listeners are closed, and their filter has gone with them (listener.c): nobody listens, so the kernel
 * would answer a segment of a worker's connection by a reset. Therefore such segments are given to a listener of ours, whose
 * filter drops them. For all others the kernel looks as ever. So the port is free for another instance. */
#include "leaked.h"

struct {
	MAP_UINT(type, BPF_MAP_TYPE_SOCKMAP);
	MAP_UINT(key_size, sizeof(__u32));
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
} catcher SECTION(".maps");

/* linux/bpf.h */
enum { SK_LOOKUP_REPLACE = 1 };

/* linux/socket.h */
enum { FAMILY_IPV4 = 2, FAMILY_IPV6 = 10 };

/* As in listener.c, but nothing at all is for this socket. */
SECTION("socket") int twinpath_caught(struct __sk_buff *skb)
{
	of_leaked(skb);
	return 0;
}

SECTION("sk_lookup") int twinpath_lookup(struct bpf_sk_lookup *asked)
{
	struct flow_key key = { .protocol = 6 };
	const struct tcp_flow *flow;
	const __u32 zero = 0;
	void *all, *socket;

	if (asked->protocol != 6)
		return SK_PASS;
	if (asked->family == FAMILY_IPV4) {
		key.family = 4;
		key.source[0] = asked->remote_ip4;
		key.destination[0] = asked->local_ip4;
	} else if (asked->family == FAMILY_IPV6) {
		key.family = 6;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			key.source[i] = asked->remote_ip6[i];
			key.destination[i] = asked->local_ip6[i];
		}
	}
	key.source_port = asked->remote_port;
	key.destination_port = be16((__u16)asked->local_port);
	all = all_tcp_flows();
	if (!all)
		return SK_PASS;
	flow = map_lookup(all, &key);
	if (!flow || (flow->flags & (TCP_DECLINED | TCP_ENDED)) == TCP_DECLINED)
		return SK_PASS;
	socket = map_lookup(&catcher, &zero);
	if (!socket)
		return SK_PASS;
	/* Also where another program has chosen before: the connection is a worker's. */
	sk_assign(asked, socket, SK_LOOKUP_REPLACE);
	sk_release(socket);
	return SK_PASS;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
