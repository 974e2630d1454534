/* Reflexes: replies that the programs give by themselves, while the worker sleeps.
 *
 * A service that mirrors answers every request with its own bytes, and one that keeps replies allows those to be repeated
 * (service/service, `Reflex`). For a claimed frame of such a service, a program needs no worker: reflex_of() decides by the
 * frame's head, and by kept.h, whether it may reply, and reply_by_reflex() (reply.h) rewrites the frame and sends it back.
 * Every doubtful frame goes to the worker, under a reason that is counted: a reply is byte for byte the one that the worker
 * would have sent (stack/reflex/src/mirror.rs is the same in Rust).
 *
 * It would not be noticed that a worker hangs if it got no frames. So it still gets some requests, the canaries: for each
 * service one by count and one by time, and one for each peer by time, which also keeps the peer's entry in use. If a
 * canary waits for too long, the worker is stuck (pending.h), and there are no reflexes until it continues.
 *
 * src/reflex.rs has the same layouts.
 *
 * The including program defines CONTEXT, the context of the program that decides, and LOAD_BYTES, the helper that copies
 * bytes of its frame. */
#ifndef TWINPATH_REFLEX_H
#define TWINPATH_REFLEX_H

#include "kept.h"
#include "verdict.h"

/* Not 0 if there are reflexes. Constant once loaded; without reflexes none of the code below is left. */
const volatile __u32 reflexes = 0;
/* Whether to let the worker try while there are many replies. */
const volatile __u32 tries_worker = 0;
/* Whether frames may come with checksums that their senders have left to hardware: the device is virtual. */
const volatile __u32 partial_checksums = 0;

/* Seed of the hash of senders' MAC addresses, so that nobody can choose senders that share a bucket. */
const volatile __u64 station_seed = 0;

/* Flags above the place in a claim's reflex. */
enum { MIRRORS = 1, KEEPS = 2 };
#define REFLEX_PLACE(reflex) ((reflex)&0xff)
#define REFLEX_FLAGS(reflex) ((reflex) >> 8)
enum { PLACES = 256, PLACES_OF_SERVICE = PLACES / KEPT_SERVICES };

/* Why a request was not replied to here; one counter each. `NotReplied` in stack/reflex. */
enum why {
	MAY_REPLY = 0,
	WHY_SUSPENDED = 1,   /* control wants workers to see all frames */
	WHY_HEADER = 2,	     /* lengths that contradict each other, or a wrong checksum of the IPv4 header */
	WHY_NO_CHECKSUM = 3, /* the datagram has none, and its reply gets one */
	WHY_PORT = 4,	     /* of the sender: answering it is refused or impossible (stack/udp/src/admit.rs) */
	WHY_PEER = 5,	     /* the way to the peer is not known, or not the one that the frame came by */
	WHY_MTU = 6,	     /* the reply is too long for the path */
	WHY_STUCK = 7,	     /* a frame has been waiting for the worker for too long */
	WHY_CANARY = 8,
	WHY_RATE = 9,	     /* too many replies in all */
	WHY_CHECKSUM = 10,   /* wrong, or of a kind that is not understood */
	WHY_FAILED = 11,     /* the kernel could not change the frame */
	WHY_SOURCE_RATE = 12, /* too many replies to the source: the worker's own limits decide what becomes of it */
	/* There is no kept reply. */
	WHY_TOO_LONG = KEPT_TOO_LONG,
	WHY_UNKNOWN = KEPT_UNKNOWN,
	WHY_EXPIRED = KEPT_EXPIRED,
	WHY_WITHDRAWN = KEPT_WITHDRAWN, /* or changed while it was read */
	WHY_LOAD = 17, /* the worker answers, or is being tried */
	WHYS = 32,
};

struct reflex_control {
	__u64 suspended;   /* not 0: no reflexes for the time being */
	__u64 interval_ns; /* between two replies, all sources together */
	__u64 frame_len_max; /* of a frame that the interface sends */
	__u64 credits;	     /* replies that a CPU takes from the common bucket at once, so that CPUs do not contend for it */
	__u64 taps;	     /* captures that want copies of what is replied to (tap.h), a bit for each */
	__u64 reserved[3];
	__u64 full_at_ns; /* when the bucket of replies is full; written by the programs */
	__u64 reserved_too[7];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct reflex_control);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} reflex_control SECTION(".maps");

