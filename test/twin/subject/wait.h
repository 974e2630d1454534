/* Calls that wait. Time-outs are in microseconds; "null" is none. */

static struct timespec *timeout_of(struct actor *actor, int at, struct timespec *into)
{
	long us = number(actor, at);

	*into = (struct timespec){ us / 1000000, us % 1000000 * 1000 };
	if (us == -1)
		*into = (struct timespec){ -1, 0 };
	return pointer_or(actor, at, into);
}

static int timeout_ms(struct actor *actor, int at)
{
	return strcmp(word(actor, at), "null") ? number(actor, at) / 1000 : -1;
}

/* FD:EVENTS... from a word on. */
static int waited_of(struct actor *actor, int at, struct pollfd *waited)
{
	int count = 0;

	for (; at < actor->count && count < 16; at++) {
		char *events = strchr(actor->words[at], ':');

		if (!events)
			continue;
		*events++ = 0;
		waited[count++] = (struct pollfd){ *slot_of(actor->words[at]), number_of(events), 0x5a5a };
	}
	return count;
}

static void say_waited(struct actor *actor, int ready, const struct pollfd *waited, int count)
{
	say_result(actor, ready, errno);
	say(actor, " revents=");
	for (int at = 0; at < count; at++)
		say(actor, "%x,", waited[at].revents);
}

/* poll TIMEOUT FD:EVENTS... */
static void do_poll(struct actor *actor)
{
	int timeout = timeout_ms(actor, 1);
	struct pollfd waited[16];
	int count = waited_of(actor, 2, waited), ready;

	errno = 0;
	ready = poll(waited, count, timeout);
	say_waited(actor, ready, waited, count);
}

static void do_ppoll(struct actor *actor)
{
	struct timespec time, *timeout = timeout_of(actor, 1, &time);
	struct pollfd waited[16];
	int count = waited_of(actor, 2, waited), ready;

	errno = 0;
	ready = ppoll(waited, count, timeout, 0);
	say_waited(actor, ready, waited, count);
}

/* The sets of select: FD:EVENTS, of which POLLIN, POLLOUT and POLLPRI count. */
static int sets_of(struct pollfd *waited, int count, fd_set sets[3])
{
	int limit = 0;

	for (int set = 0; set < 3; set++)
		FD_ZERO(&sets[set]);
	for (int at = 0; at < count; at++) {
		if (waited[at].fd < 0 || waited[at].fd >= FD_SETSIZE)
			continue;
		if (waited[at].events & POLLIN)
			FD_SET(waited[at].fd, &sets[0]);
		if (waited[at].events & POLLOUT)
			FD_SET(waited[at].fd, &sets[1]);
		if (waited[at].events & POLLPRI)
			FD_SET(waited[at].fd, &sets[2]);
		if (waited[at].fd >= limit)
			limit = waited[at].fd + 1;
	}
	return limit;
}

static void say_sets(struct actor *actor, int ready, struct pollfd *waited, int count, fd_set sets[3])
{
	say_result(actor, ready, errno);
	say(actor, " ready=");
	for (int at = 0; at < count; at++) {
		int fd = waited[at].fd;

		if (fd >= 0 && fd < FD_SETSIZE)
			say(actor, "%d%d%d,", FD_ISSET(fd, &sets[0]) != 0, FD_ISSET(fd, &sets[1]) != 0, FD_ISSET(fd, &sets[2]) != 0);
	}
}

static void do_select(struct actor *actor)
{
	long us = number(actor, 1);
	struct timeval time = { us / 1000000, us % 1000000 }, *timeout = pointer_or(actor, 1, &time);
	struct pollfd waited[16];
	int count = waited_of(actor, 2, waited), ready;
	fd_set sets[3];
	int limit = sets_of(waited, count, sets);

	errno = 0;
	ready = select(limit, &sets[0], &sets[1], &sets[2], timeout);
	say_sets(actor, ready, waited, count, sets);
	if (timeout)
		say(actor, " rest=%s", time.tv_sec || time.tv_usec ? "some" : "none");
}

