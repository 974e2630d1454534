/* What a program in C relies on, over a link whose other end (10.9.0.2:9000) sends everything back: semantics INTERFACE. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef PLAIN
/* The same with the functions of the C library: what an unmodified program does. It knows nothing of leases. */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#define twinpath_recv recv
#define twinpath_recvfrom recvfrom
#define twinpath_recvmsg recvmsg
#define twinpath_recvmmsg recvmmsg
#define twinpath_poll poll
#define twinpath_select select
#define twinpath_pselect pselect
#define twinpath_epoll_create1 epoll_create1
#define twinpath_epoll_ctl epoll_ctl
#define twinpath_epoll_wait epoll_wait
#define twinpath_dup dup
#define twinpath_close close
struct twinpath_counts {
	unsigned long by_ring;
};
enum { TWINPATH_ADAPTIVE, TWINPATH_INTERRUPT, TWINPATH_POLL };
static int twinpath_set_mode(int fd, int mode)
{
	return fd < 0 || mode < 0;
}
static int twinpath_counts(int fd, struct twinpath_counts *counts)
{
	/* As if each call had received by the ring, so that loops end. */
	static unsigned long calls;

	counts->by_ring = calls++;
	return fd < 0;
}
#else
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <twinpath.h>
#endif

#define CHECK(what)                                                                                    \
	do {                                                                                           \
		if (!(what)) {                                                                         \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #what, strerror(errno)); \
			exit(1);                                                                       \
		}                                                                                      \
	} while (0)

static const struct sockaddr_in peer = { .sin_family = AF_INET };
static struct sockaddr_in echo;
static int fd;
static volatile sig_atomic_t handled;

static void handle(int signal)
{
	(void)signal;
	handled++;
}

static void send_text(const char *text)
{
	CHECK(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&echo, sizeof echo) == (ssize_t)strlen(text));
}

static struct twinpath_counts counts(void)
{
	struct twinpath_counts now;

	CHECK(twinpath_counts(fd, &now) == 0);
	return now;
}

/* Requests, one after the other, until some of the answers have come by the ring. */
static void by_ring_at_last(void)
{
	char buffer[64];
	uint64_t before = counts().by_ring;

	CHECK(twinpath_set_mode(fd, TWINPATH_POLL) == 0);
	for (int n = 0; counts().by_ring < before + 50; n++) {
		struct sockaddr_in from;
		socklen_t len = sizeof from;

		send_text("ping");
		CHECK(twinpath_recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len) == 4);
		CHECK(len == sizeof from && from.sin_port == echo.sin_port && from.sin_addr.s_addr == echo.sin_addr.s_addr);
		CHECK(n < 1000000);
	}
}

static void messages(void)
{
	char first[3], second[64], control[128];
	struct iovec pieces[] = { { first, sizeof first }, { second, sizeof second } };
	struct sockaddr_in from;
	int on = 1, seen = 0;

	for (int n = 0; n < 200; n++) {
		struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = pieces, .msg_iovlen = 2,
					  .msg_control = control, .msg_controllen = sizeof control };

		send_text("0123456789");
		CHECK(twinpath_recvmsg(fd, &message, 0) == 10);
		CHECK(memcmp(first, "012", 3) == 0 && memcmp(second, "3456789", 7) == 0 && message.msg_flags == 0);
		CHECK(message.msg_namelen == sizeof from && from.sin_addr.s_addr == echo.sin_addr.s_addr);
		seen = 0;
		for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
			CHECK(one->cmsg_level == IPPROTO_IP);
			if (one->cmsg_type == IP_PKTINFO) {
				const struct in_pktinfo *info = (void *)CMSG_DATA(one);

				CHECK(info->ipi_addr.s_addr == inet_addr("10.9.0.1") && info->ipi_ifindex > 0);
				seen |= 1;
			} else if (one->cmsg_type == IP_TTL) {
				CHECK(*(int *)CMSG_DATA(one) == 64);
				seen |= 2;
			}
		}
		CHECK(seen == 3);
		message.msg_iovlen = 1;
		message.msg_controllen = 4;
		send_text("0123456789");
		CHECK(twinpath_recvmsg(fd, &message, n % 2 ? MSG_TRUNC : 0) == (n % 2 ? 10 : 3));
		CHECK(message.msg_flags == (MSG_TRUNC | MSG_CTRUNC) && message.msg_controllen == 0);
		send_text("once");
		CHECK(twinpath_recv(fd, second, sizeof second, MSG_PEEK) == 4);
		CHECK(twinpath_recv(fd, second, sizeof second, 0) == 4);
		CHECK(twinpath_recv(fd, second, sizeof second, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	}
	(void)on;
}

