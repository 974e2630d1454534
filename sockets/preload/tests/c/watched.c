/* Runs a program, and says which system calls it makes, or kills it at one that it may not make.
 *
 *     watched PROGRAM ARGUMENT...            at its end, each on a line: a phase and a number; the program's output goes to standard error
 *     watched -NUMBER,... PROGRAM ARG...     every call but these ends it (SECCOMP_RET_KILL_PROCESS)
 *
 * A phase begins when a process says so, by prctl(PHASE, number), which is not counted. Before, it is phase 0. A child is in the
 * phase that one of its family was the last to begin.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "phases.h"

enum { CALLS = 1024, PHASES = 16, ALLOWED_MAX = 200 };

static int is_made[PHASES][CALLS];

static void fail(const char *what)
{
	perror(what);
	exit(127);
}

static int install(struct sock_filter *filter, int len, unsigned flags)
{
	struct sock_fprog program = { .len = len, .filter = filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("no_new_privs");
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* The list is not sorted: one comparison for each number. Numbers in the list reach the last instruction. */
static void allow_only(char *list)
{
	static struct sock_filter filter[ALLOWED_MAX + 4];
	int count = 0, at = 0, numbers[ALLOWED_MAX];

	for (char *number = strtok(list, ","); number && count < ALLOWED_MAX; number = strtok(NULL, ","))
		numbers[count++] = atoi(number);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int number = 0; number < count; number++)
		filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[number], count - number, 0);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (install(filter, at, 0) < 0)
		fail("seccomp");
}

/* In the child: every call is told by the descriptor. */
static void tell_all(void)
{
	struct sock_filter filter[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF) };

	/* Numbers that the parent knows. */
	close(LISTENER);
	if (install(filter, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER) < 0)
		fail("seccomp");
}

/* The child's descriptor, as soon as it has it; -1 if it ends before. */
static int listener_of(pid_t child)
{
	int process = syscall(SYS_pidfd_open, child, 0), got = -1;
	struct pollfd ended = { .fd = process, .events = POLLIN };

	while (got < 0 && poll(&ended, 1, 1) == 0)
		got = syscall(SYS_pidfd_getfd, process, LISTENER, 0);
	close(process);
	return got;
}

static void watch(int listener)
{
	struct pollfd waits = { .fd = listener, .events = POLLIN };
	int phase = 0;

	for (;;) {
		struct seccomp_notif told = { 0 };
		struct seccomp_notif_resp answer = { .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

		if (poll(&waits, 1, -1) < 0 && errno == EINTR)
			continue;
		/* Nobody has the filter any more. */
		if (!(waits.revents & POLLIN))
			return;
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &told) < 0)
			continue;
		if (told.data.nr == SYS_prctl && told.data.args[0] == PHASE && told.data.args[1] < PHASES)
			phase = told.data.args[1];
		else if (told.data.nr < CALLS)
			is_made[phase][told.data.nr] = 1;
		answer.id = told.id;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

int main(int argc, char **argv)
{
	int status, listener, is_list = argc > 1 && argv[1][0] == '-';
	char **program = argv + 1 + is_list;
	pid_t child;

	if (!*program)
		return 127;
	child = fork();
	if (child == 0) {
		if (is_list)
			allow_only(argv[1] + 1);
		else
			tell_all();
		execv(*program, program);
		_exit(127);
	}
	if (!is_list) {
		listener = listener_of(child);
		if (listener >= 0)
			watch(listener);
	}
	if (waitpid(child, &status, 0) < 0)
		fail("wait");
	for (int phase = 0; phase < PHASES; phase++)
		for (int number = 0; number < CALLS; number++)
			if (is_made[phase][number])
				printf("%d %d\n", phase, number);
	if (WIFSIGNALED(status))
		fprintf(stderr, "signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
