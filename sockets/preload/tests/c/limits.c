/* What calls on a UDP socket return at the limits of what can be passed to them, and how much of a stack they take. Each line that this
 * program prints is an answer of the kernel: with the library it prints the same. */
#include "edges.h"
#include <sys/mman.h>

/* What a call returns: bytes, or the error. */
static long result(long returned)
{
	return returned < 0 ? -errno : returned;
}

/* How many datagrams are still there, or under way. */
static int rest(int fd)
{
	char bytes[64];
	int count = 0;

	ask(fd, (struct request){ .count = 1, .len = { 5 } });
	for (;;) {
		long got = result(recv(fd, bytes, sizeof bytes, 0));

		CHECK(got > 0);
		if (got == 5)
			return count;
		count++;
	}
}

/* Pointers, lengths and times that no program should pass. */
static void odd_arguments(int port)
{
	static struct iovec many[1025];
	void *const odd[] = { NULL, (void *)8, (void *)(1UL << 47), (void *)(1UL << 60), (void *)-4096UL };
	int fd = bound(port);
	char bytes[64];
	struct sockaddr_in from;
	struct iovec piece = { bytes, sizeof bytes };

	exchange(fd);
	for (size_t number = 0; number < sizeof odd / sizeof *odd; number++) {
		struct iovec to = { odd[number], 64 };
		struct msghdr bad_name = { .msg_name = odd[number], .msg_namelen = 16, .msg_iov = &piece, .msg_iovlen = 1 };
		struct msghdr bad_pieces = { .msg_iov = odd[number], .msg_iovlen = 1 };
		struct timespec at_once = { 0 };
		socklen_t size = sizeof from;
		long got;

		/* Some take the datagram, and some do not. */
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		got = result(recvfrom(fd, odd[number], 64, 0, NULL, NULL));
		printf("%zu: buffer %ld/%d", number, got, rest(fd));
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		got = result(readv(fd, &to, 1));
		printf(", readv %ld/%d", got, rest(fd));
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		got = result(recvfrom(fd, bytes, 64, 0, (void *)&from, odd[number]));
		printf(", size %ld/%d", got, rest(fd));
		if (odd[number]) {
			ask(fd, (struct request){ .count = 1, .len = { 9 } });
			got = result(recvfrom(fd, bytes, 64, 0, odd[number], &size));
			printf(", address %ld/%d", got, rest(fd));
			ask(fd, (struct request){ .count = 1, .len = { 9 } });
			got = result(recvmsg(fd, &bad_name, 0));
			printf(", name %ld/%d", got, rest(fd));
		}
		printf(", pieces %ld", result(recvmsg(fd, &bad_pieces, 0)));
		printf(", message %ld", result(recvmsg(fd, odd[number], 0)));
		printf(", messages %ld", result(recvmmsg(fd, odd[number], 2, 0, NULL)));
		printf(", poll %ld", result(syscall(SYS_ppoll, odd[number], 1, &at_once, NULL, 8)));
		printf(", poll %ld\n", result(poll(odd[number], 1, 0)));
	}
	for (int number = 0; number < 1025; number++)
		many[number] = piece;
	for (int count = 1024; count < 1026; count++) {
		struct msghdr message = { .msg_iov = many, .msg_iovlen = count };

		ask(fd, (struct request){ .count = 2, .len = { 9, 9 } });
		printf("%d pieces: %ld", count, result(recvmsg(fd, &message, 0)));
		printf(", readv %ld", result(readv(fd, many, count)));
		printf(", rest %d\n", rest(fd));
	}
	exchange(fd);
	printf("poll of too many: %ld\n", result(poll((void *)bytes, -1, 0)));
	for (int is_negative = 0; is_negative < 2; is_negative++) {
		struct msghdr message = { .msg_name = &from, .msg_namelen = is_negative ? -1 : 0x7fffffff, .msg_iov = &piece,
					  .msg_iovlen = 1 };
		socklen_t size = is_negative ? -1 : 0x7fffffff;
		long got;

		ask(fd, (struct request){ .count = 2, .len = { 9, 9 } });
		got = result(recvfrom(fd, bytes, 64, 0, (void *)&from, &size));
		printf("lengths of names: %ld, %d", got, (int)size);
		got = result(recvmsg(fd, &message, 0));
		printf(", %ld, %d, rest %d\n", got, (int)message.msg_namelen, rest(fd));
	}
	close(fd);
	fd = bound(port + 1);
	exchange(fd);
	/* The buffer is far from the end of memory; the length is cut. */
	for (int is_read = 0; is_read < 2; is_read++) {
		char *buffer = (char *)many;

		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		printf("largest length: %ld\n", is_read ? result(read(fd, buffer, 0x7fffffffffUL)) :
							  result(recv(fd, buffer, (size_t)-1, 0)));
	}
	close(fd);
}

