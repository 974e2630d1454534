/* What a UDP socket does at its edges. Each line that this program prints is an answer of the kernel: with the library it prints the same.
 * `edges` runs everything against its own other side, `edges peer`, which is at 10.9.0.2:9001 over the link. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                    \
	do {                                                                                           \
		if (!(what)) {                                                                         \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #what, strerror(errno)); \
			exit(1);                                                                       \
		}                                                                                      \
	} while (0)

enum { PEER = 9001, CLOSED = 9002, TIMES = 100 };

/* What the other side is asked for: datagrams of such lengths, one after the other. A bad one has a wrong checksum. */
struct request {
	uint16_t port;
	uint16_t count;
	uint16_t len[8];
	uint8_t is_bad[8];
};

static struct sockaddr_in address(const char *host, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };

	at.sin_addr.s_addr = inet_addr(host);
	return at;
}

/* The other side. */
static void send_bad(int raw, struct sockaddr_in to, size_t len)
{
	unsigned char frame[sizeof(struct iphdr) + sizeof(struct udphdr) + 2048] = { 0 };
	struct iphdr *ip = (void *)frame;
	struct udphdr *udp = (void *)(ip + 1);
	size_t all = sizeof *ip + sizeof *udp + len;

	*ip = (struct iphdr){ .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .daddr = to.sin_addr.s_addr };
	ip->saddr = inet_addr("10.9.0.2");
	*udp = (struct udphdr){ .source = htons(PEER), .dest = to.sin_port, .len = htons(sizeof *udp + len), .check = 0x1234 };
	to.sin_port = 0;
	CHECK(sendto(raw, frame, all, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)all);
}

static void peer(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), raw = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	struct sockaddr_in own = address("10.9.0.2", PEER);
	char bytes[2048];

	CHECK(fd >= 0 && raw >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct request request;
		struct sockaddr_in from;
		socklen_t size = sizeof from;

		CHECK(recvfrom(fd, &request, sizeof request, 0, (struct sockaddr *)&from, &size) == sizeof request);
		if (request.port)
			from.sin_port = htons(request.port);
		for (int at = 0; at < request.count; at++) {
			memset(bytes, '0' + at, sizeof bytes);
			if (request.is_bad[at])
				send_bad(raw, from, request.len[at]);
			else
				sendto(fd, bytes, request.len[at], 0, (struct sockaddr *)&from, sizeof from);
		}
	}
}

static void ask(int fd, struct request request)
{
	struct sockaddr_in to = address("10.9.0.2", PEER);

	CHECK(sendto(fd, &request, sizeof request, 0, (struct sockaddr *)&to, sizeof to) == sizeof request);
}

static void wait_at_most(int fd, int ms)
{
	const struct timeval patience = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
}

