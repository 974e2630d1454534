/*
 * Messages that say what they are, from one RDS port to another. Whether each arrives once, whole and in order, the receiver judges:
 *
 *   counted receive ADDRESS PORT COUNT [QUEUE]    QUEUE: SO_RCVBUF; then nothing is received before the sender has been refused
 *   counted send ADDRESS PORT TO PORT COUNT LEN   LEN: of each message, at least 8
 *
 * The last line of a receiver is `received N, lost N, doubled N, disordered N, wrong N`, of a sender `sent N, refused N`: how often
 * the receiver's queue was full (ENOBUFS). Exit code 1: not as it has to be. 2: it hung for a minute, or a call failed.
 *
 * A sender that is refused for the first time says so to the next port of the receiver. At the end the receiver answers, as what a
 * socket has not delivered goes with it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PF_RDS_ 21
#define SOL_RDS_ 276
#define RDS_CONG_MONITOR_ 6
#define PATIENCE_MS 60000
/* How long a receiver waits for a word that only says that its own last one has come. */
#define FAREWELL_MS 2000

static unsigned char bytes[1 << 20];

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

static struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		fail(host);
	return to;
}

static int bound(const char *host, const char *port)
{
	struct sockaddr_in at = address(host, port);
	int fd = socket(PF_RDS_, SOCK_SEQPACKET, 0);

	if (fd < 0)
		fail("socket");
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)))
		fail("bind");
	return fd;
}

static void await(int fd, short events)
{
	struct pollfd at = { .fd = fd, .events = events };
	int n = poll(&at, 1, PATIENCE_MS);

	if (n < 0)
		fail("poll");
	if (n == 0) {
		errno = ETIMEDOUT;
		fail("nothing for a minute");
	}
}

/* Waits for a message of one word: a kernel's poll(2) tells of changed congestion as of something to receive. */
static void word(int fd)
{
	do
		await(fd, POLLIN);
	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) != 4);
}

/* What a message has at each place follows from its number. */
static unsigned char at(uint32_t number, size_t place)
{
	uint32_t x = number * 2654435761u + (uint32_t)place * 40503u;

	return (unsigned char)(x >> 13);
}

static void fill(uint32_t number, size_t len)
{
	uint32_t head[2] = { htonl(number), htonl((uint32_t)len) };

	memcpy(bytes, head, sizeof(head));
	for (size_t i = sizeof(head); i < len; i++)
		bytes[i] = at(number, i);
}

static int is_right(size_t len)
{
	uint32_t head[2];

	if (len < sizeof(head))
		return 0;
	memcpy(head, bytes, sizeof(head));
	if (ntohl(head[1]) != len)
		return 0;
	for (size_t i = sizeof(head); i < len; i++)
		if (bytes[i] != at(ntohl(head[0]), i))
			return 0;
	return 1;
}

static int receive(int fd, uint32_t count)
{
	unsigned char *seen = calloc(count, 1);
	uint32_t got = 0, doubled = 0, disordered = 0, wrong = 0, last = 0, different = 0;
	struct pollfd farewell = { .fd = fd, .events = POLLIN };
	struct sockaddr_in from;

	/* The last one ends it; what is missing then is lost, as the order is kept. */
	while (last + 1 < count || !got) {
		socklen_t from_len = sizeof(from);
		ssize_t len;
		uint32_t number;

		await(fd, POLLIN);
		len = recvfrom(fd, bytes, sizeof(bytes), MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);
		if (len < 0 && errno == EAGAIN)
			continue;
		if (len < 0)
			fail("recv");
		got++;
		memcpy(&number, bytes, sizeof(number));
		number = ntohl(number);
		if (!is_right((size_t)len) || number >= count) {
			wrong++;
			continue;
		}
		doubled += seen[number];
		different += !seen[number];
		disordered += number < last && !seen[number];
		seen[number] = 1;
		if (number > last)
			last = number;
	}
	if (sendto(fd, "done", 4, 0, (struct sockaddr *)&from, sizeof(from)) != 4)
		fail("sendto");
	poll(&farewell, 1, FAREWELL_MS);
	printf("received %u, lost %u, doubled %u, disordered %u, wrong %u\n", got, count - different, doubled, disordered, wrong);
	return different != count || doubled || disordered || wrong;
}

static int send_all(int fd, struct sockaddr_in to, uint32_t count, size_t len)
{
	struct sockaddr_in next = to;
	uint32_t refused = 0;
	int on = 1;

	next.sin_port = htons(ntohs(to.sin_port) + 1);
	/* So poll tells of a port that is not full any more. */
	if (setsockopt(fd, SOL_RDS_, RDS_CONG_MONITOR_, &on, sizeof(on)))
		fail("RDS_CONG_MONITOR");
	for (uint32_t number = 0; number < count;) {
		fill(number, len);
		if (sendto(fd, bytes, len, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)len) {
			number++;
		} else if (errno == EAGAIN) {
			await(fd, POLLOUT);
		} else if (errno == ENOBUFS) {
			if (!refused++ && sendto(fd, "full", 4, 0, (struct sockaddr *)&next, sizeof(next)) != 4)
				fail("sendto the next port");
			await(fd, POLLIN);
			/* It is a control message of its own, without data. */
			recv(fd, bytes, 0, MSG_DONTWAIT);
		} else {
			fail("sendto");
		}
	}
	word(fd);
	sendto(fd, "bye", 3, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
	printf("sent %u, refused %u\n", count, refused);
	return 0;
}

int main(int argc, char **argv)
{
	int fd;

	if (argc >= 5 && !strcmp(argv[1], "receive")) {
		int words = -1;

		fd = bound(argv[2], argv[3]);
		if (argc > 5) {
			char next[16];
			int queue = atoi(argv[5]);

			if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &queue, sizeof(queue)))
				fail("SO_RCVBUF");
			snprintf(next, sizeof(next), "%d", atoi(argv[3]) + 1);
			words = bound(argv[2], next);
		}
		/* A message for a port that nobody has is lost. */
		puts("ready");
		fflush(stdout);
		if (words >= 0)
			word(words);
		return receive(fd, (uint32_t)atoi(argv[4]));
	}
	if (argc == 8 && !strcmp(argv[1], "send")) {
		fd = bound(argv[2], argv[3]);
		return send_all(fd, address(argv[4], argv[5]), (uint32_t)atoi(argv[6]), (size_t)atoi(argv[7]));
	}
	fputs("usage: see the top of counted.c\n", stderr);
	return 2;
}
