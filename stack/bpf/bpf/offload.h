/* Flows that the kernel forwards by itself, between ports of a switch in one network namespace.
 *
 * An entry stands for all frames with given values in some bits of their fields: control has found out that all of them
 * leave through one port, unchanged (switch/forwarding/src/openflow/pipeline/trace.rs). There are few different sets of bits, the masks. So an
 * entry is found by one look-up for each mask under which frames of the port have entries. Their order does not matter,
 * because every entry that matches a frame is right for it. An entry does not depend on any other.
 *
 * The fields of a frame are read in fields.h, and moves of addresses are in moves.h.
 *
 * Entries end without being swept: each has the time from which it is void, and the time for which its frames may stay
 * away, and it belongs to a generation. src/offload.rs has the same layouts. */
#ifndef TWINPATH_OFFLOAD_H
#define TWINPATH_OFFLOAD_H

#include "fields.h"
#include "kernel.h"
#include "moves.h"

enum { MASKS = 8 };

/* Maximum number of entries, and of CPUs of the machine. Constant once loaded; without entries, none of the code below
 * remains. */
const volatile __u32 entries_max = 0;
const volatile __u32 cpus = 0;

struct entry {
	__u64 generation;
	__u64 deadline_ns; /* it is void from then on */
	__u64 idle_ns;	   /* it is void when none of its frames has come for so long */
	/* The address of the other end of a veth pair, which frames to it may be given to directly; 0: none may. In the
	 * upper 48 bits. */
	__u64 peer;
	__u32 number; /* below entries_max */
	__u32 ifindex;
	__u32 frame_len_max; /* without tag; of a super-frame, of each packet that it becomes */
	__u32 flags;
	__u16 stations[2]; /* the places among the moves of the addresses that its frames are from and to */
	__u32 moves;	   /* the sum of both and of the last word when it was made: if it has changed, it is void */
};

/* Of an entry. */
enum {
	BY_XDP = 1, /* the interface takes frames from XDP programs */
	TIMED = 2,  /* it has a deadline, or may not be idle for ever: reading the clock takes a tenth of the time of all */
	LEARNED = 4, /* it is good for as long as its addresses are where they were learned */
};

/* The loader sets the number of entries of these maps. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct key);
	MAP_TYPE(value, struct entry);
	MAP_UINT(max_entries, 1);
} offloaded SECTION(".maps");

/* Written by control alone. */
struct offload {
	__u64 generation;
	__u64 version; /* of what was put in and taken out: another one after each change */
	__u64 reserved[6];
	struct key masks[MASKS];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct offload);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} offload SECTION(".maps");

struct count {
	__u64 packets;
	__u64 bytes;
};

/* First those of all entries on CPU 0, then those on CPU 1 and so on, so that no two CPUs write to one cache line. Then the
 * same again, if flows can go on without a process (keep.h): what was counted while there was none. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct count);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} counts SECTION(".maps");

/* For each entry, when a frame came last, ns of CLOCK_MONOTONIC. It is written only when it is older than this, so that the
 * CPUs do not contend for it; so it may be too old by this much. */
#define USED_STEP_NS (1ULL << 23)

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} used SECTION(".maps");

/* For each CPU a word that is odd while a frame is between its look-up and its count. After control has taken entries away,
 * it waits until each word is even or has changed: from then on nobody uses or counts by them. That takes a look at a few
 * cache lines; an RCU grace period would take tens of milliseconds. The atomic operations are also barriers: either a program
 * finds that an entry is gone, or control finds the word odd. */
struct passing {
	__u64 word;
	__u64 reserved[7]; /* a cache line for each CPU */
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct passing);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} passing SECTION(".maps");

/* The ports' interfaces, by their kernel indices: an XDP program sends frames to them. The kernel takes an interface out when
 * it vanishes. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_DEVMAP_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 4095);
} devices SECTION(".maps");

INLINE void begin_passing(void)
{
	__u32 cpu = cpu_number();
	struct passing *own = map_lookup(&passing, &cpu);

	/* It is odd already if a frame was lost between the two hooks. */
	if (own)
		__sync_lock_test_and_set(&own->word, (*(volatile __u64 *)&own->word + 1) | 1);
}

INLINE void end_passing(void)
{
	__u32 cpu = cpu_number();
	struct passing *own = map_lookup(&passing, &cpu);

	if (own)
		__sync_lock_test_and_set(&own->word, (*(volatile __u64 *)&own->word + 1) & ~1ULL);
}

