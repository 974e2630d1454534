/* twinpath: UDP sockets with a fast path beside the kernel's.
 *
 * A descriptor stays the kernel's socket. It is made, bound, connected and sent by with the C library's functions, and
 * can be used with any of them at any time. twinpath_on() gives it a lease. While a thread spins in one of the
 * receiving or waiting functions below, the socket's datagrams come by a ring in memory, without a system call. Before
 * the thread sleeps it gives the lease back, and it sleeps in the kernel. Each datagram is received once, and those of
 * a sender in order, whichever way they come.
 *
 * The functions below have the names, arguments and results (-1 and errno) of those of the C library, and signals
 * interrupt them in the same way. For a descriptor without a lease they are the C library's. A socket with a lease
 * must be received from and waited for by these functions: no others see what is in its ring. At most 1 ms after the
 * last call the kernel has the socket again, and the ring holds only what came before.
 *
 * Threads: every function may be called from any thread. If several threads receive from one socket, one of them has
 * the ring, and the others sleep in the kernel. Cancelling a thread (pthread_cancel) inside one of these functions is
 * not supported: afterwards the socket's datagrams come by the kernel, or one at a time by the ring. A signal handler
 * may call every function except twinpath_on().
 *
 * After fork() the child has its descriptors without leases; it may give them leases of its own. For a socket that had
 * a lease at fork(), no call leaves anything in a ring, in either process. A socket that other processes share in
 * another way should not get a lease: they do not see what is in its ring.
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

/* Gives a UDP socket a lease on what arrives for it by `interface`, an Ethernet interface of the calling thread's
 * network namespace. The socket must be bound to a port, and its options must be set. Options that are set later, and
 * filters that are attached later, are not noticed, and do not apply to datagrams in the ring. It takes CAP_BPF,
 * CAP_NET_ADMIN and CAP_NET_RAW, or an owner of the interface (twinpath-sockets(1)), and some tens of milliseconds.
 * Returns 0, also if the socket has a lease already. On -1 the kernel's path serves as before:
 *   EOPNOTSUPP  it cannot have one; twinpath_why() says why
 *   EAGAIN      another thread is giving a lease at this moment
 *   EINVAL      it is bound to no port
 *   EBADF, ENOTSOCK, EFAULT
 */
int twinpath_on(int fd, const char *interface);

/* Why the last twinpath_on() of this thread failed: a sentence, valid until the next one. */
const char *twinpath_why(void);

/* How calls wait for a socket. */
enum {
	TWINPATH_ADAPTIVE = 0, /* They learn when datagrams come. This is how they begin. */
	TWINPATH_POLL = 1, /* They spin. */
	TWINPATH_INTERRUPT = 2, /* They sleep. */
};

/* Sets how calls wait. Returns 0, or -1: ENOENT (no lease), EINVAL. */
int twinpath_set_mode(int fd, int mode);

/* What a socket has received since it got its lease. */
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

/* Returns 0, or -1: ENOENT (no lease), EAGAIN (another thread receives at this moment), EFAULT. */
int twinpath_counts(int fd, struct twinpath_counts *counts);

/* Receiving. A call that sleeps without a time-out is woken by the datagram. TWINPATH_ADAPTIVE wakes ahead of it only
 * with SO_RCVTIMEO, or in a waiting call. Calls with MSG_DONTWAIT or O_NONBLOCK take from the ring what came while
 * others had it open. They open it themselves once the program has waited for the socket by a function of this header.
 * MSG_ERRQUEUE and MSG_OOB go to the kernel. Control data is as options ask for it: IP_PKTINFO, IP_RECVTTL,
 * IP_RECVTOS, and their IPv6 counterparts. The time-out of SO_RCVTIMEO applies. */
ssize_t twinpath_recv(int fd, void *buffer, size_t len, int flags);
ssize_t twinpath_recvfrom(int fd, void *buffer, size_t len, int flags, struct sockaddr *address, socklen_t *address_len);
ssize_t twinpath_recvmsg(int fd, struct msghdr *message, int flags);
struct mmsghdr;
int twinpath_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout);

/* Waiting, for sockets with and without a lease and for any other descriptors. twinpath_select() writes back what is left of the
 * time-out, as Linux does. Calls for more than 65536 descriptors go to the kernel. */
int twinpath_poll(struct pollfd *waited, nfds_t count, int timeout_ms);
int twinpath_ppoll(struct pollfd *waited, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
int twinpath_select(int limit, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout);
int twinpath_pselect(int limit, fd_set *read, fd_set *write, fd_set *except, const struct timespec *timeout, const sigset_t *mask);

/* Sets of epoll(7). They are made by twinpath_epoll_create1() and must be closed by twinpath_close(). If close(2)
 * closes one, its sockets stay known until twinpath_epoll_create1() makes another set with the same number. Add a
 * socket after twinpath_on(). A socket's datagrams come by the kernel if it is in a set with EPOLLONESHOT or
 * EPOLLEXCLUSIVE, in more than four sets, or in a set that is in another set. */
int twinpath_epoll_create1(int flags);
int twinpath_epoll_ctl(int set, int operation, int fd, struct epoll_event *event);
int twinpath_epoll_wait(int set, struct epoll_event *events, int count, int timeout_ms);
int twinpath_epoll_pwait(int set, struct epoll_event *events, int count, int timeout_ms, const sigset_t *mask);

/* Another descriptor of the same socket, closed by exec. It shares the lease; with a number of 65536 or more it is the
 * kernel's alone. */
int twinpath_dup(int fd);

/* Closes any descriptor. One that has a lease must be closed by this function. What is in the ring is lost. */
int twinpath_close(int fd);

/* The version of the library, as "0.1.0". */
const char *twinpath_version(void);

#ifdef __cplusplus
}
#endif

#endif