/* For each place, the least time between two replies to one source, ns; 0: no limit. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, PLACES);
} reflex_places SECTION(".maps");

struct reflex_count {
	__u64 replies;
	__u64 bytes;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct reflex_count);
	MAP_UINT(max_entries, PLACES);
} reflex_counts SECTION(".maps");

enum { CHUNK = 512 };

struct reflex_cpu {
	__u64 why[WHYS];
	__u64 credits;	/* replies of the common bucket that this CPU may still give */
	/* Replies of this CPU that the word of their queue (pending.h) does not count yet, and the last tick of the clock. */
	__u64 replies_since;
	__u64 replies_queue;
	__u64 tick_ns;
	/* For canaries, of each service: requests, and replies since the last one. */
	__u64 requests[KEPT_SERVICES];
	__u64 since_canary[KEPT_SERVICES];
	/* The part of a frame that is being summed, and room to fill up a word. */
	__u8 chunk[CHUNK + 8];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct reflex_cpu);
	MAP_UINT(max_entries, 1);
} reflex_cpu SECTION(".maps");

struct peer_key {
	__u8 family;
	__u8 reserved[3];
	__u32 address[4];
};

/* How replies to a peer leave, as the worker's egress table has it, if that is by this interface; written by control only. */
struct peer {
	__u16 next_hop[3]; /* MAC addresses, as on the wire */
	__u16 own[3];
	__u32 mtu;
	/* Written by the programs. The buckets of replies are by service, as each has a rate of its own. */
	__u64 full_at_ns[KEPT_SERVICES];
	__u64 canary_ns; /* when the next canary is due */
	/* Number of requests that go to the worker first: it keeps peers in use when others need room, so it must see that
	 * this one is in use (PROVEN_USES in stack/udp/src/egress.rs). */
	__u32 to_worker;
	__u32 reserved;
};

/* The loader sets the number of peers. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct peer_key);
	MAP_TYPE(value, struct peer);
	MAP_UINT(max_entries, 1);
} peers SECTION(".maps");

/* For frames of an EtherType, whose senders have no entry: the buckets of replies, by a hash of the sender's MAC address and
 * the service. */
enum { STATIONS = 1024 }; /* 10 bits of a hash */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, STATIONS);
} stations SECTION(".maps");

/* When the next canary by time is due, for each service at each queue. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, QUEUES_MAX * KEPT_SERVICES);
} canaries SECTION(".maps");

/* On each CPU, one in this many requests of a service; a power of two. */
enum { CANARY_REQUESTS = 4096 };
#define CANARY_NS 1000000000ULL
enum { CANARY_LEAST = 16 };
/* Control forgets a peer that no worker asks about within a minute, and asks the kernel about it every 10 s. */
#define PEER_CANARY_NS 8000000000ULL
/* With fewer replies in a second, the worker is not tried: they take a twentieth of a CPU. */
enum { TRIED_RATE_LEAST = 25000 };
/* The duration of a trial, unless the worker ends it before. Then the time to the next one, if the rate of replies has
 * changed by a quarter, or the worker has answered until now. Otherwise the time doubles with each trial, at most this many
 * times: a trial is short, and may find the worker slow by chance. */
#define TRIAL_NS 12000000ULL
#define TRIAL_LEAST_NS 50000000ULL
enum { TRIAL_DOUBLED_MOST = 4 };
/* The lowest bits of `tried_rate`, which make no difference to a rate, are how often it has doubled. */
enum { TRIAL_DOUBLED = 7 };
/* The minimum time for counting replies in a second, twice before a trial; and the maximum, beyond which a count is no
 * longer the present rate. CPUs add theirs once in a tick of 1 to 10 ms. */
#define RATE_OVER_NS 20000000ULL
#define RATE_OVER_MOST_NS 100000000ULL
/* A load that comes back within this time after the worker's time has expired is the same load. */
#define PAUSE_MOST_NS 100000000ULL
/* `worker_until` if the worker has just answered, and does not any more. `GIVEN_BACK` in core/rings/src/answering.rs. */
enum { GIVEN_BACK = 1 };
/* After silence, a burst of replies for this time may leave. As in stack/udp/src/reply_limit.rs. */
#define BURST_NS 200000000ULL

/* The places of fields in a frame without a tag. */
enum { IP_AT = ETH_LEN, UDP4_AT = IP_AT + IPV4_LEN, UDP6_AT = IP_AT + IPV6_LEN };
enum { HOP_LIMIT = 64, DO_NOT_FRAGMENT = 0x4000 };
#define FIELD16(bytes, offset) (*(const __u16 *)((bytes) + (offset)))
#define FIELD32(bytes, offset) (*(const __u32 *)((bytes) + (offset)))

