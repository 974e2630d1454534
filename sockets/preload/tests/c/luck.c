/* Bad luck of a program, which must be no worse with the library. The other end of the link (10.9.0.2:9000) sends everything back.
 * `luck COPY`: a copy of the library, to be loaded a second time. `luck inherited FD`: the rest, after exec. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
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

enum { TIMES = 200 };

static int udp(void)
{
	const struct timeval patience = { .tv_sec = 20 };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
	return fd;
}

static void bind_to(int fd, int port)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port) };

	CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
}

static void ask(int fd, int number)
{
	struct sockaddr_in echo = { .sin_family = AF_INET, .sin_port = htons(9000) };

	echo.sin_addr.s_addr = inet_addr("10.9.0.2");
	CHECK(sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&echo, sizeof echo) == sizeof number);
}

/* What the first socket asks comes back to the second one, which may be the same: all of it, in order. */
static void asks(int fd, int to)
{
	for (int number = 0; number < TIMES; number++) {
		int got = -1;

		ask(fd, number);
		CHECK(recv(to, &got, sizeof got, 0) == sizeof got && got == number);
	}
}

/* No descriptor is left when a socket is bound: it has the kernel's way, and so have those that come when some are free again. */
static void no_descriptors(void)
{
	struct rlimit limit, few;
	int fd = udp(), last = fd;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	few = limit;
	few.rlim_cur = fd + 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	while (last >= 0)
		last = dup(0);
	CHECK(errno == EMFILE);
	bind_to(fd, 7051);
	asks(fd, fd);
	CHECK(socket(AF_INET, SOCK_DGRAM, 0) == -1 && errno == EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	asks(fd, fd);
	for (int more = 3; more < 32; more++)
		close(more);
}

/* A second copy of the library comes and goes. Its handlers of fork go with it. */
static void loaded_twice(const char *copy)
{
	int fd = udp(), status;
	void *loaded;
	pid_t child;

	bind_to(fd, 7052);
	asks(fd, fd);
	loaded = dlopen(copy, RTLD_NOW | RTLD_GLOBAL);
	if (!loaded)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(loaded);
	asks(fd, fd);
	CHECK(dlclose(loaded) == 0);
	child = fork();
	CHECK(child >= 0);
	if (!child)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	asks(fd, fd);
	close(fd);
}

/* Gives the group of a socket a program that chooses the second one, in one of two languages. */
static void attach(int fd, int is_extended)
{
	struct sock_filter all_to_second[] = { { BPF_RET | BPF_K, 0, 0, 1 } };
	struct sock_fprog program = { 1, all_to_second };
	struct bpf_insn extended[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
		.insns = (uintptr_t)extended,
		.insn_cnt = 2,
		.license = (uintptr_t) "GPL",
	};
	int loaded;

	if (!is_extended) {
		CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0);
		return;
	}
	loaded = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load);
	CHECK(loaded >= 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &loaded, sizeof loaded) == 0);
	close(loaded);
}

/* A BPF program distributes the datagrams of a group. */
static void distributed(int when, int is_extended)
{
	int first = udp(), second = udp(), one = 1;
	int fds[] = { first, second };

	for (int at = 0; at < 2; at++) {
		CHECK(setsockopt(fds[at], SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0);
		if (at == when)
			attach(first, is_extended);
		bind_to(fds[at], (is_extended ? 7064 : 7053) + when);
	}
	if (when == 2)
		attach(first, is_extended);
	asks(first, second);
	asks(second, second);
	CHECK(recv(first, &one, sizeof one, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	close(first);
	close(second);
}

/* The sockets that are there stay in their namespace; those that are made later are of the new one. */
static void other_namespace(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7057) };
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = udp(), there, number = 7;

	bind_to(fd, 7056);
	asks(fd, fd);
	CHECK(unshare(CLONE_NEWNET) == 0);
	asks(fd, fd);
	there = udp();
	CHECK(ioctl(there, SIOCSIFFLAGS, &up) == 0);
	own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind_to(there, 7057);
	CHECK(sendto(there, &number, sizeof number, 0, (struct sockaddr *)&own, sizeof own) == sizeof number);
	number = 0;
	CHECK(recv(there, &number, sizeof number, 0) == sizeof number && number == 7);
	asks(fd, fd);
	close(there);
	close(fd);
}

/* A set of epoll in another one, which is waited for. */
static void nested(int is_filled_first)
{
	struct epoll_event wanted = { .events = EPOLLIN }, found;
	int fd = udp(), inner = epoll_create1(0), outer = epoll_create1(0);

	CHECK(inner >= 0 && outer >= 0);
	bind_to(fd, 7059);
	for (int step = 0; step < 2; step++) {
		if (step == is_filled_first)
			CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &wanted) == 0);
		else
			CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &wanted) == 0);
	}
	for (int number = 0; number < TIMES; number++) {
		int got = -1;

		ask(fd, number);
		CHECK(epoll_wait(outer, &found, 1, 20000) == 1);
		CHECK(epoll_wait(inner, &found, 1, 0) == 1);
		CHECK(recv(fd, &got, sizeof got, 0) == sizeof got && got == number);
	}
	close(outer);
	close(inner);
	close(fd);
}

