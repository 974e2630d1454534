/* Threads, processes, signals. */

static void serve(struct actor *actor);
static struct actor *actor_of(int number);
static void say_who(struct actor *actor);
static void send_answer(struct actor *actor);

static int actor_number(struct actor *actor, int at)
{
	return atoi(word(actor, at) + 1);
}

static void *thread_main(void *actor)
{
	say_who(actor);
	send_answer(actor);
	serve(actor);
	return 0;
}

/* thread aN [STACK]: the thread answers on its own channel. */
static void do_thread(struct actor *actor)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int failed;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (actor->count > 2)
		pthread_attr_setstacksize(&attributes, number(actor, 2));
	failed = pthread_create(&thread, &attributes, thread_main, actor_of(actor_number(actor, 1)));
	say_result(actor, failed ? -1 : 0, failed);
}

static void do_end_thread(struct actor *actor)
{
	say_result(actor, 0, 0);
	actor->len = 0;
	say(actor, "ret=0 errno=-");
	send_answer(actor);
	syscall(SYS_exit, 0);
}

static void become(int number)
{
	struct actor *child = actor_of(number);

	say_who(child);
	send_answer(child);
	serve(child);
}

/* fork aN: the child answers on its own channel. */
static void do_fork(struct actor *actor)
{
	pid_t child = fork();

	if (!child)
		become(actor_number(actor, 1));
	say_result(actor, child < 0 ? -1 : 0, errno);
}

static void do_raw_fork(struct actor *actor)
{
	pid_t child = _Fork();

	if (!child)
		become(actor_number(actor, 1));
	say_result(actor, child < 0 ? -1 : 0, errno);
}

static void do_clone(struct actor *actor)
{
	long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (!child)
		become(actor_number(actor, 1));
	say_result(actor, child < 0 ? -1 : 0, errno);
}

/* exec: itself, with the descriptors that do not close then. The new image answers. */
static void do_exec(struct actor *actor)
{
	static char texts[260][8];
	char *words[600];
	int count = 0, used = 0;

	words[count++] = (char *)own_path;
	snprintf(texts[used], sizeof texts[used], "%d", actor->number);
	words[count++] = texts[used++];
	for (int letter = 0; letter < 26; letter++)
		for (int digit = 0; digit < 10; digit++)
			if (slots[letter][digit] >= 0 && used + 2 < 260) {
				snprintf(texts[used], sizeof texts[used], "%c%d", 'a' + letter, digit);
				words[count++] = texts[used++];
				snprintf(texts[used], sizeof texts[used], "%d", slots[letter][digit]);
				words[count++] = texts[used++];
			}
	words[count] = 0;
	execv(own_path, words);
	say_result(actor, -1, errno);
}

/* wait: for a child to end. */
static void do_wait(struct actor *actor)
{
	int status = 0;
	pid_t child = waitpid(-1, &status, 0);

	say_result(actor, child < 0 ? -1 : 0, errno);
	say(actor, " status=%x", status);
}

/* give FD: puts it into the pair that all processes of the subject have; take NAME: has it from there. */
static void do_give(struct actor *actor)
{
	char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {};
	struct iovec piece = { &byte, 1 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *one = CMSG_FIRSTHDR(&message);
	int fd = descriptor(actor, 1);

	one->cmsg_level = SOL_SOCKET;
	one->cmsg_type = SCM_RIGHTS;
	one->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(one), &fd, sizeof fd);
	say_result_of(actor, sendmsg(PASSING, &message, 0));
}

