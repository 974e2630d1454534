/* The packet path: a packet socket receives the claimed frames, and a program at tc ingress keeps the kernel from
 * getting them too.
 *
 * Each frame is decided once. The kernel runs packet sockets directly before tc ingress, for the same frame, on the
 * same CPU (net/core/dev.c, __netif_receive_skb_core). So the filter decides: it puts a claimed frame into the direct
 * ring of its worker if that is open, and lets the socket take it otherwise. In both cases it leaves a note of the
 * frame; the classifier drops the noted frame, and nothing else. A frame that the filter did not claim is never
 * dropped, whatever happens to socket, process or rules in between.
 *
 * A worker that never sleeps needs no socket. While it has none, the classifier decides instead.
 *
 * Segments of a connection that a worker has are never passed to the kernel, which would answer with a reset: those that the
 * worker cannot get are dropped and counted. */
#include "again.h"
#include "kernel.h"

#define HAS(frame, n) ((n) <= (frame)->len)

#define CONTEXT struct __sk_buff
#define LOAD_BYTES skb_load_bytes
#define CONNECTIONS

#include "direct.h"
#include "opens.h"
#include "reply.h"

/* The place of a slot of any worker's ring. */
INLINE struct slot *slot_at(__u32 place)
{
	return map_lookup(&slots, &place);
}
#define SLOT_AT slot_at

#include "cut.h"

struct claimed_slot {
	struct slot *slot; /* null if the ring is full or closed */
	__u64 filled;	   /* its sequence once it holds the frame; 0 if the ring is closed */
	__u64 first;	   /* position of the first slot */
};

/* Takes `count` slots that follow each other, all or none. Returns the last one. */
INLINE struct claimed_slot claim_slots(struct direct *ring, __u32 queue, const __u32 count)
{
	for (int attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
		__u64 word = *(volatile __u64 *)&ring->head;
		__u64 first = word & ~OPEN, last = first + count - 1;
		__u64 lap = last & ~(__u64)slot_mask;
		__u32 place = queue * (slot_mask + 1) + (__u32)(last - lap);
		struct slot *slot;
		__u64 sequence;

		if (!(word & OPEN))
			return (struct claimed_slot){ .filled = 0 };
		slot = map_lookup(&slots, &place);
		if (!slot)
			break;
		sequence = *(volatile __u64 *)&slot->sequence;
		/* The slot is from the former lap: it is not filled yet, or not read yet. */
		if (sequence < lap)
			break;
		/* If this fails, other CPUs have moved the head since it was read, or the worker has closed the ring. */
		if (sequence == lap && __sync_val_compare_and_swap(&ring->head, word, word + count) == word)
			return (struct claimed_slot){ .slot = slot, .filled = lap + 1, .first = first };
	}
	return (struct claimed_slot){ .filled = 1 };
}

/* Puts a claimed frame of `len` bytes into the direct ring of a worker. If the ring is full, the frame is lost and
 * counted. Returns 0 if there is no ring or it is closed: then nothing has happened. */
CALLED int put(struct __sk_buff *skb, __u32 queue, __u32 len)
{
	struct direct *ring = map_lookup(&direct, &queue);
	struct claimed_slot claimed;
	struct slot *slot;

	if (!ring)
		return 0;
	claimed = claim_slots(ring, queue, 1);
	slot = claimed.slot;
	if (!slot) {
		if (!claimed.filled)
			return 0;
		__sync_fetch_and_add(&ring->full, 1);
		return 1;
	}
	fill(skb, slot, claimed.filled, len);
	return 1;
}

/* Puts coalesced datagrams into the direct ring of a worker. Returns 0 if it takes none of them: it is closed, or has too little
 * room. */
CALLED int put_datagrams(struct __sk_buff *skb, __u32 queue, const struct cut *cut)
{
	struct direct *ring = map_lookup(&direct, &queue);
	struct claimed_slot claimed;

	if (!ring || !cut->count)
		return 0;
	claimed = claim_slots(ring, queue, cut->count);
	if (!claimed.slot)
		return 0;
	fill_datagrams(skb, queue * (slot_mask + 1), claimed.first, cut);
	return 1;
}