static int bound(int port)
{
	struct sockaddr_in own = address("0.0.0.0", port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	wait_at_most(fd, 20000);
	return fd;
}

/* Datagrams come and go, until a ring is in use if there is one. */
static void exchange(int fd)
{
	char bytes[64];

	for (int time = 0; time < TIMES; time++) {
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		CHECK(recv(fd, bytes, sizeof bytes, 0) == 9);
	}
}

static int64_t ns_of(clockid_t clock)
{
	struct timespec at;

	CHECK(clock_gettime(clock, &at) == 0);
	return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* What the calling thread has used since it was asked last: ms of its CPU, and sleeps. */
static int used(int *sleeps)
{
	static _Thread_local struct rusage last;
	struct rusage now;
	int ms;

	CHECK(getrusage(RUSAGE_THREAD, &now) == 0);
	ms = (now.ru_utime.tv_sec - last.ru_utime.tv_sec + now.ru_stime.tv_sec - last.ru_stime.tv_sec) * 1000 +
	     (now.ru_utime.tv_usec - last.ru_utime.tv_usec + now.ru_stime.tv_usec - last.ru_stime.tv_usec) / 1000;
	*sleeps = now.ru_nvcsw - last.ru_nvcsw;
	last = now;
	return ms;
}

/* Ready is what recv gives, and not what it drops. */
static void bad_checksums(int port)
{
	const struct request bad = { .count = 1, .len = { 9 }, .is_bad = { 1 } };
	int fd = bound(port), set = epoll_create1(0), ready[4] = { 0 };
	struct epoll_event event = { .events = EPOLLIN };
	char bytes[64];

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	exchange(fd);
	for (int time = 0; time < 10; time++) {
		struct pollfd waited = { .fd = fd, .events = POLLIN };
		struct timeval timeout = { .tv_usec = 30000 };
		fd_set read;

		ask(fd, bad);
		ready[0] += poll(&waited, 1, 30);
		FD_ZERO(&read);
		FD_SET(fd, &read);
		ask(fd, bad);
		ready[1] += select(fd + 1, &read, NULL, NULL, &timeout);
		ask(fd, bad);
		ready[2] += epoll_wait(set, &event, 1, 30);
		/* A good one behind it is told of, and received. */
		ask(fd, (struct request){ .count = 2, .len = { 9, 5 }, .is_bad = { 1, 0 } });
		ready[3] += poll(&waited, 1, 20000);
		CHECK(recv(fd, bytes, sizeof bytes, 0) == 5);
	}
	printf("bad checksums: poll %d, select %d, epoll %d, with a good one %d\n", ready[0], ready[1], ready[2], ready[3]);
	close(set);
	close(fd);
}

/* In a child that no handler of pthread_atfork(3) knows of. */
static int in_child(int fd, int set)
{
	struct pollfd waited = { .fd = fd, .events = POLLIN };
	struct epoll_event event;
	char bytes[64];

	if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) != -1 || errno != EAGAIN)
		return 1;
	if (poll(&waited, 1, 0) != 0 || epoll_wait(set, &event, 1, 0) != 0)
		return 2;
	ask(fd, (struct request){ .count = 1, .len = { 7 } });
	if (poll(&waited, 1, 20000) != 1 || recv(fd, bytes, sizeof bytes, 0) != 7)
		return 3;
	ask(fd, (struct request){ .count = 1, .len = { 6 } });
	if (epoll_wait(set, &event, 1, 20000) != 1 || recv(fd, bytes, sizeof bytes, 0) != 6)
		return 4;
	return 0;
}

static void children_without_handlers(int port)
{
	for (int is_clone = 0; is_clone < 2; is_clone++) {
		int fd = bound(port + is_clone), set = epoll_create1(0), status;
		struct epoll_event event = { .events = EPOLLIN };
		pid_t child;

		CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
		exchange(fd);
		child = is_clone ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();
		CHECK(child >= 0);
		if (!child)
			_exit(in_child(fd, set));
		CHECK(waitpid(child, &status, 0) == child);
		printf("child by %s: %d\n", is_clone ? "clone" : "_Fork", status);
		exchange(fd);
		close(set);
		close(fd);
	}
}

/* The socket is asked for what only the kernel has: what had come before is received first, and then it costs no time. */
static void lease_ends_in_use(int port)
{
	int fd = bound(port), on = 1, in_order = 0, sleeps, slow = 0;
	char bytes[64];

	exchange(fd);
	for (int time = 0; time < TIMES; time++) {
		ask(fd, (struct request){ .count = 3, .len = { 9, 9, 9 } });
		CHECK(recv(fd, bytes, sizeof bytes, 0) == 9 && bytes[0] == '0');
		if (time == TIMES - 1)
			CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
		for (int number = 1; number < 3; number++)
			in_order += recv(fd, bytes, sizeof bytes, 0) == 9 && bytes[0] == '0' + number;
	}
	printf("in order: %d\n", in_order);
	for (int time = 0; time < TIMES; time++) {
		int64_t begun = ns_of(CLOCK_MONOTONIC);

		CHECK(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == -1 && errno == EAGAIN);
		slow += ns_of(CLOCK_MONOTONIC) - begun > 5000000;
	}
	printf("slow calls: %d\n", slow > TIMES / 2);
	used(&sleeps);
	for (int time = 0; time < 2; time++) {
		struct pollfd waited = { .fd = fd, .events = POLLIN };

		CHECK(poll(&waited, 1, 250) == 0);
	}
	printf("busy: %d", used(&sleeps) > 100);
	printf(", wakes up: %d\n", sleeps > 30);
	exchange(fd);
	close(fd);
}