/* Pointers to memory that is not there any more, and to such as is only read. */
static void no_memory(int port)
{
	const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	int fd = bound(port);
	char bytes[64];
	struct iovec piece = { bytes, sizeof bytes };

	exchange(fd);
	for (int kind = 0; kind < 3; kind++) {
		char *page = mmap(NULL, 8192, protection, flags, -1, 0), *at = kind == 2 ? page + 4096 - 9 : page;
		struct iovec to = { at, 64 };
		struct msghdr bad_name = { .msg_name = at, .msg_namelen = 16, .msg_iov = &piece, .msg_iovlen = 1 };
		socklen_t size = 16;
		long got;

		CHECK(page != MAP_FAILED);
		/* The last one has its beginning. */
		CHECK(kind == 1 ? mprotect(page, 4096, PROT_READ) == 0 : munmap(page + (kind == 2) * 4096, 4096) == 0);
		for (int len = 5; len < 40; len += 15) {
			ask(fd, (struct request){ .count = 1, .len = { len } });
			got = result(recvfrom(fd, at, 64, 0, NULL, NULL));
			printf("%d, %d: buffer %ld/%d", kind, len, got, rest(fd));
			ask(fd, (struct request){ .count = 1, .len = { len } });
			got = result(readv(fd, &to, 1));
			printf(", readv %ld/%d", got, rest(fd));
			ask(fd, (struct request){ .count = 1, .len = { len } });
			got = result(recvfrom(fd, bytes, 64, 0, (void *)at, &size));
			printf(", address %ld/%d", got, rest(fd));
			ask(fd, (struct request){ .count = 1, .len = { len } });
			got = result(recvmsg(fd, &bad_name, 0));
			printf(", name %ld/%d\n", got, rest(fd));
		}
		CHECK(munmap(page, 8192) == 0);
		exchange(fd);
	}
	close(fd);
}

static void times(int port)
{
	int fd = bound(port);
	struct mmsghdr messages[4] = { 0 };
	char bytes[4][64];
	struct iovec pieces[4];
	const struct timespec limits[] = { { 20, 0 }, { 0, 0 }, { -1, 0 }, { 0, -1 }, { 0, 1000000000 }, { INT64_MAX, 999999999 } };
	fd_set read;

	exchange(fd);
	for (int number = 0; number < 4; number++) {
		pieces[number] = (struct iovec){ bytes[number], 64 };
		messages[number].msg_hdr = (struct msghdr){ .msg_iov = &pieces[number], .msg_iovlen = 1 };
	}
	for (size_t number = 0; number < sizeof limits / sizeof *limits; number++) {
		struct timespec left = limits[number];
		struct timeval select_left = { .tv_sec = left.tv_sec, .tv_usec = left.tv_nsec };
		struct pollfd waited = { .fd = fd, .events = POLLIN };
		int got;

		ask(fd, (struct request){ .count = 2, .len = { 9, 8 } });
		got = result(recvmmsg(fd, messages, 2, 0, &left));
		printf("recvmmsg %d: has rest %d", got, left.tv_sec > 10);
		printf(", is whole %d", left.tv_sec == limits[number].tv_sec && left.tv_nsec == limits[number].tv_nsec);
		printf(", left %d", rest(fd));
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		CHECK(poll(&waited, 1, 20000) == 1);
		printf(", ppoll %ld", result(ppoll(&waited, 1, &limits[number], NULL)));
		FD_ZERO(&read);
		FD_SET(fd, &read);
		printf(", pselect %ld", result(pselect(fd + 1, &read, NULL, NULL, &limits[number], NULL)));
		FD_ZERO(&read);
		FD_SET(fd, &read);
		printf(", select %ld\n", result(select(fd + 1, &read, NULL, NULL, &select_left)));
		CHECK(recv(fd, bytes[0], 64, 0) == 9);
	}
	close(fd);
}

