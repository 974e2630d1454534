/* Kept replies: replies that a service allows to be repeated for requests of the same shape (stack/reflex).
 *
 * The table and the generations of names are memory that workers write and programs read. Their maps are made once for an
 * instance, and put into each object that is loaded (src/kept.rs). The table is an array of sets; the hash of a request,
 * with varying bytes as zero, selects the set of its entry. A program compares all bytes that matter.
 *
 * A worker may write an entry at any time. Its sequence is odd meanwhile, and has a new value afterwards: a program copies
 * the reply and then checks whether the sequence is unchanged. An entry carries the generation that its name had before the
 * reply's state was read. The program compares it with the present one last, when the copy is complete: once a name has
 * been withdrawn, no later request gets the reply, whenever it was published. stack/reflex/src/kept_table.rs has the same
 * layouts. */
#ifndef TWINPATH_KEPT_H
#define TWINPATH_KEPT_H

#include "kernel.h"

enum { KEPT_SERVICES = 16, KEPT_SHAPES = 4, KEPT_VARYING = 4, KEPT_SLOTS = 8 };
enum { KEPT_REQUEST = 256, KEPT_REPLY = 1024, KEPT_REQUEST_WORDS = KEPT_REQUEST / 8, KEPT_REPLY_WORDS = KEPT_REPLY / 8 };
enum { KEPT_GENERATIONS = 16384 }; /* of each service */

/* Entries, a power of two; 0: no replies are kept, and none of this code is left. Constant once loaded. */
const volatile __u32 kept_max = 0;
/* Seed of the hash, and two more for each of its words, so that nobody can choose requests of one set. */
const volatile __u64 kept_seed = 0;
const volatile __u64 kept_keys[KEPT_REQUEST_WORDS] = {};

struct kept {
	__u64 sequence; /* odd while it is written; 0: there was none yet */
	__u64 hash;
	__u64 generation;
	__u64 until_ns; /* CLOCK_MONOTONIC */
	__u32 name;	/* the place of its generation among those of all services */
	__u16 service;
	__u16 shape;
	__u16 request_len;
	__u16 reply_len;
	__u32 used; /* written by the programs: not 0 since it was used */
	__u64 reserved[2];
	__u64 request[KEPT_REQUEST_WORDS]; /* what varies is zero, and so is what follows */
	__u64 reply[KEPT_REPLY_WORDS];
};

struct kept_range {
	__u16 start;
	__u16 len; /* 0: no further range */
	__u16 to;
	__u16 reserved;
};

struct kept_shape {
	__u64 masks[KEPT_REQUEST_WORDS];
	struct kept_range copies[KEPT_VARYING];
	__u32 request_min;
	__u32 reserved;
};

struct kept_service {
	__u32 shapes; /* how many it has */
	__u32 reserved;
	struct kept_shape shape[KEPT_SHAPES];
};

/* Written before claims refer to the service. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct kept_service);
	MAP_UINT(max_entries, KEPT_SERVICES);
} kept_services SECTION(".maps");

struct kept_entries_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(key_size, sizeof(__u32));
	MAP_UINT(value_size, sizeof(struct kept));
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct kept_entries_inner *values[];
} kept_entries SECTION(".maps");

/* Of the type that those in it have; not used. */
struct kept_entries_inner kept_entries_like SECTION(".maps");

struct kept_words_inner {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_UINT(value_size, sizeof(__u32));
	MAP_UINT(max_entries, 1);
	struct kept_words_inner *values[];
} kept_words SECTION(".maps");

struct kept_words_inner kept_words_like SECTION(".maps");

/* A found entry. */
struct found {
	__u64 sequence;
	__u64 generation;
	__u32 name;
	__u32 number; /* of the entry */
	__u32 shape;
	__u32 reply_len;
};

struct kept_cpu {
	__u64 barrier;
	struct found found;
	__u64 request[KEPT_REQUEST_WORDS];
	/* With room for the last word of a sum. */
	__u64 reply[KEPT_REPLY_WORDS + 1];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct kept_cpu);
	MAP_UINT(max_entries, 1);
} kept_cpu SECTION(".maps");

INLINE struct kept_cpu *own_kept_cpu(void)
{
	const __u32 zero = 0;

	return map_lookup(&kept_cpu, &zero);
}

