/* What a program does and the library must not disturb. The other end of the link (10.9.0.2:9000) sends everything
 * back. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                    \
	do {                                                                                           \
		if (!(what)) {                                                                         \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #what, strerror(errno)); \
			exit(1);                                                                       \
		}                                                                                      \
	} while (0)

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

static void ask(int fd)
{
	struct sockaddr_in echo = { .sin_family = AF_INET, .sin_port = htons(9000) };

	echo.sin_addr.s_addr = inet_addr("10.9.0.2");
	CHECK(sendto(fd, "hello", 5, 0, (struct sockaddr *)&echo, sizeof echo) == 5);
}

/* A child that shares the memory of its parent closes what it has: the parent's socket stays as it is. */
static void children_that_share_memory(void)
{
	int fd = udp(), status;
	pid_t child = vfork();

	if (child == 0) {
		close(fd);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	bind_to(fd, 7031);
	CHECK(close(fd) == 0);
}

static int open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	CHECK(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void nothing_is_left_of_closed_sockets(void)
{
	int after_first = 0;

	for (int cycle = 0; cycle < 4; cycle++) {
		int fd = udp();

		bind_to(fd, 7032);
		if (cycle == 0)
			after_first = open_descriptors();
		else
			CHECK(open_descriptors() == after_first);
		CHECK(close(fd) == 0);
	}
}

static void duplicates(void)
{
	int fd = udp(), other = dup(fd);
	char buffer[16];

	CHECK(other >= 0);
	bind_to(fd, 7033);
	ask(fd);
	CHECK(recv(other, buffer, sizeof buffer, 0) == 5);
	CHECK(close(fd) == 0 && close(other) == 0);
}

static pthread_barrier_t both;

static void *binds(void *port)
{
	int fd = udp();

	pthread_barrier_wait(&both);
	bind_to(fd, *(int *)port);
	return (void *)(long)fd;
}

static void threads_that_bind_at_once(void)
{
	int ports[2] = { 7034, 7035 };
	pthread_t threads[2];
	char buffer[16];

	CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
	for (int number = 0; number < 2; number++)
		CHECK(pthread_create(&threads[number], NULL, binds, &ports[number]) == 0);
	for (int number = 0; number < 2; number++) {
		void *fd;

		CHECK(pthread_join(threads[number], &fd) == 0);
		ports[number] = (int)(long)fd;
	}
	/* The one that was refused for the other's sake is asked again. */
	for (int number = 0; number < 2; number++) {
		CHECK(recv(ports[number], buffer, sizeof buffer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
		CHECK(close(ports[number]) == 0);
	}
}

/* The kernel cuts the limit to the room in its table of descriptors: the sets may be shorter than the limit says. */
static void sets_shorter_than_their_limit(int fd)
{
	struct {
		fd_set read;
		unsigned char behind[16384];
	} of = { .read = { { 0 } } };
	char buffer[16];
	int ends[2], high = 3000;
	fd_set *large = calloc(1, 65536 / 8);

	for (int is_coming = 0; is_coming < 2; is_coming++) {
		struct timeval timeout = { .tv_usec = 1000 };

		memset(of.behind, 0xa5, sizeof of.behind);
		FD_ZERO(&of.read);
		FD_SET(fd, &of.read);
		if (is_coming)
			ask(fd);
		CHECK(select(65536, &of.read, NULL, NULL, is_coming ? NULL : &timeout) == is_coming);
		CHECK(!!FD_ISSET(fd, &of.read) == is_coming);
		for (size_t at = 0; at < sizeof of.behind; at++)
			CHECK(of.behind[at] == 0xa5);
	}
	CHECK(recv(fd, buffer, sizeof buffer, 0) == 5);
	/* Where there is room for more descriptors, more are looked at. */
	CHECK(large && pipe(ends) == 0 && dup2(ends[0], high) == high && write(ends[1], "x", 1) == 1);
	for (int limit = high + 1; limit <= 65536; limit += 65536 - high - 1) {
		memset(large, 0, 65536 / 8);
		((unsigned long *)large)[high / 64] = 1UL << high % 64;
		((unsigned long *)large)[fd / 64] |= 1UL << fd % 64;
		CHECK(select(limit, large, NULL, NULL, NULL) == 1);
		CHECK(((unsigned long *)large)[high / 64] == 1UL << high % 64);
	}
	CHECK(close(high) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
	free(large);
}

/* A program that may make the calls that it makes by itself, and no others. */
static void calls_are_passed_on_as_they_are(void)
{
#ifdef __x86_64__
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	int set = epoll_create1(0), ends[2], status;
	struct epoll_event event = { .events = EPOLLIN };
	pid_t child;

	CHECK(set >= 0 && pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	child = fork();
	if (child == 0) {
		struct pollfd waited = { .fd = ends[0], .events = POLLIN };

		CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
		CHECK(poll(&waited, 1, -1) == 1);
		CHECK(epoll_wait(set, &event, 1, -1) == 1);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
#endif
}

static void ends(int signal)
{
	(void)signal;
	_exit(0);
}

int main(void)
{
	struct rlimit limit;
	int fd;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK(limit.rlim_max > 3000 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
	children_that_share_memory();
	nothing_is_left_of_closed_sockets();
	duplicates();
	threads_that_bind_at_once();
	fd = udp();
	bind_to(fd, 7036);
	sets_shorter_than_their_limit(fd);
	calls_are_passed_on_as_they_are();
	CHECK(signal(SIGTERM, ends) != SIG_ERR);
	raise(SIGTERM);
	return 1;
}
