/* Goes through what a program does with its sockets, and says which phase begins: see watched.c. Whatever it sends comes back. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "phases.h"

#define CHECK(is) do { if (!(is)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #is, strerror(errno)); exit(1); } } while (0)

/* So often that some come by the ring, and some while the program sleeps. */
enum { TIMES = 300 };

enum { BEGUN, SOCKETS, RECEIVING, WAITING, FORKING, CLOSING, ENDING };

static uint32_t number;

/* If the filter kills at what it does not know, this is allowed: the C library calls it for itself. */
static void begin(int phase)
{
	prctl(PHASE, phase, 0, 0, 0);
}

static int bound(int port)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	return fd;
}

static void ask(int fd)
{
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(9000) };

	peer.sin_addr.s_addr = htonl(0x0a090002);
	number++;
	CHECK(sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&peer, sizeof peer) == sizeof number);
}

static void receive_by_all(int fd)
{
	for (int time = 0; time < TIMES; time++) {
		uint32_t got = 0;
		struct iovec part = { .iov_base = &got, .iov_len = sizeof got };
		struct mmsghdr message = { .msg_hdr = { .msg_iov = &part, .msg_iovlen = 1 } };

		ask(fd);
		switch (time % 4) {
		case 0: CHECK(recv(fd, &got, sizeof got, 0) == sizeof got); break;
		case 1: CHECK(recvmsg(fd, &message.msg_hdr, 0) == sizeof got); break;
		case 2: CHECK(recvmmsg(fd, &message, 1, 0, NULL) == 1); break;
		case 3: CHECK(read(fd, &got, sizeof got) == sizeof got); break;
		}
		CHECK(got == number);
	}
}

static void wait_by_all(int fd)
{
	int set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN };

	CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	for (int time = 0; time < TIMES; time++) {
		struct pollfd one = { .fd = fd, .events = POLLIN };
		uint32_t got = 0;
		fd_set read;

		FD_ZERO(&read);
		FD_SET(fd, &read);
		ask(fd);
		switch (time % 3) {
		case 0: CHECK(poll(&one, 1, -1) == 1); break;
		case 1: CHECK(select(fd + 1, &read, NULL, NULL, NULL) == 1); break;
		case 2: CHECK(epoll_wait(set, &event, 1, -1) == 1); break;
		}
		CHECK(recv(fd, &got, sizeof got, 0) == sizeof got && got == number);
	}
	CHECK(close(set) == 0);
}

static void fork_and_receive(int fd)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		receive_by_all(fd);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	receive_by_all(fd);
}

int main(void)
{
	int fd;

	begin(SOCKETS);
	fd = bound(7081);
	begin(RECEIVING);
	receive_by_all(fd);
	begin(WAITING);
	wait_by_all(fd);
	begin(FORKING);
	fork_and_receive(fd);
	begin(CLOSING);
	CHECK(close(fd) == 0);
	fd = bound(7082);
	receive_by_all(fd);
	begin(ENDING);
	return 0;
}
