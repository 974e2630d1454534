/* A port is free as soon as its socket is closed, and what comes then is another socket's. The sockets are closed at all times while a
 * lease is asked for and given. Each line that this program prints is an answer of the kernel: with the library it prints the same. */
#include "edges.h"

enum { ROUNDS = 12, STEP_MS = 6, EARNED_MS = 105, KEPT_MS = 1000 };

static int reused(int port, int option)
{
	struct sockaddr_in own = address("0.0.0.0", port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;

	CHECK(fd >= 0 && (!option || setsockopt(fd, SOL_SOCKET, option, &on, sizeof on) == 0));
	if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0) {
		CHECK(errno == EADDRINUSE && close(fd) == 0);
		return -1;
	}
	wait_at_most(fd, 20000);
	return fd;
}

/* Datagrams come until the socket has earned a lease, and for some ms more. */
static void exchange_for(int fd, int ms)
{
	char bytes[64];

	for (int64_t begun = ns_of(CLOCK_MONOTONIC); ns_of(CLOCK_MONOTONIC) < begun + (EARNED_MS + ms) * 1000000LL;) {
		ask(fd, (struct request){ .count = 1, .len = { 9 } });
		CHECK(recv(fd, bytes, sizeof bytes, 0) == 9);
	}
}

/* A socket that has a lease meanwhile: without any, the owner begins anew for each one, which takes longer than the socket is there. */
static int kept(int port)
{
	int fd = bound(port);

	exchange_for(fd, KEPT_MS);
	return fd;
}

static void bound_again(int port)
{
	int in_use = 0, keeps = kept(port + 1);

	for (int round = 0; round < ROUNDS; round++) {
		int fd = bound(port), again;

		exchange_for(fd, round * STEP_MS);
		CHECK(close(fd) == 0);
		again = reused(port, 0);
		in_use += again < 0;
		while (again < 0)
			again = reused(port, 0);
		CHECK(close(again) == 0);
	}
	close(keeps);
	printf("in use after a close: %d\n", in_use);
}

/* By the other ways to close a descriptor, and with a connection from the same port. */
static void closed_otherwise(int port)
{
	struct sockaddr_in peer = address("10.9.0.2", PEER);
	int in_use = 0, keeps = kept(port + 1);

	for (int round = 0; round < ROUNDS; round++) {
		int fd = bound(port), other = open("/dev/null", O_RDONLY), again;

		exchange_for(fd, round * STEP_MS);
		CHECK(round % 2 ? dup2(other, fd) == fd : close_range(fd, fd, 0) == 0);
		again = reused(port, 0);
		in_use += again < 0;
		while (again < 0)
			again = reused(port, 0);
		CHECK(connect(again, (struct sockaddr *)&peer, sizeof peer) == 0);
		exchange_for(again, -EARNED_MS + 1);
		CHECK(close(again) == 0 && close(other) == 0 && (round % 2 == 0 || close(fd) == 0));
	}
	close(keeps);
	printf("in use otherwise: %d\n", in_use);
}

/* What comes after one of two sockets on a port was closed is the other one's. */
static void group(int port, int option)
{
	int lost = 0;

	for (int round = 0; round < ROUNDS; round++) {
		int fds[2] = { reused(port, option), reused(port, option) }, has_it;
		struct pollfd ready[2] = { { fds[0], POLLIN, 0 }, { fds[1], POLLIN, 0 } };
		char bytes[64];

		CHECK(fds[0] >= 0 && fds[1] >= 0);
		ask(fds[0], (struct request){ .port = port, .count = 1, .len = { 9 } });
		CHECK(poll(ready, 2, 20000) == 1);
		has_it = ready[1].revents != 0;
		CHECK(recv(fds[has_it], bytes, sizeof bytes, 0) == 9);
		exchange_for(fds[has_it], round * STEP_MS);
		CHECK(close(fds[has_it]) == 0);
		ask(fds[!has_it], (struct request){ .count = 1, .len = { 9 } });
		wait_at_most(fds[!has_it], 10000);
		lost += recv(fds[!has_it], bytes, sizeof bytes, 0) != 9;
		CHECK(close(fds[!has_it]) == 0);
	}
	printf("lost by group %d: %d\n", option, lost);
}

static void groups(int port)
{
	int keeps = kept(port + 1);

	group(port + 2, SO_REUSEADDR);
	group(port + 3, SO_REUSEPORT);
	close(keeps);
}

/* A program ends, and another one is started. */
static void started_again(int port)
{
	int in_use = 0, keeps = kept(port + 1);

	for (int round = 0; round < ROUNDS; round++) {
		pid_t child = fork();
		int status, again;

		CHECK(child >= 0);
		if (!child) {
			exchange_for(bound(port), round * STEP_MS);
			if (round % 2)
				_exit(0);
			exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		again = reused(port, 0);
		in_use += again < 0;
		while (again < 0)
			again = reused(port, 0);
		CHECK(close(again) == 0);
	}
	close(keeps);
	printf("in use after an end: %d\n", in_use);
}

int main(int count, char **arguments)
{
	static const struct part parts[] = {
		{ "closed", bound_again },    { "otherwise", closed_otherwise }, { "groups", groups },
		{ "again", started_again },   { NULL, NULL },
	};

	return run(count, arguments, parts, 7300);
}
