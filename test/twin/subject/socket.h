/* Calls on sockets that neither receive nor wait. */

/* Descriptors are numbers that a program can see: the lowest one that is free. */
static void say_made(struct actor *actor, int fd, const char *name)
{
	say_result(actor, fd < 0 ? fd : 0, errno);
	say(actor, " fd=%d", fd);
	*slot_of(name) = fd;
}

/* socket FD FAMILY FLAGS */
static void do_socket(struct actor *actor)
{
	say_made(actor, socket(number(actor, 2), SOCK_DGRAM | number(actor, 3), 0), word(actor, 1));
}

/* bind FD HOST PORT */
static void do_bind(struct actor *actor)
{
	struct sockaddr_storage address;
	socklen_t len = 0;

	if (address_of(word(actor, 2), word(actor, 3), &address, &len) < 0)
		len = 0;
	say_result_of(actor, bind(descriptor(actor, 1), (struct sockaddr *)&address, len));
}

static void do_connect(struct actor *actor)
{
	struct sockaddr_storage address;
	socklen_t len = 0;

	if (address_of(word(actor, 2), word(actor, 3), &address, &len) < 0)
		len = 0;
	say_result_of(actor, connect(descriptor(actor, 1), (struct sockaddr *)&address, len));
}

/* setsockopt FD LEVEL NAME NUMBER [LEN] */
static void do_setsockopt(struct actor *actor)
{
	int value = number(actor, 4);
	socklen_t len = actor->count > 5 ? number(actor, 5) : (long)sizeof value;

	say_result_of(actor, setsockopt(descriptor(actor, 1), number(actor, 2), number(actor, 3), &value, len));
}

/* getsockopt FD LEVEL NAME */
static void do_getsockopt(struct actor *actor)
{
	int value = 0;
	socklen_t len = sizeof value;

	say_result_of(actor, getsockopt(descriptor(actor, 1), number(actor, 2), number(actor, 3), &value, &len));
	say(actor, " value=%d len=%u", value, len);
}

/* setbytes FD LEVEL NAME TEXT: the name of a device, for instance. */
static void do_setbytes(struct actor *actor)
{
	const char *text = actor->count > 4 ? word(actor, 4) : "";

	say_result_of(actor, setsockopt(descriptor(actor, 1), number(actor, 2), number(actor, 3), text, strlen(text)));
}

/* settime FD NAME MICROSECONDS */
static void do_settime(struct actor *actor)
{
	long us = number(actor, 3);
	struct timeval time = { us / 1000000, us % 1000000 };

	say_result_of(actor, setsockopt(descriptor(actor, 1), SOL_SOCKET, number(actor, 2), &time, sizeof time));
}

/* join FD OPTION GROUP INTERFACE */
static void do_join(struct actor *actor)
{
	int index = if_nametoindex(word(actor, 4)), done;
	struct ip_mreqn v4 = { .imr_ifindex = index };
	struct ipv6_mreq v6 = { .ipv6mr_interface = index };

	if (inet_pton(AF_INET, word(actor, 3), &v4.imr_multiaddr) == 1) {
		done = setsockopt(descriptor(actor, 1), IPPROTO_IP, number(actor, 2), &v4, sizeof v4);
	} else {
		inet_pton(AF_INET6, word(actor, 3), &v6.ipv6mr_multiaddr);
		done = setsockopt(descriptor(actor, 1), IPPROTO_IPV6, number(actor, 2), &v6, sizeof v6);
	}
	say_result(actor, done, errno);
}

/* filter FD attach LEN: passes datagrams up to so many bytes of the header and more, and cuts none; 0: none. Or: filter FD detach. */
static void do_filter(struct actor *actor)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, number(actor, 3), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0),
		BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
	};
	struct sock_fprog program = { .len = 4, .filter = code };
	int none = 0, is_attach = !strcmp(word(actor, 2), "attach");

	say_result_of(actor, is_attach ? setsockopt(descriptor(actor, 1), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)
		: setsockopt(descriptor(actor, 1), SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none));
}

