/* The program that is run twice, with a plain socket and with a leased one. It makes the calls that it is told to
 * make, and reports what it has seen. It calls the C library's functions, so that a library loaded in front of that
 * sees the calls. Each of its threads and children is an actor with a channel of its own: a SOCK_SEQPACKET socket
 * with a fixed number, which it reads and writes by syscall(2), as the channel is no part of the test. A message is
 * a line of words; its answer is one line of `name=value`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "names.h"

enum { CHANNEL = 900, PASSING = 920, ACTORS = 8, LINE = 4096, ANSWER = 16384, ROOM = 70000, GUARD = 64, WORDS = 64, FILL = 0xa5 };

/* Descriptors by name: a letter and a digit. */
static int slots[26][10];
static const char *own_path;

struct actor {
	int number;
	char line[LINE], answer[ANSWER];
	int len;
	char *words[WORDS];
	int count;
	unsigned char *bytes, *control;
};

static __thread volatile sig_atomic_t hits;

static void on_signal(int number)
{
	(void)number;
	hits++;
}

static void say(struct actor *actor, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	actor->len += vsnprintf(actor->answer + actor->len, ANSWER - actor->len, format, list);
	va_end(list);
	if (actor->len >= ANSWER)
		actor->len = ANSWER - 1;
}

static const char *word(struct actor *actor, int at)
{
	return at < actor->count ? actor->words[at] : "0";
}

static long number(struct actor *actor, int at)
{
	return number_of(word(actor, at));
}

/* "s0": what has that name; anything else is a number. */
static int *slot_of(const char *name)
{
	static __thread int plain;

	if (name[0] >= 'a' && name[0] <= 'z' && name[1] >= '0' && name[1] <= '9')
		return &slots[name[0] - 'a'][name[1] - '0'];
	plain = atoi(name);
	return &plain;
}

static int descriptor(struct actor *actor, int at)
{
	return *slot_of(word(actor, at));
}

/* A page that cannot be used, or only be read. */
static void *page_of(int protection)
{
	static void *pages[2];
	void **page = &pages[protection != PROT_NONE];

	if (!*page)
		*page = mmap(0, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return *page;
}

static void *pointer_or(struct actor *actor, int at, void *usual)
{
	const char *text = word(actor, at);

	if (!strcmp(text, "null"))
		return 0;
	if (!strcmp(text, "wild"))
		return (void *)16;
	if (!strcmp(text, "none"))
		return page_of(PROT_NONE);
	if (!strcmp(text, "fixed"))
		return page_of(PROT_READ);
	return usual;
}

static uint64_t hash_of(const unsigned char *bytes, size_t len)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t at = 0; at < len; at++)
		hash = (hash ^ bytes[at]) * 0x100000001b3;
	return hash;
}

static void say_hex(struct actor *actor, const void *bytes, size_t len)
{
	for (size_t at = 0; at < len; at++)
		say(actor, "%02x", ((const unsigned char *)bytes)[at]);
}

static void say_result(struct actor *actor, long result, int error)
{
	say(actor, "ret=%ld errno=%s", result, result < 0 ? strerrorname_np(error) : "-");
}

/* Of a call that is made here, so that its error is read afterwards. */
#define say_result_of(actor, call) \
	do { \
		long result_of_call = (call); \
		say_result(actor, result_of_call, errno); \
	} while (0)

/* The datagram, and whether anything was written behind it. `len` is the room that the call was given. What a failed
 * call leaves there is ignored. */
static void say_bytes(struct actor *actor, const unsigned char *bytes, long got, size_t len)
{
	size_t whole = got < 0 ? 0 : (size_t)got < len ? (size_t)got : len, at;

	say(actor, " head=");
	say_hex(actor, bytes, whole < 8 ? whole : 8);
	say(actor, " hash=%016llx", (unsigned long long)hash_of(bytes, whole));
	for (at = whole; at < len + GUARD && bytes[at] == FILL; at++)
		;
	if (got >= 0 && at < len + GUARD)
		say(actor, " beyond=%zu", at - whole);
}

static void say_name(struct actor *actor, const void *name, socklen_t room, socklen_t len)
{
	say(actor, " namelen=%u name=", len);
	say_hex(actor, name, room < 28 ? room : 28);
}

