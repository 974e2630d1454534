/* Reflexes: replies that the programs give by themselves, while the worker sleeps.
 *
 * A service that mirrors answers every request with its own bytes (engine/service, `Reflex::Mirror`). For a claimed frame of such a
 * service a program needs no worker: reflex_of() decides by the frame's head whether it may reply, and reply_by_mirror()
 * rewrites the frame and sends it back. Everything that is not certain goes to the worker, under a reason that is counted:
 * a reply is byte for byte the one that the worker would have sent (pure/reflex/src/mirror.rs is the same in Rust).
 *
 * A worker that gets no frames cannot be seen to hang. So some requests go to it all the same, the canaries: one by count, one
 * by time, and one for each peer by time, which also keeps the peer's entry in use. If a canary waits for too long the worker is
 * stuck (pending.h), and there are no reflexes until it continues.
 *
 * src/reflex.rs has the same layouts. */
#ifndef TWINPATH_REFLEX_H
#define TWINPATH_REFLEX_H

#include "direct.h"

/* Not 0 if there are reflexes. Constant once loaded; without reflexes none of the code below is left. */
const volatile __u32 reflexes = 0;
/* Whether frames may come with checksums that their senders have left to hardware: the device is virtual. */
const volatile __u32 partial_checksums = 0;

/* Of the hash of senders' MAC addresses: nobody can choose senders that share a bucket. */
const volatile __u64 station_seed = 0;

/* Flags above the place in a claim's reflex. */
enum { MIRRORS = 1 };
#define PLACE(reflex) ((reflex)&0xff)
#define REFLEX_FLAGS(reflex) ((reflex) >> 8)
enum { PLACES = 256 };

/* Why a request was not replied to here; one counter each. `NotMirrored` in pure/reflex/src/mirror.rs. */
enum why {
	MAY_REPLY = 0,
	WHY_SUSPENDED = 1,   /* control wants to see all frames */
	WHY_HEADER = 2,	     /* lengths that contradict each other, or a wrong checksum of the IPv4 header */
	WHY_NO_CHECKSUM = 3, /* the datagram has none, and its reply gets one */
	WHY_PORT = 4,	     /* of the sender: answering it is refused or impossible (engine/stack/src/admit.rs) */
	WHY_PEER = 5,	     /* the way to the peer is not known, or not the one that the frame came by */
	WHY_MTU = 6,	     /* the reply is too long for the path */
	WHY_STUCK = 7,	     /* a frame has been waiting for the worker for too long */
	WHY_CANARY = 8,
	WHY_RATE = 9,	     /* too many replies in all */
	WHY_CHECKSUM = 10,   /* wrong, or of a kind that is not understood */
	WHY_FAILED = 11,     /* the kernel could not change the frame */
	WHY_SOURCE_RATE = 12, /* too many replies to the source: the worker's own limits decide what becomes of it */
	WHYS = 16,
};

struct reflex_control {
	__u64 suspended;   /* not 0: no reflexes for the time being */
	__u64 interval_ns; /* between two replies, all sources together */
	__u64 frame_len_max; /* of a frame that the interface sends */
	__u64 credits;	     /* replies that a CPU takes from the common bucket at once, so that CPUs do not contend for it */
	__u64 reserved[4];
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
	__u64 requests; /* for canaries by count */
	__u64 since_canary;
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
	/* Written by the programs. */
	__u64 full_at_ns;
	__u64 canary_ns; /* when the next canary is due */
	/* So many requests go to the worker first: it keeps peers in use when others need room, and has to see that this one is
	 * (PROVEN_USES in engine/stack/src/egress.rs). */
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

/* For frames of an EtherType, whose senders have no entry: the buckets of replies, by a hash of the sender's MAC address. */
enum { STATIONS = 1024 }; /* 10 bits of a hash */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, STATIONS);
} stations SECTION(".maps");

/* When the next canary by time is due, for each queue. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, QUEUES_MAX);
} canaries SECTION(".maps");

/* One request in so many, on each CPU; a power of two. */
enum { CANARY_REQUESTS = 4096 };
#define CANARY_NS 1000000000ULL
enum { CANARY_LEAST = 16 };
/* Control forgets a peer that no worker asks about within a minute, and asks the kernel about it every 10 s. */
#define PEER_CANARY_NS 8000000000ULL
/* After silence, replies of so much time may leave at once. As in engine/stack/src/reply_limit.rs. */
#define BURST_NS 200000000ULL

