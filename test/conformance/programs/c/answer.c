/* Answers each datagram with the same bytes, of which it sets the bit that says in a message of DNS that it is a response: so dnsperf may
 * ask it.
 *
 *     answer ADDRESS PORT [WORKERS]     WORKERS: so many children receive from the one socket
 *     answer --group ADDRESS PORT       as one of a group of sockets on that port (SO_REUSEPORT)
 *     answer --one                      what is on descriptor 0, once: a service of inetd
 *     answer --bind ADDRESS SECONDS     opens and closes sockets with ports that it names, and says how many a second
 *     answer --ask ADDRESS PORT SECONDS COUNT
 *                                       the client: COUNT requests in flight, of names that differ; says how many were answered, a second
 *                                       and how many were not
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t children[64];
static int count;

static void end(int signal)
{
	(void)signal;
	for (int child = 0; child < count; child++)
		kill(children[child], SIGTERM);
	while (count > 0 && wait(NULL) > 0)
		;
	_exit(0);
}

static int answer(int fd)
{
	unsigned char buffer[2048];
	struct sockaddr_storage from;
	socklen_t len = sizeof from;
	ssize_t got = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len);

	if (got < 0)
		return -1;
	if (got > 2)
		buffer[2] |= 0x80;
	return sendto(fd, buffer, got, 0, (struct sockaddr *)&from, len) < 0 ? -1 : 0;
}

static int bound(const char *address, int port, int is_of_group)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || inet_pton(AF_INET, address, &own.sin_addr) != 1)
		return -1;
	if (is_of_group && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &is_of_group, sizeof is_of_group) < 0)
		return -1;
	return bind(fd, (struct sockaddr *)&own, sizeof own) < 0 ? -1 : fd;
}

static double now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static int bind_often(const char *address, int seconds)
{
	double begun = now(), took = 0;
	long often = 0;

	for (; took < seconds; took = now() - begun) {
		int fd = bound(address, 20000 + often++ % 10000, 0);

		if (fd < 0 || close(fd) < 0)
			return 1;
	}
	printf("%.0f a second\n", often / took);
	return 0;
}

/* A request for the address of hNNNNNNNN.any.example.org. */
static size_t request(unsigned char *to, unsigned number)
{
	static const char name[] = "\x09h%08x\3any\7example\3org";
	static const unsigned char type_a_class_in[] = { 0, 0, 1, 0, 1 };
	size_t len;

	memset(to, 0, 12);
	to[0] = number >> 8;
	to[1] = number;
	to[2] = to[5] = 1;
	len = 12 + sprintf((char *)to + 12, name, number);
	memcpy(to + len, type_a_class_in, sizeof type_a_class_in);
	return len + sizeof type_a_class_in;
}

enum { IN_FLIGHT_MAX = 64, ROOM = 512 };

/* So many requests, from that number on. Returns how many were sent. */
static int send_requests(int fd, unsigned number, unsigned count)
{
	static unsigned char bytes[IN_FLIGHT_MAX][ROOM];
	struct mmsghdr messages[IN_FLIGHT_MAX] = { 0 };
	struct iovec pieces[IN_FLIGHT_MAX];

	for (unsigned at = 0; at < count; at++) {
		pieces[at] = (struct iovec){ bytes[at], request(bytes[at], number + at) };
		messages[at].msg_hdr = (struct msghdr){ .msg_iov = &pieces[at], .msg_iovlen = 1 };
	}
	return count ? sendmmsg(fd, messages, count, 0) : 0;
}

/* What has come, once something has. Returns how many answers, and of these how many say that there was an error. */
static int receive_answers(int fd, unsigned count, int *errors)
{
	static unsigned char bytes[IN_FLIGHT_MAX][ROOM];
	struct mmsghdr messages[IN_FLIGHT_MAX] = { 0 };
	struct iovec pieces[IN_FLIGHT_MAX];
	int got;

	for (unsigned at = 0; at < count; at++) {
		pieces[at] = (struct iovec){ bytes[at], ROOM };
		messages[at].msg_hdr = (struct msghdr){ .msg_iov = &pieces[at], .msg_iovlen = 1 };
	}
	got = recvmmsg(fd, messages, count, MSG_WAITFORONE, NULL);
	*errors = 0;
	for (int at = 0; at < got; at++)
		*errors += messages[at].msg_len > 3 && (bytes[at][3] & 0x0f) != 0;
	return got;
}

/* One thread, with calls for several datagrams: so it has less to do than who answers, which alone decides how fast it goes. */
static int ask_often(const char *address, int port, int seconds, int in_flight)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	/* A request that is not answered for so long is lost. */
	struct timeval late = { .tv_usec = 500000 };
	unsigned sent = 0, waiting = 0, most = in_flight > IN_FLIGHT_MAX ? IN_FLIGHT_MAX : in_flight;
	long answered = 0, lost = 0;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	double begun = now(), took;

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
		return 1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &late, sizeof late);
	while ((took = now() - begun) < seconds) {
		int went = send_requests(fd, sent, most - waiting), errors, got;

		if (went > 0) {
			sent += went;
			waiting += went;
		}
		got = receive_answers(fd, most, &errors);
		if (got > 0) {
			answered += got - errors;
			lost += errors;
			waiting -= (unsigned)got > waiting ? waiting : (unsigned)got;
		} else {
			lost += waiting;
			waiting = 0;
		}
	}
	printf("%.0f a second, %ld answered, %ld lost\n", answered / took, answered, lost);
	return 0;
}

int main(int argc, char **argv)
{
	int is_of_group = argc == 4 && strcmp(argv[1], "--group") == 0;
	struct sigaction action = { .sa_handler = end };
	int fd, workers;

	if (argc == 2 && strcmp(argv[1], "--one") == 0)
		return answer(0) < 0;
	if (argc == 4 && strcmp(argv[1], "--bind") == 0)
		return bind_often(argv[2], atoi(argv[3]));
	if (argc == 6 && strcmp(argv[1], "--ask") == 0)
		return ask_often(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
	if (argc < 3)
		return 2;
	fd = bound(argv[1 + is_of_group], atoi(argv[2 + is_of_group]), is_of_group);
	if (fd < 0) {
		perror("answer");
		return 1;
	}
	workers = argc == 4 && !is_of_group ? atoi(argv[3]) : 0;
	for (; count < workers && count < 64; count++) {
		children[count] = fork();
		if (children[count] == 0) {
			count = 0;
			break;
		}
	}
	sigaction(SIGTERM, &action, NULL);
	if (count > 0)
		for (;;)
			pause();
	for (;;)
		answer(fd);
}
