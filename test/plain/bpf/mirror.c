/* The shortest echo that the kernel has: at tc ingress, addresses and ports of a datagram to one UDP port over IPv4 change places,
 * and it leaves by the interface that it came by. Nothing is verified, limited or counted. */
#include "../../../stack/bpf/bpf/kernel.h"

/* The port, as on the wire; set before loading. */
const volatile __u32 port = 0;

enum { HEADERS_LEN = 42, UDP = 17 };
/* The places of `data` and `data_end` in struct __sk_buff (linux/bpf.h). */
enum { DATA_AT = 76, DATA_END_AT = 80 };

#define HALF(at) (*(__u16 *)(frame + (at)))
#define WORD(at) (*(__u32 *)(frame + (at)))
#define SWAP(type, one, other)                   \
	do {                                     \
		type of_one = one;               \
		one = other;                     \
		other = of_one;                  \
	} while (0)

/* The start of a datagram to the port; null if it is none. */
static inline __attribute__((always_inline)) __u8 *datagram(struct __sk_buff *skb)
{
	__u8 *frame = (void *)(long)*(volatile __u32 *)((__u8 *)skb + DATA_AT);
	__u8 *end = (void *)(long)*(volatile __u32 *)((__u8 *)skb + DATA_END_AT);

	if (frame + HEADERS_LEN > end || HALF(12) != be16(0x0800) || frame[14] != 0x45 || frame[23] != UDP ||
	    HALF(36) != port)
		return 0;
	return frame;
}

SECTION("classifier") int mirror_tc(struct __sk_buff *skb)
{
	__u8 *frame = datagram(skb);

	if (!frame)
		return TCX_NEXT;
	SWAP(__u16, HALF(0), HALF(6));
	SWAP(__u16, HALF(2), HALF(8));
	SWAP(__u16, HALF(4), HALF(10));
	SWAP(__u32, WORD(26), WORD(30));
	SWAP(__u16, HALF(34), HALF(36));
	return redirect(skb->ifindex, 0);
}

/* Drops such datagrams. */
SECTION("classifier") int drop_tc(struct __sk_buff *skb)
{
	return datagram(skb) ? TCX_DROP : TCX_NEXT;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