/* The places of fields in a frame without a tag. */
enum { IP_AT = ETH_LEN, UDP4_AT = IP_AT + IPV4_LEN, UDP6_AT = IP_AT + IPV6_LEN };
enum { HOP_LIMIT = 64, DO_NOT_FRAGMENT = 0x4000 };
#define HALF(bytes, offset) (*(const __u16 *)((bytes) + (offset)))
#define WORD(bytes, offset) (*(const __u32 *)((bytes) + (offset)))

INLINE struct reflex_cpu *own_reflex_cpu(void)
{
	const __u32 zero = 0;

	return map_lookup(&reflex_cpu, &zero);
}

/* A token bucket stored as the time at which it is full again; takes `count` tokens. Returns 0 if they are not there. */
INLINE int take_tokens(__u64 *full_at_ns, __u64 interval_ns, __u64 count, __u64 now)
{
	__u64 at = *(volatile __u64 *)full_at_ns;

	if ((long long)(at - now) < 0)
		/* If another CPU was first, its time is as good. */
		__sync_val_compare_and_swap(full_at_ns, at, now);
	else if (at - now >= BURST_NS)
		return 0;
	__sync_fetch_and_add(full_at_ns, interval_ns * count);
	return 1;
}

/* Folds a sum of 16-bit words. */
INLINE __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u32)sum;
}

INLINE __u64 sum_words(const __u8 *bytes, __u32 at, int words)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < words; i++)
		sum += WORD(bytes, at + 4 * i);
	return sum;
}

/* The sum of the pseudo-header that a UDP checksum covers (RFC 768, RFC 8200 section 8.1). */
INLINE __u64 pseudo_sum(const __u8 *bytes, int ipv6)
{
	if (ipv6)
		return sum_words(bytes, IP_AT + 8, 8) + be16(UDP) + HALF(bytes, UDP6_AT + 4);
	return sum_words(bytes, IP_AT + 12, 2) + be16(UDP) + HALF(bytes, UDP4_AT + 4);
}

/* Whether engine/stack/src/admit.rs refuses the sender's port: services that answer everything could answer each other. What it
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

/* Whether a frame has been waiting for the worker for too long: then may_hand_over() has to find out. */
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
	udp_len = be16(HALF(bytes, udp_at + 4));
	if (ipv6) {
		if (be16(HALF(bytes, IP_AT + 4)) != udp_len)
			return WHY_HEADER;
	} else {
		if (be16(HALF(bytes, IP_AT + 2)) != udp_len + IPV4_LEN)
			return WHY_HEADER;
		if (fold(sum_words(bytes, IP_AT, 5)) != 0xffff)
			return WHY_HEADER;
	}
	if (udp_at + udp_len > len)
		return WHY_HEADER;
	if (HALF(bytes, udp_at + 6) == 0)
		return WHY_NO_CHECKSUM;
	return answers_by_itself(HALF(bytes, udp_at), HALF(bytes, udp_at + 2)) ? WHY_PORT : MAY_REPLY;
}

/* The entry of the frame's sender; null if a reply does not leave to where the frame came from. */
INLINE struct peer *peer_of(const __u8 *bytes, int ipv6)
{
	struct peer_key key = { .family = ipv6 ? 6 : 4 };
	struct peer *peer;

	if (ipv6) {
		key.address[0] = WORD(bytes, IP_AT + 8);
		key.address[1] = WORD(bytes, IP_AT + 12);
		key.address[2] = WORD(bytes, IP_AT + 16);
		key.address[3] = WORD(bytes, IP_AT + 20);
	} else {
		key.address[0] = WORD(bytes, IP_AT + 12);
	}
	peer = map_lookup(&peers, &key);
	if (!peer || HALF(bytes, 0) != peer->own[0] || HALF(bytes, 2) != peer->own[1] ||
	    HALF(bytes, 4) != peer->own[2] || HALF(bytes, 6) != peer->next_hop[0] ||
	    HALF(bytes, 8) != peer->next_hop[1] || HALF(bytes, 10) != peer->next_hop[2])
		return 0;
	return peer;
}

/* Whether this request of a peer is one of the first ones. */
INLINE int is_first(struct peer *peer)
{
	__u32 left = *(volatile __u32 *)&peer->to_worker;

	if (left)
		*(volatile __u32 *)&peer->to_worker = left - 1;
	return left != 0;
}

