/* Turns a frame at tc into its reply: a mirrored or a kept one. reflex_of() has allowed it. */
#ifndef TWINPATH_REPLY_H
#define TWINPATH_REPLY_H

#include "tap.h"

/* As many as a claimed frame may have: it fits into the memory that workers receive into, of 2 KiB. */
enum { CHUNKS = 4 };

/* Short datagrams are summed in place, in these steps: a copy would double the cost. */
enum { STEP = 8, STEPS = 16 };

/* Adds the first bytes of a datagram to a sum. Returns how many are left. */
INLINE __u32 sum_in_place(const struct __sk_buff *skb, __u32 at, __u32 len, __u64 *sum)
{
	const __u8 *bytes = (const __u8 *)(long)skb->data, *end = (const __u8 *)(long)skb->data_end;
	__u64 offset = at, left = len;

	WITHIN(offset, UDP4_AT, UDP6_AT);
	bytes += offset;
	for (int i = 0; i < STEPS; i++) {
		if (left < STEP || bytes + STEP > end)
			break;
		*sum += (__u64)FIELD32(bytes, 0) + FIELD32(bytes, 4);
		bytes += STEP;
		left -= STEP;
	}
	return (__u32)left;
}

/* Whether the sum of a datagram and of its pseudo-header is right. Verified by itself, or the kernel would go through its loops
 * for each way to a reply: that took five sixths of loading the program, most of a second. */
