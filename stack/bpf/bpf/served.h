/* Programs at tc that change nothing once their process has ended, even if they stay attached. They reach their working
 * part by a tail call, and the kernel empties the array of tail calls when its last descriptor is closed
 * (prog_array_map_clear, kernel/bpf/arraymap.c). */
#ifndef TWINPATH_SERVED_H
#define TWINPATH_SERVED_H

#include "kernel.h"

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
	MAP_UINT(max_entries, 3);
} served SECTION(".maps");

/* Always 0, which the verifier does not know: a tail call to a known place is compiled into a jump, and emptying the array
 * would wait an RCU grace period for each. */
volatile __u32 nothing SECTION(".data");

#endif
