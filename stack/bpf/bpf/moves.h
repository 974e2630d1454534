/* Moves of learned addresses from port to port, as workers and bridges make them. */
#ifndef TWINPATH_MOVES_H
#define TWINPATH_MOVES_H

#include "kernel.h"
#include "pending.h"

/* How often addresses have moved from port to port. A worker counts a move when it learns of it. From then on, entries for
 * frames from or to the address are void, whatever control is doing. The place of an address is a hash of it; if several
 * addresses share one, this only costs time. */
enum { MOVE_WORDS = 1 << 14 };

/* The last word counts frames that were left to a bridge instead of a stuck worker. The bridge learns from them, but no
 * worker does. So each of them makes all such entries void, even while control stands still. */
enum { BRIDGED = MOVE_WORDS };

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, MOVE_WORDS + 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} moves SECTION(".maps");

/* A bridge gets a frame. */
INLINE void left_to_bridge(void)
{
	__u32 at = BRIDGED;
	__u64 *bridged = map_lookup(&moves, &at);

	if (bridged)
		__sync_fetch_and_add(bridged, 1);
}

/* Whether one of the addresses with these places has moved since their words had this sum, or may have moved without a
 * worker's knowledge. */
INLINE int has_moved(__u32 from, __u32 to, __u32 moved_then)
{
	__u32 at = BRIDGED;
	const __u64 *first = map_lookup(&moves, &from), *second = map_lookup(&moves, &to), *bridged;
	__u64 sum;

	if (!first || !second)
		return 1;
	sum = *(volatile const __u64 *)first + *(volatile const __u64 *)second;
	if (fail_open_ns) {
		bridged = map_lookup(&moves, &at);
		sum += bridged ? *(volatile const __u64 *)bridged : 0;
	}
	return (__u32)sum != moved_then;
}

#endif