static void several_at_once(void)
{
	char buffers[8][16];
	struct iovec pieces[8];
	struct mmsghdr messages[8];
	int got = 0;

	memset(messages, 0, sizeof messages);
	for (int n = 0; n < 8; n++) {
		pieces[n] = (struct iovec){ buffers[n], sizeof buffers[n] };
		messages[n].msg_hdr.msg_iov = &pieces[n];
		messages[n].msg_hdr.msg_iovlen = 1;
		send_text("12345");
	}
	while (got < 8) {
		int now = twinpath_recvmmsg(fd, messages + got, 8 - got, MSG_WAITFORONE, NULL);

		CHECK(now > 0);
		got += now;
	}
	for (int n = 0; n < 8; n++)
		CHECK(messages[n].msg_len == 5 && memcmp(buffers[n], "12345", 5) == 0);
}

static void time_outs(void)
{
	struct timeval some = { .tv_usec = 20000 }, none = { 0 };
	struct timespec wrong = { .tv_sec = -1 };
	struct mmsghdr one_message = { 0 };
	struct pollfd one = { .fd = fd, .events = POLLIN };
	char buffer[8];
	fd_set set;

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &some, sizeof some) == 0);
	CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == -1 && errno == EAGAIN);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
	CHECK(twinpath_poll(&one, 1, 20) == 0 && one.revents == 0);
	CHECK(twinpath_poll(&one, 1, 0) == 0);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK(twinpath_select(fd + 1, &set, NULL, NULL, &some) == 0 && !FD_ISSET(fd, &set));
	CHECK(some.tv_sec == 0 && some.tv_usec == 0);
	CHECK(twinpath_recvmmsg(fd, &one_message, 1, MSG_DONTWAIT, &wrong) == -1 && errno == EINVAL);
}

/* Nothing is there that the set has not told of. */
#define TOLD_OF_NOTHING(set) CHECK(twinpath_epoll_wait(set, &got, 1, 20) == 0)
#define TOLD(set) CHECK(twinpath_epoll_wait(set, &got, 1, -1) == 1 && got.data.u32 == 7 && got.events == EPOLLIN)

/* Edge-triggered sets: each tells of a datagram once, when it comes, whichever way. */
static void edges(int mode)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u32 = 7 }, got;
	int sets[2] = { epoll_create1(0), epoll_create1(0) };
	char buffer[16];

	CHECK(twinpath_set_mode(fd, mode) == 0);
	for (int at = 0; at < 2; at++)
		CHECK(twinpath_epoll_ctl(sets[at], EPOLL_CTL_ADD, fd, &event) == 0);
	for (int round = 0; round < 20; round++) {
		TOLD_OF_NOTHING(sets[0]);
		send_text("first");
		TOLD(sets[0]);
		TOLD_OF_NOTHING(sets[0]);
		TOLD(sets[1]);
		TOLD_OF_NOTHING(sets[1]);
		send_text("second");
		TOLD(sets[0]);
		TOLD(sets[1]);
		/* One is read: that is no edge. */
		CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == 5);
		TOLD_OF_NOTHING(sets[0]);
		CHECK(twinpath_recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == 6);
		CHECK(twinpath_recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
		/* It is read before the sets have told of it. */
		send_text("third");
		CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == 5);
		TOLD_OF_NOTHING(sets[0]);
		TOLD_OF_NOTHING(sets[1]);
		/* Asked again, a set tells again. */
		send_text("fourth");
		TOLD(sets[0]);
		CHECK(twinpath_epoll_ctl(sets[0], EPOLL_CTL_MOD, fd, &event) == 0);
		TOLD(sets[0]);
		TOLD_OF_NOTHING(sets[0]);
		CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == 6);
	}
	for (int at = 0; at < 2; at++)
		twinpath_close(sets[at]);
}

