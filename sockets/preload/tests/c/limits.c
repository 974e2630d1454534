/* What calls on a UDP socket return at the limits of what can be passed to them, and how much of a stack they take. Each line that this
 * program prints is an answer of the kernel: with the library it prints the same. */
#include "edges.h"
#include <setjmp.h>
#include <sys/mman.h>

/* What a call returns: bytes, or the error. */
static long result(long returned)
{
	return returned < 0 ? -errno : returned;
}

/* How many datagrams come before one of 5 bytes. */
static int until_last(int fd)
{
	char bytes[64];
	int count = 0;

	for (;;) {
		long got = result(recv(fd, bytes, sizeof bytes, 0));

		CHECK(got > 0);
		if (got == 5)
			return count;
		count++;
	}
}

/* How many datagrams are still there, or under way. */
static int rest(int fd)
{
	ask(fd, (struct request){ .count = 1, .len = { 5 } });
	return until_last(fd);
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

/* Control data that is sent, whose first part has an odd length, and is passed with a descriptor. */
static void control_lengths(int port)
{
	const size_t lengths[] = { 0,	15,	 16,	 17,		20,	      24,	     25,
				   40,	1UL << 32, 1UL << 63, (size_t)-64, (size_t)-24, (size_t)-16, (size_t)-1 };
	struct sockaddr_in closed = address("10.9.0.2", CLOSED);
	int fd = bound(port);

	exchange(fd);
	for (size_t number = 0; number < sizeof lengths / sizeof *lengths; number++) {
		_Alignas(struct cmsghdr) char control[64] = { 0 };
		char byte[1] = { 0 };
		struct iovec piece = { byte, 1 };
		struct msghdr message = { .msg_name = &closed, .msg_namelen = sizeof closed, .msg_iov = &piece, .msg_iovlen = 1,
					  .msg_control = control, .msg_controllen = 24 };

		*(struct cmsghdr *)control = (struct cmsghdr){ lengths[number], SOL_SOCKET, SCM_RIGHTS };
		memcpy(control + 16, &fd, sizeof fd);
		printf("control of %zx: %ld\n", lengths[number], result(sendmsg(fd, &message, 0)));
	}
	exchange(fd);
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

/* What calls get by pointers: in memory that is good, that is not there, that can only be read, of which the second half is not there, and
 * that is good, at an odd address. */
enum { GOOD, GONE, READ_ONLY, HALF, ODD, KINDS, SLOTS = 5, ROOM = 4096, MANY = 4096 };

/* A call, and what its pointers point to, in this order. */
struct pointed {
	const char *name;
	long (*call)(int fd, int set, void **at);
	/* The length of each, and what is there: null for zeros. */
	struct {
		size_t len;
		const void *what;
	} slots[SLOTS];
	/* What it does depends on whether the datagram is there already. */
	int is_at_once;
};

static char into[64];
static struct iovec piece_of = { into, sizeof into };
static struct sockaddr_in other_address = { .sin_family = AF_INET, .sin_port = 0x2a23, .sin_addr = { 0x0200090a } };
static const socklen_t name_len = sizeof other_address;
static const struct timespec patience = { 20, 0 };
static const struct timeval patience_us = { 20, 0 };
static const sigset_t no_signals;
static const int number;
static struct msghdr message_of = { .msg_iov = &piece_of, .msg_iovlen = 1 };
static struct mmsghdr two[2] = { { .msg_hdr = { .msg_iov = &piece_of, .msg_iovlen = 1 } },
				 { .msg_hdr = { .msg_iov = &piece_of, .msg_iovlen = 1 } } };
static struct pollfd waited_for = { .events = POLLIN };
static fd_set to_read;
static struct epoll_event event_of = { .events = EPOLLIN };
static const struct { struct cmsghdr head; int fd; } rights = { { CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS }, 0 };

static long by_recv(int fd, int set, void **at) { (void)set; return recv(fd, at[0], 64, 0); }
static long by_read(int fd, int set, void **at) { (void)set; return read(fd, at[0], 64); }
static long by_recvfrom(int fd, int set, void **at) { (void)set; return recvfrom(fd, at[0], 64, 0, at[1], at[2]); }
static long by_readv(int fd, int set, void **at) { (void)set; return readv(fd, at[0], 1); }
static long by_recvmmsg(int fd, int set, void **at) { (void)set; return recvmmsg(fd, at[0], 2, MSG_WAITFORONE, at[1]); }
static long by_poll(int fd, int set, void **at) { (void)fd, (void)set; return poll(at[0], 1, 20000); }
static long by_ppoll(int fd, int set, void **at) { (void)fd, (void)set; return ppoll(at[0], 1, at[1], at[2]); }
static long by_select(int fd, int set, void **at) { (void)set; return select(fd + 1, at[0], at[1], at[2], at[3]); }
static long by_pselect(int fd, int set, void **at) { (void)set; return pselect(fd + 1, at[0], at[1], at[2], at[3], at[4]); }
static long by_wait(int fd, int set, void **at) { (void)fd; return epoll_wait(set, at[0], 4, 20000); }
static long by_pwait(int fd, int set, void **at) { (void)fd; return epoll_pwait(set, at[0], 4, 20000, at[1]); }
static long by_pwait2(int fd, int set, void **at) { (void)fd; return epoll_pwait2(set, at[0], 4, at[1], at[2]); }
static long by_mod(int fd, int set, void **at) { return epoll_ctl(set, EPOLL_CTL_MOD, fd, at[0]); }
static long by_fionread(int fd, int set, void **at) { (void)set; return ioctl(fd, FIONREAD, at[0]); }
static long by_bind(int fd, int set, void **at) { (void)set; return bind(fd, at[0], 16); }
static long by_setsockopt(int fd, int set, void **at) { (void)set; return setsockopt(fd, SOL_SOCKET, SO_PRIORITY, at[0], 4); }
static long by_sendmmsg(int fd, int set, void **at) { (void)set; return sendmmsg(fd, at[0], 2, 0); }
static long by_accept(int fd, int set, void **at) { (void)set; return accept(fd, at[0], at[1]); }
static long by_accept4(int fd, int set, void **at) { (void)set; return accept4(fd, at[0], at[1], 0); }

static long by_socketpair(int fd, int set, void **at)
{
	long got = socketpair(AF_UNIX, SOCK_STREAM, 0, at[0]);

	(void)fd, (void)set;
	if (got == 0)
		CHECK(close(((int *)at[0])[0]) == 0 && close(((int *)at[0])[1]) == 0);
	return got;
}

/* The address is taken back at once. */
static long by_connect(int fd, int set, void **at)
{
	static const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	long got = connect(fd, at[0], 16);
	int error = errno;

	(void)set;
	CHECK(connect(fd, &nobody, sizeof nobody) == 0);
	errno = error;
	return got;
}

/* Out of the set and into it again; what is taken out has no event. */
static long by_del(int fd, int set, void **at)
{
	long got = epoll_ctl(set, EPOLL_CTL_DEL, fd, at[0]);
	int error = errno;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event_of) == 0);
	errno = error;
	return got;
}

