/* Calls that receive. */

extern ssize_t __recv_chk(int, void *, size_t, size_t, int);

static void prepare(struct actor *actor, size_t len)
{
	memset(actor->bytes, FILL, len + GUARD);
	errno = 0;
}

/* recv FD LEN FLAGS [null|wild|none|fixed] */
static void do_recv(struct actor *actor)
{
	size_t len = number(actor, 2);
	ssize_t got;

	prepare(actor, len < ROOM - GUARD ? len : ROOM - GUARD);
	got = recv(descriptor(actor, 1), pointer_or(actor, 4, actor->bytes), len, number(actor, 3));
	say_result(actor, got, errno);
	say_bytes(actor, actor->bytes, got, len < ROOM - GUARD ? len : ROOM - GUARD);
}

static void do_recv_chk(struct actor *actor)
{
	size_t len = number(actor, 2);
	ssize_t got;

	prepare(actor, len);
	got = __recv_chk(descriptor(actor, 1), actor->bytes, len, ROOM, number(actor, 3));
	say_result(actor, got, errno);
	say_bytes(actor, actor->bytes, got, len);
}

static void do_raw_recv(struct actor *actor)
{
	size_t len = number(actor, 2);
	ssize_t got;

	prepare(actor, len);
	got = syscall(SYS_recvfrom, descriptor(actor, 1), actor->bytes, len, number(actor, 3), 0, 0);
	say_result(actor, got, errno);
	say_bytes(actor, actor->bytes, got, len);
}

/* recvfrom FD LEN FLAGS NAMELEN [null|wild|none|fixed] [null|wild of the name] [null|wild of its length] */
static void do_recvfrom(struct actor *actor)
{
	size_t len = number(actor, 2);
	struct sockaddr_storage name;
	socklen_t name_len = number(actor, 4);
	ssize_t got;

	prepare(actor, len);
	memset(&name, FILL, sizeof name);
	got = recvfrom(descriptor(actor, 1), pointer_or(actor, 5, actor->bytes), len, number(actor, 3), pointer_or(actor, 6, &name),
		pointer_or(actor, 7, &name_len));
	say_result(actor, got, errno);
	say_bytes(actor, actor->bytes, got, len);
	say_name(actor, &name, sizeof name, name_len);
}

static void do_read(struct actor *actor)
{
	size_t len = number(actor, 2);
	ssize_t got;

	prepare(actor, len);
	got = read(descriptor(actor, 1), pointer_or(actor, 3, actor->bytes), len);
	say_result(actor, got, errno);
	say_bytes(actor, actor->bytes, got, len);
}

/* Pieces of memory behind each other, "100+0+50"; returns their length. */
static size_t pieces_of(struct actor *actor, const char *text, struct iovec *pieces, int *count)
{
	char copy[256], *rest = copy, *part;
	size_t len = 0;

	strncpy(copy, text, sizeof copy - 1);
	copy[sizeof copy - 1] = 0;
	*count = 0;
	while (*count < 16 && (part = strsep(&rest, "+"))) {
		size_t piece = strtoul(part, 0, 0);

		pieces[*count].iov_base = actor->bytes + len;
		pieces[(*count)++].iov_len = piece;
		len += piece;
	}
	return len;
}

/* readv FD PIECES [null|wild] [COUNT] */
static void do_readv(struct actor *actor)
{
	struct iovec pieces[16];
	int count;
	size_t len = pieces_of(actor, word(actor, 2), pieces, &count);
	ssize_t got;

	prepare(actor, len);
	got = readv(descriptor(actor, 1), pointer_or(actor, 3, pieces), actor->count > 4 ? (int)number(actor, 4) : count);
	say_result(actor, got, errno);
	say_bytes(actor, actor->bytes, got, len);
}