INLINE struct reflex_cpu *own_reflex_cpu(void)
{
	const __u32 zero = 0;

	return map_lookup(&reflex_cpu, &zero);
}

/* A token bucket stored as the time at which it is full again; takes `count` tokens. Returns 0 if there are too few. */
INLINE int take_tokens(__u64 *full_at_ns, __u64 interval_ns, __u64 count, __u64 now)
{
	__u64 at = *(volatile __u64 *)full_at_ns;

	if ((long long)(at - now) < 0)
		/* If another CPU was first, its time is just as good. */
		__sync_val_compare_and_swap(full_at_ns, at, now);
	else if (at - now >= BURST_NS)
		return 0;
	__sync_fetch_and_add(full_at_ns, interval_ns * count);
	return 1;
}

INLINE __u64 sum_words(const __u8 *bytes, __u32 at, int words)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < words; i++)
		sum += FIELD32(bytes, at + 4 * i);
	return sum;
}

/* The sum of the pseudo-header that a UDP checksum covers (RFC 768, RFC 8200 section 8.1). */
INLINE __u64 pseudo_sum(const __u8 *bytes, int ipv6)
{
	if (ipv6)
		return sum_words(bytes, IP_AT + 8, 8) + be16(UDP) + FIELD16(bytes, UDP6_AT + 4);
	return sum_words(bytes, IP_AT + 12, 2) + be16(UDP) + FIELD16(bytes, UDP4_AT + 4);
}

/* Whether stack/udp/src/admit.rs refuses the sender's port: services that answer everything could answer each other. What it
 * refuses of addresses has no entry among the peers. */
INLINE int answers_by_itself(__u16 source, __u16 destination)
{
	if (source == destination)
		return 1;
	switch (be16(source)) {
	case 0: case 7: case 9: case 13: case 17: case 19: case 37: case 53: case 69: case 111: case 123: case 137:
	case 161: case 464: case 1900: case 5353: case 11211:
		return 1;
	default:
		return 0;
	}
}

/* Whether a frame has been waiting too long for the worker, so that may_hand_over() must decide. */
INLINE int waits_too_long(__u32 queue, __u64 now)
{
	const struct pending *word = fail_open_ns ? map_lookup(&pending, &queue) : 0;
	__u64 since = word ? *(volatile __u64 *)&word->since : 0;

	return since & WITHDRAWN || (since && (long long)(now - since) > (long long)fail_open_ns);
}

INLINE int is_due(__u64 *due_ns, __u64 now, __u64 after_ns)
{
	__u64 due = *(volatile __u64 *)due_ns;

	return (long long)(now - due) >= 0 && __sync_val_compare_and_swap(due_ns, due, now + after_ns) == due;
}

/* The checks of a datagram's headers; `udp_at` is where its UDP header is. */
INLINE __u32 check_datagram(const __u8 *bytes, __u32 len, int ipv6)
{
	const __u32 udp_at = ipv6 ? UDP6_AT : UDP4_AT;
	__u32 udp_len;

	if (bytes[ipv6 ? IP_AT + 6 : IP_AT + 9] != UDP)
		return WHY_HEADER;
	udp_len = be16(FIELD16(bytes, udp_at + 4));
	if (ipv6) {
		if (be16(FIELD16(bytes, IP_AT + 4)) != udp_len)
			return WHY_HEADER;
	} else {
		if (be16(FIELD16(bytes, IP_AT + 2)) != udp_len + IPV4_LEN)
			return WHY_HEADER;
		if (fold(sum_words(bytes, IP_AT, 5)) != 0xffff)
			return WHY_HEADER;
	}
	if (udp_at + udp_len > len)
		return WHY_HEADER;
	if (FIELD16(bytes, udp_at + 6) == 0)
		return WHY_NO_CHECKSUM;
	return answers_by_itself(FIELD16(bytes, udp_at), FIELD16(bytes, udp_at + 2)) ? WHY_PORT : MAY_REPLY;
}

