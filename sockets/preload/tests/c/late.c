/* Makes its first UDP socket where that is awkward: `late WHAT PORT FOLDER`. Says before and after it whether the library with the hooks is
 * loaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is) do { if (!(is)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #is, strerror(errno)); _exit(1); } } while (0)

enum { THREADS = 4, PATIENCE_S = 20 };

/* It may not be there any more when it is asked for. */
static int maps = -1;
static int port;

static int is_loaded(void)
{
	static char text[1 << 16];
	size_t len = 0;
	ssize_t got;

	CHECK(lseek(maps, 0, SEEK_SET) == 0);
	while ((got = read(maps, text + len, sizeof text - 1 - len)) > 0)
		len += got;
	text[len] = 0;
	return strstr(text, "/libtwinpath_preload.so") != NULL;
}

static void *bound(void *unused)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	return unused;
}

/* On a small stack. */
static void *made(void *unused)
{
	CHECK(close(socket(AF_INET, SOCK_DGRAM, 0)) == 0);
	return unused;
}

static void handle(int number)
{
	(void)number;
	bound(NULL);
	port++;
}

/* Files cannot be opened any more. */
static struct sock_filter filter[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };

static pthread_barrier_t together;

static void *made_together(void *unused)
{
	pthread_barrier_wait(&together);
	return made(unused);
}

