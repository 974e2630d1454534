/* How a program detects a stuck worker: a word per queue says since when a frame has been waiting. */
#ifndef TWINPATH_PENDING_H
#define TWINPATH_PENDING_H

#include "kernel.h"

/* One word per queue says since when a frame has been waiting for the queue's worker: 0, or the time when the first
 * frame was handed over since the worker cleared it. The program sets it before it hands a frame over. The worker
 * clears it before the last look into its rings that precedes a sleep, so it is never set when the worker sleeps over
 * empty rings, and otherwise long before it is too old. If a frame comes and the word is older than `fail_open_ns`,
 * the worker is stuck: the program marks the word, once, and from then on hands nothing over to this queue until the
 * worker clears the word. A worker that finds the mark first discards what was handed over before.
 * core/rings/src/pending.rs has the same layout. */
enum { QUEUES_MAX = 1024 };
#define WITHDRAWN (1ULL << 63)

struct pending {
	__u64 since;
	/* Who answers requests that the programs could answer (reflex.h): until this time, the worker. */
	__u64 worker_until;
	__u64 tried_rate; /* what the programs had replied to in a second before that; see TRIAL_DOUBLED in reflex.h */
	/* Only of the programs: when the worker may be tried again; all their replies; those that
	 * were counted when a rate was last made of them, and when that was. */
	__u64 trial_at;
	__u64 replies;
	__u64 replies_then;
	__u64 then_ns;
	__u64 rate; /* of the last count, in a second */
	/* A cache line for each queue. */
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct pending);
	MAP_UINT(max_entries, QUEUES_MAX);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} pending SECTION(".maps");

/* Numbers of the queues whose word has been marked; it wakes the control thread. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_RINGBUF);
	MAP_UINT(max_entries, 4096);
} stuck SECTION(".maps");

/* How long a frame may wait for a worker, ns; 0: for ever. Constant once loaded. */
const volatile __u64 fail_open_ns = 0;

/* Whether a claimed frame may be handed over; called directly before that. Not if the worker of the queue is stuck. */
INLINE int may_hand_over(__u32 queue)
{
	struct pending *word;
	__u64 now, since;

	if (!fail_open_ns)
		return 1;
	word = map_lookup(&pending, &queue);
	if (!word)
		return 1;
	now = ktime_get_coarse_ns();
	since = *(volatile __u64 *)&word->since;
	if (since == 0) {
		/* If another CPU was first, its time is just as good. */
		__sync_val_compare_and_swap(&word->since, 0, now);
		return 1;
	}
	if (since & WITHDRAWN)
		return 0;
	/* Another CPU may have set a later time. */
	if ((long long)(now - since) <= (long long)fail_open_ns)
		return 1;
	if (__sync_val_compare_and_swap(&word->since, since, since | WITHDRAWN) == since) {
		ringbuf_output(&stuck, &queue, sizeof(queue), 0);
		return 0;
	}
	/* Another CPU has marked it, or the worker has just cleared it. */
	since = *(volatile __u64 *)&word->since;
	if (since == 0)
		__sync_val_compare_and_swap(&word->since, 0, now);
	return !(since & WITHDRAWN);
}

/* The frame for which may_hand_over() was called is not handed over. If another frame waits, the next one sets the
 * word again. */
INLINE void not_handed_over(__u32 queue)
{
	struct pending *word = fail_open_ns ? map_lookup(&pending, &queue) : 0;
	__u64 since = word ? *(volatile __u64 *)&word->since : 0;

	if (since && !(since & WITHDRAWN))
		__sync_val_compare_and_swap(&word->since, since, 0);
}

#endif