/* Links a message, which is where the call takes it from, to the others: its pieces, a name, control data, and the bytes. */
static void link_message(void **at)
{
	struct msghdr *message = at[0];
	struct iovec *piece = at[1];

	*piece = (struct iovec){ at[4], 64 };
	*message = (struct msghdr){ .msg_iov = piece, .msg_iovlen = 1, .msg_name = at[2], .msg_namelen = 16, .msg_control = at[3],
				    .msg_controllen = sizeof rights };
}

static long by_recvmsg(int fd, int set, void **at) { (void)set; return recvmsg(fd, at[0], 0); }
static long by_sendmsg(int fd, int set, void **at) { (void)set; return sendmsg(fd, at[0], 0); }

#define OF(what) { sizeof(what), &(what) }
#define ROOM_FOR(what) { sizeof(what), NULL }

static const struct pointed all_pointed[] = {
	{ "recv", by_recv, { ROOM_FOR(into) }, 0 },
	{ "read", by_read, { ROOM_FOR(into) }, 0 },
	{ "recvfrom", by_recvfrom, { ROOM_FOR(into), ROOM_FOR(other_address), OF(name_len) }, 0 },
	{ "readv", by_readv, { OF(piece_of) }, 0 },
	{ "recvmsg", by_recvmsg, { ROOM_FOR(message_of), ROOM_FOR(piece_of), ROOM_FOR(other_address), OF(rights), ROOM_FOR(into) }, 0 },
	{ "recvmmsg", by_recvmmsg, { OF(two), OF(patience) }, 0 },
	{ "poll", by_poll, { OF(waited_for) }, 0 },
	{ "ppoll", by_ppoll, { OF(waited_for), OF(patience), { 8, &no_signals } }, 0 },
	{ "select", by_select, { OF(to_read), ROOM_FOR(to_read), ROOM_FOR(to_read), OF(patience_us) }, 0 },
	{ "pselect", by_pselect, { OF(to_read), ROOM_FOR(to_read), ROOM_FOR(to_read), OF(patience), { 8, &no_signals } }, 0 },
	{ "epoll_wait", by_wait, { ROOM_FOR(event_of) }, 0 },
	{ "epoll_pwait", by_pwait, { ROOM_FOR(event_of), { 8, &no_signals } }, 0 },
	{ "epoll_pwait2", by_pwait2, { ROOM_FOR(event_of), OF(patience), { 8, &no_signals } }, 0 },
	{ "EPOLL_CTL_MOD", by_mod, { OF(event_of) }, 0 },
	{ "EPOLL_CTL_DEL", by_del, { OF(event_of) }, 0 },
	{ "FIONREAD", by_fionread, { ROOM_FOR(number) }, 1 },
	{ "bind", by_bind, { OF(other_address) }, 0 },
	{ "connect", by_connect, { OF(other_address) }, 1 },
	{ "setsockopt", by_setsockopt, { OF(number) }, 0 },
	{ "sendmsg", by_sendmsg, { ROOM_FOR(message_of), ROOM_FOR(piece_of), OF(other_address), OF(rights), ROOM_FOR(into) }, 0 },
	{ "sendmmsg", by_sendmmsg, { OF(two) }, 0 },
	{ "accept", by_accept, { ROOM_FOR(other_address), OF(name_len) }, 0 },
	{ "accept4", by_accept4, { ROOM_FOR(other_address), OF(name_len) }, 0 },
	{ "socketpair", by_socketpair, { { 2 * sizeof number, NULL } }, 0 },
};

