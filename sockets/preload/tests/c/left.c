/* Datagrams that have arrived, perhaps in a ring, and are read without knowledge of rings: by system calls that the
 * library does not see, in another process, or after an epoll(7) set that only the kernel fills has reported them.
 * The other end of the link (10.9.0.2:9000) sends everything back. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
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

enum { TIMES = 8, WARM_UP = 300, AT_ONCE = 8, PATIENCE_MS = 20000 };

static int udp(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
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

/* A program that finds datagrams this way has the ring. */
static void bind_and_use(int fd, int port)
{
	int got;

	bind_to(fd, port);
	for (int number = 0; number < WARM_UP; number++) {
		ask(fd, number);
		CHECK(recv(fd, &got, sizeof got, 0) == sizeof got && got == number);
	}
}

/* It has come, whichever way, and stays there. */
static void ask_and_look(int fd, int number)
{
	int got = -1;

	ask(fd, number);
	CHECK(recv(fd, &got, sizeof got, MSG_PEEK) == sizeof got && got == number);
}

/* Reads by calls that the library does not see. Usually the datagram is there immediately; if the owner is busy with
 * something else, a little later. */
static int read_raw(int fd)
{
	struct timespec timeout = { .tv_sec = PATIENCE_MS / 1000 };
	struct pollfd one = { .fd = fd, .events = POLLIN };
	int got = -1;

	CHECK(syscall(SYS_ppoll, &one, 1, &timeout, NULL, 8) == 1);
	CHECK(syscall(SYS_recvfrom, fd, &got, sizeof got, MSG_DONTWAIT, NULL, NULL) == sizeof got);
	return got;
}

static void has_nothing(int fd)
{
	int got;

	CHECK(recv(fd, &got, sizeof got, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(syscall(SYS_recvfrom, fd, &got, sizeof got, MSG_DONTWAIT, NULL, NULL) == -1 && errno == EAGAIN);
}

static void ends_well(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A child has no part in what its parent was given: nothing is open there that the program has not made. */
static void has_no_connection(void)
{
	for (int fd = 0; fd < 1024; fd++) {
		struct sockaddr_un name = { 0 };
		socklen_t len = sizeof name;

		if (getsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.sun_family == AF_UNIX)
			CHECK(memcmp(name.sun_path, "\0twinpath-", 10) != 0);
	}
}

static void forked(void)
{
	int fd = udp();
	pid_t child;

	bind_and_use(fd, 7081);
	for (int number = 0; number < TIMES; number++) {
		ask_and_look(fd, number);
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			has_no_connection();
			CHECK(read_raw(fd) == number);
			_exit(0);
		}
		ends_well(child);
		has_nothing(fd);
	}
	/* Several workers, each of which takes one of those that are under way. */
	for (int number = 0; number < AT_ONCE; number++)
		ask(fd, number);
	CHECK(recv(fd, &(int){ 0 }, sizeof(int), MSG_PEEK) == sizeof(int));
	for (int number = 0; number < AT_ONCE; number++) {
		child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(1 + read_raw(fd));
	}
	for (int number = 0, seen = 0; number < AT_ONCE; number++) {
		int status;

		CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) > 0);
		CHECK(!(seen & 1 << WEXITSTATUS(status)));
		seen |= 1 << WEXITSTATUS(status);
	}
	has_nothing(fd);
	close(fd);
}

/* The receiver is a process that was there before the socket. */
static void passed(void)
{
	int pair[2], fd, ready;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof fd)];
	} control = { .header = { CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec byte = { "x", 1 };
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	pid_t child;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char got;

		byte.iov_base = &got;
		CHECK(recvmsg(pair[1], &message, 0) == 1);
		memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
		for (int number = 0; number < TIMES; number++) {
			CHECK(read(pair[1], &ready, sizeof ready) == sizeof ready);
			CHECK(read_raw(fd) == ready);
			CHECK(write(pair[1], &ready, sizeof ready) == sizeof ready);
		}
		_exit(0);
	}
	close(pair[1]);
	fd = udp();
	bind_and_use(fd, 7082);
	ask_and_look(fd, 0);
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	CHECK(sendmsg(pair[0], &message, 0) == 1);
	for (int number = 0; number < TIMES; number++) {
		CHECK(write(pair[0], &number, sizeof number) == sizeof number);
		CHECK(read(pair[0], &ready, sizeof ready) == sizeof ready && ready == number);
		has_nothing(fd);
		/* From now on it has another reader: nothing stays in the ring. */
		if (number + 1 < TIMES)
			ask_and_look(fd, number + 1);
	}
	ends_well(child);
	close(fd);
	close(pair[0]);
}