/* A child goes on with its parent's set. */
static void child_with_a_set(int port)
{
	int fd = bound(port), set = epoll_create1(0), status;
	struct epoll_event event = { .events = EPOLLIN };
	pid_t child;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	exchange(fd);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		int sleeps, busy;

		used(&sleeps);
		CHECK(epoll_wait(set, &event, 1, 500) == 0);
		busy = used(&sleeps) > 100;
		for (int time = 0; time < TIMES; time++) {
			char bytes[64];

			ask(fd, (struct request){ .count = 1, .len = { 9 } });
			CHECK(epoll_wait(set, &event, 1, 20000) == 1);
			CHECK(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == 9);
		}
		_exit(busy + 2 * (sleeps > 30));
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("child with a set: %d\n", status);
	close(set);
	close(fd);
}

/* A thread in a receiving call. */
struct receiver {
	pthread_t thread;
	int fd;
	atomic_int tid;
	ssize_t got;
	int error, cpu_ms;
	char bytes[64];
};

static void *receives(void *of)
{
	struct receiver *receiver = of;
	int sleeps;

	used(&sleeps);
	atomic_store(&receiver->tid, (int)syscall(SYS_gettid));
	receiver->got = recv(receiver->fd, receiver->bytes, sizeof receiver->bytes, 0);
	receiver->error = receiver->got < 0 ? errno : 0;
	receiver->cpu_ms = used(&sleeps);
	return NULL;
}

/* Returns when the thread is in the call: it sleeps there, or has used some CPU. */
static void starts(struct receiver *receiver)
{
	clockid_t clock;

	CHECK(pthread_create(&receiver->thread, NULL, receives, receiver) == 0);
	while (!atomic_load(&receiver->tid))
		sched_yield();
	CHECK(pthread_getcpuclockid(receiver->thread, &clock) == 0);
	for (int64_t begun = ns_of(clock); ns_of(clock) < begun + 3000000;) {
		char path[64], line[512] = { 0 };
		int file;

		snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&receiver->tid));
		file = open(path, O_RDONLY);
		CHECK(file >= 0 && read(file, line, sizeof line - 1) > 0);
		close(file);
		if (strstr(line, ") S "))
			return;
		sched_yield();
	}
}

/* Another thread closes the socket, and its number is given to another one. */
static void closed_meanwhile(int port)
{
	int fd = bound(port), sender = bound(port + 1), other;
	struct receiver receiver = { .fd = fd };
	char bytes[64] = { 0 };

	exchange(fd);
	starts(&receiver);
	CHECK(close(fd) == 0);
	other = bound(port + 2);
	CHECK(other == fd);
	ask(sender, (struct request){ .port = port + 2, .count = 1, .len = { 5 } });
	CHECK(recv(other, bytes, sizeof bytes, 0) == 5);
	ask(sender, (struct request){ .port = port, .count = 1, .len = { 9 } });
	CHECK(pthread_join(receiver.thread, NULL) == 0);
	printf("closed: %zd, errno %d\n", receiver.got, receiver.error);
	/* Its port is free again. */
	fd = bound(port);
	exchange(fd);
	exchange(other);
	close(fd);
	close(other);
	close(sender);
}