/* The C library reads some of what it passes on itself. That is no memory either. */
static sigjmp_buf no_such_memory;

static void faulted(int signal)
{
	(void)signal;
	siglongjmp(no_such_memory, 1);
}

/* Memory of two pages that was none of a call before: `len` bytes end in the first one, or have the second one in their midst. */
static char *placed(size_t len, const void *what, int kind, char **pages)
{
	static char *next, *end;
	size_t before = kind == ODD ? 511 : kind != HALF ? 512 : len < 8 ? len / 2 : (len / 2 + 7) / 8 * 8;

	if (next == end) {
		next = mmap(NULL, MANY * 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(next != MAP_FAILED);
		end = next + MANY * 2 * ROOM;
	}
	*pages = next;
	next += 2 * ROOM;
	if (what)
		memcpy(*pages + ROOM - before, what, len);
	return *pages + ROOM - before;
}

static void spoil(char *pages, int kind)
{
	if (kind == GONE)
		CHECK(munmap(pages, ROOM) == 0);
	else if (kind == READ_ONLY)
		CHECK(mprotect(pages, ROOM, PROT_READ) == 0);
	else if (kind == HALF)
		CHECK(munmap(pages + ROOM, ROOM) == 0);
}

static const char *const kinds[KINDS] = { "good", "gone", "read only", "half", "odd" };

static long called(const struct pointed *pointed, int fd, int set, void **at)
{
	return sigsetjmp(no_such_memory, 1) ? -EFAULT : result(pointed->call(fd, set, at));
}

static void with_wrong_pointer(const struct pointed *pointed, int wrong, int kind, int fd, int set)
{
	struct pollfd waited = { .fd = fd, .events = POLLIN };
	char *pages[SLOTS] = { NULL };
	void *at[SLOTS] = { NULL };
	char byte[1];
	long got;

	for (int slot = 0; slot < SLOTS && pointed->slots[slot].len; slot++)
		at[slot] = placed(pointed->slots[slot].len, pointed->slots[slot].what, slot == wrong ? kind : GOOD, &pages[slot]);
	if (pointed->call == by_recvmsg || pointed->call == by_sendmsg)
		link_message(at);
	spoil(pages[wrong], kind);
	ask(fd, (struct request){ .count = 1, .len = { 9 } });
	CHECK(!pointed->is_at_once || poll(&waited, 1, 20000) == 1);
	got = called(pointed, fd, set, at);
	printf("%s, pointer %d %s: %ld", pointed->name, wrong, kinds[kind], got);
	/* What the call could not return, as it had received something before, is the error of the next one. */
	got = result(recv(fd, byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT));
	printf(", then %ld, rest %d\n", got == -EFAULT ? got : 0, rest(fd));
}

/* Every call, with every pointer of it wrong in each way. */
static void wrong_pointers(int port)
{
	const struct sigaction action = { .sa_handler = faulted, .sa_flags = SA_NODEFER };
	int fd = bound(port), set = epoll_create1(0);

	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	exchange(fd);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event_of) == 0);
	waited_for.fd = fd;
	FD_SET(fd, &to_read);
	for (size_t number = 0; number < sizeof all_pointed / sizeof *all_pointed; number++)
		for (int slot = 0; slot < SLOTS && all_pointed[number].slots[slot].len; slot++)
			for (int kind = slot ? GONE : GOOD; kind < KINDS; kind++)
				/* The C library writes to this one itself. */
				if (all_pointed[number].call != by_select || slot != 3 || kind != READ_ONLY)
					with_wrong_pointer(&all_pointed[number], slot, kind, fd, set);
	exchange(fd);
	close(set);
	close(fd);
}