/* A set that is put into another one while a datagram waits, perhaps in a ring. */
static void nested_while_one_waits(void)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u32 = 5 }, found;
	int fd = udp(), inner = epoll_create1(0);

	bind_to(fd, 7060);
	CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &wanted) == 0);
	for (int number = 0; number < TIMES; number++) {
		int outer = epoll_create1(0), got = -1;

		ask(fd, number);
		CHECK(epoll_wait(inner, &found, 1, 20000) == 1);
		CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &wanted) == 0);
		for (int time = 0; time < 2; time++)
			CHECK(epoll_wait(outer, &found, 1, 20000) == 1 && found.data.u32 == 5);
		CHECK(recv(fd, &got, sizeof got, 0) == sizeof got && got == number);
		CHECK(epoll_wait(outer, &found, 1, 0) == 0);
		close(outer);
	}
	close(inner);
	close(fd);
}

/* A set with several descriptors. Each may be waited for, or closed while the others go on. Its number is then given
 * to another set, which is empty. */
static void set_with_duplicates(int is_made_first)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u32 = 5 }, found;
	int fd = is_made_first ? udp() : -1, set = epoll_create1(0), got, new[4];
	int all[] = { set, dup(set), fcntl(set, F_DUPFD_CLOEXEC, 0) };

	fd = fd < 0 ? udp() : fd;
	bind_to(fd, 7063);
	CHECK(epoll_ctl(all[1], EPOLL_CTL_ADD, fd, &wanted) == 0);
	for (int left = 3; left > 0; left--) {
		for (int number = 0; number < TIMES; number++) {
			ask(fd, number);
			CHECK(epoll_wait(all[3 - left + number % left], &found, 1, 20000) == 1 && found.data.u32 == 5);
			CHECK(recv(fd, &got, sizeof got, 0) == sizeof got && got == number);
		}
		if (left == 1)
			break;
		/* With a datagram that has come, perhaps into the ring. */
		ask(fd, 7);
		CHECK(epoll_wait(all[2], &found, 1, 20000) == 1);
		CHECK(close(all[3 - left]) == 0);
		new[left] = epoll_create1(0);
		CHECK(new[left] == all[3 - left] && epoll_wait(new[left], &found, 1, 0) == 0);
		CHECK(epoll_wait(all[2], &found, 1, 20000) == 1 && found.data.u32 == 5);
		CHECK(recv(fd, &got, sizeof got, 0) == sizeof got && got == 7);
	}
	CHECK(epoll_ctl(all[2], EPOLL_CTL_DEL, fd, 0) == 0);
	ask(fd, 8);
	CHECK(recv(fd, &got, sizeof got, MSG_PEEK) == sizeof got && epoll_wait(all[2], &found, 1, 0) == 0);
	CHECK(close(all[2]) == 0 && close(new[3]) == 0 && close(new[2]) == 0 && close(fd) == 0);
}

/* The library cannot see that a socket is closed, and its number is given to a connection. All of that is the connection's, and what had
 * come for the socket is nobody's. */
static void number_with_another_meaning(int is_by_stream)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	socklen_t len = sizeof own;
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int fd = udp(), port = is_by_stream ? 7061 : 7062, taken;
	char text[4096], got[sizeof text];
	int spare[64], spares = 0;
	size_t done = 0;

	own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (struct sockaddr *)&own, sizeof own) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&own, &len) == 0);
	bind_to(fd, port);
	asks(fd, fd);
	ask(fd, 7);
	/* It has come, whichever way, and stays there. */
	CHECK(recv(fd, got, sizeof got, MSG_PEEK) == sizeof(int));
	/* No lower number is free. */
	while ((spare[spares] = dup(0)) < fd)
		CHECK(spare[spares++] >= 0 && spares < 64);
	close(spare[spares]);
	if (is_by_stream) {
		FILE *stream = fdopen(fd, "r+");

		CHECK(stream && fclose(stream) == 0);
	} else {
		struct timespec begun, now;

		CHECK(syscall(SYS_close, fd) == 0);
		/* After a while the library asks. */
		clock_gettime(CLOCK_MONOTONIC, &begun);
		do
			clock_gettime(CLOCK_MONOTONIC, &now);
		while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 3000000);
	}
	CHECK(connect(client, (struct sockaddr *)&own, sizeof own) == 0);
	taken = is_by_stream ? accept(listener, 0, 0) : (int)syscall(SYS_accept4, listener, 0, 0, 0);
	CHECK(taken == fd);
	for (size_t at = 0; at < sizeof text; at++)
		text[at] = (char)(at % 251);
	CHECK(write(client, text, sizeof text) == sizeof text);
	while (done < sizeof text) {
		ssize_t more = done % 2 ? recv(taken, got + done, 1000, 0) : read(taken, got + done, 1001);

		CHECK(more > 0 && more <= 1001);
		done += more;
	}
	CHECK(memcmp(text, got, sizeof text) == 0);
	CHECK(close(taken) == 0 && close(client) == 0 && close(listener) == 0);
	while (spares > 0)
		CHECK(close(spare[--spares]) == 0);
	/* The port is free again, and so is its ring. */
	fd = udp();
	bind_to(fd, port);
	asks(fd, fd);
	close(fd);
}

