/* What a UDP socket does at its edges. Each line that this program prints is an answer of the kernel: with the library it prints the same. */
#include "edges.h"

/* A socket is ready for what recv returns, and not for what it drops. */
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

/* The program asks the socket for something that only the kernel has. What came before is received first; after that
 * the kernel serves the socket at no extra cost. */
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

/* An error is in the error queue, and the program leaves it there. */
static void error_in_queue(int port)
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
	/* If all came by the ring, the kernel knows of none. */
	done = ioctl(fd, SIOCGSTAMPNS, &at);
	CHECK(done == 0 || errno == ENOENT);
	ask(fd, (struct request){ .count = 1, .len = { 9 } });
	CHECK(recv(fd, bytes, sizeof bytes, 0) == 9);
	done = ioctl(fd, SIOCGSTAMPNS, &at);
	printf("stamp: %d, is now %d\n", done, llabs(at.tv_sec - time(NULL)) < 10);
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

/* Options that are set while the socket is in use. The library does not know some of them. */
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

static void shut_down_from_all_sides(int port)
{
	for (int kind = 0; kind < 4; kind++)
		shut_down(port + kind, kind & 1 ? 0 : 3000, kind & 2);
}

int main(int count, char **arguments)
{
	static const struct part parts[] = {
		{ "bad", bad_checksums },	{ "children", children_without_handlers },
		{ "ends", lease_ends_in_use },	{ "set", child_with_a_set },
		{ "closed", closed_meanwhile }, { "error", error_in_queue },
		{ "lengths", lengths },		{ "stamps", stamps },
		{ "control", control_data },	{ "options", options_in_use },
		{ "shutdown", shut_down_from_all_sides }, { NULL, NULL },
	};

	return run(count, arguments, parts, 7100);
}
