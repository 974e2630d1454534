/* Does what a line of its input says, and answers by a line:
 *
 *     bind       a socket on a port of its own
 *     receive    by it, what comes back of what it sends
 *     fork       a child does so as well, and stays
 *     fill       sockets on ports of their own until there is no number left: how many
 *     end
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is) do { if (!(is)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #is, strerror(errno)); exit(1); } } while (0)

enum { TIMES = 2000, FIRST_PORT = 7100 };

static int bound(int port)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	return fd;
}

static void receive(int fd)
{
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(9000) };

	peer.sin_addr.s_addr = htonl(0x0a090002);
	for (uint32_t number = 0; number < TIMES; number++) {
		uint32_t got;

		CHECK(sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&peer, sizeof peer) == sizeof number);
		CHECK(recv(fd, &got, sizeof got, 0) == sizeof got && got == number);
	}
}

static int fill(void)
{
	int count = 0;

	while (bound(FIRST_PORT + 1 + count) >= 0)
		count++;
	return count;
}

int main(void)
{
	char line[16];
	int fd = -1, ends[2];
	pid_t child = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	CHECK(pipe(ends) == 0);
	while (fgets(line, sizeof line, stdin)) {
		int said = 0;

		if (strcmp(line, "bind\n") == 0) {
			fd = bound(FIRST_PORT);
			CHECK(fd >= 0);
		} else if (strcmp(line, "receive\n") == 0) {
			receive(fd);
		} else if (strcmp(line, "fork\n") == 0) {
			child = fork();
			CHECK(child >= 0);
			if (child == 0) {
				char end;

				close(ends[1]);
				receive(fd);
				printf("%d\n", (int)getpid());
				_exit(read(ends[0], &end, 1) != 0);
			}
			continue;
		} else if (strcmp(line, "fill\n") == 0) {
			said = fill();
		} else if (strcmp(line, "end\n") == 0) {
			break;
		}
		printf("%d\n", said);
	}
	close(ends[0]);
	close(ends[1]);
	if (child > 0) {
		int status;

		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	if (fd >= 0)
		CHECK(close(fd) == 0);
	return 0;
}
