/* Sockets with a fast path: the kernel's UDP sockets of processes, each of which can be given a lease. While a socket has one,
 * its datagrams go into its direct ring instead of its receive buffer, and nobody is woken. It is for a thread that polls: a
 * thread that is about to sleep gives the lease back.
 *
 * The kernel determines the socket of a datagram: the program looks the socket up as the kernel's UDP does, so groups of sockets
 * on a port, connected sockets and narrower addresses get their own datagrams. The socket's storage has the number of its lease.
 *
 * A lease is a direct ring that the program may close as well (direct.h). The "open" bit is part of the word from which a slot
 * is taken. So no slot is taken of a ring that either side has closed, and its reader then knows which frames are still to come.
 * A frame is never dropped for want of a slot: the ring is closed and the frame goes to the kernel.
 *
 * While a ring is open, no frame of its socket is passed to the kernel: a frame that cannot be put into the ring, such as a
 * fragment, closes it first. So datagrams are in the ring or in the socket, in turns, and the reader can keep their order: it
 * opens the ring only if it has read everything that was passed. For that, frames are counted before they are passed (separately
 * if their socket is unknown), and PASSED says that one was passed since the reader has cleared it. core/rings/src/lease.rs is
 * the other side.
 *
 * Frames in a ring that nobody reads any more are handed over to the kernel's socket. They are sent on the interface with a
 * mark, and the program at egress loops them back, so that they arrive here again. Each goes to its own socket, or nowhere.
 *
 * One program serves all processes of an interface, so that an unrelated frame costs the same for any number of them. The rings
 * of a process are in maps that it has to itself, and it may write anything there: each number from there is bounded. The
 * assignment of leases is in maps that only the process that has loaded the program can write. */
#include "kernel.h"

#define HAS(frame, n) ((n) <= (frame)->len)

#define RINGS_OF_PROCESSES
#include "direct.h"

/* Processes, and leases of each: the loader sets them. */
const volatile __u32 processes_max = 1;
const volatile __u32 leases_max = 1;
enum { PROCESSES_LIMIT = 64, LEASES_LIMIT = 64 };

struct direct_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(key_size, sizeof(__u32));
	MAP_UINT(value_size, sizeof(struct direct));
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
};

/* The states of the rings of each process, by the lease's number. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct direct_inner *values[];
} rings_of SECTION(".maps");

/* Of a process that has gone. */
struct direct_inner no_rings SECTION(".maps");

struct slots_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(key_size, sizeof(__u32));
	MAP_UINT(value_size, sizeof(struct slot));
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
};

/* Their slots, as many for each. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct slots_inner *values[];
} slots_of SECTION(".maps");

struct slots_inner no_slots SECTION(".maps");

/* The place of a slot, with the process in the upper half. */
INLINE struct slot *slot_at(__u64 place)
{
	__u32 process = place >> 32, number = (__u32)place;
	void *slots = map_lookup(&slots_of, &process);

	return slots ? map_lookup(slots, &number) : 0;
}
#define SLOT_AT slot_at

#include "cut.h"

/* Not 0 if rings take coalesced datagrams, each by itself. Constant once loaded. */
const volatile __u32 takes_datagrams = 0;

/* What no process can write, for each lease of each process. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	/* Which socket has it: the count of that one's struct lessee; 0: none. */
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, 1);
} lent_to SECTION(".maps");

/* Frames that were put into rings of each process. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, 1);
} put_for SECTION(".maps");

struct lessee {
	/* Of its lease. */
	__u16 number;
	__u16 process;
	/* How many times a lease with this number had been given out by then. A socket that is closed in one process may
	 * live on in another: when its number is given to a further socket, it no longer belongs to the former one. */
	__u32 lent;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_SK_STORAGE);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct lessee);
} lessees SECTION(".maps");

/* Frames that leave with this mark come from a ring: random, and not 0. */
const volatile __u32 handing_mark = 0;

/* The lease whose frames are handed over at present. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct lessee);
	MAP_UINT(max_entries, 1);
} handing SECTION(".maps");

struct handed {
	__u64 came;
	/* Those that the kernel was given. */
	__u64 passed;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct handed);
	MAP_UINT(max_entries, 1);
} handed SECTION(".maps");

