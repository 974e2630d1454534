/* The classic server: one loop around select(), over a UDP socket (which has a fast path), TCP connections (the kernel's) and a pipe
 * (standard input). A new connection is added to the set. It echoes over UDP and TCP, prints lines of standard input, and ends with it.
 *
 *   cc server.c $(pkg-config --cflags --libs twinpath) -o server && ./server eth0 7010
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <twinpath.h>

static int fail(const char *what)
{
	perror(what);
	exit(1);
}

/* A socket of `kind` on all addresses of the host. */
static int bound(int kind, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, kind, 0), on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
		fail("cannot bind");
	return fd;
}

static void answer_datagrams(int udp)
{
	static char buffer[65536];
	struct sockaddr_storage from;
	socklen_t from_len = sizeof from;
	ssize_t len;

	while ((len = twinpath_recvfrom(udp, buffer, sizeof buffer, MSG_DONTWAIT, (struct sockaddr *)&from, &from_len)) >= 0) {
		if (sendto(udp, buffer, len, 0, (struct sockaddr *)&from, from_len) < 0)
			perror("sendto");
		from_len = sizeof from;
	}
	if (errno != EAGAIN && errno != EINTR)
		perror("recvfrom");
}

/* Returns whether the connection goes on. */
static int answer_stream(int connection)
{
	char buffer[4096];
	ssize_t len = read(connection, buffer, sizeof buffer);

	return len > 0 && write(connection, buffer, len) == len;
}

int main(int count, char **arguments)
{
	int port = count > 2 ? atoi(arguments[2]) : 7010;
	int udp = bound(SOCK_DGRAM, port), listener = bound(SOCK_STREAM, port), highest = listener;
	struct twinpath_counts counts = { 0 };
	fd_set open_ones;

	if (listen(listener, 16) < 0)
		fail("cannot listen");
	if (twinpath_on(udp, count > 1 ? arguments[1] : "lo") < 0)
		printf("UDP by the kernel: %s\n", twinpath_why());
	else
		printf("UDP with a fast path\n");
	fflush(stdout);
	FD_ZERO(&open_ones);
	FD_SET(udp, &open_ones);
	FD_SET(listener, &open_ones);
	FD_SET(STDIN_FILENO, &open_ones);
	for (;;) {
		fd_set ready = open_ones;

		if (twinpath_select(highest + 1, &ready, NULL, NULL, NULL) < 0) {
			if (errno == EINTR)
				continue;
			fail("select");
		}
		for (int fd = 0; fd <= highest; fd++) {
			if (!FD_ISSET(fd, &ready))
				continue;
			if (fd == udp) {
				answer_datagrams(udp);
			} else if (fd == listener) {
				int connection = accept(listener, NULL, NULL);

				if (connection < 0 || connection >= FD_SETSIZE) {
					perror("accept");
					continue;
				}
				FD_SET(connection, &open_ones);
				if (connection > highest)
					highest = connection;
			} else if (fd == STDIN_FILENO) {
				char line[256];
				ssize_t len = read(STDIN_FILENO, line, sizeof line);

				if (len <= 0) {
					twinpath_counts(udp, &counts);
					printf("UDP: %llu by the ring, %llu by the kernel\n", (unsigned long long)counts.by_ring,
					       (unsigned long long)counts.by_kernel);
					twinpath_close(udp);
					return 0;
				}
				printf("read: %.*s", (int)len, line);
				fflush(stdout);
			} else if (!answer_stream(fd)) {
				FD_CLR(fd, &open_ones);
				close(fd);
			}
		}
	}
}