static void do_take(struct actor *actor)
{
	char byte, control[CMSG_SPACE(sizeof(int))] = {};
	struct iovec piece = { &byte, 1 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t got = recvmsg(PASSING + 1, &message, 0);
	int fd = -1;

	if (got > 0 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	say_made(actor, fd, word(actor, 1));
}

/* handle SIGNAL FLAGS: counts it; handle SIGNAL ignore|default */
static void do_handle(struct actor *actor)
{
	const char *how = word(actor, 2);
	struct sigaction action = { .sa_handler = on_signal };

	if (!strcmp(how, "ignore"))
		action.sa_handler = SIG_IGN;
	else if (!strcmp(how, "default"))
		action.sa_handler = SIG_DFL;
	else
		action.sa_flags = number_of(how);
	say_result_of(actor, sigaction(number(actor, 1), &action, 0));
}

/* What a handler has received. */
static volatile int handled_fd = -1;
static volatile long handled_result = -2;
static volatile int handled_error;
static unsigned char handled_bytes[2048];

static void receive_in_handler(int signal)
{
	int error = errno;

	(void)signal;
	handled_result = recv(handled_fd, handled_bytes, sizeof handled_bytes, MSG_DONTWAIT);
	handled_error = errno;
	errno = error;
}

/* handle_receiving SIGNAL FD: on a stack of its own, as small as such stacks are. */
static void do_handle_receiving(struct actor *actor)
{
	static unsigned char stack[8192];
	stack_t own = { .ss_sp = stack, .ss_size = sizeof stack };
	struct sigaction action = { .sa_handler = receive_in_handler, .sa_flags = SA_ONSTACK | SA_RESTART };

	handled_fd = descriptor(actor, 2);
	handled_result = -2;
	sigaltstack(&own, 0);
	say_result_of(actor, sigaction(number(actor, 1), &action, 0));
}

/* handled: what the handler has received. */
static void do_handled(struct actor *actor)
{
	say_result(actor, handled_result, handled_error);
	say(actor, " hash=%016llx",
		(unsigned long long)hash_of(handled_bytes, handled_result > 0 ? (size_t)handled_result : 0));
	handled_result = -2;
}

/* kill PID TID SIGNAL */
static void do_kill(struct actor *actor)
{
	say_result_of(actor, syscall(SYS_tgkill, number(actor, 1), number(actor, 2), number(actor, 3)));
}

/* cancel_mask SIGNAL 0|1: blocks it. */
static void do_mask(struct actor *actor)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number(actor, 1));
	say_result_of(actor, pthread_sigmask(number(actor, 2) ? SIG_BLOCK : SIG_UNBLOCK, &set, 0));
}

/* descriptors: those below 100 that are open, as a program finds them that looks. */
static void do_descriptors(struct actor *actor)
{
	say(actor, "ret=0 open=");
	for (int fd = 0; fd < 100; fd++)
		if (syscall(SYS_fcntl, fd, F_GETFD) >= 0)
			say(actor, "%d,", fd);
}

static void do_setuid(struct actor *actor)
{
	say_result_of(actor, setresuid(65534, 65534, 65534));
}

/* confine: the process ends if it makes one of these calls from now on, as one that has opened all it needs. */
static void do_confine(struct actor *actor)
{
	static const int none_of[] = { SYS_bpf, SYS_perf_event_open, SYS_memfd_create, SYS_io_uring_setup, SYS_ptrace, SYS_userfaultfd,
		SYS_pidfd_open, SYS_pidfd_getfd, SYS_process_vm_readv, SYS_setns, SYS_unshare, SYS_mount, SYS_keyctl, SYS_membarrier };
	enum { COUNT = sizeof none_of / sizeof *none_of };
	struct sock_filter code[COUNT + 3];
	struct sock_fprog program = { .len = COUNT + 3, .filter = code };

	code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int at = 0; at < COUNT; at++)
		code[1 + at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, none_of[at], COUNT - at, 0);
	code[1 + COUNT] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[2 + COUNT] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	say_result_of(actor, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}

/* no_forks: of a process that has given its rights up, from now on. */
static void do_no_forks(struct actor *actor)
{
	say_result_of(actor, setrlimit(RLIMIT_NPROC, &(struct rlimit){ 0, 0 }));
}

static void do_exit(struct actor *actor)
{
	(void)actor;
	exit(0);
}
