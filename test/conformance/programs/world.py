"""Two network namespaces joined by a virtual link, and programs that run in them: alone, or under `twinpath run`."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

SERVER, CLIENT = "server", "client"
ADDRESS = {SERVER: "192.0.2.1", CLIENT: "192.0.2.2"}
ADDRESS_V6 = {SERVER: "2001:db8::1", CLIENT: "2001:db8::2"}
INTERFACE = {SERVER: "link0", CLIENT: "link1"}

# What a program takes to become ready or to end, at most, s.
PATIENCE_S = 60

# Lines of `--explain`.
FAST = re.compile(r": UDP \S+: fast path on ")
BY_KERNEL = re.compile(r": UDP [^:].*?: by the kernel: (.*)$")
RECEIVED = re.compile(r": received (\d+) by the ring, (\d+) by the kernel, (\d+) of these under a lease")
LEFT_ALONE = re.compile(r"everything stays with the kernel: (?:\S*/)?(.*)$")
BY_OTHER_MEANS = "receives by other means"
PAYS_NOT = "which does not pay"

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


# Where costs are measured, the tested program has these CPUs for itself, and everything else the rest. Otherwise the kernel puts who asks
# and who answers on one CPU or on two, as it happens, and a rate says how often they have slept: it then changes by a quarter for a
# tenth of a microsecond of either.
CPUS = sorted(os.sched_getaffinity(0))
TESTED_CPUS = CPUS[: len(CPUS) // 2]


class Failed(Exception):
    """A program did not do what it was started for."""


def join():
    """Makes both namespaces. What runs here is in a namespace of mounts and of processes of its own, so all of it goes with it."""
    Path("/run/netns").mkdir(parents=True, exist_ok=True)
    command("mount", "-t", "tmpfs", "programs", "/run/netns")
    for side in (SERVER, CLIENT):
        command("ip", "netns", "add", side)
        command("ip", "-n", side, "link", "set", "lo", "up")
    command(
        *("ip", "link", "add", INTERFACE[SERVER], "netns", SERVER),
        *("type", "veth", "peer", "name", INTERFACE[CLIENT], "netns", CLIENT),
    )
    for side in (SERVER, CLIENT):
        command("ip", "-n", side, "address", "add", ADDRESS[side] + "/24", "dev", INTERFACE[side])
        command("ip", "-n", side, "address", "add", ADDRESS_V6[side] + "/64", "dev", INTERFACE[side], "nodad")
        command("ip", "-n", side, "link", "set", INTERFACE[side], "up")


def command(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise Failed(f"{' '.join(arguments)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def socket_in(side, address):
    """A UDP socket in the namespace of that side, connected to the address."""
    with open("/proc/self/ns/net") as own, open(f"/run/netns/{side}") as there:
        enter(there)
        try:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        finally:
            enter(own)
    made.connect(address)
    return made


def enter(namespace):
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Process:
    """A program that runs in the background."""

    def __init__(self, arguments, environment, log):
        self.log = log
        self.begun = time.monotonic()
        with open(log, "wb") as output:
            self.child = subprocess.Popen(
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self):
        return self.log.read_text(errors="replace")

    def await_text(self, text):
        """Until it has said so."""
        self.await_that(lambda: text in self.said(), f"'{text}' in its output")

    def await_that(self, is_so, what, step_s=0.02):
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if self.child.poll() is not None:
                raise Failed(f"it ended with {self.child.returncode}: {last_lines(self.said())}")
            if time.monotonic() > deadline:
                raise Failed(f"no {what} within {PATIENCE_S} s: {last_lines(self.said())}")
            time.sleep(step_s)

    def send(self, number):
        self.child.send_signal(number)

    def await_end(self):
        try:
            return self.child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"it has not ended within {PATIENCE_S} s: {last_lines(self.said())}") from None

    def stop(self):
        """Ends it as a service manager would."""
        if self.child.poll() is None:
            self.send(signal.SIGTERM)
        return self.await_end()

    def kill(self):
        # Its children are of its session.
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
        # What it has started is a child of the suite by then, which is the first process of its namespace: its ports are free after this.
        try:
            while True:
                os.waitpid(-self.child.pid, 0)
        except ChildProcessError:
            pass


def last_lines(text, count=3):
    return " / ".join(line.strip() for line in text.strip().splitlines()[-count:]) or "it said nothing"


class World:
    """One run of a case: with the tested program under `run`, or alone."""

    def __init__(self, places, folder, under, rules, apart, explains=True):
        self.places = places
        self.folder = folder
        self.under = under
        # Whether CPUs are parted.
        self.apart = apart and bool(TESTED_CPUS)
        self.started = []
        self.explain = folder / "explain"
        # Whether it is to say how datagrams have come.
        self.explains = explains
        self.rules = folder / "rules.toml"
        self.rules.write_text(rules)
        self.tested_side = None
        self.datagrams = 0
        # What the run has cost, by the names of costs.py.
        self.figures = {}

    def __enter__(self):
        # What is started has what the suite has.
        os.sched_setaffinity(0, set(CPUS) - set(TESTED_CPUS) if self.apart else CPUS)
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            process.kill()

    def path(self, name):
        return self.folder / name

    def write(self, name, text):
        self.path(name).write_text(text)
        return self.path(name)

    def start(self, side, *arguments, tested=False):
        process = Process(
            self.command_line(side, arguments, tested), self.environment(arguments), self.path(f"log{len(self.started)}")
        )
        self.started.append(process)
        return process

    def run(self, side, *arguments, tested=False, given=None):
        """Runs a program to its end, which has to be a good one. Returns its standard output."""
        done = subprocess.run(
            self.command_line(side, arguments, tested), env=self.environment(arguments), timeout=2 * PATIENCE_S,
            input=given, capture_output=True, text=True, errors="replace",
        )
        if done.returncode != 0:
            raise Failed(f"{arguments[0]} ended with {done.returncode}: {last_lines(done.stderr or done.stdout)}")
        return done.stdout

    def command_line(self, side, arguments, tested):
        program = self.places.find(arguments[0])
        if program is None:
            raise Failed(f"there is no {arguments[0]}")
        words = ["ip", "netns", "exec", side]
        if tested:
            self.tested_side = side
            self.datagrams = received_by_kernel(side)
            if self.apart:
                words = ["taskset", "--cpu-list", ",".join(map(str, TESTED_CPUS)), *words]
            if self.under:
                words += [self.places.twinpath, "run", "--rules", self.rules]
                words += [f"--explain={self.explain}"] if self.explains else []
        return [str(word) for word in (*words, program, *arguments[1:])]

    def environment(self, arguments):
        return {**os.environ, **self.places.environment(arguments[0]), "TMPDIR": str(self.folder), "LC_ALL": "C.UTF-8"}

    def outcome(self):
        """What came by which path, after the tested program has ended."""
        text = self.explain.read_text(errors="replace") if self.explain.exists() else ""
        for process in self.started:
            text += process.said()
        counts = [tuple(map(int, found)) for found in RECEIVED.findall(text)]
        by_kernel = received_by_kernel(self.tested_side) - self.datagrams
        return Outcome(
            by_ring=sum(ring for ring, _, _ in counts),
            by_kernel=by_kernel,
            explained_by_kernel=sum(kernel for _, kernel, _ in counts),
            passed=sum(passed for _, _, passed in counts),
            fast=len(FAST.findall(text)),
            counted=len(counts),
            reasons=sorted({*found(BY_KERNEL, text), *found(LEFT_ALONE, text)}),
            says_other_means=BY_OTHER_MEANS in text or PAYS_NOT in text,
        )


def found(pattern, text):
    return (match.group(1) for line in text.splitlines() if (match := pattern.search(line)))


def received_by_kernel(side):
    """Datagrams that programs of a namespace have received by the kernel's sockets, since it was made."""
    total = 0
    text = command("ip", "netns", "exec", side, "cat", "/proc/net/snmp", "/proc/net/snmp6")
    lines = text.splitlines()
    for names, values in zip(lines, lines[1:]):
        if names.startswith("Udp: ") and values.startswith("Udp: ") and "InDatagrams" in names:
            total += int(values.split()[names.split().index("InDatagrams")])
    for line in lines:
        if line.startswith("Udp6InDatagrams"):
            total += int(line.split()[1])
    return total


class Outcome:
    """How the datagrams of a run have come."""

    def __init__(self, by_ring, by_kernel, explained_by_kernel, passed, fast, counted, reasons, says_other_means):
        self.by_ring = by_ring
        self.by_kernel = by_kernel
        self.explained_by_kernel = explained_by_kernel
        self.fast = fast
        self.counted = counted
        self.reasons = reasons
        self.says_other_means = says_other_means
        self.under_lease = by_ring + passed

    @property
    def is_untrue(self):
        """Whether sockets are said to have a fast path while nearly all datagrams came by neither of what is counted at their end, and
        nothing is said of that."""
        explained = self.by_ring + self.explained_by_kernel
        is_counted = bool(self.fast and self.counted) and self.all >= 100
        return is_counted and 10 * explained < self.all and not self.says_other_means

    @property
    def all(self):
        return self.by_ring + self.by_kernel

    @property
    def leased_share(self):
        return min(1.0, self.under_lease / self.all) if self.all else 0.0

    @property
    def ring_share(self):
        return self.by_ring / self.under_lease if self.under_lease else 0.0