static void do_pselect(struct actor *actor)
{
	struct timespec time, *timeout = timeout_of(actor, 1, &time);
	struct pollfd waited[16];
	int count = waited_of(actor, 2, waited), ready;
	fd_set sets[3];
	int limit = sets_of(waited, count, sets);

	errno = 0;
	ready = pselect(limit, &sets[0], &sets[1], &sets[2], timeout, 0);
	say_sets(actor, ready, waited, count, sets);
}

/* epoll_create SET */
static void do_epoll_create(struct actor *actor)
{
	int fd = epoll_create1(0);

	say_result(actor, fd < 0 ? fd : 0, errno);
	say(actor, " fd=%d", fd);
	*slot_of(word(actor, 1)) = fd;
}

/* epoll_ctl SET OPERATION FD EVENTS DATA */
static void do_epoll_ctl(struct actor *actor)
{
	struct epoll_event event = { .events = number(actor, 4), .data.u64 = number(actor, 5) };
	int done = epoll_ctl(descriptor(actor, 1), number(actor, 2), descriptor(actor, 3), pointer_or(actor, 4, &event));

	say_result(actor, done, errno);
}

enum { EVENTS = 16 };

static int by_data(const void *one, const void *other)
{
	const struct epoll_event *first = one, *second = other;

	return first->data.u64 < second->data.u64 ? -1 : first->data.u64 > second->data.u64;
}

/* If several are ready, no manual says which comes first; but which ones were reported counts. */
static void say_events(struct actor *actor, int ready, struct epoll_event *events)
{
	say_result(actor, ready, errno);
	say(actor, " events=");
	if (ready > 1)
		qsort(events, ready, sizeof *events, by_data);
	for (int at = 0; at < ready; at++)
		say(actor, "%llu:%x,", (unsigned long long)events[at].data.u64, events[at].events);
}

/* epoll_wait SET COUNT TIMEOUT [null|wild] */
static void do_epoll_wait(struct actor *actor)
{
	struct epoll_event events[EVENTS] = {};
	int ready;

	errno = 0;
	ready = epoll_wait(descriptor(actor, 1), pointer_or(actor, 4, events), number(actor, 2), timeout_ms(actor, 3));
	say_events(actor, ready, events);
}

static void do_epoll_pwait(struct actor *actor)
{
	struct epoll_event events[EVENTS] = {};
	sigset_t none;
	int ready;

	sigemptyset(&none);
	errno = 0;
	ready = epoll_pwait(descriptor(actor, 1), events, number(actor, 2), timeout_ms(actor, 3), &none);
	say_events(actor, ready, events);
}

static void do_epoll_pwait2(struct actor *actor)
{
	struct epoll_event events[EVENTS] = {};
	struct timespec time, *timeout = timeout_of(actor, 3, &time);
	int ready;

	errno = 0;
	ready = epoll_pwait2(descriptor(actor, 1), events, number(actor, 2), timeout, 0);
	say_events(actor, ready, events);
}

/* recv_any TIMEOUT LEN FD...: waits for all of them, and receives one datagram from the first that has one. Which of the
 * sockets of a group on one port gets a datagram depends on a secret of the network namespace. */
static void do_recv_any(struct actor *actor)
{
	size_t len = number(actor, 2);
	struct pollfd waited[16];
	int count = 0, ready;
	ssize_t got = -1;

	for (int at = 3; at < actor->count && count < 16; at++)
		waited[count++] = (struct pollfd){ *slot_of(actor->words[at]), POLLIN, 0 };
	prepare(actor, len);
	ready = poll(waited, count, timeout_ms(actor, 1));
	if (ready > 0)
		for (int at = 0; at < count; at++)
			if (waited[at].revents) {
				got = recv(waited[at].fd, actor->bytes, len, MSG_DONTWAIT);
				break;
			}
	say(actor, "ready=%d ", ready);
	say_result(actor, got, ready ? errno : 0);
	say_bytes(actor, actor->bytes, got, len);
}