struct host {
	__u32 family;
	__u32 address[4];
};

/* The addresses of this host on all its interfaces, and its broadcast addresses: most frames from them are not let in by the kernel. */
enum { HOSTS_MAX = 4096, HOST_BITS = 4096 };
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct host);
	MAP_TYPE(value, __u32);
	MAP_UINT(max_entries, HOSTS_MAX);
} hosts SECTION(".maps");

/* A bit set with one bit for each of them (host_bit): for other addresses, one look is usually enough. */
struct host_bits {
	__u64 words[HOST_BITS / 64];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct host_bits);
	MAP_UINT(max_entries, 1);
} host_bits SECTION(".maps");

/* The start of a frame that the kernel sends for a socket, for a holder that has requested one: further datagrams to that
 * peer can leave with the same headers. core/rings/src/sample.rs has the same layout. */
enum { SAMPLE_LEN = 64 };
enum { SAMPLE_NONE, SAMPLE_ASKED, SAMPLE_WRITING, SAMPLE_WRITTEN };
struct sample {
	__u32 state;
	__u32 len; /* of the whole frame */
	__u8 head[SAMPLE_LEN];
	/* Of the first one only: how many are asked for. */
	__u32 asked;
	__u32 reserved[13];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct sample);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} samples SECTION(".maps");

/* Whether the last lease that a socket was given is still its own. */
INLINE int is_lent(const struct lessee *lessee)
{
	__u32 place = lessee->process * leases_max + lessee->number;
	const __u32 *lent = map_lookup(&lent_to, &place);

	return lent && *(volatile const __u32 *)lent == lessee->lent;
}

/* A frame is about to be passed to the kernel. Counts it in `count` of its ring, and closes the ring if it is open.
 * */
INLINE void pass_by(struct direct *ring, __u32 *count)
{
	__u32 before = __sync_fetch_and_add(count, 1);
	__u64 word;

	/* An addition whose outcome is used is a full barrier on every CPU: either PASSED is found as it was before the reader has cleared
	 * it, and the reader finds this count; or it is set anew. */
	OWN_REGISTER(before);
	word = *(volatile __u64 *)&ring->head;
	if (!(word & OPEN) && word & PASSED)
		return;
	/* Another CPU can take a slot at the same time, so that an exchange might fail for ever: two steps never do. In this
	 * order, so that a reader which opens the ring between them finds PASSED when it is closed. */
	__sync_fetch_and_or(&ring->head, PASSED);
	word = __sync_fetch_and_and(&ring->head, ~(OPEN | SINGLE));
	if (word & OPEN)
		__sync_fetch_and_add(&ring->ended, 1);
}

struct taken {
	struct slot *last; /* null if none were taken */
	__u64 filled;	   /* its sequence once it holds the frame */
	__u64 first;	   /* position of the first slot */
};

/* Takes `count` slots that follow each other, all or none. None if the ring is closed, or was closed because it is full or its
 * lease has expired, and none of several if it is open for one frame only. */
INLINE struct taken take_slots(struct direct *ring, void *slots, __u32 number, const __u32 count)
{
	for (int attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
		__u64 word = *(volatile __u64 *)&ring->head;
		__u64 first = word & POSITION, last = first + count - 1;
		__u64 lap = last & ~(__u64)slot_mask;
		__u32 place = number * (slot_mask + 1) + (__u32)(last - lap);
		__u64 next = word + count;
		struct slot *slot;
		__u64 sequence;

		if (!(word & OPEN) || (word & SINGLE && count > 1))
			break;
		if ((long long)(ktime_get_ns() - *(volatile __u64 *)&ring->until) > 0) {
			__sync_fetch_and_add(&ring->lapsed, 1);
			break;
		}
		slot = map_lookup(slots, &place);
		if (!slot)
			break;
		sequence = *(volatile __u64 *)&slot->sequence;
		if (sequence < lap) {
			__sync_fetch_and_add(&ring->full, 1);
			break;
		}
		if (word & SINGLE)
			next &= ~(OPEN | SINGLE);
		if (sequence == lap && __sync_val_compare_and_swap(&ring->head, word, next) == word)
			return (struct taken){ .last = slot, .filled = lap + 1, .first = first };
	}
	return (struct taken){ .last = 0 };
}