/* Leaves a note of a frame that tc is to drop, or to reply to. */
INLINE void leave_note(struct per_cpu *cpu, const __u64 head[HEAD_WORDS], __u32 len, __u32 reflex)
{
	cpu->note_len = len;
	cpu->note_reflex = reflex;
	cpu->note_opens = 0;
	__builtin_memcpy(cpu->note, head, sizeof(cpu->note));
}

/* Gives a worker a claimed frame, of which a note is left. Returns what the filter of its socket returns. */
INLINE int hand_over(struct __sk_buff *skb, struct per_cpu *cpu, __u32 queue, __u32 len)
{
	if (!may_hand_over(queue)) {
		cpu->counters[WORKER_STUCK]++;
		cpu->note_len = 0;
		return 0;
	}
	cpu->counters[CLAIMED]++;
	return put(skb, queue, len) ? 0 : ~0U;
}

/* The rest of a filter for claims with a reflex. What a filter calls counts as memory of its socket, which before Linux 6.8
 * may have 20 KiB by default (net.core.optmem_max); what it reaches by a tail call does not. */
SECTION("socket") int twinpath_filter_replies(struct __sk_buff *skb)
{
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	__u32 queue, len;

	if (!cpu)
		return 0;
	queue = cpu->queue;
	len = cpu->note_len;
	if (reflex_of(skb, (const __u8 *)cpu->note + HEAD_AT, len, cpu->note_reflex, queue) == MAY_REPLY)
		/* It is counted when tc has replied. */
		return 0;
	cpu->note_reflex = 0;
	return hand_over(skb, cpu, queue, len);
}

/* Not 0 if workers' sockets take coalesced datagrams, which workers take apart; ALL if a worker without a socket gets them as
 * well. Constant once loaded. `Datagrams` in src/steering.rs has the same numbers. */
enum { ALL = 2 };
const volatile __u32 takes_datagrams = 0;

/* Where the kernel finds that program, the one for TCP, and the one for coalesced datagrams. */
enum { GOES_ON_REPLIES = 0, GOES_ON_TCP = 1, GOES_ON_DATAGRAMS = 2 };
struct {
	MAP_UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
	MAP_UINT(max_entries, 3);
} filter_goes_on SECTION(".maps");

/* The filter of the socket of this queue: if several sockets share the frames, each has its own. */
INLINE int filter(struct __sk_buff *skb, __u32 queue)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = { .bytes = (const __u8 *)head + HEAD_AT, .vlan = VLAN_NONE, .leaves_tcp = 1 };
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	verdict_t verdict;
	__u32 number;

	/* The socket should ignore outgoing frames by itself; they are never claimed in any case. */
	if (!cpu || skb->pkt_type == PACKET_OUTGOING)
		return 0;
	verdict = verdict_of(skb, &frame, head);
	number = verdict & 0xff;
	if (connections && number == LEFT_TO_OTHER) {
		cpu->note_len = 0;
		cpu->queue = queue;
		tail_call(skb, &filter_goes_on, GOES_ON_TCP);
		return 0;
	}
	if (takes_datagrams && number == COALESCED) {
		cpu->note_len = 0;
		cpu->queue = queue;
		tail_call(skb, &filter_goes_on, GOES_ON_DATAGRAMS);
		return 0;
	}
	if (number != CLAIMED || test_run) {
		cpu->counters[number & (COUNTERS - 1)]++;
		if (number == CLAIMED)
			leave_note(cpu, head, frame.len, 0);
		else
			cpu->note_len = 0;
		return test_run ? verdict : 0;
	}
	if (is_for_reflex(&frame, queue)) {
		leave_note(cpu, head, frame.len, frame.reflex);
		cpu->queue = queue;
		tail_call(skb, &filter_goes_on, GOES_ON_REPLIES);
		/* The program is no longer there, because the process is ending. */
	}
	leave_note(cpu, head, frame.len, 0);
	return hand_over(skb, cpu, queue, frame.len);
}

/* Not 0 if workers' sockets take frames that are longer than a slot, or coalesced. Constant once loaded. */
const volatile __u32 takes_large = 0;