static int address_of(const char *host, const char *port, struct sockaddr_storage *into, socklen_t *len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)into;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)into;
	char copy[128], *scope;

	memset(into, 0, sizeof *into);
	if (!strcmp(host, "unspec")) {
		*len = sizeof *v4;
		return 0;
	}
	strncpy(copy, host, sizeof copy - 1);
	copy[sizeof copy - 1] = 0;
	if ((scope = strchr(copy, '%')))
		*scope++ = 0;
	if (inet_pton(AF_INET, copy, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(atoi(port));
		*len = sizeof *v4;
		return 0;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(atoi(port));
	v6->sin6_scope_id = scope ? if_nametoindex(scope) : 0;
	*len = sizeof *v6;
	return inet_pton(AF_INET6, copy, &v6->sin6_addr) == 1 ? 0 : -1;
}

/* What is asked for by options that give the time: that it is there, and of now. */
static int is_stamp(const struct cmsghdr *one)
{
	return one->cmsg_level == SOL_SOCKET
		&& (one->cmsg_type == SO_TIMESTAMP || one->cmsg_type == SO_TIMESTAMPNS || one->cmsg_type == SO_TIMESTAMPING);
}

static void say_control(struct actor *actor, struct msghdr *message, size_t room)
{
	unsigned char *bytes = message->msg_control;
	size_t len = message->msg_controllen, at = 0;

	say(actor, " mflags=%x clen=%zu cmsgs=", message->msg_flags, len);
	while (bytes && at + sizeof(struct cmsghdr) <= len && len <= room) {
		struct cmsghdr *one = (struct cmsghdr *)(bytes + at);
		size_t data = one->cmsg_len - CMSG_LEN(0);

		if (one->cmsg_len < sizeof *one || at + one->cmsg_len > len) {
			say(actor, "bad:%zu,", (size_t)one->cmsg_len);
			break;
		}
		say(actor, "%d/%d/%zu:", one->cmsg_level, one->cmsg_type, data);
		if (is_stamp(one)) {
			time_t second = data >= sizeof(time_t) ? *(time_t *)CMSG_DATA(one) : 0;

			say(actor, "%s", second > time(0) - 60 && second <= time(0) ? "now" : "other");
		} else {
			say_hex(actor, CMSG_DATA(one), data);
		}
		say(actor, ",");
		at += CMSG_ALIGN(one->cmsg_len);
	}
}

#include "receive.h"
#include "wait.h"
#include "socket.h"
#include "process.h"

static const struct {
	const char *name;
	void (*run)(struct actor *);
} calls[] = {
	{ "recv", do_recv }, { "recv_chk", do_recv_chk }, { "recvfrom", do_recvfrom }, { "read", do_read }, { "readv", do_readv },
	{ "recvmsg", do_recvmsg }, { "recvmmsg", do_recvmmsg }, { "poll", do_poll }, { "ppoll", do_ppoll }, { "select", do_select },
	{ "pselect", do_pselect }, { "epoll_create", do_epoll_create }, { "epoll_ctl", do_epoll_ctl }, { "epoll_wait", do_epoll_wait },
	{ "epoll_pwait", do_epoll_pwait }, { "epoll_pwait2", do_epoll_pwait2 }, { "socket", do_socket }, { "bind", do_bind },
	{ "connect", do_connect }, { "setsockopt", do_setsockopt }, { "getsockopt", do_getsockopt }, { "setbytes", do_setbytes },
	{ "settime", do_settime }, { "join", do_join }, { "filter", do_filter }, { "names", do_names }, { "shutdown", do_shutdown },
	{ "ioctl", do_ioctl }, { "send", do_send }, { "sendto", do_sendto }, { "nonblock", do_nonblock }, { "async", do_async },
	{ "dup", do_dup }, { "dup2", do_dup2 }, { "dup3", do_dup3 }, { "dupfd", do_dupfd }, { "close", do_close },
	{ "close_range", do_close_range }, { "open", do_open }, { "thread", do_thread }, { "fork", do_fork }, { "_fork", do_raw_fork },
	{ "clone", do_clone }, { "exec", do_exec }, { "wait", do_wait }, { "give", do_give }, { "take", do_take }, { "handle", do_handle },
	{ "kill", do_kill }, { "cancel_mask", do_mask }, { "descriptors", do_descriptors }, { "setuid", do_setuid }, { "exit", do_exit },
	{ "raw_recv", do_raw_recv }, { "recv_any", do_recv_any }, { "confine", do_confine }, { "no_forks", do_no_forks },
	{ "handle_receiving", do_handle_receiving }, { "handled", do_handled }, { "start_exit", do_end_thread },
};

static long micros(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void send_answer(struct actor *actor)
{
	syscall(SYS_sendto, CHANNEL + actor->number, actor->answer, actor->len, MSG_NOSIGNAL, 0, 0);
}

static void run_line(struct actor *actor)
{
	struct rusage before, after;
	long wall, cpu;
	size_t at;

	for (at = 0; at < sizeof calls / sizeof *calls; at++)
		if (!strcmp(calls[at].name, actor->words[0]))
			break;
	if (at == sizeof calls / sizeof *calls) {
		say(actor, "unknown=%s", actor->words[0]);
		return;
	}
	hits = 0;
	getrusage(RUSAGE_THREAD, &before);
	wall = micros(CLOCK_MONOTONIC);
	cpu = micros(CLOCK_THREAD_CPUTIME_ID);
	calls[at].run(actor);
	cpu = micros(CLOCK_THREAD_CPUTIME_ID) - cpu;
	wall = micros(CLOCK_MONOTONIC) - wall;
	getrusage(RUSAGE_THREAD, &after);
	if (hits)
		say(actor, " signals=%d", (int)hits);
	say(actor, " ~wall=%ld ~cpu=%ld ~sleeps=%ld", wall, cpu, after.ru_nvcsw - before.ru_nvcsw);
}

static void serve(struct actor *actor)
{
	for (;;) {
		long got = syscall(SYS_recvfrom, CHANNEL + actor->number, actor->line, LINE - 1, 0, 0, 0);
		char *rest = actor->line, *part;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(0);
		actor->line[got] = 0;
		actor->len = actor->count = 0;
		while (actor->count < WORDS && (part = strsep(&rest, " ")))
			actor->words[actor->count++] = part;
		run_line(actor);
		send_answer(actor);
	}
}

static struct actor *actor_of(int number)
{
	struct actor *actor = mmap(0, sizeof *actor + 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	actor->number = number;
	actor->bytes = (unsigned char *)(actor + 1);
	actor->control = actor->bytes + ROOM;
	return actor;
}

static int check(long result, const char *what)
{
	if (result < 0) {
		perror(what);
		_exit(3);
	}
	return result;
}

/* The channels of all actors to come, and the pair by which processes pass descriptors; at numbers that no program reaches. */
static void connect_channels(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int pair[2];

	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	for (int at = 0; at < ACTORS; at++) {
		int fd = check(syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET, 0), "socket");

		check(syscall(SYS_connect, fd, &address, sizeof address), "connect");
		check(syscall(SYS_dup3, fd, CHANNEL + at, 0), "dup3");
		syscall(SYS_close, fd);
		check(syscall(SYS_sendto, CHANNEL + at, &at, sizeof at, MSG_NOSIGNAL, 0, 0), "send");
	}
	check(syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair), "socketpair");
	for (int at = 0; at < 2; at++) {
		check(syscall(SYS_dup3, pair[at], PASSING + at, 0), "dup3");
		syscall(SYS_close, pair[at]);
	}
}

/* The first answer of an actor: who it is. */
static void say_who(struct actor *actor)
{
	actor->len = 0;
	say(actor, "ret=0 ~pid=%d ~tid=%ld", getpid(), syscall(SYS_gettid));
}

int main(int count, char **words)
{
	struct actor *actor = actor_of(0);
	char path[256];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);

	path[len < 0 ? 0 : len] = 0;
	own_path = path;
	memset(slots, -1, sizeof slots);
	if (count < 2)
		return 2;
	/* After exec: which actor it is, and the descriptors by name. Before: where it is told what to do. */
	if (words[1][0] == '/')
		connect_channels(words[1]);
	else
		actor->number = atoi(words[1]);
	for (int at = 2; at + 1 < count; at += 2)
		*slot_of(words[at]) = atoi(words[at + 1]);
	say_who(actor);
	send_answer(actor);
	serve(actor);
}