/* A process with many sockets forks. Some of them have the fast path, and each goes on with what is sent to it, in either process. */
static void many_sockets_at_a_fork(void)
{
	enum { MANY = 1000 };
	struct rlimit limit, more;
	int *fds = calloc(MANY, sizeof *fds), status;
	pid_t child;

	CHECK(fds && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	more = limit;
	more.rlim_cur = more.rlim_max;
	CHECK(more.rlim_max > MANY + 200 && setrlimit(RLIMIT_NOFILE, &more) == 0);
	for (int at = 0; at < MANY; at++) {
		fds[at] = udp();
		bind_to(fds[at], 20000 + at);
	}
	child = fork();
	CHECK(child >= 0);
	for (int at = child ? 0 : 1; at < MANY; at += 2) {
		int got = -1;

		ask(fds[at], at);
		CHECK(recv(fds[at], &got, sizeof got, 0) == sizeof got && got == at);
	}
	if (!child)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	for (int at = 0; at < MANY; at++)
		CHECK(close(fds[at]) == 0);
	free(fds);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static volatile sig_atomic_t closed_by_handler;

static void closes_one(int signal)
{
	(void)signal;
	if (closed_by_handler >= 0)
		CHECK(close(closed_by_handler) == 0);
	closed_by_handler = -1;
}

/* A handler closes the socket that the interrupted call waits for. It also closes another one with a lease, while a
 * call receives. */
static void closed_in_a_handler(int is_other)
{
	struct sigaction action = { .sa_handler = closes_one };
	/* Again and again, as the first one may come before the call begins. */
	struct itimerval soon = { .it_value.tv_usec = 3000, .it_interval.tv_usec = 3000 }, never = { 0 };
	int fd = udp(), other = udp(), closed = is_other ? other : fd, got;

	bind_to(fd, 7067);
	bind_to(other, 7068);
	asks(fd, fd);
	asks(other, other);
	closed_by_handler = closed;
	CHECK(sigaction(SIGALRM, &action, 0) == 0 && setitimer(ITIMER_REAL, &soon, 0) == 0);
	CHECK(recv(fd, &got, sizeof got, 0) == -1 && (errno == EINTR || (!is_other && errno == EBADF)));
	CHECK(setitimer(ITIMER_REAL, &never, 0) == 0);
	CHECK(recv(closed, &got, sizeof got, MSG_DONTWAIT) == -1 && errno == EBADF);
	if (is_other)
		asks(fd, fd);
	else
		asks(other, other);
	CHECK(close(is_other ? fd : other) == 0);
}

static volatile sig_atomic_t handler_fd;
static volatile sig_atomic_t descriptors_before, descriptors_after;

static int descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 2048; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void binds(int signal)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7063) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char buffer[16];

	(void)signal;
	descriptors_before = descriptors();
	if (bind(fd, (struct sockaddr *)&own, sizeof own) == 0 && recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) == -1)
		handler_fd = fd;
	descriptors_after = descriptors();
}

/* The library allocates nothing for a socket that a handler binds and reads: it may have interrupted an allocation. */
static void bound_in_a_handler(void)
{
	struct sigaction action = { .sa_handler = binds };

	CHECK(sigaction(SIGUSR1, &action, 0) == 0 && raise(SIGUSR1) == 0);
	CHECK(handler_fd > 0 && descriptors_before == descriptors_after);
	/* Outside of it, it does. */
	asks(handler_fd, handler_fd);
	CHECK(descriptors() > descriptors_after);
	close(handler_fd);
}

static int at_exit_fd;

static void at_exit(void)
{
	asks(at_exit_fd, at_exit_fd);
	puts("passed");
}

int main(int count, char **arguments)
{
	if (count == 3) {
		at_exit_fd = atoi(arguments[2]);
		asks(at_exit_fd, at_exit_fd);
		/* In an exit handler as well. */
		CHECK(atexit(at_exit) == 0);
		return 0;
	}
	CHECK(count == 2);
	bound_in_a_handler();
	number_with_another_meaning(1);
	number_with_another_meaning(0);
	nested_while_one_waits();
	no_descriptors();
	loaded_twice(arguments[1]);
	for (int when = 0; when <= 2; when++)
		for (int is_extended = 0; is_extended < 2; is_extended++)
			distributed(when, is_extended);
	nested(0);
	nested(1);
	set_with_duplicates(0);
	set_with_duplicates(1);
	closed_in_a_handler(0);
	closed_in_a_handler(1);
	many_sockets_at_a_fork();
	/* It is inherited by the program that takes this one's place, with what came meanwhile. */
	int fd = udp();
	bind_to(fd, 7058);
	asks(fd, fd);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		other_namespace();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	char text[16];
	sprintf(text, "%d", fd);
	execl("/proc/self/exe", "luck", "inherited", text, (char *)0);
	CHECK(0);
}