/* names FD: its own, and its peer's. */
static void do_names(struct actor *actor)
{
	struct sockaddr_storage name;

	for (int is_peer = 0; is_peer < 2; is_peer++) {
		socklen_t len = sizeof name;
		int done;

		memset(&name, 0, sizeof name);
		done = is_peer ? getpeername(descriptor(actor, 1), (struct sockaddr *)&name, &len)
			: getsockname(descriptor(actor, 1), (struct sockaddr *)&name, &len);
		say(actor, is_peer ? " peer: " : "");
		say_result(actor, done, errno);
		say_name(actor, &name, 28, done < 0 ? 0 : len);
	}
}

static void do_shutdown(struct actor *actor)
{
	say_result_of(actor, shutdown(descriptor(actor, 1), number(actor, 2)));
}

/* ioctl FD NAME */
static void do_ioctl(struct actor *actor)
{
	const char *name = word(actor, 2);
	int value = -1, done;
	struct timespec time = { -1, -1 };

	if (!strcmp(name, "SIOCGSTAMPNS")) {
		done = ioctl(descriptor(actor, 1), SIOCGSTAMPNS_NEW, &time);
		say_result(actor, done, errno);
		say(actor, " stamp=%s", time.tv_sec == -1 ? "none" : time.tv_sec ? "some" : "zero");
		return;
	}
	done = ioctl(descriptor(actor, 1), !strcmp(name, "FIONREAD") ? FIONREAD : SIOCOUTQ, &value);
	say_result(actor, done, errno);
	say(actor, " value=%d", value);
}

/* send FD LEN FLAGS */
static void do_send(struct actor *actor)
{
	memset(actor->bytes, 's', number(actor, 2));
	say_result_of(actor, send(descriptor(actor, 1), actor->bytes, number(actor, 2), number(actor, 3)));
}

/* sendto FD LEN FLAGS HOST PORT */
static void do_sendto(struct actor *actor)
{
	struct sockaddr_storage address;
	socklen_t len = 0;

	address_of(word(actor, 4), word(actor, 5), &address, &len);
	memset(actor->bytes, 's', number(actor, 2));
	say_result_of(actor, sendto(descriptor(actor, 1), actor->bytes, number(actor, 2), number(actor, 3), (struct sockaddr *)&address, len));
}

/* nonblock FD 0|1 */
static void do_nonblock(struct actor *actor)
{
	int flags = fcntl(descriptor(actor, 1), F_GETFL);

	say_result_of(actor, fcntl(descriptor(actor, 1), F_SETFL, number(actor, 2) ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

/* async FD: SIGIO for what comes. */
static void do_async(struct actor *actor)
{
	fcntl(descriptor(actor, 1), F_SETOWN, getpid());
	say_result_of(actor, fcntl(descriptor(actor, 1), F_SETFL, fcntl(descriptor(actor, 1), F_GETFL) | O_ASYNC));
}

static void do_dup(struct actor *actor)
{
	say_made(actor, dup(descriptor(actor, 1)), word(actor, 2));
}

/* dup2 FD OTHER: to the number of the other. */
static void do_dup2(struct actor *actor)
{
	say_made(actor, dup2(descriptor(actor, 1), descriptor(actor, 2)), word(actor, 2));
}

static void do_dup3(struct actor *actor)
{
	say_made(actor, dup3(descriptor(actor, 1), descriptor(actor, 2), O_CLOEXEC), word(actor, 2));
}

/* dupfd FD OTHER LEAST */
static void do_dupfd(struct actor *actor)
{
	say_made(actor, fcntl(descriptor(actor, 1), F_DUPFD, (int)number(actor, 3)), word(actor, 2));
}

/* The name keeps the number, as in a program that closes a descriptor twice. */
static void do_close(struct actor *actor)
{
	say_result_of(actor, close(descriptor(actor, 1)));
}

static void do_close_range(struct actor *actor)
{
	say_result_of(actor, close_range(number(actor, 1), number(actor, 2), 0));
}

/* open FD: something that is no socket. */
static void do_open(struct actor *actor)
{
	say_made(actor, open("/dev/null", O_RDWR), word(actor, 1));
}
