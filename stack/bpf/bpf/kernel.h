/* The part of the kernel's BPF interface (include/uapi/linux/bpf.h) that the programs need, written out: the object's
 * bytes must not depend on which headers are installed. */
#ifndef TWINPATH_KERNEL_H
#define TWINPATH_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/* A function that is not inlined: all programs of an object share one copy of its code. */
#define CALLED static __attribute__((noinline))
/* The same, verified by itself, for any arguments of these types. */
#define GLOBAL __attribute__((noinline))
/* Keeps the compiler from testing one copy of a value and using another: the verifiers of Linux before 6.4 do not see
 * that 32-bit copies are equal, and would regard the one that is used as unbounded. */
#define OWN_REGISTER(value) __asm__ volatile("" : "+r"(value))
/* Brings a __u64 into bounds. The verifiers of Linux before 6.8 learn nothing of a number from the test that it is not 0,
 * and nothing of a copy from tests of another one, which is how the compiler writes others. */
#define WITHIN(value, min, max)                            \
	__asm__ volatile("if %0 >= %1 goto +1\n%0 = %1\n" \
			 "if %0 <= %2 goto +1\n%0 = %2"    \
			 : "+r"(value)                     \
			 : "i"(min), "i"(max))

/* Map definitions, as the loader reads them from the type information. */
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_SOCKMAP = 15,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum { BPF_F_NO_PREALLOC = 1, BPF_F_INGRESS = 1, BPF_F_MMAPABLE = 1024, BPF_F_INNER_MAP = 4096 };
enum { BPF_HDR_START_MAC = 0, BPF_HDR_START_NET = 1, BPF_CSUM_LEVEL_QUERY = 0 };
/* Flag of map_update: there must be no such element yet. */
enum { BPF_NOEXIST = 1 };
#define BPF_F_CURRENT_NETNS (~0ULL)
enum { XDP_DROP = 1, XDP_PASS = 2, XDP_REDIRECT = 4 };
/* Return values of tcx: run the next program; pass to the kernel at once; drop. */
enum { TCX_NEXT = -1, TCX_PASS = 0, TCX_DROP = 2 };
/* Of a program that looks for a socket: as it has assigned, or as ever. */
enum { SK_PASS = 1 };
/* linux/if_packet.h */
enum { PACKET_HOST = 0, PACKET_OTHERHOST = 3, PACKET_OUTGOING = 4 };

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 not_used[8];
	__u32 data;
	__u32 data_end;
	__u32 not_used_either[14];
	__u32 data_meta;
	__u32 not_used_too[5];
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, ifindex) == 40, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, data) == 76, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, data_meta) == 140, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_segs) == 164, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, sk) == 168, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "as in linux/bpf.h");

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

/* What a socket is looked for: the ends in network byte order, but for the local port. */
struct bpf_sk_lookup {
	__u64 not_used;
	__u32 family;
	__u32 protocol;
	__u32 remote_ip4;
	__u32 remote_ip6[4];
	__u16 remote_port;
	__u16 not_used_either;
	__u32 local_ip4;
	__u32 local_ip6[4];
	__u32 local_port;
	__u32 ingress_ifindex;
};

_Static_assert(__builtin_offsetof(struct bpf_sk_lookup, remote_port) == 36, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct bpf_sk_lookup, local_port) == 60, "as in linux/bpf.h");

/* The part of a socket that exists for requests and in TIME_WAIT as well. */
struct bpf_sock {
	__u32 not_used[18];
	__u32 state;
};

/* net/tcp_states.h */
enum { TCP_LISTEN = 10 };

struct tuple_v4 {
	__u32 source;
	__u32 destination;
	__u16 source_port;
	__u16 destination_port;
};

struct tuple_v6 {
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
};

_Static_assert(__builtin_offsetof(struct bpf_sock, state) == 72, "as in linux/bpf.h");
_Static_assert(sizeof(struct tuple_v4) == 12 && sizeof(struct tuple_v6) == 36, "as in struct bpf_sock_tuple");

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static long (*skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 len,
			       __u64 flags) = (void *)9;
