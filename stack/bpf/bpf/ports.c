/* Interfaces as ports of a switch: workers receive all of their frames, and the kernel's own stack none.
 *
 * All ports of a network namespace share the programs, and each worker has one packet socket for all of them. Each frame is
 * decided once, when packet sockets see it directly before tc ingress, on the same CPU (net/core/dev.c,
 * __netif_receive_skb_core): the filter of the worker's socket leaves a note if the worker is to get the frame, and the
 * program at tc ingress drops that frame. A frame that no worker gets is dropped as well, unless the port fails open: then
 * it goes on to the kernel, where the bridge to which the interface belongs carries it.
 *
 * Flows that the kernel forwards by itself (offload.h) are tried first. The filter looks for an entry, and records the
 * frame's output port; the program at tc ingress sends it there. If no filter has run, because no worker has a socket, that
 * program looks itself. Ports may have an XDP program in front of both, which looks for an entry in the same map.
 *
 * An interface is a port while its entry is in the map. Before and after that the programs change nothing, so no frame is
 * lost or duplicated by the order in which they are attached.
 *
 * When the process ends, all ports immediately belong to the kernel (served.h). Detaching the programs takes an RCU grace
 * period for each. With other programs at tc, the kernel continues to forward flows for a while (keep.h). */
#include "keep.h"
#include "kernel.h"
#include "offload.h"
#include "pending.h"
#include "served.h"

/* The mark of frames that our sockets send. */
const volatile __u32 mark = 0;

/* Frames that no worker gets go to the kernel instead of being dropped. */
enum { FAILS_OPEN = 1 };

struct port {
	__u32 flags;  /* FAILS_OPEN, or 0 */
	__u16 number; /* the port's number in keys of entries */
	__u16 masks;  /* those under which frames of the port have entries, a bit each */
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32); /* kernel index of the interface */
	MAP_TYPE(value, struct port);
	MAP_UINT(max_entries, 4095);
} ports SECTION(".maps");

/* Places in the array of tail calls. */
enum { INGRESS = 0, EGRESS = 1 };

/* What becomes of a frame. */
enum fate {
	UNDECIDED = 0, /* no filter has run */
	GIVEN = 1,     /* a worker was given it */
	LEFT = 2,      /* no worker was given it */
	FORWARDED = 3, /* an entry was found */
};

/* Of the frame that this CPU is processing. */
struct note {
	__u32 fate;
	/* The kernel was given it, as no worker was: it may send what it makes of it. */
	__u32 passed;
	struct forwarding forwarding;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct note);
	MAP_UINT(max_entries, 1);
} notes SECTION(".maps");

CALLED int listen_of(struct __sk_buff *skb, __u32 worker)
{
	__u32 first = 0, ifindex = skb->ifindex;
	struct note *note = map_lookup(&notes, &first);
	const struct port *port;

	if (!note)
		return 0;
	note->passed = 0;
	note->fate = UNDECIDED;
	/* The socket ignores outgoing frames by itself where the kernel can. */
	if (skb->pkt_type == PACKET_OUTGOING)
		return 0;
	note->fate = LEFT;
	port = map_lookup(&ports, &ifindex);
	if (!port)
		return 0;
	if (entries_max && port->masks && find_offloaded(skb, &note->forwarding, port->number, port->masks)) {
		note->fate = FORWARDED;
		return 0;
	}
	/* A frame that nobody else would carry waits even for a stuck worker, while there is room. */
	if (!may_hand_over(worker) && port->flags & FAILS_OPEN)
		return 0;
	note->fate = GIVEN;
	return ~0U;
}

/* A filter cannot see which socket it runs for, so each worker's socket has a program of its own. */
#define LISTEN(worker)                                                         \
	SECTION("socket") int twinpath_port_##worker(struct __sk_buff *skb)    \
	{                                                                      \
		return listen_of(skb, worker);                                 \
	}