static void shut_down(int port, int timeout_ms, int is_raw)
{
	int fd = bound(port), done;
	struct receiver receiver = { .fd = fd };
	struct pollfd waited = { .fd = fd, .events = POLLIN | POLLRDHUP };
	char bytes[64];

	wait_at_most(fd, timeout_ms);
	exchange(fd);
	starts(&receiver);
	done = is_raw ? (int)syscall(SYS_shutdown, fd, SHUT_RD) : shutdown(fd, SHUT_RD);
	printf("shutdown %d, errno %d", done, errno);
	CHECK(pthread_join(receiver.thread, NULL) == 0);
	printf(", blocked: %zd, errno %d", receiver.got, receiver.error);
	printf(", next: %zd", recv(fd, bytes, sizeof bytes, 0));
	printf(", at once: %zd", recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
	CHECK(poll(&waited, 1, 0) == 1);
	printf(", poll %x\n", waited.revents);
	/* It still gets what comes. */
	ask(fd, (struct request){ .count = 1, .len = { 9 } });
	done = 0;
	while (done <= 0)
		done = recv(fd, bytes, sizeof bytes, 0);
	printf("after that %d\n", done);
	close(fd);
}

/* An error is in its queue, and nobody takes it from there. */
static void standing_error(int port)
{
	struct sockaddr_in closed = address("10.9.0.2", CLOSED);
	int fd = bound(port), on = 1, sleeps;
	struct pollfd waited = { .fd = fd, .events = POLLIN };
	char bytes[64];

	exchange(fd);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0);
	exchange(fd);
	CHECK(sendto(fd, "x", 1, 0, (struct sockaddr *)&closed, sizeof closed) == 1);
	printf("error: %zd", recv(fd, bytes, sizeof bytes, 0));
	printf(", errno %d", errno);
	CHECK(poll(&waited, 1, 0) == 1);
	printf(", poll %x", waited.revents);
	wait_at_most(fd, 400);
	used(&sleeps);
	printf(", then %zd", recv(fd, bytes, sizeof bytes, 0));
	printf(", errno %d, busy %d\n", errno, used(&sleeps) > 150);
	wait_at_most(fd, 20000);
	exchange(fd);
	CHECK(sendto(fd, "x", 1, 0, (struct sockaddr *)&closed, sizeof closed) == 1);
	printf("another one: %zd", recv(fd, bytes, sizeof bytes, 0));
	printf(", errno %d\n", errno);
	close(fd);
}

/* FIONREAD is the length of what the next call receives. */
static void lengths(int port)
{
	int fd = bound(port), right = 0, blocking = 0;
	char bytes[64];

	exchange(fd);
	for (int time = 0; time < TIMES; time++) {
		struct pollfd waited = { .fd = fd, .events = POLLIN };
		int len = -1;

		ask(fd, (struct request){ .count = 3, .len = { 9, 20 + time % 7, 5 } });
		CHECK(poll(&waited, 1, 20000) == 1 && ioctl(fd, FIONREAD, &len) == 0);
		right += len == 9 && recv(fd, bytes, sizeof bytes, 0) == 9;
		for (int number = 1; number < 3; number++) {
			int got;

			CHECK(poll(&waited, 1, 20000) == 1 && ioctl(fd, SIOCINQ, &len) == 0);
			got = recv(fd, bytes, sizeof bytes, 0);
			right += len == got;
		}
		ask(fd, (struct request){ .count = 2, .len = { 9, 30 } });
		CHECK(recv(fd, bytes, sizeof bytes, 0) == 9);
		for (len = 0; !len;)
			CHECK(ioctl(fd, FIONREAD, &len) == 0);
		blocking += len == 30 && recv(fd, bytes, sizeof bytes, 0) == 30;
	}
	printf("lengths: %d, after a blocking call %d\n", right, blocking);
	close(fd);
}

static void stamps(int port)
{
	int fd = bound(port), done;
	struct timespec at = { 0 };
	char bytes[64];

	exchange(fd);
	done = ioctl(fd, SIOCGSTAMPNS, &at);
	printf("stamp: %d, errno %d", done, done ? errno : 0);
	ask(fd, (struct request){ .count = 1, .len = { 9 } });
	CHECK(recv(fd, bytes, sizeof bytes, 0) == 9);
	done = ioctl(fd, SIOCGSTAMPNS, &at);
	printf(", then %d, is now %d\n", done, llabs(at.tv_sec - time(NULL)) < 10);
	close(fd);
}