/* Whether the address is one of this host's. */
INLINE int is_host(const struct host *host)
{
	const __u32 zero = 0, *address = host->address;
	const struct host_bits *bits = map_lookup(&host_bits, &zero);
	__u32 bit = (address[0] ^ address[1] ^ address[2] ^ address[3]) * 0x9e3779b1 >> 20;

	return bits && bits->words[bit / 64] >> (bit % 64) & 1 && map_lookup(&hosts, host);
}

/* Whether the kernel may drop the frame because of its source (ip_route_input_slow and fib_validate_source, ip6_rcv_core).
 * Such a frame is not put into a ring. The kernel accepts some of them. */
INLINE int is_doubtful(const __u8 *bytes)
{
	struct host host = {};

	if (*(const __u16 *)(bytes + 12) == be16(IPV4)) {
		__u8 first = bytes[ETH_LEN + 12];

		/* Of no network, loopback, multicast, reserved. */
		if (first == 0 || first == 127 || first >= 224)
			return 1;
		host.family = 4;
		host.address[0] = *(const __u32 *)(bytes + ETH_LEN + 12);
	} else {
		const __u32 *source = (const __u32 *)(bytes + ETH_LEN + 8);

		/* Unspecified, loopback, mapped and others that begin with zeros; multicast. */
		if (!(source[0] | source[1]) || bytes[ETH_LEN + 8] == 0xff)
			return 1;
		host.family = 6;
		for (int word = 0; word < 4; word++)
			host.address[word] = source[word];
	}
	return is_host(&host);
}

/* Puts a frame into the ring of a lease, unless the kernel must decide: of coalesced datagrams all or none, each by itself. Returns
 * 0 if the frame is for the kernel. */
CALLED int put_leased(struct __sk_buff *skb, __u32 process, __u32 number, const struct frame *frame)
{
	void *rings = map_lookup(&rings_of, &process), *slots;
	struct cut cut = { .count = 1 };
	struct taken taken = { .last = 0 };
	struct direct *ring;
	__u64 *put;

	if (!rings)
		return 0;
	ring = map_lookup(rings, &number);
	if (!ring)
		return 0;
	if (frame->segment_len)
		cut = cut_of(frame);
	slots = map_lookup(&slots_of, &process);
	if (slots && cut.count && !is_doubtful(frame->bytes))
		taken = take_slots(ring, slots, number, cut.count);
	if (taken.last && frame->segment_len) {
		fill_datagrams(skb, (__u64)process << 32 | number * (slot_mask + 1), taken.first, &cut);
	} else if (!taken.last || !fill(skb, taken.last, taken.filled, frame->len)) {
		pass_by(ring, &ring->passed);
		return 0;
	}
	put = map_lookup(&put_for, &process);
	if (put)
		*put += cut.count;
	return 1;
}

/* A frame that may be for any socket of a process is about to be passed to the kernel. */
GLOBAL int pass_by_process(__u32 process)
{
	void *rings = map_lookup(&rings_of, &process);

	if (!rings)
		return 0;
	for (__u32 number = 0; number < LEASES_LIMIT; number++) {
		__u32 key = number, place = process * leases_max + number;
		struct direct *ring;
		const __u32 *lent;

		if (number >= leases_max)
			break;
		lent = map_lookup(&lent_to, &place);
		if (!lent || !*(volatile const __u32 *)lent)
			continue;
		ring = map_lookup(rings, &key);
		if (ring)
			pass_by(ring, &ring->odd);
	}
	return 0;
}

/* The same, of all processes. */
CALLED int pass_by_all(void)
{
	for (__u32 process = 0; process < PROCESSES_LIMIT; process++) {
		if (process >= processes_max)
			break;
		pass_by_process(process);
	}
	return 0;
}

/* Whether an unclaimed frame may end up in one of the sockets in a way that the program does not know: fragments, headers
 * with options, super-frames, multicast, a newly added address. Frames to other ports do not, nor do those for other hosts.
 * */
INLINE int may_be_ours(__u32 number, const struct __sk_buff *skb)
{
	switch (number) {
	case UNCLAIMED:
	case NOT_FOR_THIS_HOST:
	case TCP_NOT_OPENING:
		return 0;
	case VLAN_TAG:
		/* Frames of a VLAN belong to another interface. Those with tag 0 have only a priority. */
		return !skb->vlan_present || !(skb->vlan_tci & 0xfff);
	default:
		return 1;
	}
}

