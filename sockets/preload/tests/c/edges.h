/* What programs share that print what a UDP socket does. `PROGRAM peer` is the other side, which is at 10.9.0.2:9001 over the link. */
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

static inline struct sockaddr_in address(const char *host, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };

	at.sin_addr.s_addr = inet_addr(host);
	return at;
}

/* The other side. */
static inline void send_bad(int raw, struct sockaddr_in to, size_t len)
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

static inline void peer(void)
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

static inline void ask(int fd, struct request request)
{
	struct sockaddr_in to = address("10.9.0.2", PEER);

	CHECK(sendto(fd, &request, sizeof request, 0, (struct sockaddr *)&to, sizeof to) == sizeof request);
}

static inline void wait_at_most(int fd, int ms)
{
	const struct timeval patience = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
}

static inline int bound(int port)
{
	struct sockaddr_in own = address("0.0.0.0", port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	wait_at_most(fd, 20000);
	return fd;
}

/* Datagrams come and go, until a ring is in use if there is one. */
static inline void exchange(int fd)
{
	char bytes[64];

	for (int time = 0; time < TIMES; time++) {
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		CHECK(recv(fd, bytes, sizeof bytes, 0) == 9);
	}
}

static inline int64_t ns_of(clockid_t clock)
{
	struct timespec at;

	CHECK(clock_gettime(clock, &at) == 0);
	return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* What the calling thread has used since the last call: ms of its CPU, and sleeps. */
static inline int used(int *sleeps)
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

/* A part of a program, which has ports of its own. */
struct part {
	const char *name;
	void (*run)(int port);
};

/* Runs the part that is named, or all. */
static inline int run(int count, char **arguments, const struct part *parts, int port)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count > 1 && strcmp(arguments[1], "peer") == 0)
		peer();
	for (; parts->name; parts++, port += 10)
		if (count < 2 || strcmp(arguments[1], parts->name) == 0)
			parts->run(port);
	return 0;
}