/* Whether the request is to go to the worker for the worker's sake. Of a queue by time only if enough were replied to since:
 * requests that are far apart would all go to the worker. */
INLINE int is_canary(struct reflex_cpu *cpu, __u32 queue, __u64 *peer_due_ns, __u64 now)
{
	__u64 *due_ns = map_lookup(&canaries, &queue);

	return ++cpu->requests % CANARY_REQUESTS == 0 ||
	       (cpu->since_canary >= CANARY_LEAST && due_ns && is_due(due_ns, now, CANARY_NS)) ||
	       (peer_due_ns && is_due(peer_due_ns, now, PEER_CANARY_NS));
}

/* The checks that depend on more than the frame: canaries and rates. `canary_ns` is the peer's, if it has one. */
INLINE __u32 check_times(struct reflex_cpu *cpu, struct reflex_control *control, __u32 reflex, __u32 queue,
			 __u64 *full_at_ns, __u64 *canary_ns)
{
	const __u64 now = ktime_get_coarse_ns();
	__u32 place = PLACE(reflex);
	__u64 *interval_ns = map_lookup(&reflex_places, &place);

	if (waits_too_long(queue, now))
		return WHY_STUCK;
	if (is_canary(cpu, queue, canary_ns, now)) {
		cpu->since_canary = 0;
		return WHY_CANARY;
	}
	if (interval_ns && *interval_ns && !take_tokens(full_at_ns, *interval_ns, 1, now))
		return WHY_SOURCE_RATE;
	if (cpu->credits == 0) {
		__u64 credits = *(volatile __u64 *)&control->credits;

		if (!take_tokens(&control->full_at_ns, control->interval_ns, credits, now))
			return WHY_RATE;
		cpu->credits = credits;
	}
	cpu->credits--;
	cpu->since_canary++;
	return MAY_REPLY;
}

INLINE __u32 reflex_to_datagram(const __u8 *bytes, __u32 len, __u32 reflex, __u32 queue, int ipv6,
				struct reflex_cpu *cpu, struct reflex_control *control)
{
	__u32 why = check_datagram(bytes, len, ipv6);
	struct peer *peer;

	if (why != MAY_REPLY)
		return why;
	peer = peer_of(bytes, ipv6);
	if (!peer)
		return WHY_PEER;
	if ((ipv6 ? IPV6_LEN : IPV4_LEN) + be16(HALF(bytes, (ipv6 ? UDP6_AT : UDP4_AT) + 4)) > peer->mtu)
		return WHY_MTU;
	if (is_first(peer))
		return WHY_CANARY;
	return check_times(cpu, control, reflex, queue, &peer->full_at_ns, &peer->canary_ns);
}

/* Frames of an EtherType go back to their senders, known or not (runtime/serve/src/frames.rs). */
INLINE __u32 reflex_to_frame(const __u8 *bytes, __u32 len, __u32 reflex, __u32 queue, struct reflex_cpu *cpu,
			     struct reflex_control *control)
{
	__u64 mac = (__u64)HALF(bytes, 6) << 32 | (__u64)HALF(bytes, 8) << 16 | HALF(bytes, 10);
	__u32 station = ((mac ^ station_seed) * 0x9e3779b97f4a7c15ULL) >> 54;
	__u64 *full_at_ns;

	if (bytes[6] & 1 ||
	    (HALF(bytes, 0) == HALF(bytes, 6) && HALF(bytes, 2) == HALF(bytes, 8) && HALF(bytes, 4) == HALF(bytes, 10)))
		return WHY_HEADER;
	if (len > *(volatile __u64 *)&control->frame_len_max)
		return WHY_MTU;
	full_at_ns = map_lookup(&stations, &station);
	return full_at_ns ? check_times(cpu, control, reflex, queue, full_at_ns, 0) : WHY_FAILED;
}

/* Whether a claimed frame may be replied to at all. Workers serve no frames with tags. */
INLINE int has_reflex(const struct frame *frame)
{
	return reflexes && REFLEX_FLAGS(frame->reflex) & MIRRORS && frame->vlan == VLAN_NONE;
}