/* The socket that the kernel would give the frame to, to be released. The claim has neither tag nor options, so addresses and ports stand
 * together in the order of the look-up's key. */
INLINE void *socket_of(struct __sk_buff *skb, const __u8 *bytes)
{
	if (*(const __u16 *)(bytes + 12) == be16(IPV4))
		return sk_lookup_udp(skb, bytes + ETH_LEN + 12, 12, BPF_F_CURRENT_NETNS, 0);
	return sk_lookup_udp(skb, bytes + ETH_LEN + 8, 36, BPF_F_CURRENT_NETNS, 0);
}

/* The process and the number of the lease of that socket, the process plus one in the upper half; 0 if it has none. */
INLINE __u32 lease_of(struct __sk_buff *skb, const __u8 *bytes)
{
	void *socket = socket_of(skb, bytes);
	const struct lessee *lessee;
	__u32 found = 0;

	if (!socket)
		return 0;
	lessee = sk_storage_get(&lessees, socket, 0, 0);
	if (lessee && is_lent(lessee))
		found = (lessee->process + 1) << 16 | lessee->number;
	sk_release(socket);
	return found;
}

/* A frame that was in a ring has come back: it is for the socket of its lease, or for nobody. */
CALLED int take_handed(struct __sk_buff *skb)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = { .bytes = (const __u8 *)head + HEAD_AT, .vlan = VLAN_NONE };
	const __u32 zero = 0;
	const struct lessee *wanted = map_lookup(&handing, &zero), *lessee;
	struct handed *count = map_lookup(&handed, &zero);
	__u32 process = 0, number = 0;
	int is_its = 0, is_held = 0;
	struct direct *ring;
	void *socket, *rings;

	skb->mark = 0;
	if (!count || !wanted)
		return TCX_DROP;
	count->came++;
	if ((verdict_of(skb, &frame, head) & 0xff) != CLAIMED)
		return TCX_DROP;
	socket = socket_of(skb, frame.bytes);
	if (!socket)
		return TCX_DROP;
	lessee = sk_storage_get(&lessees, socket, 0, 0);
	if (lessee && lessee->process == wanted->process && lessee->number == wanted->number &&
	    lessee->lent == wanted->lent) {
		is_its = 1;
		is_held = is_lent(lessee);
		process = lessee->process;
		number = lessee->number;
	}
	sk_release(socket);
	if (!is_its)
		return TCX_DROP;
	count->passed++;
	rings = is_held ? map_lookup(&rings_of, &process) : 0;
	ring = rings ? map_lookup(rings, &number) : 0;
	if (ring) {
		/* As in pass_by, but an open ring stays open: the frames in it come after this one. */
		__sync_fetch_and_add(&ring->passed, 1);
		__sync_fetch_and_or(&ring->head, PASSED);
	}
	return TCX_NEXT;
}

/* Where the start of a frame's bytes, and the end of those that are in one piece, stand in struct __sk_buff. */
enum { SKB_DATA = 76, SKB_DATA_END = 80 };
#define POINTER_AT(skb, offset) ((const __u8 *)(long)*(const volatile __u32 *)((const __u8 *)(skb) + (offset)))

/* Whether no socket with a lease could get the frame, which most frames show by a few bytes: the program looks at every frame of the interface.
 * What is left, the verdict decides. */