/* The worker that has the connection is stuck. Nobody gets the segment, unless the worker has not even read the SYN. */
INLINE int leave_stuck(struct per_cpu *cpu, int opens)
{
	/* If it opens the connection, it is counted when tc has decided. */
	if (opens)
		cpu->note_opens = OPENS_AGAIN;
	else
		cpu->counters[TCP_STUCK]++;
	return 0;
}

/* What the filter does with a segment that may be, or is, one of a worker's connection. Returns what the filter returns. */
INLINE int filter_connection(struct __sk_buff *skb, struct per_cpu *cpu, __u32 number, const struct frame *frame)
{
	const __u32 queue = cpu->queue, owner = frame->queue, len = frame->len;

	if (number == TCP_OPENING) {
		/* It is counted when tc has decided. */
		cpu->note_opens = OPENS;
		return 0;
	}
	if (number == CLAIMED_LARGE && !takes_large) {
		cpu->counters[TCP_TOO_LARGE]++;
		return 0;
	}
	/* The number of sockets has changed since the connection was opened. If the worker that has it is asleep, this one gets
	 * the frame, and drops it. */
	if (owner != queue && number == CLAIMED) {
		if (!may_hand_over(owner))
			return leave_stuck(cpu, frame->opens);
		if (put(skb, owner, len)) {
			cpu->counters[CLAIMED]++;
			return 0;
		}
		not_handed_over(owner);
	}
	if (!may_hand_over(queue))
		return leave_stuck(cpu, frame->opens);
	cpu->counters[number & (COUNTERS - 1)]++;
	if (number == CLAIMED_LARGE) {
		close_ring(queue);
		return ~0U;
	}
	return put(skb, queue, len) ? 0 : ~0U;
}

/* The rest of a filter for segments to ports where workers may have connections. */
SECTION("socket") int twinpath_filter_tcp(struct __sk_buff *skb)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = { .bytes = (const __u8 *)head + HEAD_AT, .vlan = VLAN_NONE };
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	verdict_t verdict;
	__u32 number;

	if (!cpu || !connections)
		return 0;
	verdict = verdict_of(skb, &frame, head);
	number = verdict & 0xff;
	if (!test_run && (frame.is_known || number == TCP_OPENING)) {
		leave_note(cpu, head, frame.len, 0);
		return filter_connection(skb, cpu, number, &frame);
	}
	if (number == CLAIMED) {
		leave_note(cpu, head, frame.len, 0);
		if (!test_run)
			return hand_over(skb, cpu, cpu->queue, frame.len);
	}
	cpu->counters[number & (COUNTERS - 1)]++;
	return test_run ? verdict : 0;
}

/* The rest of a filter for coalesced frames. What is no claimed datagrams goes to the kernel, as all of them do while the worker
 * is stuck. */
SECTION("socket") int twinpath_filter_datagrams(struct __sk_buff *skb)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = {
		.bytes = (const __u8 *)head + HEAD_AT,
		.vlan = VLAN_NONE,
		/* A guest's frame on a TAP or virtio-net device has a segment size, but no number of segments. It may be of a kind that
		 * the kernel cannot describe to a packet socket (SKB_GSO_UDP). The kernel would drop such a frame without giving its
		 * slot of the ring back (tpacket_rcv(), net/packet/af_packet.c). */
		.segment_len = skb->gso_segs ? skb->gso_size : 0,
		.segments = skb->gso_segs,
		.leaves_tcp = 1,
	};
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	verdict_t verdict;
	__u32 number, queue;
	struct cut cut;

	if (!cpu || !takes_datagrams)
		return 0;
	queue = cpu->queue;
	verdict = verdict_of(skb, &frame, head);
	number = verdict & 0xff;
	if (number == CLAIMED)
		number = test_run || may_hand_over(queue) ? CLAIMED_LARGE : WORKER_STUCK;
	cpu->counters[number & (COUNTERS - 1)]++;
	if (test_run)
		return BY(number, verdict >> 8);
	if (number != CLAIMED_LARGE)
		return 0;
	leave_note(cpu, head, frame.len, 0);
	cut = cut_of(&frame);
	if (put_datagrams(skb, queue, &cut))
		return 0;
	close_ring(queue);
	return ~0U;
}

SECTION("socket") int twinpath_filter(struct __sk_buff *skb)
{
	return filter(skb, 0);
}