/* Whether a program may reply to a claimed frame, whose first bytes are given. A checksum is looked at when replying. */
CALLED __u32 reflex_of(const __u8 *bytes, __u32 len, __u32 reflex, __u32 queue)
{
	const __u32 zero = 0;
	struct reflex_control *control = map_lookup(&reflex_control, &zero);
	struct reflex_cpu *cpu = own_reflex_cpu();
	__u32 why;

	if (!control || !cpu)
		return WHY_FAILED;
	if (*(volatile __u64 *)&control->suspended)
		why = WHY_SUSPENDED;
	else if (HALF(bytes, 12) == be16(IPV4))
		why = reflex_to_datagram(bytes, len, reflex, queue, 0, cpu, control);
	else if (HALF(bytes, 12) == be16(IPV6))
		why = reflex_to_datagram(bytes, len, reflex, queue, 1, cpu, control);
	else
		why = reflex_to_frame(bytes, len, reflex, queue, cpu, control);
	cpu->why[why & (WHYS - 1)]++;
	return why;
}

/* Whether the sum of a datagram and of its pseudo-header is right. */
CALLED int sum_is_right(struct __sk_buff *skb, __u32 at, __u32 len, __u32 pseudo)
{
	struct reflex_cpu *cpu = own_reflex_cpu();
	long long sum = pseudo;

	if (!cpu)
		return 0;
	/* As many chunks as a claimed frame may have. */
	for (int i = 0; i < SLOT_LEN / CHUNK; i++) {
		__u32 now = len;

		OWN_REGISTER(now);
		if (now == 0)
			break;
		if (now > CHUNK)
			now = CHUNK;
		cpu->chunk[now] = 0;
		cpu->chunk[now + 1] = 0;
		cpu->chunk[now + 2] = 0;
		if (skb_load_bytes(skb, at, cpu->chunk, now) != 0)
			return 0;
		at += now;
		len -= now;
		sum = csum_diff(0, 0, cpu->chunk, (now + 3) & ~3U, (__u32)sum);
		if (sum < 0)
			return 0;
	}
	return len == 0 && fold((__u64)sum) == 0xffff;
}

/* Whether the datagram's checksum is right, or has been left to hardware. Then only the pseudo-header is summed, the device that
 * the reply leaves by does the rest, and nothing of what it sums is changed. */
