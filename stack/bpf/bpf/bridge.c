/* Withholds an interface from the kernel's own stack, which neither receives from it nor sends through it, but uses another
 * interface instead.
 *
 * If both interfaces are in one network namespace, the programs redirect frames between them. Otherwise workers carry the
 * frames: packet sockets see a frame before tc ingress, so a frame that is dropped here has already reached the exception
 * port (net/core/dev.c, __netif_receive_skb_core). Frames that we send to the device carry a mark; all others that the
 * kernel would send there (router solicitations, group reports, packets of a stray route) are dropped.
 *
 * If both are in one namespace but workers carry the frames, the programs redirect them only while a worker is stuck. Each
 * frame is decided once: the filter of a packet socket leaves a note if it gives the frame to its worker, and the program
 * at tc ingress drops that frame. It redirects a frame that no filter gave to a worker.
 *
 * A kernel without BPF links at tc keeps the programs there after the process has been killed. They then change nothing
 * (served.h). */
#include "kernel.h"
#include "pending.h"
#include "served.h"

/* Places in the array of tail calls. */
enum { WITHHOLD = 0, ONLY_OURS = 1, CROSS = 2 };

/* The mark of frames that our sockets send. */
const volatile __u32 mark = 0;

/* Number of pairs of queues. Each pair has a worker. */
const volatile __u32 workers = 1;

/* Interfaces between which frames are redirected: kernel indices. 0: workers carry the frames. */
struct crossing {
	__u32 port;
	__u32 kernel;
	/* Not 0: frames are redirected only while a worker is stuck. */
	__u32 only_when_stuck;
	/* Set by the programs if a worker may be stuck. The words of the queues tell. */
	__u32 one_stuck;
};

volatile struct crossing crossing;

struct crossed {
	__u64 frames_in;
	__u64 bytes_in;
	__u64 frames_out;
	__u64 bytes_out;
	/* The filter gave the frame that this CPU is processing to a worker. */
	__u64 given;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct crossed);
	MAP_UINT(max_entries, 1);
} crossed SECTION(".maps");

/* A worker has two words: one for frames of the device, one for frames of the kernel's interface. */
enum { FROM_PORT = 0, FROM_KERNEL = 1, WORDS_MAX = 2 * 64 };

INLINE int one_is_stuck(void)
{
	if (!crossing.one_stuck)
		return 0;
	for (__u32 at = 0; at < WORDS_MAX; at++) {
		__u32 key = at;
		struct pending *word;

		if (at >= 2 * workers)
			break;
		word = map_lookup(&pending, &key);
		if (word && *(volatile __u64 *)&word->since & WITHDRAWN)
			return 1;
	}
	/* Another CPU may be marking a word now. The next frame for that worker sets this again. */
	crossing.one_stuck = 0;
	return 0;
}

/* Whether this worker may get a frame; called directly before handing it over. A stuck worker may not. Then both of its
 * words are marked: it must discard the frames that wait on either side, because later frames overtake them. */
INLINE int may_get(__u32 worker, __u32 side)
{
	__u32 other = 2 * worker + (side ^ 1);
	struct pending *word;
	__u64 since;

	if (may_hand_over(2 * worker + side))
		return 1;
	word = map_lookup(&pending, &other);
	if (word) {
		since = *(volatile __u64 *)&word->since;
		if (since && !(since & WITHDRAWN))
			__sync_val_compare_and_swap(&word->since, since, since | WITHDRAWN);
	}
	crossing.one_stuck = 1;
	return 0;
}

/* The filter of a worker's packet socket. */
INLINE int listen(struct __sk_buff *skb, __u32 worker)
{
	__u32 first = 0;
	struct crossed *count = map_lookup(&crossed, &first);

	/* The socket ignores outgoing frames by itself where the kernel can. */
	if (!count || skb->pkt_type == PACKET_OUTGOING)
		return 0;
	count->given = 0;
	if (crossing.kernel && (!crossing.only_when_stuck || one_is_stuck() || !may_get(worker, FROM_PORT)))
		return 0;
	count->given = 1;
	return ~0U;
}