/* An IPv6 socket, whose names are longer, to which IPv4 datagrams come as well. */
static int bound_to_both(int port)
{
	const struct sockaddr_in6 own = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);

	CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&own, sizeof own) == 0);
	wait_at_most(fd, 20000);
	return fd;
}

/* Several messages of one call, of which one has a name that cannot be written. From this host they come by the kernel. */
static void several_with_wrong_name(int fd, int port, int is_local, int wrong, int kind)
{
	struct sockaddr_in own = address("127.0.0.1", port);
	struct mmsghdr messages[3] = { 0 };
	int sender = socket(AF_INET, SOCK_DGRAM, 0);
	char bytes[64], *pages[3];
	long got;

	for (int number = 0; number < 3; number++) {
		void *name = placed(sizeof(struct sockaddr_in6), NULL, number == wrong ? kind : GOOD, &pages[number]);

		messages[number].msg_hdr = (struct msghdr){ .msg_name = name, .msg_namelen = sizeof(struct sockaddr_in6),
							    .msg_iov = &piece_of, .msg_iovlen = 1 };
		if (is_local)
			CHECK(sendto(sender, bytes, 9, 0, (struct sockaddr *)&own, sizeof own) == 9);
	}
	spoil(pages[wrong], kind);
	if (!is_local)
		ask(fd, (struct request){ .count = 3, .len = { 9, 9, 9 } });
	got = result(recvmmsg(fd, messages, 3, 0, NULL));
	printf("%s, name %d %s: %ld", is_local ? "local" : "remote", wrong, kinds[kind], got);
	for (int number = 0; number < got; number++)
		printf(" of %u from %u", messages[number].msg_len, messages[number].msg_hdr.msg_namelen);
	got = result(recv(fd, bytes, 1, MSG_PEEK | MSG_DONTWAIT));
	printf(", then %ld", got == -EFAULT ? got : 0);
	/* The last one comes the same way, so it is behind the others. */
	if (is_local)
		CHECK(sendto(sender, bytes, 5, 0, (struct sockaddr *)&own, sizeof own) == 5);
	printf(", rest %d\n", is_local ? until_last(fd) : rest(fd));
	close(sender);
}