/* The entry of the frame's sender; null if a reply does not leave to where the frame came from. */
INLINE struct peer *peer_of(const __u8 *bytes, int ipv6)
{
	struct peer_key key = { .family = ipv6 ? 6 : 4 };
	struct peer *peer;

	if (ipv6) {
		key.address[0] = FIELD32(bytes, IP_AT + 8);
		key.address[1] = FIELD32(bytes, IP_AT + 12);
		key.address[2] = FIELD32(bytes, IP_AT + 16);
		key.address[3] = FIELD32(bytes, IP_AT + 20);
	} else {
		key.address[0] = FIELD32(bytes, IP_AT + 12);
	}
	peer = map_lookup(&peers, &key);
	if (!peer || FIELD16(bytes, 0) != peer->own[0] || FIELD16(bytes, 2) != peer->own[1] ||
	    FIELD16(bytes, 4) != peer->own[2] || FIELD16(bytes, 6) != peer->next_hop[0] ||
	    FIELD16(bytes, 8) != peer->next_hop[1] || FIELD16(bytes, 10) != peer->next_hop[2])
		return 0;
	return peer;
}

/* Whether this CPU may give a reply, or look for one, of all that there may be in a second. */
INLINE int has_credit(struct reflex_cpu *cpu, struct reflex_control *control, __u64 now)
{
	__u64 credits;

	if (cpu->credits)
		return 1;
	credits = *(volatile __u64 *)&control->credits;
	if (!take_tokens(&control->full_at_ns, control->interval_ns, credits, now))
		return 0;
	cpu->credits = credits;
	return 1;
}

/* Whether this request of a peer is one of the first ones. */
INLINE int is_first(struct peer *peer)
{
	__u32 left = *(volatile __u32 *)&peer->to_worker;

	if (left)
		*(volatile __u32 *)&peer->to_worker = left - 1;
	return left != 0;
}

/* Whether the request is to go to the worker for the worker's sake. By time only if enough of the service were replied to
 * since: requests that are far apart would all go to the worker. A service that is seldom asked has canaries of its own, so that
 * one that hangs only at its requests is found as soon as one that is asked all the time. */
INLINE int is_canary(struct reflex_cpu *cpu, __u32 queue, __u32 service, __u64 *peer_due_ns, __u64 now)
{
	__u32 number = queue * KEPT_SERVICES + service;
	__u64 *due_ns = map_lookup(&canaries, &number);

	return ++cpu->requests[service] % CANARY_REQUESTS == 0 ||
	       (cpu->since_canary[service] >= CANARY_LEAST && due_ns && is_due(due_ns, now, CANARY_NS)) ||
	       (peer_due_ns && is_due(peer_due_ns, now, PEER_CANARY_NS));
}

/* Counts what this CPU has replied to where the CPUs count together. */
INLINE void count_together(struct reflex_cpu *cpu)
{
	__u32 queue = cpu->replies_queue;
	struct pending *word = map_lookup(&pending, &queue);

	if (word && cpu->replies_since)
		__sync_fetch_and_add(&word->replies, cpu->replies_since);
	cpu->replies_since = 0;
}

INLINE void count_reply(struct reflex_cpu *cpu, __u32 queue)
{
	if (cpu->replies_queue != queue) {
		count_together(cpu);
		cpu->replies_queue = queue;
	}
	cpu->replies_since++;
}

/* The clock has ticked: whether the worker is to be tried, as replies are many. */
INLINE int is_trial(struct reflex_cpu *cpu, __u32 queue, __u64 now)
{
	struct pending *word = map_lookup(&pending, &queue);
	__u64 took, then, rate, former, tried, doubled;

	count_together(cpu);
	cpu->tick_ns = now;
	if (!word)
		return 0;
	then = *(volatile __u64 *)&word->then_ns;
	took = now - then;
	/* One CPU does it. */
	if ((long long)took < (long long)RATE_OVER_NS || __sync_val_compare_and_swap(&word->then_ns, then, now) != then)
		return 0;
	rate = took < RATE_OVER_MOST_NS ? (word->replies - word->replies_then) * 1000000000ULL / took : 0;
	word->replies_then = word->replies;
	former = word->rate;
	word->rate = rate;
	/* The first count after silence, or after the worker has answered, is of less time than it seems. */
	if (rate < TRIED_RATE_LEAST || former < TRIED_RATE_LEAST || (long long)(now - word->trial_at) < 0)
		return 0;
	if (former > rate)
		rate = former;
	tried = *(volatile __u64 *)&word->tried_rate;
	doubled = 0;
	if (rate <= tried + tried / 4 && rate >= tried - tried / 4) {
		doubled = tried & TRIAL_DOUBLED;
		if (now - word->trial_at < (TRIAL_LEAST_NS << doubled) - TRIAL_LEAST_NS)
			return 0;
		if (doubled < TRIAL_DOUBLED_MOST)
			doubled++;
	}
	*(volatile __u64 *)&word->tried_rate = (rate & ~(__u64)TRIAL_DOUBLED) | doubled;
	*(volatile __u64 *)&word->trial_at = now + TRIAL_LEAST_NS;
	word->rate = 0;
	__sync_lock_test_and_set(&word->worker_until, now + TRIAL_NS);
	return 1;
}