INLINE int checksum_is_right(struct __sk_buff *skb, const __u8 *bytes, int ipv6)
{
	const __u32 udp_at = ipv6 ? UDP6_AT : UDP4_AT;
	const __u32 pseudo = fold(pseudo_sum(bytes, ipv6));
	__u16 before = HALF(bytes, udp_at + 6), after = 0;

	if (csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return 1;
	if (!partial_checksums || before != (__u16)pseudo)
		return sum_is_right(skb, udp_at, be16(HALF(bytes, udp_at + 4)), pseudo);
	/* It looks partial. The kernel knows whether it is, and then this changes nothing. */
	if (l4_csum_replace(skb, udp_at + 6, 0, 1, 2) != 0 || skb_load_bytes(skb, udp_at + 6, &after, 2) != 0)
		return 0;
	if (after == before)
		return 1;
	skb_store_bytes(skb, udp_at + 6, &before, 2, 0);
	return 0;
}

struct reply {
	__u16 unused; /* aligns the IP header */
	__u16 mac[6];
	__u16 ethertype;
	union {
		struct {
			__u16 start[6];
			__u32 source, destination;
			__u16 udp[4];
		} v4;
		struct {
			__u32 start[2];
			__u32 source[4], destination[4];
			__u16 udp[4];
		} v6;
	};
};

INLINE void swap_macs(struct reply *reply, const __u8 *bytes)
{
	reply->mac[0] = HALF(bytes, 6);
	reply->mac[1] = HALF(bytes, 8);
	reply->mac[2] = HALF(bytes, 10);
	reply->mac[3] = HALF(bytes, 0);
	reply->mac[4] = HALF(bytes, 2);
	reply->mac[5] = HALF(bytes, 4);
	reply->ethertype = HALF(bytes, 12);
}

/* Ports change places, so the checksum stays the same. */
INLINE void swap_ports(__u16 udp[4], const __u8 *bytes, __u32 at)
{
	udp[0] = HALF(bytes, at + 2);
	udp[1] = HALF(bytes, at);
	udp[2] = HALF(bytes, at + 4);
	udp[3] = HALF(bytes, at + 6);
}

/* The headers that pure/wire/src/udp_frame.rs writes for the worker. */
INLINE int mirror_ipv4(struct __sk_buff *skb, struct reply *reply, const __u8 *bytes)
{
	__u64 sum;

	reply->v4.start[0] = be16(0x4500);
	reply->v4.start[1] = HALF(bytes, IP_AT + 2);
	reply->v4.start[2] = 0;
	reply->v4.start[3] = be16(DO_NOT_FRAGMENT);
	reply->v4.start[4] = be16(HOP_LIMIT << 8 | UDP);
	reply->v4.source = WORD(bytes, IP_AT + 16);
	reply->v4.destination = WORD(bytes, IP_AT + 12);
	sum = (__u64)reply->v4.source + reply->v4.destination + reply->v4.start[0] + reply->v4.start[1] +
	      reply->v4.start[3] + reply->v4.start[4];
	reply->v4.start[5] = ~fold(sum);
	swap_ports(reply->v4.udp, bytes, UDP4_AT);
	/* If the device has summed the packet, its sum stays right: that of an IPv4 header is always the same. */
	return skb_store_bytes(skb, 0, reply->mac, UDP4_AT + UDP_LEN, 0) == 0;
}

INLINE int mirror_ipv6(struct __sk_buff *skb, struct reply *reply, const __u8 *bytes)
{
	__u32 former[2] = { WORD(bytes, IP_AT), WORD(bytes, IP_AT + 4) };

#pragma unroll
	for (int i = 0; i < 4; i++) {
		reply->v6.source[i] = WORD(bytes, IP_AT + 24 + 4 * i);
		reply->v6.destination[i] = WORD(bytes, IP_AT + 8 + 4 * i);
	}
	reply->v6.start[0] = 0x60;
	reply->v6.start[1] = HALF(bytes, IP_AT + 4) | (__u32)be16(UDP << 8 | HOP_LIMIT) << 16;
	swap_ports(reply->v6.udp, bytes, UDP6_AT);
	if (skb_store_bytes(skb, 0, reply->mac, UDP6_AT + UDP_LEN, 0) != 0)
		return 0;
	/* If the device has summed the packet, its sum has to follow. */
	csum_update(skb, (__u32)csum_diff(former, sizeof(former), reply->v6.start, sizeof(former), 0));
	return 1;
}

/* Makes a frame its own reply; reflex_of() has allowed it. */
INLINE __u32 mirror(struct __sk_buff *skb, const __u8 *bytes, __u32 len)
{
	struct reply reply = {};
	int ipv6;
	__u32 reply_len;

	swap_macs(&reply, bytes);
	if (HALF(bytes, 12) != be16(IPV4) && HALF(bytes, 12) != be16(IPV6))
		return skb_store_bytes(skb, 0, reply.mac, 12, 0) == 0 ? MAY_REPLY : WHY_FAILED;
	ipv6 = HALF(bytes, 12) == be16(IPV6);
	reply_len = ipv6 ? UDP6_AT + be16(HALF(bytes, UDP6_AT + 4)) : UDP4_AT + be16(HALF(bytes, UDP4_AT + 4));
	if (ipv6 ? !checksum_is_right(skb, bytes, 1) : !checksum_is_right(skb, bytes, 0))
		return WHY_CHECKSUM;
	/* Bytes behind the packet, which fill up a short frame, are not sent back. */
	if (reply_len < len && change_tail(skb, reply_len, 0) != 0)
		return WHY_FAILED;
	return (ipv6 ? mirror_ipv6(skb, &reply, bytes) : mirror_ipv4(skb, &reply, bytes)) ? MAY_REPLY : WHY_FAILED;
}

/* Sends the frame back as its own reply. The head is in the note of this CPU. Returns what the program at tc returns, or -1 if
 * nothing was sent: the frame is as it was. */
CALLED int reply_by_mirror(struct __sk_buff *skb, struct per_cpu *cpu, __u32 len, __u32 reflex)
{
	__u32 place = PLACE(reflex);
	struct reflex_count *count = map_lookup(&reflex_counts, &place);
	struct reflex_cpu *own = own_reflex_cpu();
	__u32 why = mirror(skb, (const __u8 *)cpu->note + HEAD_AT, len);

	if (why != MAY_REPLY) {
		if (own) {
			/* It was counted as one that may be replied to. */
			own->why[MAY_REPLY]--;
			own->why[why & (WHYS - 1)]++;
		}
		return TCX_NEXT;
	}
	if (count) {
		count->replies++;
		count->bytes += len;
	}
	cpu->counters[BY_REFLEX]++;
	return redirect(skb->ifindex, 0);
}

#endif
