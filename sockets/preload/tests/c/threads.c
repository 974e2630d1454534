/* Threads that all wait for one UDP socket, each by an epoll(7) set of its own, and send datagrams back. Some of
 * them are told of a datagram and then do something else: they block, or end, and others take their place. The
 * argument says how the socket is in the sets: "level" or "edge". An empty datagram ends the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(is) do { if (!(is)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #is, strerror(errno)); exit(1); } } while (0)

enum { THREADS = 4, BLOCKED_MAX = 2, BLOCKS_FOR = 20, BLOCK_EACH = 400, LEAVE_EACH = 150 };

static int of_main, stop;
static uint32_t events;
/* Numbers of threads that have left. */
static int left[2];
static atomic_int blocks, leaves, blocked;
static atomic_uint answered;
static atomic_bool is_over;

/* Whether the calling thread is the one to do it. */
static int is_taken(atomic_int *wanted)
{
	int one = 1;

	return atomic_compare_exchange_strong(wanted, &one, 0);
}

static void end(void)
{
	uint64_t one = 1;

	atomic_store(&is_over, 1);
	/* It stays readable, for all threads. */
	CHECK(write(stop, &one, sizeof one) == sizeof one);
}

/* Sends back what is there: one datagram, or all. */
static void receive(int fd)
{
	do {
		struct sockaddr_in from;
		socklen_t len = sizeof from;
		uint32_t number;
		ssize_t got = recvfrom(fd, &number, sizeof number, 0, (struct sockaddr *)&from, &len);

		if (got < 0) {
			CHECK(errno == EAGAIN);
			return;
		}
		if (got == 0) {
			end();
			return;
		}
		CHECK(got == sizeof number);
		CHECK(sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&from, len) == sizeof number);
		atomic_fetch_add(&answered, 1);
		if (number % BLOCK_EACH == 1)
			atomic_store(&blocks, 1);
		if (number % LEAVE_EACH == 2)
			atomic_store(&leaves, 1);
	} while (events & EPOLLET);
}

/* Until others have answered for a while. */
static void block(void)
{
	unsigned from = atomic_load(&answered);

	if (atomic_fetch_add(&blocked, 1) < BLOCKED_MAX)
		while (!atomic_load(&is_over) && atomic_load(&answered) - from < BLOCKS_FOR)
			usleep(500);
	atomic_fetch_sub(&blocked, 1);
}

static void *serve(void *number)
{
	int fd = dup(of_main), set = epoll_create1(EPOLL_CLOEXEC), is_leaving = 0;
	struct epoll_event event = { .events = events, .data.fd = fd };

	CHECK(fd >= 0 && set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	event = (struct epoll_event){ .events = EPOLLIN, .data.fd = stop };
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, stop, &event) == 0);
	while (!is_leaving && !atomic_load(&is_over)) {
		struct epoll_event ready[2];
		int count = epoll_wait(set, ready, 2, -1);

		CHECK(count > 0 || (count < 0 && errno == EINTR));
		for (int at = 0; at < count && !is_leaving; at++) {
			if (ready[at].data.fd != fd)
				continue;
			is_leaving = is_taken(&leaves);
			if (is_leaving)
				break;
			if (is_taken(&blocks))
				block();
			receive(fd);
		}
	}
	CHECK(close(fd) == 0 && close(set) == 0);
	CHECK(write(left[1], &number, sizeof number) == sizeof number);
	return NULL;
}

int main(int count, char **arguments)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7041) };
	pthread_t threads[THREADS];

	CHECK(count == 2);
	events = EPOLLIN | (strcmp(arguments[1], "edge") ? 0 : EPOLLET);
	of_main = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	stop = eventfd(0, EFD_CLOEXEC);
	CHECK(bind(of_main, (struct sockaddr *)&own, sizeof own) == 0 && stop >= 0 && pipe(left) == 0);
	for (int at = 0; at < THREADS; at++)
		CHECK(pthread_create(&threads[at], NULL, serve, (void *)(intptr_t)at) == 0);
	puts("ready");
	fflush(stdout);
	for (int ended = 0; ended < THREADS;) {
		void *number;
		intptr_t at;

		CHECK(read(left[0], &number, sizeof number) == sizeof number);
		at = (intptr_t)number;
		CHECK(pthread_join(threads[at], NULL) == 0);
		if (atomic_load(&is_over))
			ended++;
		else
			CHECK(pthread_create(&threads[at], NULL, serve, number) == 0);
	}
	return 0;
}
