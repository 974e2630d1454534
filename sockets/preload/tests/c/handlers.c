/* Handlers of signals that run while leases begin. A handler may read the stack from where it is to the end of its thread's, as those of
 * garbage collectors do, so it has to run on that one. */
#include "edges.h"

enum { STACK = 1 << 18, SOCKETS = 6, PATIENCE_S = 60 };

/* The stack of the thread that uses sockets. */
static _Alignas(64) unsigned char stack[STACK];
static atomic_int handled, elsewhere;
static atomic_bool is_over;
static int first_port;

static void handle(int signal)
{
	const unsigned char *here = __builtin_frame_address(0);

	(void)signal;
	atomic_fetch_add(&handled, 1);
	if (here < stack || here >= stack + STACK)
		atomic_fetch_add(&elsewhere, 1);
}

static void *opens_sockets(void *none)
{
	char bytes[64];

	for (int number = 0; number < SOCKETS; number++) {
		int fd = bound(first_port + number);

		for (int time = 0; time < TIMES; time++) {
			ssize_t got;

			ask(fd, (struct request){ .count = 1, .len = { 9 } });
			do
				got = recv(fd, bytes, sizeof bytes, 0);
			while (got < 0 && errno == EINTR);
			CHECK(got == 9);
		}
		CHECK(close(fd) == 0);
	}
	atomic_store(&is_over, 1);
	return none;
}

static void stacks(int port)
{
	const struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	pthread_attr_t attributes;
	pthread_t thread;

	/* It ends the program: the main thread never holds it back. */
	alarm(PATIENCE_S);
	first_port = port;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK) == 0);
	CHECK(pthread_create(&thread, &attributes, opens_sockets, NULL) == 0);
	while (!atomic_load(&is_over)) {
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		usleep(100);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	printf("was handled %d, elsewhere %d\n", atomic_load(&handled) > 0, atomic_load(&elsewhere));
}

int main(int count, char **arguments)
{
	static const struct part parts[] = { { "stacks", stacks }, { NULL, NULL } };

	return run(count, arguments, parts, 7400);
}
