/* Slots that are filled by a program and read by a process without a system call, and code shared by the programs that fill
 * them. The including program defines HAS(frame, n) as verdict.h says. */
#ifndef TWINPATH_DIRECT_H
#define TWINPATH_DIRECT_H

#include "head.h"

/* A worker's direct ring: Dmitry Vyukov's bounded queue, with many producers (any CPU) and one consumer (the worker). The
 * sequence of a slot says who may use it. With `lap` = position & ~slot_mask: `lap` means that a producer may take the slot
 * for this position, `lap + 1` that it holds a frame, and the worker writes the next lap when it gives the slot back. A
 * producer that is held up between taking a slot and filling it therefore keeps the slot: others find the former lap there,
 * and the ring is full.
 *
 * The worker opens and closes the ring by a bit of the word that counts the positions. So no position is taken after it has
 * closed the ring, and it knows how many were taken before: it reads all of them before it reads what the socket received
 * afterwards. core/rings/src/direct.rs has the same layout. */
enum { SLOT_LEN = 2048, SLOT_DATA = SLOT_LEN - 16 };
#define OPEN (1ULL << 63)
/* Only in a lease (lease.c). */
#define SINGLE (1ULL << 62)
#define PASSED (1ULL << 61)
#define POSITION (PASSED - 1)

struct slot {
	__u64 sequence; /* zero at first: free for lap 0 */
	__u32 len;	/* 0: the frame could not be read */
	__u16 vlan;	/* host order, or VLAN_NONE */
	__u16 is_cut;	/* not 0: of a coalesced frame, with a checksum that is left to hardware */
	__u8 bytes[SLOT_DATA];
};

struct direct {
	/* Written by the worker: not 0 while it has no socket, so that the classifier decides. Only a single worker can be
	 * without one: if there are several, the kernel chooses the worker by choosing its socket. */
	__u32 without_socket;
	/* Written by the classifier while there is no socket: not 0 once a frame has come that only a socket takes. */
	__u32 wants_socket;
	/* Of a lease: when it lapses, ns of CLOCK_MONOTONIC; and how often the programs have ended it. */
	__u64 until;
	__u32 ended;
	__u32 reserved_too[11];
	/* The next position; with OPEN while frames may be put into the ring. */
	__u64 head;
	__u32 full;
	__u32 lapsed; /* of a lease */
	/* Of a lease: frames that the kernel was given, of the socket, and of which nothing is known. */
	__u32 passed;
	__u32 odd;
	__u32 reserved_also[10];
};

#ifndef RINGS_OF_PROCESSES /* lease.c has maps by process instead */
/* The loader sets the number of workers. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct direct);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} direct SECTION(".maps");

/* The loader sets the number of slots, as many for each worker; for one worker, it is a power of two. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct slot);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} slots SECTION(".maps");
#endif

const volatile __u32 slot_mask = 0;

/* Another CPU can take the same position first; in each attempt at least one CPU succeeds. */
enum { CLAIM_ATTEMPTS = 16 };

/* Copies a frame of `len` bytes into a slot that this program has taken, and publishes it. Returns 0 if the frame could not be
 * read: the slot then says so, and its reader goes on to the next one. */
INLINE int fill(struct __sk_buff *skb, struct slot *slot, __u64 filled, __u32 len)
{
	int copied = 1;

	slot->len = len;
	slot->vlan = skb->vlan_present ? (__u16)skb->vlan_tci : VLAN_NONE;
	slot->is_cut = 0;
	OWN_REGISTER(len);
	/* The verdict claims nothing longer or shorter, which the verifier cannot know. */
	if (len < ETH_LEN || len > SLOT_DATA || skb_load_bytes(skb, 0, slot->bytes, len) != 0) {
		slot->len = 0;
		copied = 0;
	}
	/* With a barrier: the worker reads the slot after its sequence. */
	__sync_lock_test_and_set(&slot->sequence, filled);
	return copied;
}

#ifndef RINGS_OF_PROCESSES
/* Closes the ring of a worker for a claimed frame that does not fit into a slot, or that an offload has coalesced. The worker's
 * socket takes that frame and all after it, until the worker opens the ring again, so a flow keeps its order. To be called
 * before the filter lets the socket take the frame. */
INLINE void close_ring(__u32 queue)
{
	struct direct *ring = map_lookup(&direct, &queue);

	if (ring && *(volatile __u64 *)&ring->head & OPEN)
		__sync_fetch_and_and(&ring->head, ~OPEN);
}
#endif

#endif