/* What recvmsg gives with so much room for control data. */
static void control_of(int fd, size_t room)
{
	char bytes[64];
	_Alignas(struct cmsghdr) unsigned char control[256];
	struct iovec piece = { bytes, sizeof bytes };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room };

	memset(control, 0xee, sizeof control);
	ask(fd, (struct request){ .count = 1, .len = { 9 } });
	CHECK(recvmsg(fd, &message, 0) == 9);
	printf("room %zu: flags %x, len %zu:", room, message.msg_flags, message.msg_controllen);
	for (size_t at = 0; at < sizeof control; at++)
		if (control[at] != 0xee)
			printf(" %zu=%x", at, control[at]);
	puts("");
}

static void control_data(int port)
{
	int fd = bound(port), on = 1;

	CHECK(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) == 0);
	exchange(fd);
	for (size_t room = 0; room < 90; room++)
		control_of(fd, room);
	close(fd);
}

/* Options that are asked for in use, of which some are unknown to the library. */
static void options_in_use(int port)
{
	const struct {
		int level, name;
	} options[] = {
		{ IPPROTO_IP, IP_RECVORIGDSTADDR }, { IPPROTO_IP, IP_CHECKSUM },  { IPPROTO_IP, 25 /* IP_RECVFRAGSIZE */ },
		{ IPPROTO_IP, IP_PASSSEC },	    { SOL_SOCKET, 75 /* SO_RCVMARK */ }, { SOL_SOCKET, 82 /* SO_RCVPRIORITY */ },
		{ SOL_SOCKET, SO_RXQ_OVFL },	    { SOL_SOCKET, 64 /* SO_TIMESTAMPNS_NEW */ },
	};
	int on = 1;

	for (size_t number = 0; number < sizeof options / sizeof *options; number++) {
		for (int before = 0; before < 2; before++) {
			int fd, done;
			char bytes[64];
			_Alignas(struct cmsghdr) char control[512];
			struct iovec piece = { bytes, sizeof bytes };
			struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
						  .msg_controllen = sizeof control };

			fd = socket(AF_INET, SOCK_DGRAM, 0);
			done = before ? setsockopt(fd, options[number].level, options[number].name, &on, sizeof on) : 0;
			CHECK(dup2(fd, 200) == 200 && close(fd) == 0);
			fd = bound(port);
			if (before)
				done = setsockopt(fd, options[number].level, options[number].name, &on, sizeof on);
			close(200);
			exchange(fd);
			if (!before)
				done = setsockopt(fd, options[number].level, options[number].name, &on, sizeof on);
			ask(fd, (struct request){ .count = 1, .len = { 9 } });
			CHECK(recvmsg(fd, &message, 0) == 9);
			printf("option %d/%d: %d:", options[number].level, options[number].name, done);
			for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
				printf(" %d/%d of %zu", one->cmsg_level, one->cmsg_type, one->cmsg_len);
			puts("");
			close(fd);
		}
	}
}

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

static const struct {
	const char *name;
	void (*run)(int port);
} parts[] = {
	{ "bad", bad_checksums },	{ "children", children_without_handlers },
	{ "ends", lease_ends_in_use },	{ "set", child_with_a_set },
	{ "closed", closed_meanwhile }, { "error", standing_error },
	{ "lengths", lengths },		{ "stamps", stamps },
	{ "control", control_data },	{ "options", options_in_use },
	{ "stack", depths },		{ "odd", odd_arguments },
	{ "times", times },		{ "edges", edges_of_both_sides },
};

int main(int count, char **arguments)
{
	int port = 7100;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count > 1 && strcmp(arguments[1], "peer") == 0)
		peer();
	for (size_t number = 0; number < sizeof parts / sizeof *parts; number++, port += 10)
		if (count < 2 || strcmp(arguments[1], parts[number].name) == 0)
			parts[number].run(port);
	if (count < 2 || strcmp(arguments[1], "shutdown") == 0)
		for (int kind = 0; kind < 4; kind++)
			shut_down(port + kind, kind & 1 ? 0 : 3000, kind & 2);
	return 0;
}
