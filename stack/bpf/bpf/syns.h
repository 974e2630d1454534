/* The rings by which workers get SYNs, and what may end a handshake that has begun when the programs come off. */
#ifndef TWINPATH_SYNS_H
#define TWINPATH_SYNS_H

#include "maps.h"

struct syn {
	__u32 len; /* of the frame, from the MAC header to the last TCP option */
	/* Not 0: no SYN to be taken, but the headers of a segment that has reached the listener. */
	__u32 leaked;
	__u8 bytes[120];
};

struct syns_inner {
	MAP_UINT(type, BPF_MAP_TYPE_RINGBUF);
	MAP_UINT(max_entries, 4096);
};

/* For the worker of each queue. */
enum { SYN_QUEUES = 64 };
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, SYN_QUEUES);
	struct syns_inner *values[];
} tcp_syns SECTION(".maps");

/* Of the type that those in it have; not used. */
struct syns_inner tcp_syns_like SECTION(".maps");

#endif