/* Orders earlier reads before later reads. */
INLINE void read_barrier(struct kept_cpu *cpu)
{
	__u64 before = __sync_fetch_and_add(&cpu->barrier, 1);

	/* Only the form that returns the former value orders other accesses on every processor. */
	OWN_REGISTER(before);
}

INLINE __u64 mix(__u64 word)
{
	word *= 0x9e3779b97f4a7c15ULL;
	return word ^ word >> 32;
}

/* Whether the name of a found entry has not been withdrawn since the reply's state was read. */
INLINE int is_current(const struct found *found)
{
	const __u32 zero = 0;
	void *words = map_lookup(&kept_words, &zero);
	__u32 name = found->name;
	__u64 *word = words ? map_lookup(words, &name) : 0;

	return word && *(volatile __u64 *)word == found->generation;
}

/* The functions below that are not static are verified once, for all possible arguments. Otherwise the search, with its
 * nested loops, would be verified for each length of a request, which exceeds the kernel's limit. So they get only numbers,
 * and look up the data on which they work. The kernel verifies them even if nothing calls them, so each checks itself that
 * there are entries, or is removed. */

INLINE struct kept_shape *shape_of(__u32 service, __u32 number)
{
	struct kept_service *known = map_lookup(&kept_services, &service);

	/* It always is less. */
	number &= KEPT_SHAPES - 1;
	OWN_REGISTER(number);
	return known ? &known->shape[number] : 0;
}

/* stack/reflex/src/hash.rs. */
GLOBAL __u64 kept_hash(__u32 service, __u32 number, __u32 len)
{
	struct kept_cpu *cpu = own_kept_cpu();
	struct kept_shape *shape = shape_of(service, number);
	__u64 sum = mix(kept_seed ^ (__u64)service << 32 ^ (__u64)number << 16 ^ len);
	__u32 words = (len + 7) / 8;

	if (!kept_max || !cpu || !shape)
		return 0;
	for (__u32 i = 0; i < KEPT_REQUEST_WORDS; i++) {
		__u64 word, key;

		if (i >= words)
			break;
		word = cpu->request[i] & shape->masks[i];
		key = kept_keys[i];
		sum += (__u64)((__u32)word + (__u32)key) * (__u32)((__u32)(word >> 32) + (__u32)(key >> 32));
	}
	return mix(mix(sum));
}

/* Whether an entry is for the request that was loaded. Both have zeros behind them. */
GLOBAL int kept_is_for(__u32 service, __u32 number, __u32 place)
{
	const __u32 zero = 0;
	struct kept_cpu *cpu = own_kept_cpu();
	struct kept_shape *shape = shape_of(service, number);
	void *entries = map_lookup(&kept_entries, &zero);
	struct kept *entry = entries ? map_lookup(entries, &place) : 0;
	__u64 differs = 0;

	if (!kept_max || !cpu || !shape || !entry)
		return 0;
#pragma unroll
	for (int i = 0; i < KEPT_REQUEST_WORDS; i++)
		differs |= (cpu->request[i] & shape->masks[i]) ^ *(volatile __u64 *)&entry->request[i];
	return differs == 0;
}

enum { KEPT_TOO_LONG = 13, KEPT_UNKNOWN = 14, KEPT_EXPIRED = 15, KEPT_WITHDRAWN = 16 };

/* Looks for the entry of the request that was loaded, among those of one shape, and notes it on this CPU. Returns why there is
 * none. */
GLOBAL __u32 kept_find(__u32 service, __u32 number, __u32 len)
{
	const __u32 zero = 0;
	struct kept_cpu *cpu = own_kept_cpu();
	struct kept_shape *shape = shape_of(service, number);
	void *entries = map_lookup(&kept_entries, &zero);
	__u64 hash;

	if (!kept_max || !cpu || !shape || !entries || len < shape->request_min)
		return KEPT_UNKNOWN;
	hash = kept_hash(service, number, len);
	for (__u32 slot = 0; slot < KEPT_SLOTS; slot++) {
		__u32 place = ((__u32)hash & (kept_max / KEPT_SLOTS - 1)) * KEPT_SLOTS + slot;
		struct kept *entry = map_lookup(entries, &place);
		struct found *found = &cpu->found;
		__u64 sequence;

		if (!entry)
			break;
		if (*(volatile __u64 *)&entry->hash != hash)
			continue;
		sequence = *(volatile __u64 *)&entry->sequence;
		read_barrier(cpu);
		if (!sequence || sequence & 1 || entry->service != service || entry->shape != number ||
		    entry->request_len != len || !kept_is_for(service, number, place))
			continue;
		found->sequence = sequence;
		found->number = place;
		found->shape = number;
		found->reply_len = *(volatile __u16 *)&entry->reply_len;
		found->generation = *(volatile __u64 *)&entry->generation;
		found->name = *(volatile __u32 *)&entry->name;
		if (found->reply_len > KEPT_REPLY)
			continue;
		if (!is_current(found))
			return KEPT_WITHDRAWN;
		return *(volatile __u64 *)&entry->until_ns <= ktime_get_ns() ? KEPT_EXPIRED : 0;
	}
	return KEPT_UNKNOWN;
}

