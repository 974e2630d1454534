/* Two children inherit a socket from their parent, and send its datagrams back. Each waits for the socket by
 * poll(2). A line of input has the second child killed. An empty datagram ends the other one, and the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is) do { if (!(is)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #is, strerror(errno)); exit(1); } } while (0)

static void serve(int fd)
{
	for (;;) {
		struct pollfd one = { .fd = fd, .events = POLLIN };
		struct sockaddr_in from;
		socklen_t len = sizeof from;
		uint32_t number;
		ssize_t got;

		CHECK(poll(&one, 1, -1) == 1);
		got = recvfrom(fd, &number, sizeof number, 0, (struct sockaddr *)&from, &len);
		/* The other one was faster. */
		if (got < 0 && errno == EAGAIN)
			continue;
		CHECK(got == 0 || got == sizeof number);
		if (got == 0)
			exit(0);
		CHECK(sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&from, len) == sizeof number);
	}
}

int main(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7042) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), status;
	pid_t children[2];
	char line[16];

	CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	for (int at = 0; at < 2; at++) {
		children[at] = fork();
		CHECK(children[at] >= 0);
		if (children[at] == 0)
			serve(fd);
	}
	puts("ready");
	fflush(stdout);
	CHECK(fgets(line, sizeof line, stdin));
	CHECK(kill(children[1], SIGKILL) == 0 && waitpid(children[1], &status, 0) == children[1]);
	puts("killed");
	fflush(stdout);
	CHECK(waitpid(children[0], &status, 0) == children[0] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