INLINE int is_others(const struct __sk_buff *skb)
{
	const __u8 *bytes = POINTER_AT(skb, SKB_DATA), *end = POINTER_AT(skb, SKB_DATA_END);
	__u8 protocol;
	__u32 port;

	if (skb->vlan_present || bytes + ETH_LEN + IPV4_LEN + 4 > end)
		return 0;
	if (*(const __u16 *)(bytes + 12) == be16(IPV4)) {
		if (bytes[ETH_LEN] != 0x45)
			return 0;
		protocol = bytes[ETH_LEN + 9];
		/* Fragments of TCP as well. */
		if (protocol != UDP)
			return protocol == TCP;
		if (*(const __u16 *)(bytes + ETH_LEN + 6) & be16(0x3fff))
			return 0;
		port = be16(*(const __u16 *)(bytes + ETH_LEN + IPV4_LEN + 2));
	} else if (*(const __u16 *)(bytes + 12) == be16(IPV6)) {
		if (bytes[ETH_LEN] >> 4 != 6 || bytes + ETH_LEN + IPV6_LEN + 4 > end)
			return 0;
		protocol = bytes[ETH_LEN + 6];
		if (protocol != UDP)
			return protocol == TCP;
		port = be16(*(const __u16 *)(bytes + ETH_LEN + IPV6_LEN + 2));
	} else {
		return 0;
	}
	return !(state.ports[*(volatile __u32 *)&state.active & 1][UDP_INDEX][port >> 6] >> (port & 63) & 1);
}

/* The program for frames that may be for a socket with a lease. */
CALLED int look_closely(struct __sk_buff *skb)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = {
		.bytes = (const __u8 *)head + HEAD_AT,
		.vlan = VLAN_NONE,
		/* As in twinpath_filter_datagrams (packet.c): a guest's frame may be of any kind. */
		.segment_len = takes_datagrams && skb->gso_segs ? skb->gso_size : 0,
		.segments = skb->gso_segs,
	};
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	__u32 number, lease;

	if (!cpu)
		return TCX_NEXT;
	number = verdict_of(skb, &frame, head) & 0xff;
	if (number != CLAIMED) {
		if (may_be_ours(number, skb))
			pass_by_all();
		cpu->counters[number & (COUNTERS - 1)]++;
		return TCX_NEXT;
	}
	lease = lease_of(skb, frame.bytes);
	if (lease && put_leased(skb, (lease >> 16) - 1, lease & 0xffff, &frame)) {
		cpu->counters[CLAIMED]++;
		cpu->counters[WITHHELD]++;
		return TCX_DROP;
	}
	cpu->counters[NO_SOCKET]++;
	return TCX_NEXT;
}

SECTION("classifier") int twinpath_lease(struct __sk_buff *skb)
{
	if (skb->mark && skb->mark == handing_mark)
		return take_handed(skb);
	return is_others(skb) ? TCX_NEXT : look_closely(skb);
}

/* Whether another frame with these headers, sent by a packet socket, would be treated like this one in all later steps: a
 * mark and a priority are not in its bytes. */
INLINE int is_plain(const struct __sk_buff *skb)
{
	return !skb->mark && !skb->priority && !skb->vlan_present && skb->gso_segs <= 1 && !skb->gso_size;
}

/* Shows how the kernel sends, and loops back frames that are handed over. In front of all others, so that the bytes are the
 * same as those of a frame of a packet socket at this point. */
SECTION("classifier") int twinpath_sample(struct __sk_buff *skb)
{
	const __u32 zero = 0;
	struct sample *first = map_lookup(&samples, &zero), *sample;
	const struct lessee *lessee;
	__u32 number, len = skb->len;
	void *socket;

	if (skb->mark && skb->mark == handing_mark)
		return redirect(skb->ifindex, BPF_F_INGRESS);
	if (!first || !*(volatile __u32 *)&first->asked || !is_plain(skb))
		return TCX_NEXT;
	socket = (void *)skb->sk;
	if (!socket)
		return TCX_NEXT;
	socket = sk_fullsock(socket);
	if (!socket)
		return TCX_NEXT;
	lessee = sk_storage_get(&lessees, socket, 0, 0);
	if (!lessee || !is_lent(lessee))
		return TCX_NEXT;
	number = lessee->number;
	sample = map_lookup(&samples, &number);
	if (!sample || !__sync_bool_compare_and_swap(&sample->state, SAMPLE_ASKED, SAMPLE_WRITING))
		return TCX_NEXT;
	sample->len = len;
	OWN_REGISTER(len);
	if (len > SAMPLE_LEN)
		len = SAMPLE_LEN;
	if (len < ETH_LEN || skb_load_bytes(skb, 0, sample->head, len) != 0)
		sample->len = 0;
	/* With a barrier: the holder reads the rest after the state. */
	__sync_lock_test_and_set(&sample->state, SAMPLE_WRITTEN);
	return TCX_NEXT;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