/* Looks for the kept reply to the request of a service that was loaded. */
GLOBAL __u32 kept_search(__u32 service, __u32 len)
{
	struct kept_service *known = map_lookup(&kept_services, &service);
	__u32 why = KEPT_UNKNOWN;

	if (!kept_max || !known)
		return KEPT_UNKNOWN;
	for (__u32 number = 0; number < KEPT_SHAPES; number++) {
		__u32 found_not;

		if (number >= known->shapes)
			break;
		found_not = kept_find(service, number, len);
		if (!found_not)
			return 0;
		if (found_not > why)
			why = found_not;
	}
	return why;
}

/* A function that loads a request, with zeros behind it, and looks for its kept reply: for programs with this context, by
 * their helper. */
#define FIND_KEPT(name, context_type, load_bytes)                                            \
	GLOBAL __u32 name(context_type *context, __u32 service, __u32 at, __u32 len)         \
	{                                                                                    \
		struct kept_cpu *cpu = own_kept_cpu();                                       \
		__u64 some = len;                                                            \
                                                                                             \
		if (len > KEPT_REQUEST)                                                      \
			return KEPT_TOO_LONG;                                                \
		if (!kept_max || !cpu)                                                       \
			return KEPT_UNKNOWN;                                                 \
		for (int i = 0; i < KEPT_REQUEST_WORDS; i++)                                 \
			cpu->request[i] = 0;                                                 \
		if (len != 0) {                                                              \
			WITHIN(some, 1, KEPT_REQUEST);                                       \
			if (load_bytes(context, at, cpu->request, (__u32)some) != 0)         \
				return KEPT_UNKNOWN;                                         \
		}                                                                            \
		return kept_search(service, len);                                            \
	}

/* Copies a range of the request into the reply. */
GLOBAL int kept_repeat(__u32 start, __u32 len, __u32 to)
{
	struct kept_cpu *cpu = own_kept_cpu();

	if (!kept_max || !cpu)
		return 0;
	for (__u32 i = 0; i < KEPT_REQUEST; i++) {
		if (i >= len)
			break;
		((__u8 *)cpu->reply)[(to + i) & (KEPT_REPLY - 1)] =
			((__u8 *)cpu->request)[(start + i) & (KEPT_REQUEST - 1)];
	}
	return 1;
}

/* Copies the reply of the entry that was found on this CPU, with the bytes of the request that it repeats. Returns 0 if the entry
 * was written to meanwhile, or withdrawn. */
GLOBAL int copy_reply(__u32 service)
{
	const __u32 zero = 0;
	struct kept_cpu *cpu = own_kept_cpu();
	void *entries = map_lookup(&kept_entries, &zero);
	struct kept_shape *shape;
	struct kept *entry;
	__u32 place;

	if (!kept_max || !cpu || !entries)
		return 0;
	place = cpu->found.number;
	entry = map_lookup(entries, &place);
	shape = shape_of(service, cpu->found.shape);
	if (!entry || !shape)
		return 0;
	for (__u32 i = 0; i < KEPT_REPLY_WORDS; i++) {
		if (i * 8 >= cpu->found.reply_len)
			break;
		cpu->reply[i] = *(volatile __u64 *)&entry->reply[i];
	}
	if (!*(volatile __u32 *)&entry->used)
		*(volatile __u32 *)&entry->used = 1;
	read_barrier(cpu);
	/* What was read of it, also by kept_find(), is of one entry if the sequence is still that one. */
	if (*(volatile __u64 *)&entry->sequence != cpu->found.sequence || !is_current(&cpu->found))
		return 0;
	for (int number = 0; number < KEPT_VARYING; number++)
		kept_repeat(shape->copies[number].start, shape->copies[number].len, shape->copies[number].to);
	return 1;
}

#endif
