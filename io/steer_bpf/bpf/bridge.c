/* Withholds an interface from the kernel's own stack, which neither receives from it nor sends through it, but uses
 * another interface instead.
 *
 * If both are interfaces of one network namespace, the programs redirect frames between them. Otherwise workers carry
 * the frames: packet sockets see a frame before tc ingress, so a frame that is dropped here has reached the exception
 * port already (net/core/dev.c, __netif_receive_skb_core). Frames that we send to the device carry a mark; all others
 * that the kernel would send there (router solicitations, group reports, packets of a stray route) are dropped. */
#include "kernel.h"

/* The mark of frames that our sockets send. */
const volatile __u32 mark = 0;

/* Interfaces between which frames are redirected: kernel indices. 0: workers carry the frames. */
struct crossing {
	__u32 port;
	__u32 kernel;
};

volatile struct crossing crossing;

struct crossed {
	__u64 frames_in;
	__u64 bytes_in;
	__u64 frames_out;
	__u64 bytes_out;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct crossed);
	MAP_UINT(max_entries, 1);
} crossed SECTION(".maps");

/* At ingress of the device: redirects arriving frames to the kernel's interface, or drops them if workers carry them. */
SECTION("classifier") int twinpath_withhold(struct __sk_buff *skb)
{
	__u32 kernel = crossing.kernel, first = 0;
	struct crossed *count;

	if (!kernel)
		return TCX_DROP;
	count = map_lookup(&crossed, &first);
	if (count) {
		count->frames_in++;
		count->bytes_in += skb->len;
	}
	return redirect(kernel, BPF_F_INGRESS);
}

/* At egress of the device: drops frames without the mark. */
SECTION("classifier") int twinpath_only_ours(struct __sk_buff *skb)
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
	__u32 port = crossing.port, first = 0;
	struct crossed *count;

	if (!port)
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