struct offload_grace_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 1);
};

/* No program uses this map. The kernel lets an update of a map of maps return only when every program that was running has
 * ended (maybe_wait_bpf_programs). Control asks for that if a word stays odd. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct offload_grace_inner *values[];
} offload_grace SECTION(".maps");

struct offload_grace_inner offload_grace_token SECTION(".maps");

/* What an entry says of a frame. */
struct forwarding {
	__u32 ifindex;
	__u32 number;
	__u32 packets;
	__u32 to_peer; /* past the interface, to the other end of its pair */
	__u64 now;     /* when the entry was found; 0: that does not matter */
};

/* The ports' numbers in keys, and their masks, for XDP programs: at the lower bits of an interface's index a word with the index,
 * the number and the masks. If another port has the place, the map of ports has them. */
enum { PORT_WORDS = 1024 };

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, PORT_WORDS);
} port_words SECTION(".maps");

/* Copies of the entries that a CPU has found last, because looking one up among all takes as long as the rest of the XDP
 * program. A copy is valid for the version from which it was made. Only forwarded frames change copies, so frames of
 * unknown senders do not. */
struct copied {
	__u64 version;
	struct key key;
	struct entry entry; /* two cache lines each */
};

enum { COPIES = 64 }; /* of each CPU, a power of two */

/* The loader sets the number for all CPUs. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct copied);
	MAP_UINT(max_entries, 1);
} copies SECTION(".maps");

/* Where among the copies a key is. Bad luck costs time alone. */
INLINE __u32 place_of(const struct key *key)
{
	const __u64 *words = key->words;
	__u64 sum = (words[0] ^ 0x9e3779b97f4a7c15ULL) * (words[1] ^ 0xc2b2ae3d27d4eb4fULL) +
		    (words[2] ^ 0x165667b19e3779f9ULL) * (words[3] ^ 0x27d4eb2f165667c5ULL) +
		    (words[4] ^ 0x85ebca77c2b2ae63ULL) * (words[5] ^ 0xff51afd7ed558ccdULL) +
		    (words[6] ^ 0xc4ceb9fe1a85ec53ULL) * (words[7] ^ 0x94d049bb133111ebULL);

	return (__u32)(sum >> 32 ^ sum >> 48) & (COPIES - 1);
}

/* The entry with this key, or a copy of it; null: there is none. */
INLINE const struct entry *look_up(const struct offload *own, const struct key *key)
{
	__u32 at = cpu_number() * COPIES + place_of(key);
	struct copied *copied = map_lookup(&copies, &at);
	const struct entry *entry;
	__u64 differs, version;

	if (!copied)
		return 0;
	differs = copied->version ^ *(volatile __u64 *)&own->version;
#pragma unroll
	for (int word = 0; word < WORDS; word++)
		differs |= copied->key.words[word] ^ key->words[word];
	if (!differs)
		return &copied->entry;
	entry = map_lookup(&offloaded, key);
	if (!entry)
		return 0;
	version = *(volatile __u64 *)&own->version;
	/* A barrier too: what is looked up now is not older than the version. */
	__sync_lock_test_and_set(&copied->version, 0);
	entry = map_lookup(&offloaded, key);
	if (!entry)
		return 0;
	copied->key = *key;
	copied->entry = *entry;
	*(volatile __u64 *)&copied->version = version;
	return entry;
}

/* Finds the entry of a frame that has these fields, and came in by a port which has entries under these masks. A super-frame
 * has `gso_size` bytes of payload in each packet, and `payload_at` bytes before it. Returns whether there is one; then the frame
 * must be counted next on this CPU, or given up by end_passing(). */