/* A set by edges beside one by level; and both in one set, by a duplicate. */
static void edges_and_levels(int mode)
{
	struct epoll_event edge = { .events = EPOLLIN | EPOLLET, .data.u32 = 7 };
	struct epoll_event level = { .events = EPOLLIN, .data.u32 = 7 }, got, both[2];
	int by_edge = epoll_create1(0), by_level = epoll_create1(0), mixed = epoll_create1(0);
	int other = twinpath_dup(fd);
	char buffer[16];

	CHECK(twinpath_set_mode(fd, mode) == 0 && other >= 0);
	CHECK(twinpath_epoll_ctl(by_edge, EPOLL_CTL_ADD, fd, &edge) == 0);
	CHECK(twinpath_epoll_ctl(by_level, EPOLL_CTL_ADD, fd, &level) == 0);
	CHECK(twinpath_epoll_ctl(mixed, EPOLL_CTL_ADD, fd, &edge) == 0);
	level.data.u32 = 8;
	CHECK(twinpath_epoll_ctl(mixed, EPOLL_CTL_ADD, other, &level) == 0);
	for (int round = 0; round < 20; round++) {
		level.data.u32 = 0;
		TOLD_OF_NOTHING(by_edge);
		TOLD_OF_NOTHING(by_level);
		TOLD_OF_NOTHING(mixed);
		send_text("first");
		TOLD(by_edge);
		TOLD_OF_NOTHING(by_edge);
		for (int time = 0; time < 3; time++)
			TOLD(by_level);
		CHECK(twinpath_epoll_wait(mixed, both, 2, -1) == 2);
		CHECK(both[0].data.u32 + both[1].data.u32 == 15);
		/* The level is told of again, the edge is not. */
		CHECK(twinpath_epoll_wait(mixed, both, 2, -1) == 1 && both[0].data.u32 == 8);
		TOLD_OF_NOTHING(by_edge);
		CHECK(twinpath_recv(other, buffer, sizeof buffer, 0) == 5);
	}
	CHECK(twinpath_close(by_edge) == 0 && twinpath_close(by_level) == 0 && twinpath_close(mixed) == 0);
	CHECK(twinpath_close(other) == 0);
}

#ifdef PLAIN
/* A set that is waited for by poll: the kernel alone tells it. */
static void set_that_is_polled(void)
{
	struct epoll_event event = { .events = EPOLLIN }, got;
	int set = epoll_create1(0);
	struct pollfd one = { .fd = set, .events = POLLIN };
	char buffer[16];

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	for (int round = 0; round < 2000; round++) {
		send_text("abc");
		CHECK(poll(&one, 1, 20000) == 1);
		CHECK(epoll_wait(set, &got, 1, 0) == 1);
		CHECK(recv(fd, buffer, sizeof buffer, 0) == 3);
		CHECK(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	}
	close(set);
}
#endif

/* A signal comes while a call spins, or sleeps. It comes again and again: the first one may come before the call has begun. */
static void signals(int mode)
{
	struct itimerval often = { .it_value.tv_usec = 20000, .it_interval.tv_usec = 20000 }, never = { 0 };
	struct sigaction action = { .sa_handler = handle };
	struct pollfd one = { .fd = fd, .events = POLLIN };
	struct epoll_event event = { .events = EPOLLIN };
	int set = epoll_create1(0), before;
	char buffer[8];
	fd_set fds;

	CHECK(twinpath_set_mode(fd, mode) == 0);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(twinpath_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	handled = 0;
	setitimer(ITIMER_REAL, &often, NULL);
	CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == -1 && errno == EINTR && handled > 0);
	before = handled;
	CHECK(twinpath_poll(&one, 1, -1) == -1 && errno == EINTR && handled > before);
	FD_ZERO(&fds);
	FD_SET(fd, &fds);
	before = handled;
	CHECK(twinpath_select(fd + 1, &fds, NULL, NULL, NULL) == -1 && errno == EINTR && handled > before);
	before = handled;
	CHECK(twinpath_epoll_wait(set, &event, 1, -1) == -1 && errno == EINTR && handled > before);
	/* With SA_RESTART a receiving call goes on. A child has the peer answer it later. */
	action.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	before = handled;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		sigset_t alarms;
		int number;

		/* Periods of a timer of its own: the parent's has rung by then. */
		sigemptyset(&alarms);
		sigaddset(&alarms, SIGALRM);
		sigprocmask(SIG_BLOCK, &alarms, NULL);
		often.it_interval.tv_usec = often.it_value.tv_usec = 50000;
		setitimer(ITIMER_REAL, &often, NULL);
		sigwait(&alarms, &number);
		sigwait(&alarms, &number);
		send_text("late");
		_exit(0);
	}
	CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == 4 && handled > before);
	setitimer(ITIMER_REAL, &never, NULL);
	while (waitpid(child, NULL, 0) < 0)
		CHECK(errno == EINTR);
	twinpath_close(set);
}