/* The checks that depend on more than the frame: canaries and rates. `full_at_ns` is the source's bucket, of which only
 * a reply takes that is as large as its request; `canary_ns` is the peer's, if it has one. */
INLINE __u32 check_times(struct reflex_cpu *cpu, struct reflex_control *control, __u32 reflex, __u32 queue,
			 int as_large, __u64 *full_at_ns, __u64 *canary_ns)
{
	const __u64 now = ktime_get_coarse_ns();
	__u32 place = REFLEX_PLACE(reflex), service = place / PLACES_OF_SERVICE & (KEPT_SERVICES - 1);
	__u64 *interval_ns = map_lookup(&reflex_places, &place);

	OWN_REGISTER(service);
	if (waits_too_long(queue, now))
		return WHY_STUCK;
	if (is_canary(cpu, queue, service, canary_ns, now)) {
		cpu->since_canary[service] = 0;
		return WHY_CANARY;
	}
	if (tries_worker && now != cpu->tick_ns && is_trial(cpu, queue, now))
		return WHY_LOAD;
	if (as_large && interval_ns && *interval_ns && !take_tokens(full_at_ns, *interval_ns, 1, now))
		return WHY_SOURCE_RATE;
	if (!has_credit(cpu, control, now))
		return WHY_RATE;
	cpu->credits--;
	cpu->since_canary[service]++;
	count_reply(cpu, queue);
	return MAY_REPLY;
}

FIND_KEPT(find_kept, CONTEXT, LOAD_BYTES)

INLINE __u32 reflex_to_datagram(CONTEXT *context, const __u8 *bytes, __u32 len, __u32 reflex, __u32 queue, int ipv6,
				struct reflex_cpu *cpu, struct reflex_control *control)
{
	const __u32 udp_at = ipv6 ? UDP6_AT : UDP4_AT;
	const __u32 service = REFLEX_PLACE(reflex) / PLACES_OF_SERVICE;
	__u32 why = check_datagram(bytes, len, ipv6);
	__u32 request_len, reply_len, packet_len;
	struct kept_cpu *kept;
	struct peer *peer;

	if (why != MAY_REPLY)
		return why;
	peer = peer_of(bytes, ipv6);
	if (!peer)
		return WHY_PEER;
	request_len = be16(FIELD16(bytes, udp_at + 4)) - UDP_LEN;
	reply_len = request_len;
	if (kept_max && REFLEX_FLAGS(reflex) & KEEPS) {
		kept = own_kept_cpu();
		if (!has_credit(cpu, control, ktime_get_coarse_ns()))
			return WHY_RATE;
		why = find_kept(context, service, udp_at + UDP_LEN, request_len);
		if (why != MAY_REPLY || !kept) {
			/* A search costs as much as a reply: requests that have none are bounded as well. */
			cpu->credits--;
			return why;
		}
		reply_len = kept->found.reply_len;
	}
	packet_len = udp_at - IP_AT + UDP_LEN + reply_len;
	/* What the interface sends may have become less since the kernel was asked about the peer. */
	if (packet_len > peer->mtu || packet_len + ETH_LEN > *(volatile __u64 *)&control->frame_len_max)
		return WHY_MTU;
	if (is_first(peer))
		return WHY_CANARY;
	/* A reply that is shorter than its request keeps no loop going. */
	return check_times(cpu, control, reflex, queue, reply_len >= request_len, &peer->full_at_ns[service],
			   &peer->canary_ns);
}

/* Frames of an EtherType go back to their senders, known or not (service/serve/src/frames.rs). */
INLINE __u32 reflex_to_frame(const __u8 *bytes, __u32 len, __u32 reflex, __u32 queue, struct reflex_cpu *cpu,
			     struct reflex_control *control)
{
	__u64 mac = (__u64)FIELD16(bytes, 6) << 32 | (__u64)FIELD16(bytes, 8) << 16 | FIELD16(bytes, 10);
	__u64 service = REFLEX_PLACE(reflex) / PLACES_OF_SERVICE;
	__u32 station = ((mac ^ service << 48 ^ station_seed) * 0x9e3779b97f4a7c15ULL) >> 54;
	__u64 *full_at_ns;