/* A set that tells of edges, of both sides. */
static void edges_of_both_sides(int port)
{
	int fd = bound(port), set = epoll_create1(0), seen[4] = { 0 };
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
	char bytes[64];

	exchange(fd);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	for (int time = 0; time < TIMES; time++) {
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		/* At last it tells of the datagram, and each time that the socket can send. */
		do {
			CHECK(epoll_wait(set, &event, 1, 20000) == 1);
			seen[0] += !(event.events & EPOLLOUT);
		} while (!(event.events & EPOLLIN));
		/* What was sent left: that tells again of the datagram, which was not received. */
		ask(fd, (struct request){ .count = 0 });
		while (epoll_wait(set, &event, 1, 2) == 1)
			seen[1] += event.events != (EPOLLIN | EPOLLOUT);
		CHECK(recv(fd, bytes, sizeof bytes, 0) == 9);
	}
	printf("edges: without the other side %d, without the datagram %d\n", seen[0], seen[1]);
	close(set);
	close(fd);
}

/* How much of its stack a thread uses in calls on a socket. */
enum { STACK = 1 << 18 };
static unsigned char stack[STACK] __attribute__((aligned(4096)));

struct depth {
	int fd, set, kind;
	long used;
};

static void call_once(struct depth *depth)
{
	struct pollfd waited = { .fd = depth->fd, .events = POLLIN };
	struct timeval timeout = { .tv_sec = 20 };
	struct epoll_event event;
	char bytes[64];
	fd_set read;

	ask(depth->fd, (struct request){ .count = 1, .len = { 9 } });
	switch (depth->kind) {
	case 0:
		break;
	case 1:
		CHECK(poll(&waited, 1, 20000) == 1);
		break;
	case 2:
		FD_ZERO(&read);
		FD_SET(depth->fd, &read);
		CHECK(select(depth->fd + 1, &read, NULL, NULL, &timeout) == 1);
		break;
	case 3:
		CHECK(epoll_wait(depth->set, &event, 1, 20000) == 1);
		break;
	}
	CHECK(recv(depth->fd, bytes, sizeof bytes, 0) == 9);
}

static void *uses_stack(void *of)
{
	struct depth *depth = of;
	const unsigned char *here = __builtin_frame_address(0), *low = stack;

	/* Once before it is painted: the first call of a function looks for it. */
	call_once(depth);
	memset(stack, 0xa5, here - stack - 1024);
	for (int time = 0; time < 5 * TIMES; time++)
		call_once(depth);
	while (*low == 0xa5)
		low++;
	depth->used = here - low;
	return NULL;
}

static void depths(int port)
{
	static const char *const names[] = { "recv", "poll", "select", "epoll_wait" };

	for (int kind = 0; kind < 4; kind++) {
		struct depth depth = { .fd = bound(port + kind), .set = epoll_create1(0), .kind = kind };
		struct epoll_event event = { .events = EPOLLIN };
		pthread_attr_t attributes;
		pthread_t thread;

		CHECK(epoll_ctl(depth.set, EPOLL_CTL_ADD, depth.fd, &event) == 0);
		exchange(depth.fd);
		CHECK(pthread_attr_init(&attributes) == 0);
		CHECK(pthread_attr_setstack(&attributes, stack, STACK) == 0);
		CHECK(pthread_create(&thread, &attributes, uses_stack, &depth) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		fprintf(stderr, "%s: %ld bytes of stack\n", names[kind], depth.used);
		/* Half of the smallest stack that a thread can have. */
		printf("%s: too deep %d\n", names[kind], depth.used > 8192);
		close(depth.fd);
		close(depth.set);
	}
}

int main(int count, char **arguments)
{
	static const struct part parts[] = {
		{ "stack", depths },
		{ "odd", odd_arguments },
		{ "times", times },
		{ "edges", edges_of_both_sides },
		{ "memory", no_memory },
		{ NULL, NULL },
	};

	return run(count, arguments, parts, 7300);
}
