/* twinpath: UDP sockets with a fast path beside the kernel's.
 *
 * A descriptor stays what it is: the kernel's socket, made, bound, connected and sent by with the C library's functions, and good for
 * any of them at any time. twinpath_on() gives it a lease: while a thread spins in one of the receiving or waiting functions below, the
 * socket's datagrams come by a ring in memory, without a system call; before it sleeps it gives the lease back, and sleeps in the
 * kernel. Each datagram is received once, and those of a sender in order, whichever way they come.
 *
 * The functions below are named as those of the C library, take what they take, return what they return (-1 and errno), and are
 * interrupted by signals as they are. For a descriptor without a lease they are the C library's. A socket that has a lease is received
 * from and waited for by these functions: what is in its ring is seen by no others. At most 1 ms after the last call the kernel has the
 * socket again, and nothing is in the ring but what came before.
 *
 * Threads: every function may be called from any thread. If several receive from one socket, one of them has the ring, the others sleep
 * in the kernel. To cancel a thread (pthread_cancel) inside one of these functions is not supported: from then on the socket's datagrams
 * come by the kernel, or one at a time by the ring. From a signal handler every function but twinpath_on() may be called. After fork() the
 * child has its descriptors without leases; it may give them leases of its own.
 * What had a lease when fork() was called leaves nothing in a ring after a call, in both. A socket that other processes have in another
 * way should not get a lease: they do not see what is in its ring.
 */
#ifndef TWINPATH_H
#define TWINPATH_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gives a UDP socket a lease on what arrives for it by `interface`, an Ethernet interface of the calling thread's network namespace. The
 * socket is bound to a port, and its options are set: those that are set later, and filters that are attached later, are not noticed, and
 * do not hold for datagrams in the ring. It takes CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, or an owner of the
 * interface (twinpath-sockets(1)), and some tens of milliseconds. 0, also if it
 * has a lease; or -1, and the kernel's path serves as before:
 *   EOPNOTSUPP  it cannot have one; twinpath_why() says why
 *   EAGAIN      another thread is giving a lease at this moment
 *   EINVAL      it is bound to no port
 *   EBADF, ENOTSOCK, EFAULT
 */
int twinpath_on(int fd, const char *interface);

/* Why the last twinpath_on() of this thread failed: a sentence, valid until the next one. */
const char *twinpath_why(void);

/* How calls that wait for a socket do so. */
enum {
	TWINPATH_ADAPTIVE = 0, /* They learn when datagrams come. This is how they begin. */
	TWINPATH_POLL = 1, /* They spin. */
	TWINPATH_INTERRUPT = 2, /* They sleep. */
};

/* Sets that. 0; or -1: ENOENT (no lease), EINVAL. */
int twinpath_set_mode(int fd, int mode);

/* What a socket has received since it has its lease. */
struct twinpath_counts {
	uint64_t by_ring; /* datagrams */
	uint64_t by_kernel; /* datagrams */
	uint64_t refused; /* frames in the ring that the kernel would have dropped */
	uint64_t leases; /* how often the lease was taken */
	uint32_t ended; /* how often it was ended because a frame had to go by the kernel */
	uint32_t full; /* of these, because the ring was full: 256 frames */
	uint32_t lapsed; /* of these, because no call had looked for 1 ms */
	uint32_t reserved;
};

/* 0; or -1: ENOENT (no lease), EAGAIN (another thread receives at this moment), EFAULT. */
int twinpath_counts(int fd, struct twinpath_counts *counts);

/* Receiving. A call without a time-out that sleeps is woken by the datagram: only with SO_RCVTIMEO, or in a waiting call, does
 * TWINPATH_ADAPTIVE wake ahead of it. Calls with MSG_DONTWAIT or O_NONBLOCK take from the ring what came while others had it open, and
 * open it once the program has waited for the socket by a function of this header. MSG_ERRQUEUE and MSG_OOB are the kernel's. Control
 * data is as options ask for it: IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, and their likes of IPv6. The time-out of SO_RCVTIMEO holds. */
ssize_t twinpath_recv(int fd, void *buffer, size_t len, int flags);
ssize_t twinpath_recvfrom(int fd, void *buffer, size_t len, int flags, struct sockaddr *address, socklen_t *address_len);
ssize_t twinpath_recvmsg(int fd, struct msghdr *message, int flags);
struct mmsghdr;
int twinpath_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout);

/* Waiting, for sockets with and without a lease and for any other descriptors. twinpath_select() writes what is left of the time-out
 * back, as Linux does. Calls for more than 65536 descriptors are the kernel's. */
int twinpath_poll(struct pollfd *waited, nfds_t count, int timeout_ms);
int twinpath_ppoll(struct pollfd *waited, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
int twinpath_select(int limit, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout);
int twinpath_pselect(int limit, fd_set *read, fd_set *write, fd_set *except, const struct timespec *timeout, const sigset_t *mask);

/* Sets of epoll(7), made by twinpath_epoll_create1() and closed by twinpath_close(): of one that close(2) has closed, sockets stay known
 * until twinpath_epoll_create1() makes another one of the same number. A socket is added after twinpath_on(). With EPOLLONESHOT or
 * EPOLLEXCLUSIVE, in more than four sets, or waited for by a set that is in another one, it is received from by the kernel. */
int twinpath_epoll_create1(int flags);
int twinpath_epoll_ctl(int set, int operation, int fd, struct epoll_event *event);
int twinpath_epoll_wait(int set, struct epoll_event *events, int count, int timeout_ms);
int twinpath_epoll_pwait(int set, struct epoll_event *events, int count, int timeout_ms, const sigset_t *mask);

/* Another descriptor of the same socket, closed by exec, which shares the lease; from the number 65536 on it is the kernel's alone. */
int twinpath_dup(int fd);

/* Closes any descriptor. One that has a lease is closed by this function only. What is in the ring is lost then. */
int twinpath_close(int fd);

/* The version of the library, as "0.1.0". */
const char *twinpath_version(void);

#ifdef __cplusplus
}
#endif

#endif