/* Changes a transport's checksum in the frame for a change of two or four bytes, unless the device is to complete it. */
static long (*l4_csum_replace)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to,
			       __u64 flags) = (void *)11;
/* CLOCK_MONOTONIC. */
static __u64 (*ktime_get_ns)(void) = (void *)5;
static __u32 (*cpu_number)(void) = (void *)8;
static long (*tail_call)(void *context, void *programs, __u32 index) = (void *)12;
static long (*push_tag)(struct __sk_buff *skb, __u16 protocol, __u16 control) = (void *)18;
static long (*redirect)(__u32 ifindex, __u64 flags) = (void *)23;
static long (*skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;
/* The sum of `to`, less that of `from`, added to a sum; lengths are multiples of four. */
static long long (*csum_diff)(const void *from, __u32 from_len, const void *to, __u32 to_len,
			      __u32 sum) = (void *)28;
static long (*change_type)(struct __sk_buff *skb, __u32 type) = (void *)32;
static long (*change_tail)(struct __sk_buff *skb, __u32 len, __u64 flags) = (void *)38;
/* Adds to the sum that a device has taken of the packet, if it has. */
static long long (*csum_update)(struct __sk_buff *skb, __u32 sum) = (void *)40;
static long (*redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
/* Makes room in front of a frame at XDP, which the kernel keeps with the frame. Not every driver does. */
static long (*xdp_adjust_meta)(struct xdp_md *xdp, int delta) = (void *)54;
static long (*skb_load_bytes_relative)(const void *skb, __u32 offset, void *to, __u32 len,
				       __u32 start) = (void *)68;
/* The thread and the process that run, if they are in that PID namespace. */
static long (*pid_in_namespace)(__u64 device, __u64 inode, void *to, __u32 len) = (void *)120;
static long (*ringbuf_output)(void *ring, void *data, __u64 size, __u64 flags) = (void *)130;
static void *(*ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static void (*ringbuf_discard)(void *data, __u64 flags) = (void *)133;
/* Of a ring: BPF_RB_CONS_POS or BPF_RB_PROD_POS. */
static __u64 (*ringbuf_query)(void *ring, __u64 which) = (void *)134;
static void *(*sk_lookup_udp)(void *context, const void *tuple, __u32 tuple_size, __u64 netns,
			      __u64 flags) = (void *)85;
/* Also requests, and sockets in TIME_WAIT. */
static struct bpf_sock *(*skc_lookup_tcp)(void *context, const void *tuple, __u32 tuple_size, __u64 netns,
					  __u64 flags) = (void *)99;
static long (*sk_release)(void *socket) = (void *)86;
static long (*sk_assign)(struct bpf_sk_lookup *asked, void *socket, __u64 flags) = (void *)124;
/* Null for a socket that is only a request or in TIME_WAIT. */
static void *(*sk_fullsock)(void *socket) = (void *)95;
static void *(*sk_storage_get)(void *map, void *socket, void *value, __u64 flags) = (void *)107;
static long (*redirect_peer)(__u32 ifindex, __u64 flags) = (void *)155;
/* Whether the device has verified the transport's checksum, with BPF_CSUM_LEVEL_QUERY: negative if not. */
static long (*csum_level)(struct __sk_buff *skb, __u64 level) = (void *)135;
static long (*xdp_load_bytes)(struct xdp_md *xdp, __u32 offset, void *to, __u32 len) = (void *)189;
/* CLOCK_MONOTONIC at the last tick. */
static __u64 (*ktime_get_coarse_ns)(void) = (void *)160;

#define be16(number) __builtin_bswap16(number)
#define be32(number) __builtin_bswap32(number)
#define be64(number) __builtin_bswap64(number)

/* Folds a sum of 16-bit words. */
INLINE __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u32)sum;
}

#endif