/* The process that has the ring closes the socket, or is killed; its child goes on with it. */
static void left_to_a_child(int is_killed)
{
	for (int number = 0; number < TIMES; number++) {
		int left[2], read_it[2];
		char said;
		pid_t holder;

		CHECK(pipe(left) == 0 && pipe(read_it) == 0);
		holder = fork();
		CHECK(holder >= 0);
		if (holder == 0) {
			int fd = udp();

			if (fork() == 0) {
				CHECK(read(left[0], &said, 1) == 1);
				CHECK(read_raw(fd) == number);
				_exit(write(read_it[1], "+", 1) != 1);
			}
			bind_and_use(fd, 7083 + is_killed + 10 * number);
			ask_and_look(fd, number);
			if (is_killed)
				raise(SIGKILL);
			close(fd);
			_exit(0);
		}
		CHECK(waitpid(holder, NULL, 0) == holder && close(read_it[1]) == 0);
		CHECK(write(left[1], "x", 1) == 1);
		/* Its end, if it has read nothing. */
		CHECK(read(read_it[0], &said, 1) == 1);
		close(read_it[0]);
		close(left[0]);
		close(left[1]);
	}
}

static int tells_of(int set)
{
	struct epoll_event found;

	return epoll_wait(set, &found, 1, PATIENCE_MS);
}

/* Sets that the kernel alone fills. */
static void in_sets(void)
{
	const uint32_t kinds[] = { EPOLLONESHOT, EPOLLEXCLUSIVE, EPOLLIN, EPOLLIN, EPOLLIN, EPOLLIN };
	enum { FIFTH = 2, NESTED, POLLED, SELECTED, KINDS };

	for (int at = 0; at < KINDS * 2; at++) {
		int kind = at % KINDS, fd = udp(), sets[6];
		struct epoll_event wanted = { .events = EPOLLIN | kinds[kind], .data.fd = fd };

		bind_and_use(fd, 7085 + kind);
		for (int set = 0; set < 6; set++) {
			sets[set] = epoll_create1(0);
			CHECK(sets[set] >= 0);
		}
		if (kind == FIFTH)
			for (int set = 1; set < 5; set++)
				CHECK(epoll_ctl(sets[set], EPOLL_CTL_ADD, fd, &wanted) == 0);
		if (kind >= NESTED)
			CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, fd, &wanted) == 0);
		ask_and_look(fd, at);
		if (kind < NESTED) {
			CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, fd, &wanted) == 0);
			CHECK(tells_of(sets[0]) == 1);
		} else if (kind == NESTED) {
			CHECK(epoll_ctl(sets[5], EPOLL_CTL_ADD, sets[0], &wanted) == 0);
			CHECK(tells_of(sets[5]) == 1 && tells_of(sets[5]) == 1);
		} else if (kind == POLLED) {
			struct pollfd one = { .fd = sets[0], .events = POLLIN };

			CHECK(poll(&one, 1, PATIENCE_MS) == 1);
		} else {
			fd_set read;
			struct timeval timeout = { .tv_sec = PATIENCE_MS / 1000 };

			FD_ZERO(&read);
			FD_SET(sets[0], &read);
			CHECK(select(sets[0] + 1, &read, NULL, NULL, &timeout) == 1);
		}
		CHECK(read_raw(fd) == at);
		has_nothing(fd);
		for (int set = 0; set < 6; set++)
			close(sets[set]);
		close(fd);
	}
}

/* The socket is inherited by the program that takes this one's place. */
static void replaced(void)
{
	char text[16];
	int fd = udp();

	bind_and_use(fd, 7080);
	ask_and_look(fd, 77);
	sprintf(text, "%d", fd);
	execl("/proc/self/exe", "left", "replaced", text, (char *)0);
	CHECK(0);
}

int main(int count, char **arguments)
{
	const char *how = arguments[1];

	CHECK(count >= 2);
	if (count == 3) {
		CHECK(read_raw(atoi(arguments[2])) == 77);
		has_nothing(atoi(arguments[2]));
	} else if (strcmp(how, "forked") == 0) {
		forked();
	} else if (strcmp(how, "passed") == 0) {
		passed();
	} else if (strcmp(how, "closed") == 0) {
		left_to_a_child(0);
	} else if (strcmp(how, "killed") == 0) {
		left_to_a_child(1);
	} else if (strcmp(how, "sets") == 0) {
		in_sets();
	} else {
		replaced();
	}
	puts("passed");
	return 0;
}