/* recvmsg FD PIECES FLAGS NAMELEN CONTROLLEN [null|wild|none|fixed: the message, name, pieces, control] */
static void do_recvmsg(struct actor *actor)
{
	struct iovec pieces[16];
	int count;
	size_t len = pieces_of(actor, word(actor, 2), pieces, &count), room = number(actor, 5);
	struct sockaddr_storage name;
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = count, .msg_flags = 0x5a5a };
	const char *wrong = word(actor, 7);
	void *bad = pointer_or(actor, 6, &message);
	ssize_t got;

	prepare(actor, len);
	memset(&name, FILL, sizeof name);
	memset(actor->control, FILL, room + GUARD);
	message.msg_namelen = number(actor, 4);
	message.msg_name = message.msg_namelen ? &name : 0;
	message.msg_controllen = room;
	message.msg_control = room ? actor->control : 0;
	if (!strcmp(wrong, "name"))
		message.msg_name = bad;
	else if (!strcmp(wrong, "pieces"))
		message.msg_iov = bad;
	else if (!strcmp(wrong, "bytes"))
		pieces[0].iov_base = bad;
	else if (!strcmp(wrong, "control"))
		message.msg_control = bad;
	else if (!strcmp(wrong, "count"))
		message.msg_iovlen = 1025;
	got = recvmsg(descriptor(actor, 1), strcmp(wrong, "message") ? &message : bad, number(actor, 3));
	say_result(actor, got, errno);
	say_bytes(actor, actor->bytes, got, len);
	say_name(actor, &name, sizeof name, message.msg_namelen);
	if (strcmp(wrong, "control"))
		say_control(actor, &message, room);
	for (size_t at = message.msg_controllen < room ? room : message.msg_controllen; at < room + GUARD; at++)
		if (actor->control[at] != FILL) {
			say(actor, " control_beyond=%zu", at);
			break;
		}
}

/* recvmmsg FD COUNT LEN FLAGS TIMEOUT_US|null [null|wild: the messages] */
static void do_recvmmsg(struct actor *actor)
{
	enum { MOST = 8, EACH = 4096 };
	int count = number(actor, 2), most = count < MOST ? count : MOST;
	size_t len = number(actor, 3) < EACH ? number(actor, 3) : EACH;
	struct mmsghdr messages[MOST + 1];
	struct iovec pieces[MOST + 1];
	struct sockaddr_storage name[MOST + 1];
	long time_us = number(actor, 5);
	struct timespec timeout = { time_us / 1000000, time_us % 1000000 * 1000 };
	int got;

	memset(messages, 0, sizeof messages);
	memset(name, FILL, sizeof name);
	prepare(actor, (MOST + 1) * (EACH + GUARD));
	for (int at = 0; at <= MOST; at++) {
		pieces[at] = (struct iovec){ actor->bytes + at * (EACH + GUARD), len };
		messages[at].msg_len = 0x5a5a5a5a;
		messages[at].msg_hdr = (struct msghdr){ .msg_iov = &pieces[at], .msg_iovlen = 1, .msg_name = &name[at],
			.msg_namelen = sizeof name[at], .msg_control = actor->control + at * 256, .msg_controllen = 256 };
	}
	got = recvmmsg(descriptor(actor, 1), pointer_or(actor, 6, messages), most, number(actor, 4), pointer_or(actor, 5, &timeout));
	say_result(actor, got, errno);
	for (int at = 0; at < got; at++) {
		say(actor, " [%d] len=%u", at, messages[at].msg_len);
		say_bytes(actor, pieces[at].iov_base, messages[at].msg_len, len);
		say_name(actor, &name[at], sizeof name[at], messages[at].msg_hdr.msg_namelen);
		say_control(actor, &messages[at].msg_hdr, 256);
	}
	for (int at = got < 0 ? 0 : got; at <= MOST; at++)
		if (messages[at].msg_len != 0x5a5a5a5a || messages[at].msg_hdr.msg_namelen != sizeof name[at])
			say(actor, " touched=%d", at);
	if (strcmp(word(actor, 5), "null"))
		say(actor, " rest=%s", timeout.tv_sec * 1000000 + timeout.tv_nsec / 1000 == time_us ? "same"
			: timeout.tv_sec < 0 ? "negative" : timeout.tv_sec || timeout.tv_nsec ? "some" : "none");
}
