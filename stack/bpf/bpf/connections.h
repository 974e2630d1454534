/* Connections of TCP that workers have. The maps are made once for an instance, and put into each object that is loaded
 * (src/tcp_flows.rs), so that connections outlive an attachment.
 *
 * A tuple is in the map from its first SYN until its worker releases it. While it is there without a mark, the kernel gets none of its
 * segments: the programs claim or drop them, and what reaches the kernel by another way, such as reassembled fragments, is
 * dropped by the filter of the listener (listener.c). Otherwise the kernel would answer with a reset. */
#ifndef TWINPATH_CONNECTIONS_H
#define TWINPATH_CONNECTIONS_H

#include "maps.h"

enum {
	/* The worker has declined the connection, or is done with it: its segments are the kernel's. */
	TCP_DECLINED = 1,
	/* With that: the connection was in TIME_WAIT as the programs came off. Until a SYN begins a new one, nothing is answered:
	 * the kernel would answer by a reset. */
	TCP_ENDED = 2,
	/* Its handshake was under way as the programs came off: what reaches the listener is shown to the worker, and not
	 * answered. */
	TCP_HALF_OPEN = 4,
};

struct tcp_flow {
	__u16 queue; /* of the worker that has the connection */
	__u16 reserved;
	__u32 flags;
	/* One more than a position in the worker's ring of SYNs: that of its SYN, or shortly before. 0: it had none. */
	__u64 syn_at;
};

struct tcp_flows_inner {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
	MAP_UINT(key_size, sizeof(struct flow_key));
	MAP_UINT(value_size, sizeof(struct tcp_flow));
	MAP_UINT(max_entries, 1);
};

/* By the tuple: `vlan` is 0. A host has a tuple once, on whichever interface its segments arrive. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct tcp_flows_inner *values[];
} tcp_flows SECTION(".maps");

/* Of the type that those in it have; not used. */
struct tcp_flows_inner tcp_flows_like SECTION(".maps");

INLINE void *all_tcp_flows(void)
{
	const __u32 zero = 0;

	return map_lookup(&tcp_flows, &zero);
}

#endif