INLINE int find_entry(struct forwarding *forwarding, const struct key *key, __u32 masks, __u32 len, __u32 gso_size,
		      int payload_at, int at_xdp)
{
	struct key probe;
	__u32 first = 0;
	const struct offload *own = map_lookup(&offload, &first);
	__u64 now = 0;

	if (!own)
		return 0;
	begin_passing();
	for (__u32 mask = 0; mask < MASKS; mask++) {
		const struct entry *entry;

		if (!(masks >> mask & 1))
			continue;
#pragma unroll
		for (int word = 0; word < WORDS; word++)
			probe.words[word] = key->words[word] & own->masks[mask].words[word];
		probe.words[MASK_WORD] |= mask;
		entry = look_up(own, &probe);
		if (!entry || entry->generation != *(volatile __u64 *)&own->generation)
			continue;
		if (entry->flags & LEARNED && has_moved(entry->stations[0], entry->stations[1], entry->moves))
			continue;
		if (entry->flags & TIMED) {
			const __u64 *last;

			now = ktime_get_coarse_ns();
			first = entry->number;
			last = map_lookup(&used, &first);
			if (!last || now >= entry->deadline_ns ||
			    (long long)(now - *last) > (long long)entry->idle_ns)
				continue;
		}
		if (at_xdp && !(entry->flags & BY_XDP))
			break;
		forwarding->packets = 1;
		if (gso_size) {
			__u32 payload = len - (__u32)payload_at;

			if (len <= (__u32)payload_at)
				break;
			forwarding->packets = (payload + gso_size - 1) / gso_size;
			len = (__u32)payload_at + gso_size;
		}
		if (len > entry->frame_len_max)
			break;
		forwarding->ifindex = entry->ifindex;
		forwarding->number = entry->number;
		/* A frame to several stations is for every one. */
		forwarding->to_peer =
			entry->peer && (key->words[1] >> 56 & 1 || entry->peer == (key->words[1] & ~0xffffULL));
		forwarding->now = now;
		return 1;
	}
	end_passing();
	return 0;
}

/* The same for a frame at tc or at a socket. */
CALLED int find_offloaded(struct __sk_buff *skb, struct forwarding *forwarding, __u32 in_port, __u32 masks)
{
	struct key key = {};
	__u32 gso_size = skb->gso_size;
	int payload_at = read_skb(skb, &key, (__u16)in_port);

	if (!forwarding || payload_at == ODD || (gso_size && payload_at == OTHER))
		return 0;
	return find_entry(forwarding, &key, masks, skb->len, gso_size, payload_at, 0);
}

/* Counts a frame of `len` bytes for which an entry was found; `counts_from` is the start of those counts. */
INLINE void count_forwarded(const struct forwarding *forwarding, __u32 len, __u32 counts_from)
{
	__u32 number = forwarding->number, at = counts_from + cpu_number() * entries_max + number;
	struct count *count = map_lookup(&counts, &at);
	__u64 *last, now = forwarding->now;

	if (count) {
		count->packets += forwarding->packets;
		count->bytes += len;
	}
	if (now) {
		last = map_lookup(&used, &number);
		if (last && (long long)(now - *last) >= (long long)USED_STEP_NS)
			*(volatile __u64 *)last = now;
	}
	end_passing();
}

/* Counts a frame at tc, and sends it on; `mark` is for those that leave by the interface. */
INLINE int forward_offloaded(struct __sk_buff *skb, const struct forwarding *forwarding, __u32 mark,
			     __u32 counts_from)
{
	count_forwarded(forwarding, skb->len, counts_from);
	if (forwarding->to_peer) {
		/* The port has classified it as a frame to another host, and the other end would drop it as such. */
		if (skb->pkt_type == PACKET_OTHERHOST)
			change_type(skb, PACKET_HOST);
		return redirect_peer(forwarding->ifindex, 0);
	}
	skb->mark = mark;
	return redirect(forwarding->ifindex, 0);
}

/* Finds the entry of a frame at XDP, and sends it on by it. Frames of devices that take tags off, and super-frames, do not
 * come here: XDP sees neither. */
INLINE int forward_at_xdp(struct xdp_md *context, __u32 in_port, __u32 masks)
{
	const __u8 *bytes = (const __u8 *)(unsigned long)context->data;
	const __u8 *end = (const __u8 *)(unsigned long)context->data_end;
	__u64 head[FRAME_WORDS] = {};
	struct forwarding forwarding;
	struct key key = {};
	__u32 len = (__u32)(end - bytes);

	if (!copy_head(head, bytes, end) || read_fields(&key, head, (int)len, (__u16)in_port) == ODD)
		return XDP_PASS;
	if (!find_entry(&forwarding, &key, masks, len, 0, 0, 1))
		return XDP_PASS;
	/* The interface may have gone. */
	if (redirect_map(&devices, forwarding.ifindex, XDP_PASS) != XDP_REDIRECT) {
		end_passing();
		return XDP_PASS;
	}
	count_forwarded(&forwarding, len, 0);
	return XDP_REDIRECT;
}

#endif