static sem_t received;

static void *receive_one(void *unused)
{
	char buffer[16];

	CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == 4);
	CHECK(sem_post(&received) == 0);
	return unused;
}

/* Two threads receive one datagram each: the one that has the ring leaves the second datagram to the other, which may sleep. */
static void several_threads(void)
{
	pthread_t threads[2];

	CHECK(twinpath_set_mode(fd, TWINPATH_POLL) == 0);
	CHECK(sem_init(&received, 0, 0) == 0);
	for (int n = 0; n < 120; n++) {
		for (int at = 0; at < 2; at++)
			CHECK(pthread_create(&threads[at], NULL, receive_one, NULL) == 0);
		/* In some rounds both wait by then. */
		if (n % 3)
			usleep(n % 3 * 500);
		for (int at = 0; at < 2; at++) {
			send_text("ping");
			CHECK(sem_wait(&received) == 0);
		}
		for (int at = 0; at < 2; at++)
			CHECK(pthread_join(threads[at], NULL) == 0);
	}
}

/* A signal that only the call's own set lets in comes also if the call does not wait. */
static void signals_without_waiting(void)
{
	struct sigaction action = { .sa_handler = handle };
	struct timespec none = { 0 };
	sigset_t alarms, empty;
	fd_set fds;

	sigemptyset(&empty);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigprocmask(SIG_BLOCK, &alarms, NULL) == 0);
	handled = 0;
	CHECK(raise(SIGALRM) == 0 && handled == 0);
	FD_ZERO(&fds);
	FD_SET(fd, &fds);
	CHECK(twinpath_pselect(fd + 1, &fds, NULL, NULL, &none, &empty) == -1 && errno == EINTR && handled == 1);
	CHECK(sigprocmask(SIG_UNBLOCK, &alarms, NULL) == 0);
}

/* With room for one event, and a pipe that is always ready, the socket is reported as well. */
static void one_event_at_a_time(void)
{
	int ends[2], set = twinpath_epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1 }, found;
	char buffer[16];

	CHECK(pipe(ends) == 0 && write(ends[1], "!", 1) == 1);
	CHECK(twinpath_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	event.data.u64 = 2;
	CHECK(twinpath_epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	CHECK(twinpath_set_mode(fd, TWINPATH_POLL) == 0);
	for (int n = 0; n < 100; n++) {
		int tries = 0;

		send_text("ping");
		do
			CHECK(twinpath_epoll_wait(set, &found, 1, -1) == 1 && tries++ < 10000000);
		while (found.data.u64 != 1);
		CHECK(twinpath_recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == 4);
	}
	/* A set of the same number knows nothing of a former one. */
	CHECK(close(set) == 0 && twinpath_epoll_create1(0) == set);
	send_text("ping");
	CHECK(twinpath_recv(fd, buffer, sizeof buffer, MSG_PEEK) == 4);
	CHECK(twinpath_epoll_wait(set, &found, 1, 0) == 0);
	CHECK(twinpath_recv(fd, buffer, sizeof buffer, 0) == 4);
	twinpath_close(set);
	close(ends[0]);
	close(ends[1]);
}

#ifndef PLAIN
/* A socket with a filter gets no lease, also if the kernel does not show the filter. */
static void filters(const char *interface)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	struct bpf_insn pass_all[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 65535 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr program = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insn_cnt = 2 };
	int filtered = socket(AF_INET, SOCK_DGRAM, 0), filter;

	program.insns = (uintptr_t)pass_all;
	program.license = (uintptr_t) "GPL";
	filter = syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program);
	CHECK(filter >= 0 && bind(filtered, (struct sockaddr *)&own, sizeof own) == 0);
	CHECK(setsockopt(filtered, SOL_SOCKET, SO_ATTACH_BPF, &filter, sizeof filter) == 0);
	CHECK(twinpath_on(filtered, interface) == -1 && errno == EOPNOTSUPP && strstr(twinpath_why(), "filter"));
	close(filter);
	close(filtered);
}
#endif