CALLED int filter_of(struct __sk_buff *skb, __u32 queue)
{
	return filter(skb, queue);
}

/* A filter cannot tell for which socket it runs, so each queue has its own program; as many as there can be workers. */
#define FILTER(queue)                                                            \
	SECTION("socket") int twinpath_filter_##queue(struct __sk_buff *skb)     \
	{                                                                        \
		return filter_of(skb, queue);                                    \
	}
#define FILTERS(tens)                                                                   \
	FILTER(tens##0) FILTER(tens##1) FILTER(tens##2) FILTER(tens##3) FILTER(tens##4) \
	FILTER(tens##5) FILTER(tens##6) FILTER(tens##7) FILTER(tens##8) FILTER(tens##9)
FILTER(1) FILTER(2) FILTER(3) FILTER(4) FILTER(5) FILTER(6) FILTER(7) FILTER(8) FILTER(9)
FILTERS(1) FILTERS(2) FILTERS(3) FILTERS(4) FILTERS(5)
FILTER(60) FILTER(61) FILTER(62) FILTER(63)

INLINE int is_noted(const struct __sk_buff *skb, const struct per_cpu *cpu, __u32 len)
{
	__u64 head[HEAD_WORDS] = {};
	__u64 differs = 0;

	if (skb->len != len)
		return 0;
	OWN_REGISTER(len);
	/* No shorter frame is ever noted, which the verifier cannot know. */
	if (len < ETH_LEN)
		return 0;
	if (len > HEAD_LEN)
		len = HEAD_LEN;
	if (skb_load_bytes(skb, 0, (__u8 *)head + HEAD_AT, len) != 0)
		return 0;
#pragma unroll
	for (int i = 0; i < HEAD_WORDS; i++)
		differs |= head[i] ^ cpu->note[i];
	return differs == 0;
}

/* Where the kernel finds twinpath_opens and twinpath_datagrams. */
enum { DECIDES_OPENS = 0, DECIDES_DATAGRAMS = 1 };
struct {
	MAP_UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
	MAP_UINT(max_entries, 2);
} ingress_decides SECTION(".maps");

/* Decides a SYN to a port at which workers have connections. */
SECTION("classifier") int twinpath_opens(struct __sk_buff *skb)
{
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	__u32 number;

	if (!cpu || !connections)
		return TCX_NEXT;
	number = cpu->note_opens == OPENS_AGAIN ? take_syn_back(skb) : open_connection(skb, cpu->queue);
	cpu->counters[number & (COUNTERS - 1)]++;
	if (test_run)
		return number;
	return number == TCP_OPENING || number == TCP_SYN_TWICE || number == TCP_STUCK ? TCX_DROP : TCX_NEXT;
}

/* A segment of a connection of the worker, without a socket. */
INLINE int decide_known_without_socket(struct __sk_buff *skb, struct per_cpu *cpu, __u32 number,
				       const struct frame *frame)
{
	if (number == CLAIMED_LARGE) {
		number = TCP_TOO_LARGE;
	} else if (!may_hand_over(0)) {
		number = TCP_STUCK;
		if (frame->opens) {
			cpu->note_opens = OPENS_AGAIN;
			tail_call(skb, &ingress_decides, DECIDES_OPENS);
		}
	} else if (!put(skb, 0, frame->len)) {
		not_handed_over(0);
		number = NO_SOCKET;
	}
	cpu->counters[number & (COUNTERS - 1)]++;
	cpu->counters[WITHHELD]++;
	return TCX_DROP;
}

/* A worker without a socket does not get coalesced datagrams: the kernel gets these, and a socket those that follow. */
INLINE void want_socket(void)
{
	const __u32 first = 0;
	struct direct *ring = map_lookup(&direct, &first);

	if (ring)
		*(volatile __u32 *)&ring->wants_socket = 1;
}

/* Decides coalesced datagrams that no socket has seen, for a worker that gets all of them. */
SECTION("classifier") int twinpath_datagrams(struct __sk_buff *skb)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = {
		.bytes = (const __u8 *)head + HEAD_AT,
		.vlan = VLAN_NONE,
		/* As in twinpath_filter_datagrams. */
		.segment_len = skb->gso_segs ? skb->gso_size : 0,
		.segments = skb->gso_segs,
		.leaves_tcp = 1,
	};
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	struct cut cut;
	__u32 number;

	if (!cpu || takes_datagrams != ALL)
		return TCX_NEXT;
	number = verdict_of(skb, &frame, head) & 0xff;
	cut = cut_of(&frame);
	if (number == CLAIMED && !may_hand_over(0)) {
		number = WORKER_STUCK;
	} else if (number == CLAIMED && put_datagrams(skb, 0, &cut)) {
		cpu->counters[CLAIMED_LARGE]++;
		cpu->counters[WITHHELD]++;
		return TCX_DROP;
	} else if (number == CLAIMED) {
		not_handed_over(0);
		want_socket();
		number = COALESCED;
	}
	cpu->counters[number & (COUNTERS - 1)]++;
	return TCX_NEXT;
}

/* Decides a frame that no socket has seen, because the worker has none yet. */
INLINE int decide_without_socket(struct __sk_buff *skb, struct per_cpu *cpu)
{
	__u64 head[HEAD_WORDS] = {};
	struct frame frame = { .bytes = (const __u8 *)head + HEAD_AT, .vlan = VLAN_NONE };
	verdict_t verdict = verdict_of(skb, &frame, head);
	__u32 number = verdict & 0xff;

	if (connections && frame.is_known)
		return decide_known_without_socket(skb, cpu, number, &frame);
	if (connections && number == TCP_OPENING) {
		cpu->queue = 0;
		cpu->note_opens = OPENS;
		tail_call(skb, &ingress_decides, DECIDES_OPENS);
		return TCX_NEXT;
	}
	if (takes_datagrams && number == COALESCED && frame.coalesced) {
		if (takes_datagrams == ALL)
			tail_call(skb, &ingress_decides, DECIDES_DATAGRAMS);
		want_socket();
	}
	if (number == CLAIMED && is_for_reflex(&frame, 0)) {
		__u32 why = reflex_of(skb, frame.bytes, frame.len, frame.reflex, 0);
		int action;

		if (why == MAY_REPLY) {
			__builtin_memcpy(cpu->note, head, sizeof(cpu->note));
			action = reply_by_reflex(skb, cpu, frame.len, frame.reflex);
			if (action != TCX_NEXT)
				return action;
		}
	}
	if (number == CLAIMED && !may_hand_over(0)) {
		number = WORKER_STUCK;
	} else if (number == CLAIMED && !put(skb, 0, frame.len)) {
		/* The worker has closed the ring meanwhile, and may be asleep: nothing waits for it. */
		not_handed_over(0);
		number = NO_SOCKET;
	}
	cpu->counters[number & (COUNTERS - 1)]++;
	if (number != CLAIMED)
		return TCX_NEXT;
	cpu->counters[WITHHELD]++;
	return TCX_DROP;
}

/* While twinpath_ingress_again is attached as well, the one that runs first decides every claimed frame. */
SECTION("classifier") int twinpath_ingress(struct __sk_buff *skb)
{
	const __u32 zero = 0;
	struct per_cpu *cpu = map_lookup(&per_cpu, &zero);
	struct direct *ring;

	if (!cpu)
		return TCX_NEXT;
	if (cpu->note_len == 0) {
		ring = map_lookup(&direct, &zero);
		if (ring && *(volatile __u32 *)&ring->without_socket)
			return decide_without_socket(skb, cpu);
		return TCX_NEXT;
	}
	__u32 len = cpu->note_len;
	cpu->note_len = 0;
	if (!is_noted(skb, cpu, len)) {
		cpu->counters[OTHER_FRAME]++;
		return TCX_NEXT;
	}
	if (connections && cpu->note_opens) {
		tail_call(skb, &ingress_decides, DECIDES_OPENS);
		return TCX_NEXT;
	}
	if (reflexes && cpu->note_reflex) {
		int action = reply_by_reflex(skb, cpu, len, cpu->note_reflex);

		/* A frame that cannot be replied to is for the service's kernel socket: no other socket has it. */
		if (action == TCX_NEXT)
			cpu->counters[NO_SOCKET]++;
		return action;
	}
	cpu->counters[WITHHELD]++;
	return TCX_DROP;
}


char terms[] SECTION("license") = "Dual MIT/GPL";