#define LISTENS(tens)                                                                   \
	LISTEN(tens##0) LISTEN(tens##1) LISTEN(tens##2) LISTEN(tens##3) LISTEN(tens##4) \
	LISTEN(tens##5) LISTEN(tens##6) LISTEN(tens##7) LISTEN(tens##8) LISTEN(tens##9)
LISTEN(0) LISTEN(1) LISTEN(2) LISTEN(3) LISTEN(4) LISTEN(5) LISTEN(6) LISTEN(7) LISTEN(8) LISTEN(9)
LISTENS(1) LISTENS(2) LISTENS(3) LISTENS(4) LISTENS(5)
LISTEN(60) LISTEN(61) LISTEN(62) LISTEN(63)

/* At tc ingress of a port. */
SECTION("classifier") int twinpath_port_in(struct __sk_buff *skb)
{
	tail_call(skb, &served, INGRESS + nothing);
	return TCX_NEXT;
}

INLINE int serve_in(struct __sk_buff *skb)
{
	__u32 first = 0, ifindex = skb->ifindex, fate;
	struct note *note = map_lookup(&notes, &first);
	const struct port *port;

	if (!note)
		return TCX_NEXT;
	fate = note->fate;
	note->fate = UNDECIDED;
	note->passed = 0;
	if (fate == GIVEN)
		return TCX_DROP;
	if (entries_max && fate == FORWARDED)
		return forward_offloaded(skb, &note->forwarding, mark, 0);
	port = map_lookup(&ports, &ifindex);
	if (!port)
		return TCX_NEXT;
	if (entries_max && fate == UNDECIDED && port->masks &&
	    find_offloaded(skb, &note->forwarding, port->number, port->masks))
		return forward_offloaded(skb, &note->forwarding, mark, 0);
	if (!(port->flags & FAILS_OPEN))
		return TCX_DROP;
	if (entries_max && fail_open_ns)
		left_to_bridge();
	note->passed = 1;
	return TCX_NEXT;
}

SECTION("classifier") int twinpath_serve_in(struct __sk_buff *skb)
{
	return serve_in(skb);
}

/* In the driver of a port that is to forward there. Frames without an entry here go on to the hooks above, which know more
 * about them and look again. */
SECTION("xdp") int twinpath_port_xdp(struct xdp_md *context)
{
	__u32 ifindex = context->ingress_ifindex, place = ifindex & (PORT_WORDS - 1);
	__u64 *word = map_lookup(&port_words, &place), found;
	const struct port *port;

	if (!entries_max || !word)
		return XDP_PASS;
	found = *(volatile __u64 *)word;
	if (found >> 32 == ifindex)
		return (__u16)found ? forward_at_xdp(context, (__u16)(found >> 16), (__u16)found) : XDP_PASS;
	port = map_lookup(&ports, &ifindex);
	if (!port || !port->masks)
		return XDP_PASS;
	return forward_at_xdp(context, port->number, port->masks);
}

/* For tests: the same with a frame that has a VLAN tag beside its bytes, which a test run cannot pass. Its control
 * information is in `priority`. */
SECTION("classifier") int twinpath_test_tagged(struct __sk_buff *skb)
{
	if (push_tag(skb, be16(0x8100), (__u16)skb->priority) != 0)
		return TCX_DROP;
	return serve_in(skb);
}

/* At tc ingress of a port, if flows are to survive the process. Notes of filters do not count, because the filters are gone
 * with their sockets; a frame of an entry that was given to the dying process is still forwarded. */
SECTION("classifier") int twinpath_port_in_keeping(struct __sk_buff *skb)
{
	__u32 first = 0, ifindex = skb->ifindex;
	const struct port *port;
	struct note *note;

	tail_call(skb, &served, INGRESS + nothing);
	note = map_lookup(&notes, &first);
	port = map_lookup(&ports, &ifindex);
	if (!note || !port || !lease_lasts())
		return TCX_NEXT;
	note->fate = UNDECIDED;
	note->passed = 0;
	if (entries_max && port->masks && find_offloaded(skb, &note->forwarding, port->number, port->masks))
		return forward_offloaded(skb, &note->forwarding, mark, cpus * entries_max);
	return TCX_DROP;
}

/* At tc egress of a port. */
SECTION("classifier") int twinpath_port_out(struct __sk_buff *skb)
{
	tail_call(skb, &served, EGRESS + nothing);
	return TCX_NEXT;
}

/* Drops what the kernel sends by itself. A bridge that carries a frame instead of a worker sends it on the CPU on which it
 * arrived, before the next frame. */
SECTION("classifier") int twinpath_serve_out(struct __sk_buff *skb)
{
	__u32 first = 0, ifindex = skb->ifindex;
	struct note *note;

	if (skb->mark == mark) {
		/* The peer of a veth pair must not see the mark. */
		skb->mark = 0;
		return TCX_NEXT;
	}
	note = map_lookup(&notes, &first);
	if (!note || note->passed || !map_lookup(&ports, &ifindex))
		return TCX_NEXT;
	return TCX_DROP;
}

/* At tc egress of a port, if flows are to go on without the process. */
SECTION("classifier") int twinpath_port_out_keeping(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;

	tail_call(skb, &served, EGRESS + nothing);
	if (skb->mark == mark) {
		skb->mark = 0;
		return TCX_NEXT;
	}
	return map_lookup(&ports, &ifindex) && lease_lasts() ? TCX_DROP : TCX_NEXT;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