	if (bytes[6] & 1 ||
	    (FIELD16(bytes, 0) == FIELD16(bytes, 6) && FIELD16(bytes, 2) == FIELD16(bytes, 8) && FIELD16(bytes, 4) == FIELD16(bytes, 10)))
		return WHY_HEADER;
	if (len > *(volatile __u64 *)&control->frame_len_max)
		return WHY_MTU;
	full_at_ns = map_lookup(&stations, &station);
	return full_at_ns ? check_times(cpu, control, reflex, queue, 1, full_at_ns, 0) : WHY_FAILED;
}

/* Whether a claimed frame may be replied to at all. Workers serve no frames with tags. */
INLINE int has_reflex(const struct frame *frame)
{
	return reflexes && frame->vlan == VLAN_NONE &&
	       (REFLEX_FLAGS(frame->reflex) & MIRRORS || (kept_max && REFLEX_FLAGS(frame->reflex) & KEEPS));
}

/* Whether at present the worker answers all requests of this queue. */
INLINE int worker_answers(__u32 queue)
{
	const __u32 zero = 0;
	struct pending *word = map_lookup(&pending, &queue);
	__u64 until = word ? *(volatile __u64 *)&word->worker_until : 0;
	struct reflex_cpu *cpu;
	__u64 now, tried;
	int is_trial_over;

	if (!until)
		return 0;
	cpu = map_lookup(&reflex_cpu, &zero);
	if (!cpu)
		return 0;
	now = ktime_get_coarse_ns();
	if (until != GIVEN_BACK && (long long)(until - now) > 0) {
		cpu->why[WHY_LOAD]++;
		return 1;
	}
	is_trial_over = until == word->trial_at - TRIAL_LEAST_NS + TRIAL_NS;
	/* It has answered until a moment ago, and something made it or its clients pause: it tries again at once, with the rate
	 * that the programs had before. */
	if (until != GIVEN_BACK && !is_trial_over && now - until < PAUSE_MOST_NS) {
		if (__sync_val_compare_and_swap(&word->worker_until, until, now + TRIAL_NS) == until)
			*(volatile __u64 *)&word->trial_at = now + TRIAL_LEAST_NS;
		cpu->why[WHY_LOAD]++;
		return 1;
	}
	/* It has given back, or let its time expire. */
	if (__sync_val_compare_and_swap(&word->worker_until, until, 0) == until) {
		tried = *(volatile __u64 *)&word->tried_rate;
		/* A worker that has not come to its trial is busy elsewhere, and requests have waited for it. One that has
		 * answered is tried again soon, as no rate is near 0. */
		if (is_trial_over)
			tried = (tried & ~(__u64)TRIAL_DOUBLED) | TRIAL_DOUBLED_MOST;
		else
			tried = 0;
		*(volatile __u64 *)&word->tried_rate = tried;
	}
	return 0;
}

/* Whether a program is to decide about a claimed frame by reflex_of(). */
INLINE int is_for_reflex(const struct frame *frame, __u32 queue)
{
	return has_reflex(frame) && !(tries_worker && worker_answers(queue));
}

/* Whether a program may reply to a claimed frame, whose first bytes are given. A checksum is looked at when replying. */
CALLED __u32 reflex_of(CONTEXT *context, const __u8 *bytes, __u32 len, __u32 reflex, __u32 queue)
{
	const __u32 zero = 0;
	struct reflex_control *control = map_lookup(&reflex_control, &zero);
	struct reflex_cpu *cpu = own_reflex_cpu();
	__u32 why;

	if (!control || !cpu)
		return WHY_FAILED;
	if (*(volatile __u64 *)&control->suspended)
		why = WHY_SUSPENDED;
	else if (FIELD16(bytes, 12) == be16(IPV4))
		why = reflex_to_datagram(context, bytes, len, reflex, queue, 0, cpu, control);
	else if (FIELD16(bytes, 12) == be16(IPV6))
		why = reflex_to_datagram(context, bytes, len, reflex, queue, 1, cpu, control);
	else if (!(REFLEX_FLAGS(reflex) & MIRRORS))
		why = WHY_UNKNOWN;
	else
		why = reflex_to_frame(bytes, len, reflex, queue, cpu, control);
	cpu->why[why & (WHYS - 1)]++;
	return why;
}

#endif