GLOBAL int sum_is_right(struct __sk_buff *skb, __u32 at, __u32 len, __u32 pseudo)
{
	__u64 in_place = pseudo;
	struct reflex_cpu *cpu;
	long long sum;
	__u32 left;

	if (!reflexes)
		return 0;
	left = sum_in_place(skb, at, len, &in_place);
	if (left == 0)
		return fold(in_place) == 0xffff;
	at += len - left;
	len = left;
	sum = fold(in_place);
	cpu = own_reflex_cpu();
	if (!cpu)
		return 0;
	for (int i = 0; i < CHUNKS; i++) {
		__u64 some = len;
		__u32 now;

		if (len == 0)
			break;
		WITHIN(some, 1, CHUNK);
		now = (__u32)some;
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

/* What is known of a datagram's checksum. One that was left to hardware has the sum of the pseudo-header alone, and the device
 * that the reply leaves by does the rest. */
enum { SUM_WRONG, SUM_RIGHT, SUM_PARTIAL };
CALLED int look_at_checksum(struct __sk_buff *skb, const __u8 *bytes)
{
	const int ipv6 = FIELD16(bytes, 12) == be16(IPV6);
	const __u32 udp_at = ipv6 ? UDP6_AT : UDP4_AT;
	const __u32 pseudo = fold(ipv6 ? pseudo_sum(bytes, 1) : pseudo_sum(bytes, 0));
	__u16 before = FIELD16(bytes, udp_at + 6), after = 0;

	if (csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return SUM_RIGHT;
	if (!partial_checksums || before != (__u16)pseudo)
		return sum_is_right(skb, udp_at, be16(FIELD16(bytes, udp_at + 4)), pseudo) ? SUM_RIGHT : SUM_WRONG;
	/* It looks partial. The kernel knows whether it is, and then this changes nothing. */
	if (l4_csum_replace(skb, udp_at + 6, 0, 1, 2) != 0 || skb_load_bytes(skb, udp_at + 6, &after, 2) != 0)
		return SUM_WRONG;
	if (after == before)
		return SUM_PARTIAL;
	skb_store_bytes(skb, udp_at + 6, &before, 2, 0);
	return SUM_WRONG;
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
	reply->mac[0] = FIELD16(bytes, 6);
	reply->mac[1] = FIELD16(bytes, 8);
	reply->mac[2] = FIELD16(bytes, 10);
	reply->mac[3] = FIELD16(bytes, 0);
	reply->mac[4] = FIELD16(bytes, 2);
	reply->mac[5] = FIELD16(bytes, 4);
	reply->ethertype = FIELD16(bytes, 12);
}

/* A UDP header of the reply; ports are swapped. */
INLINE void write_udp(__u16 udp[4], const __u8 *bytes, __u32 at, __u32 udp_len, __u16 checksum)
{
	udp[0] = FIELD16(bytes, at + 2);
	udp[1] = FIELD16(bytes, at);
	udp[2] = be16((__u16)udp_len);
	udp[3] = checksum;
}

/* Writes the headers that core/wire/src/udp_frame.rs writes for the worker. */
INLINE int write_ipv4(struct __sk_buff *skb, struct reply *reply, const __u8 *bytes, __u32 udp_len, __u16 checksum)
{
	__u64 sum;

	reply->v4.start[0] = be16(0x4500);
	reply->v4.start[1] = be16((__u16)(udp_len + IPV4_LEN));
	reply->v4.start[2] = 0;
	reply->v4.start[3] = be16(DO_NOT_FRAGMENT);
	reply->v4.start[4] = be16(HOP_LIMIT << 8 | UDP);
	reply->v4.source = FIELD32(bytes, IP_AT + 16);
	reply->v4.destination = FIELD32(bytes, IP_AT + 12);
	sum = (__u64)reply->v4.source + reply->v4.destination + reply->v4.start[0] + reply->v4.start[1] +
	      reply->v4.start[3] + reply->v4.start[4];
	reply->v4.start[5] = ~fold(sum);
	write_udp(reply->v4.udp, bytes, UDP4_AT, udp_len, checksum);
	return skb_store_bytes(skb, 0, reply->mac, UDP4_AT + UDP_LEN, 0) == 0;
}

INLINE int write_ipv6(struct __sk_buff *skb, struct reply *reply, const __u8 *bytes, __u32 udp_len, __u16 checksum)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		reply->v6.source[i] = FIELD32(bytes, IP_AT + 24 + 4 * i);
		reply->v6.destination[i] = FIELD32(bytes, IP_AT + 8 + 4 * i);
	}
	reply->v6.start[0] = 0x60;
	reply->v6.start[1] = be16((__u16)udp_len) | (__u32)be16(UDP << 8 | HOP_LIMIT) << 16;
	write_udp(reply->v6.udp, bytes, UDP6_AT, udp_len, checksum);
	return skb_store_bytes(skb, 0, reply->mac, UDP6_AT + UDP_LEN, 0) == 0;
}

/* Makes a frame its own reply. A function of its own, as are those below: the stack of a program is bounded. */
CALLED __u32 mirror(struct __sk_buff *skb, const __u8 *bytes, __u32 len)
{
	const int ipv6 = FIELD16(bytes, 12) == be16(IPV6);
	struct reply reply = {};
	__u32 udp_len, reply_len;

	swap_macs(&reply, bytes);
	if (!ipv6 && FIELD16(bytes, 12) != be16(IPV4))
		return skb_store_bytes(skb, 0, reply.mac, 12, 0) == 0 ? MAY_REPLY : WHY_FAILED;
	if (look_at_checksum(skb, bytes) == SUM_WRONG)
		return WHY_CHECKSUM;
	udp_len = be16(ipv6 ? FIELD16(bytes, UDP6_AT + 4) : FIELD16(bytes, UDP4_AT + 4));
	reply_len = udp_len + (ipv6 ? UDP6_AT : UDP4_AT);
	/* Bytes behind the packet, which fill up a short frame, are not sent back. */
	if (reply_len < len && change_tail(skb, reply_len, 0) != 0)
		return WHY_FAILED;
	if (ipv6) {
		__u32 former[2] = { FIELD32(bytes, IP_AT), FIELD32(bytes, IP_AT + 4) };

		if (!write_ipv6(skb, &reply, bytes, udp_len, FIELD16(bytes, UDP6_AT + 6)))
			return WHY_FAILED;
		/* If the device has summed the packet, its sum has to follow. */
		csum_update(skb, (__u32)csum_diff(former, sizeof(former), reply.v6.start, sizeof(former), 0));
		return MAY_REPLY;
	}
	/* A sum that the device has taken stays right, as that of an IPv4 header is always the same. */
	return write_ipv4(skb, &reply, bytes, udp_len, FIELD16(bytes, UDP4_AT + 6)) ? MAY_REPLY : WHY_FAILED;
}

/* The sum of a kept reply, which is padded with zeros up to eight bytes. */
INLINE __u32 sum_of_reply(struct kept_cpu *cpu, __u32 len)
{
	__u64 first = (len + 3) & ~3U, rest = first > CHUNK ? first - CHUNK : 0;
	long long sum;

	WITHIN(first, 0, CHUNK);
	sum = csum_diff(0, 0, cpu->reply, (__u32)first, 0);
	if (rest) {
		WITHIN(rest, 0, KEPT_REPLY - CHUNK);
		sum = csum_diff(0, 0, cpu->reply + CHUNK / 8, (__u32)rest, (__u32)sum);
	}
	return (__u32)sum;
}

/* Above the reason: the frame can no longer be given to a worker. */
enum { LOST = 0x100 };

/* Makes of a frame the kept reply to its request, which is in the memory of this CPU. If it fails, the datagram is as it was,
 * with more bytes behind it perhaps, unless LOST is set. */
CALLED __u32 write_kept(struct __sk_buff *skb, const __u8 *bytes, int checksum)
{
	const int ipv6 = FIELD16(bytes, 12) == be16(IPV6);
	const __u32 udp_at = ipv6 ? UDP6_AT : UDP4_AT;
	struct kept_cpu *cpu = own_kept_cpu();
	struct reply reply = {};
	__u32 reply_len, udp_len, failed = WHY_FAILED;
	__u64 sum;
	__u16 field;

	if (!cpu)
		return WHY_FAILED;
	reply_len = cpu->found.reply_len;
	udp_len = reply_len + UDP_LEN;
	/* A sum of the packet that the device has taken is forgotten when the frame grows. */
	if (csum_update(skb, 0) >= 0 && change_tail(skb, skb->len + 8, 0) != 0)
		return WHY_FAILED;
	if (skb->len != udp_at + udp_len) {
		int shorter = skb->len > udp_at + udp_len;

		/* It makes the frame writable first, so after it what is stored below can be. */
		if (change_tail(skb, udp_at + udp_len, 0) != 0)
			return WHY_FAILED;
		if (shorter)
			failed |= LOST;
	}
	sum = (ipv6 ? sum_words(bytes, IP_AT + 8, 8) : sum_words(bytes, IP_AT + 12, 2)) + be16(UDP) +
	      be16((__u16)udp_len);
	field = (__u16)fold(sum);
	if (checksum != SUM_PARTIAL) {
		sum += (__u64)be16((__u16)udp_len) + FIELD16(bytes, udp_at) + FIELD16(bytes, udp_at + 2);
		field = ~(__u16)fold(sum + sum_of_reply(cpu, reply_len));
		if (field == 0)
			field = 0xffff;
	}
	swap_macs(&reply, bytes);
	/* The end first: where that can be written, so can the headers. */
	if (reply_len != 0) {
		__u64 some = reply_len;

		WITHIN(some, 1, KEPT_REPLY);
		if (skb_store_bytes(skb, udp_at + UDP_LEN, cpu->reply, (__u32)some, 0) != 0)
			return failed;
		failed |= LOST;
	}
	return (ipv6 ? write_ipv6(skb, &reply, bytes, udp_len, field) : write_ipv4(skb, &reply, bytes, udp_len, field)) ?
		       MAY_REPLY :
		       failed;
}

FIND_KEPT(find_kept_again, struct __sk_buff, skb_load_bytes)

/* Looks for the kept reply once more, as a worker may have written meanwhile, and copies it. */
INLINE __u32 load_kept(struct __sk_buff *skb, const __u8 *bytes, __u32 reflex)
{
	const __u32 udp_at = FIELD16(bytes, 12) == be16(IPV6) ? UDP6_AT : UDP4_AT;
	__u32 service = REFLEX_PLACE(reflex) / PLACES_OF_SERVICE;
	__u32 why = find_kept_again(skb, service, udp_at + UDP_LEN, be16(FIELD16(bytes, udp_at + 4)) - UDP_LEN);

	if (why != MAY_REPLY)
		return why;
	return copy_reply(service) ? MAY_REPLY : WHY_WITHDRAWN;
}

/* Sends the frame back as its own reply. The head is in the note of this CPU. Returns what the program at tc returns;
 * TCX_NEXT: nothing was sent, and the datagram is as it was (bytes behind it, which fill up a short frame, may be gone). */
CALLED int reply_by_reflex(struct __sk_buff *skb, struct per_cpu *cpu, __u32 len, __u32 reflex)
{
	const __u8 *bytes = (const __u8 *)cpu->note + HEAD_AT;
	__u32 place = REFLEX_PLACE(reflex);
	struct reflex_count *count = map_lookup(&reflex_counts, &place);
	struct reflex_cpu *own = own_reflex_cpu();
	const __u64 taps = taps_now();
	int not_sent = TCX_NEXT;
	__u32 why;

	if (taps)
		tap_request(skb);
	if (kept_max && REFLEX_FLAGS(reflex) & KEEPS) {
		int checksum = look_at_checksum(skb, bytes);

		why = checksum == SUM_WRONG ? WHY_CHECKSUM : load_kept(skb, bytes, reflex);
		if (why == MAY_REPLY) {
			why = write_kept(skb, bytes, checksum);
			if (why & LOST)
				not_sent = TCX_DROP;
		}
	} else {
		why = mirror(skb, bytes, len);
	}
	if (why != MAY_REPLY) {
		if (own) {
			/* It was counted as one that may be replied to. */
			own->why[MAY_REPLY]--;
			own->why[why & (WHYS - 1)]++;
		}
		return not_sent;
	}
	if (count) {
		count->replies++;
		count->bytes += len;
	}
	if (taps)
		tap_reply(skb, taps);
	cpu->counters[BY_REFLEX]++;
	return redirect(skb->ifindex, 0);
}

#endif