/* Each kind of call, with a pipe beside the socket. */
static void waiting(void)
{
	int ends[2], set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1 }, found[4];
	char buffer[16];

	CHECK(pipe(ends) == 0 && set >= 0);
	CHECK(twinpath_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	event.data.u64 = 2;
	CHECK(twinpath_epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	for (int n = 0; n < 600; n++) {
		int by_pipe = n % 3 == 0, ready;

		CHECK(twinpath_set_mode(fd, n / 100 % 3) == 0);
		if (by_pipe)
			CHECK(write(ends[1], "!", 1) == 1);
		else
			send_text("ping");
		if (n % 4 == 0) {
			struct pollfd both[] = { { .fd = fd, .events = POLLIN | POLLPRI }, { .fd = ends[0], .events = POLLIN } };

			CHECK(twinpath_poll(both, 2, -1) == 1);
			CHECK(both[0].revents == (by_pipe ? 0 : POLLIN) && both[1].revents == (by_pipe ? POLLIN : 0));
		} else if (n % 4 == 1) {
			fd_set both;

			FD_ZERO(&both);
			FD_SET(fd, &both);
			FD_SET(ends[0], &both);
			ready = twinpath_pselect((fd > ends[0] ? fd : ends[0]) + 1, &both, NULL, NULL, NULL, NULL);
			CHECK(ready == 1 && !!FD_ISSET(ends[0], &both) == by_pipe && !!FD_ISSET(fd, &both) == !by_pipe);
		} else {
			ready = twinpath_epoll_wait(set, found, 4, -1);
			CHECK(ready == 1 && found[0].events == EPOLLIN && found[0].data.u64 == (by_pipe ? 2u : 1u));
		}
		if (by_pipe)
			CHECK(read(ends[0], buffer, 1) == 1);
		else
			CHECK(twinpath_recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == 4);
	}
	twinpath_close(set);
	close(ends[0]);
	close(ends[1]);
}

int main(int count, char **arguments)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7011) };
	int on = 1, other;

	CHECK(count > 1 && arguments[1]);
	echo = peer;
	echo.sin_port = htons(9000);
	echo.sin_addr.s_addr = inet_addr("10.9.0.2");
	fd = socket(AF_INET, SOCK_DGRAM, 0);
#ifndef PLAIN
	CHECK(twinpath_on(-1, "in0") == -1 && errno == EBADF);
	CHECK(twinpath_on(fd, arguments[1]) == -1 && errno == EINVAL);
#endif
	CHECK(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on) == 0);
	CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
#ifndef PLAIN
	CHECK(twinpath_set_mode(fd, TWINPATH_POLL) == -1 && errno == ENOENT);
	CHECK(twinpath_on(fd, "nosuch0") == -1 && errno == EOPNOTSUPP && strstr(twinpath_why(), "nosuch0"));
	if (twinpath_on(fd, arguments[1]) < 0) {
		fprintf(stderr, "no lease: %s\n", twinpath_why());
		return 1;
	}
#endif
#ifndef PLAIN
	filters(arguments[1]);
#endif
	by_ring_at_last();
	messages();
	several_at_once();
	waiting();
	one_event_at_a_time();
	several_threads();
	time_outs();
	edges(TWINPATH_POLL);
	edges(TWINPATH_INTERRUPT);
	edges(TWINPATH_ADAPTIVE);
	edges_and_levels(TWINPATH_POLL);
	edges_and_levels(TWINPATH_INTERRUPT);
	edges_and_levels(TWINPATH_ADAPTIVE);
	signals_without_waiting();
	signals(TWINPATH_POLL);
	signals(TWINPATH_INTERRUPT);
#ifdef PLAIN
	set_that_is_polled();
#endif
	/* A duplicate shares the lease, and keeps it. */
	other = twinpath_dup(fd);
	CHECK(other >= 0 && twinpath_close(fd) == 0);
	fd = other;
	by_ring_at_last();
	CHECK(twinpath_close(fd) == 0);
#ifndef PLAIN
	CHECK(twinpath_counts(fd, &(struct twinpath_counts){ 0 }) == -1 && errno == ENOENT);
#endif
	puts("passed");
	return 0;
}