static void names(int port)
{
	for (int is_long = 0; is_long < 2; is_long++) {
		int fd = is_long ? bound_to_both(port + 1) : bound(port);

		exchange(fd);
		for (int is_local = 0; is_local < 2; is_local++)
			for (int wrong = 0; wrong < 3; wrong++)
				for (int kind = GOOD; kind < KINDS; kind++)
					several_with_wrong_name(fd, port + is_long, is_local, wrong, kind);
		exchange(fd);
		close(fd);
	}
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

/* How long a socket is used at most that has to earn its lease. */
static const int64_t earns_ns = 20000000000;

/* Whether the library is here, and the socket has no ring yet. */
static int is_to_begin(void)
{
	static char maps[1 << 17];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t got;

	CHECK(fd >= 0);
	while ((got = read(fd, maps + len, sizeof maps - 1 - len)) > 0)
		len += got;
	maps[len] = 0;
	close(fd);
	return strstr(maps, "libtwinpath_preload.so") && !strstr(maps, "bpf-map");
}

struct depth {
	int fd, set, kind, earns;
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
	const int64_t until = ns_of(CLOCK_MONOTONIC) + earns_ns;

	/* Once before it is painted: the first call of a function looks for it. */
	call_once(depth);
	memset(stack, 0xa5, here - stack - 1024);
	do
		for (int time = 0; time < 5 * TIMES; time++)
			call_once(depth);
	while (depth->earns && ns_of(CLOCK_MONOTONIC) < until && is_to_begin());
	/* By the ring, if there is one. */
	for (int time = 0; time < 5 * TIMES; time++)
		call_once(depth);
	while (*low == 0xa5)
		low++;
	depth->used = here - low;
	return NULL;
}

static void depths_of(int port, int earns)
{
	static const char *const names[] = { "recv", "poll", "select", "epoll_wait" };

	for (int kind = 0; kind < (earns ? 1 : 4); kind++) {
		struct depth depth = { .fd = bound(port + kind), .set = epoll_create1(0), .kind = kind, .earns = earns };
		struct epoll_event event = { .events = EPOLLIN };
		pthread_attr_t attributes;
		pthread_t thread;

		CHECK(epoll_ctl(depth.set, EPOLL_CTL_ADD, depth.fd, &event) == 0);
		if (!earns)
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

static void depths(int port)
{
	depths_of(port, 0);
}

/* The same of a thread that gets the lease. */
static void depths_with_beginning(int port)
{
	depths_of(port, 1);
}

int main(int count, char **arguments)
{
	static const struct part parts[] = {
		{ "stack", depths },
		{ "beginning", depths_with_beginning },
		{ "odd", odd_arguments },
		{ "times", times },
		{ "edges", edges_of_both_sides },
		{ "memory", no_memory },
		{ "pointers", wrong_pointers },
		{ "names", names },
		{ "lengths", control_lengths },
		{ NULL, NULL },
	};

	return run(count, arguments, parts, 7300);
}
