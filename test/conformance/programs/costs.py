"""What a program costs under `run`, beside what it costs alone: figures that a case measures, and how they are compared."""

import math
import os
import re
import statistics
import time
from pathlib import Path

from world import ADDRESS, CLIENT, SERVER, socket_in

# Sides take turns so often, and the medians are compared.
PAIRS = 5

# A ratio beyond this and the spread is worse: no program is slower by more than 2 %.
WORSE = 0.02
# Of what was sent.
LOST_SHARE = 0.001
# What a process may have more, MiB, and how many descriptors, of which none is at a number that programs expect to get.
MEMORY_MIB = 1.0
DESCRIPTORS = 3
LOW = 100
# What `run` itself takes, before the program begins, ms.
RUN_MS = 20


class Column:
    """A figure. `limit` is what it may be worse by, beyond the spread: as a share, or if `is_difference` as it is, of each process."""

    def __init__(self, name, title, digits, less_is_better=True, limit=WORSE, is_difference=False, each_process=False, beside=0):
        self.name = name
        self.title = title
        self.digits = digits
        self.less_is_better = less_is_better
        self.limit = limit
        self.is_difference = is_difference
        self.each_process = each_process
        # What is taken off the figure under `run`.
        self.beside = beside

    def compare(self, pairs, processes):
        """Both medians, how they compare, the spread of that, and whether it is worse."""
        alone, ours = (statistics.median(side) for side in zip(*pairs))
        if self.is_difference:
            each = [with_run - without for without, with_run in pairs]
            middle, spread = statistics.median(each), spread_of(each)
            return alone, ours, middle, spread, middle - spread > self.limit * (processes if self.each_process else 1)
        each = [max(with_run - self.beside, 0) / without if without else 1.0 for without, with_run in pairs]
        middle, spread = statistics.median(each), spread_of(each)
        is_worse = middle - spread > 1 + self.limit if self.less_is_better else middle + spread < 1 - self.limit
        return alone, ours, middle, spread, is_worse

    def cell(self, pairs, processes):
        """What the table says, and whether it is worse."""
        if not pairs:
            return "", False
        alone, ours, middle, spread, is_worse = self.compare(pairs, processes)
        shown = f"{alone:,.{self.digits}f} → {ours:,.{self.digits}f}"
        if self.is_difference:
            how = f"{middle:+.{self.digits}f} ± {spread:.{self.digits}f}" if middle or spread else "="
        else:
            how = f"{middle:.2f} ± {spread:.2f}"
        return f"{shown} ({how}){' **worse**' if is_worse else ''}", is_worse


def spread_of(values):
    """Half of what lies between the first and the third quarter."""
    first, _, third = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values * 3)
    return (third - first) / 2


COLUMNS = (
    Column("answers_ms", "first answer after, ms", 0, beside=RUN_MS),
    Column("bound_ms", "bound after, ms", 0, beside=RUN_MS),
    Column("rate", "a second", 0, less_is_better=False),
    Column("lost", "lost or late, %", 1, limit=100 * LOST_SHARE, is_difference=True),
    Column("memory_mib", "memory of its own, MiB", 1, limit=MEMORY_MIB, is_difference=True, each_process=True),
    Column("files_mib", "of files, MiB", 1, limit=MEMORY_MIB, is_difference=True, each_process=True),
    Column("descriptors", "descriptors", 0, limit=DESCRIPTORS, is_difference=True, each_process=True),
    Column("low_descriptors", f"of these below {LOW}", 0, limit=0, is_difference=True),
    Column("owner_ms", "owner, ms of CPU", 0, limit=math.inf, is_difference=True),
)


def cells_of(runs):
    """The cells of a case by pairs of figures, and the titles of those columns that are worse."""
    cells, worse = [], []
    processes = max((ours.get("processes", 1) for _, ours in runs), default=1)
    for column in COLUMNS:
        pairs = [(alone[column.name], ours[column.name]) for alone, ours in runs if column.name in alone and column.name in ours]
        text, is_worse = column.cell(pairs, processes)
        cells.append(text)
        worse += [f"{column.title}: {text.removesuffix(' **worse**')}"] if is_worse else []
    return cells, worse


# What any name server answers, and the programs of programs/c/answer.c.
QUERY = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04host\x07example\x03org\x00\x00\x01\x00\x01"
# A client looks so often whether there is a server, s.
STEP_S = 0.002


def has_socket(server, port):
    pattern = rf"^ *\d+: \w+:{port:04X} "
    files = (Path(f"/proc/{server.child.pid}/net/{name}") for name in ("udp", "udp6"))
    try:
        return any(re.search(pattern, file.read_text(), re.MULTILINE) for file in files)
    except OSError:
        # It has ended.
        return False