/* Threads make the first sockets while children are forked, which make one each. */
static void race(pid_t (*forks)(void))
{
	pthread_t threads[THREADS];

	CHECK(pthread_barrier_init(&together, NULL, THREADS + 1) == 0);
	for (int at = 0; at < THREADS; at++)
		CHECK(pthread_create(&threads[at], NULL, made_together, NULL) == 0);
	pthread_barrier_wait(&together);
	for (int at = 0; at < 2 * THREADS; at++) {
		int status;
		pid_t child = forks();

		if (child == 0) {
			/* It is a failure to wait for ever. */
			alarm(PATIENCE_S);
			made(NULL);
			_exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
	for (int at = 0; at < THREADS; at++)
		CHECK(pthread_join(threads[at], NULL) == 0);
}

/* The allocator counts what it is asked for. */
extern void *__libc_malloc(size_t len);
static _Thread_local unsigned long allocations;

void *malloc(size_t len)
{
	allocations++;
	return __libc_malloc(len);
}

/* A handler may have interrupted the allocator. */
static void *forked(void *unused)
{
	unsigned long before = allocations;
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(allocations != before);
	CHECK(child > 0 && allocations == before && waitpid(child, &status, 0) == child && status == 0);
	return unused;
}

/* What the constructor and the destructor of a plugin do, while this thread has the dynamic loader's lock. */
static void (*at_begin)(void), (*at_end)(void);

void plugged(int is_end)
{
	void (*what)(void) = is_end ? at_end : at_begin;

	if (what)
		what();
}

static void make_on_thread(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, made, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void *nothing(void *unused)
{
	return unused;
}

static sem_t asked, answered;

static void *made_once_asked(void *unused)
{
	CHECK(sem_wait(&asked) == 0);
	made(unused);
	CHECK(sem_post(&answered) == 0);
	return unused;
}

static void ask_thread(void)
{
	CHECK(sem_post(&asked) == 0 && sem_wait(&answered) == 0);
}

/* Opens the plugin, and closes it. */
static char path[4096];

static void plug(void)
{
	void *opened = dlopen(path, RTLD_NOW);

	CHECK(opened && dlclose(opened) == 0);
}

/* The inner call is over when the thread is made, and the outer one is not. */
static void open_then_make_on_thread(void)
{
	CHECK(dlopen("libm.so.6", RTLD_NOW));
	make_on_thread();
}

static pid_t cloned(void)
{
	return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void plugins(const char *what)
{
	pthread_t thread;
	FILE *file;

	alarm(PATIENCE_S);
	if (strcmp(what, "plugin_thread") == 0) {
		at_begin = make_on_thread;
	} else if (strcmp(what, "plugin_nested") == 0) {
		at_begin = open_then_make_on_thread;
	} else if (strcmp(what, "plugin_end") == 0) {
		at_end = make_on_thread;
	} else if (strcmp(what, "plugin_pool") == 0) {
		CHECK(sem_init(&asked, 0, 0) == 0 && sem_init(&answered, 0, 0) == 0);
		CHECK(pthread_create(&thread, NULL, made_once_asked, NULL) == 0);
		at_begin = ask_thread;
	} else {
		CHECK(strcmp(what, "plugin_alone") == 0);
	}
	plug();
	if (strcmp(what, "plugin_alone") != 0) {
		CHECK(is_loaded());
		return;
	}
	/* Calls of the program between the error and its text. */
	CHECK(dlopen("/none", RTLD_NOW) == NULL && (file = fopen("/dev/null", "r")) && fclose(file) == 0);
	CHECK(shutdown(-1, SHUT_RD) == -1 && dlerror() != NULL && dlerror() == NULL);
	/* A thread that has nothing to do with the plugin. */
	CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(!is_loaded());
}

static void in_child(pid_t child)
{
	int status;

	if (child == 0) {
		bound(NULL);
		printf("%d\n", is_loaded());
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments)
{
	const char *what = count == 4 ? arguments[1] : "";
	struct sigaction action = { .sa_handler = handle };
	pthread_attr_t small;
	pthread_t thread;
	int fd;

	port = count == 4 ? atoi(arguments[2]) : 0;
	maps = open("/proc/self/maps", O_RDONLY);
	/* What has nothing to do with UDP. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(maps >= 0 && fd >= 0 && poll(NULL, 0, 0) == 0 && fcntl(fd, F_GETFD) == 0 && close(dup(fd)) == 0 && close(fd) == 0);
	CHECK(close(fd) == -1 && errno == EBADF);
	printf("%d\n", is_loaded());
	fflush(stdout);
	if (strcmp(what, "cleared") == 0) {
		CHECK(clearenv() == 0);
	} else if (strcmp(what, "chroot") == 0) {
		CHECK(chroot(arguments[3]) == 0 && chdir("/") == 0);
	} else if (strcmp(what, "prctl") == 0) {
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	} else if (strcmp(what, "syscall") == 0) {
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
	} else if (strcmp(what, "fork") == 0) {
		maps = -1;
		fflush(stdout);
		pid_t child = fork();
		if (child == 0)
			maps = open("/proc/self/maps", O_RDONLY);
		in_child(child);
		return 0;
	} else if (strcmp(what, "_Fork") == 0) {
		pid_t child = _Fork();
		if (child == 0)
			maps = open("/proc/self/maps", O_RDONLY);
		in_child(child);
		return 0;
	} else if (strcmp(what, "vfork") == 0) {
		pid_t child = vfork();
		if (child == 0) {
			fd = socket(AF_INET, SOCK_DGRAM, 0);
			_exit(close(fd) != 0 || is_loaded());
		}
		int status;
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	} else if (strcmp(what, "handler") == 0) {
		CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
	} else if (strcmp(what, "held") == 0) {
		/* A signal with a handler is held back, and no handler runs. */
		sigset_t held;
		CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigemptyset(&held) == 0 && sigaddset(&held, SIGUSR1) == 0);
		CHECK(sigprocmask(SIG_BLOCK, &held, NULL) == 0);
	} else if (strcmp(what, "epoll") == 0) {
		CHECK((fd = epoll_create1(0)) >= 0 && is_loaded() && close(fd) == 0);
	} else if (strcmp(what, "thread") == 0) {
		CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) == 0);
		CHECK(pthread_create(&thread, &small, made, NULL) == 0 && pthread_join(thread, NULL) == 0);
		CHECK(is_loaded());
	} else if (strcmp(what, "allocator") == 0) {
		made(NULL);
		CHECK(is_loaded() && pthread_create(&thread, NULL, forked, NULL) == 0 && pthread_join(thread, NULL) == 0);
	} else if (strncmp(what, "plugin", 6) == 0) {
		snprintf(path, sizeof path, "%s/plugin.so", arguments[3]);
		plugins(what);
	} else if (strcmp(what, "full") == 0) {
		/* No descriptor is free for the file of the library. */
		struct rlimit all, few = { 0 };

		CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0 && (fd = dup(0)) >= 0 && close(fd) == 0);
		few = (struct rlimit){ fd, all.rlim_max };
		CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0 && socket(AF_INET, SOCK_DGRAM, 0) == -1 && !is_loaded());
		CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
	} else if (strncmp(what, "race", 4) == 0) {
		alarm(2 * PATIENCE_S);
		race(strcmp(what, "race") == 0 ? fork : strcmp(what, "race_Fork") == 0 ? _Fork : cloned);
	} else {
		CHECK(strcmp(what, "plain") == 0);
	}
	bound(NULL);
	printf("%d\n", is_loaded());
	return 0;
}
