/* The flows that the kernel forwards (offload.h) survive the process that has the ports, for a while.
 *
 * The links of the programs below, and the maps that they use, are pinned in a BPF file system, so they outlive the process.
 * The array of tail calls shows that the process has ended: it is empty from then on (served.h). The lease holds the time of
 * the end. It is written by the process at an orderly end, and by a program that the kernel runs whenever a thread exits.
 * That is before the process's descriptors are closed, even if it is killed. So nothing has to be renewed while it lives.
 *
 * Until the lease has ended, frames with an entry are forwarded, and entries end at their own deadlines as always. Every
 * other frame of the ports is dropped, as while no worker takes it. After that the programs change nothing. */
#ifndef TWINPATH_KEEP_H
#define TWINPATH_KEEP_H

#include "kernel.h"

/* src/keep_lease.rs has the same layout. */
struct lease {
	__u64 ended_ns; /* CLOCK_MONOTONIC, when a thread of the process has ended last; 0: none has */
	__u64 keep_ns;	/* how long flows go on after that */
	/* For the next process: which layout the maps have, and how large they are. */
	__u64 layout;
	__u64 entries_max;
	__u64 cpus;
	__u64 reserved[3];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct lease);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} lease SECTION(".maps");

/* The process ID in the process's PID namespace, and that namespace. Constant once loaded. */
const volatile __u32 process = 0;
const volatile __u64 pid_device = 0;
const volatile __u64 pid_inode = 0;

/* struct bpf_pidns_info */
struct pid_in_namespace {
	__u32 thread;
	__u32 process;
};

/* At the tracepoint sched_process_exit, which comes before descriptors are closed (kernel/exit.c, do_exit). */
SECTION("raw_tp") int twinpath_process_ends(void *context)
{
	struct pid_in_namespace own = {};
	__u32 first = 0;
	struct lease *held;

	(void)context;
	if (pid_in_namespace(pid_device, pid_inode, &own, sizeof(own)) != 0 || own.process != process)
		return 0;
	held = map_lookup(&lease, &first);
	if (held)
		held->ended_ns = ktime_get_ns();
	return 0;
}

/* Whether the lease is in force; called only after the process has ended. */
INLINE int lease_lasts(void)
{
	__u32 first = 0;
	const struct lease *held = map_lookup(&lease, &first);

	return held && held->ended_ns && ktime_get_coarse_ns() < held->ended_ns + held->keep_ns;
}

#endif