def await_bound(world, server, port):
    """Until the server has that port."""
    server.await_that(lambda: has_socket(server, port), f"socket on port {port}", step_s=STEP_S / 2)
    world.figures["bound_ms"] = 1000 * (time.monotonic() - server.begun)


def await_answer(world, server, address, port, query=QUERY):
    """Until the server has that port, and until it answers."""
    await_bound(world, server, port)
    with socket_in(CLIENT, (address, port)) as peer:
        peer.settimeout(STEP_S)
        server.await_that(lambda: is_answered(peer, query), "answer", step_s=0)
    world.figures["answers_ms"] = 1000 * (time.monotonic() - server.begun)


def is_answered(peer, query):
    try:
        peer.send(query)
        return bool(peer.recv(65536))
    except TimeoutError:
        return False
    except ConnectionRefusedError:
        time.sleep(STEP_S)
        return False


def ask(world, port, in_flight, seconds):
    """Requests for names that differ, by one thread on a CPU of its own, so that the server alone decides how fast it goes."""
    said = world.run(CLIENT, "answer", "--ask", ADDRESS[SERVER], port, seconds, in_flight)
    a_second, answered, lost = map(int, re.match(r"(\d+) a second, (\d+) answered, (\d+) lost", said).groups())
    world.figures["rate"] = a_second
    world.figures["lost"] = 100 * lost / max(1, answered + lost)


def weigh(world, server):
    """What the server and its workers hold now: memory, each page shared with others by its part, and descriptors."""
    own, files, descriptors, low, processes = 0, 0, 0, 0, 0
    owners = filter(lambda process: is_owner(world, process), Path("/proc").glob("[0-9]*"))
    world.figures["owner_ms"] = sum(cpu_ms_since(process, server.begun) for process in owners)
    for process in session_of(server):
        try:
            if os.readlink(process / "exe") == str(world.places.twinpath):
                continue
            numbers = [int(entry.name) for entry in (process / "fd").iterdir()]
            weighed = memory_kib((process / "smaps_rollup").read_text(), (process / "smaps").read_text())
        except (FileNotFoundError, ProcessLookupError, TypeError):
            continue
        own, files = own + weighed[0], files + weighed[1]
        processes += 1
        descriptors += len(numbers)
        low += sum(number < LOW for number in numbers)
    world.figures.update(
        memory_mib=own / 1024, files_mib=files / 1024, descriptors=descriptors, low_descriptors=low, processes=processes,
    )


def is_owner(world, process):
    """Whether it is one of `run`'s own: the owner of an interface, or what starts these."""
    try:
        return os.readlink(process / "exe") == str(world.places.twinpath)
    except OSError:
        return False


def cpu_ms_since(process, begun):
    """What a process has used of CPUs; 0 if it began before that time, as for another program."""
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    try:
        # From the state on: the 12th and 13th are its time, the 20th is when it began, in ticks since the machine did.
        fields = (process / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    began_s = int(fields[19]) * tick_ms / 1000 - (time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())
    return (int(fields[11]) + int(fields[12])) * tick_ms if began_s > begun - 0.05 else 0


def memory_kib(rollup, maps):
    """The memory of a process by its `smaps_rollup` and `smaps`: of its own, and pages as they are in files. Those are in memory once,
    whoever has mapped them, and the kernel takes them back whenever it likes."""
    total, anonymous, shared = (
        int(re.search(rf"^{name}:\s+(\d+)", rollup, re.MULTILINE)[1]) for name in ("Pss", "Pss_Anon", "Pss_Shmem")
    )
    # The kernel counts rings as files, which they are not.
    rings, is_ring = 0, False
    for line in maps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_ring = words[-1].startswith("anon_inode:")
        elif is_ring and words[0] == "Pss:":
            rings += int(words[1])
    own = anonymous + shared + rings
    return own, total - own


def session_of(server):
    """The processes that a program has started, itself included."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # After the name, which may have any characters: state, parent, group, session.
            fields = (process / "stat").read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == server.child.pid:
            yield process


def send_lines(address, port, count, a_second, begin=""):
    """Numbered lines at a steady rate."""
    with socket_in(CLIENT, (address, port)) as peer:
        begun = time.monotonic()
        for number in range(count):
            due = begun + number / a_second
            while time.monotonic() < due:
                time.sleep(0)
            try:
                peer.send(f"{begin}line {number}\n".encode())
            except ConnectionRefusedError:
                continue


def settled(count, is_all):
    """A number that grows, when it has come to what is waited for, or has not grown for a second; the first may take longer."""
    last, since = count(), time.monotonic()
    while not is_all(last) and time.monotonic() < since + (1 if last else 5):
        time.sleep(0.01)
        now = count()
        if now != last:
            last, since = now, time.monotonic()
    return last
