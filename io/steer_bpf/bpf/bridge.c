/* An interface that user space owns wholly: the kernel's own stack neither receives from it nor sends by it, but lives on
 * another interface instead.
 *
 * Frames cross between the two right here, where both are interfaces of one network namespace. Otherwise workers carry
 * them: packet sockets see a frame before tc ingress, so what is dropped here has reached the exception port already
 * (net/core/dev.c, __netif_receive_skb_core). Towards the device our frames carry a mark; everything else that the
 * kernel would send there (router solicitations, group reports, what a stray route leads to) is dropped. */
#include "kernel.h"

/* What our sockets mark their frames with. */
const volatile __u32 mark = 0;

/* Where frames go that cross here: kernel indices. 0: workers carry them. */
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

/* On the device. */
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

/* On the device. */
SECTION("classifier") int twinpath_only_ours(struct __sk_buff *skb)
{
	if (skb->mark != mark)
		return TCX_DROP;
	/* Not to be seen by whoever is at the other end of a virtual cable. */
	skb->mark = 0;
	return TCX_NEXT;
}

/* On the kernel's interface. */
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