CALLED int listen_of(struct __sk_buff *skb, __u32 worker)
{
	return listen(skb, worker);
}

/* A filter cannot see which socket it runs for, so each worker's socket has a program of its own. */
#define LISTEN(worker)                                                           \
	SECTION("socket") int twinpath_listen_##worker(struct __sk_buff *skb)    \
	{                                                                        \
		return listen_of(skb, worker);                                   \
	}
#define LISTENS(tens)                                                                   \
	LISTEN(tens##0) LISTEN(tens##1) LISTEN(tens##2) LISTEN(tens##3) LISTEN(tens##4) \
	LISTEN(tens##5) LISTEN(tens##6) LISTEN(tens##7) LISTEN(tens##8) LISTEN(tens##9)
LISTEN(0) LISTEN(1) LISTEN(2) LISTEN(3) LISTEN(4) LISTEN(5) LISTEN(6) LISTEN(7) LISTEN(8) LISTEN(9)
LISTENS(1) LISTENS(2) LISTENS(3) LISTENS(4) LISTENS(5)
LISTEN(60) LISTEN(61) LISTEN(62) LISTEN(63)

/* Runs when the kernel's interface puts a frame into a queue (tun_net_xmit, drivers/net/tun.c). A frame that finds the
 * worker stuck still goes into the queue, because it cannot be redirected from here. */
SECTION("socket") int twinpath_queue(struct __sk_buff *skb)
{
	if (crossing.kernel && crossing.only_when_stuck)
		may_get(skb->queue_mapping, FROM_KERNEL);
	return skb->len;
}

/* At ingress of the device: redirects arriving frames to the kernel's interface, or drops them if workers carry them. */
SECTION("classifier") int twinpath_withhold(struct __sk_buff *skb)
{
	tail_call(skb, &served, WITHHOLD + nothing);
	return TCX_NEXT;
}

SECTION("classifier") int twinpath_serve_withhold(struct __sk_buff *skb)
{
	__u32 kernel = crossing.kernel, first = 0;
	struct crossed *count = map_lookup(&crossed, &first);

	if (!kernel || !count)
		return TCX_DROP;
	if (count->given) {
		count->given = 0;
		return TCX_DROP;
	}
	count->frames_in++;
	count->bytes_in += skb->len;
	return redirect(kernel, BPF_F_INGRESS);
}

/* At egress of the device: drops frames without the mark. */
SECTION("classifier") int twinpath_only_ours(struct __sk_buff *skb)
{
	tail_call(skb, &served, ONLY_OURS + nothing);
	return TCX_NEXT;
}

SECTION("classifier") int twinpath_serve_only_ours(struct __sk_buff *skb)
{
	if (skb->mark != mark)
		return TCX_DROP;
	/* The peer of a veth pair must not see the mark. */
	skb->mark = 0;
	return TCX_NEXT;
}

/* At egress of the kernel's interface: redirects frames to the device. */
SECTION("classifier") int twinpath_cross(struct __sk_buff *skb)
{
	tail_call(skb, &served, CROSS + nothing);
	return TCX_NEXT;
}

/* The same while workers carry frames. Its name differs: a service on the kernel's interface chooses its path by the
 * name of this program. */
SECTION("classifier") int twinpath_cross_when_stuck(struct __sk_buff *skb)
{
	tail_call(skb, &served, CROSS + nothing);
	return TCX_NEXT;
}

SECTION("classifier") int twinpath_serve_cross(struct __sk_buff *skb)
{
	__u32 port = crossing.port, first = 0;
	struct crossed *count;

	if (!port || (crossing.only_when_stuck && !one_is_stuck()))
		return TCX_NEXT;
	count = map_lookup(&crossed, &first);
	if (count) {
		count->frames_out++;
		count->bytes_out += skb->len;
	}
	skb->mark = mark;
	return redirect(port, 0);
}

char terms[] SECTION("license") = "Dual MIT/GPL";
