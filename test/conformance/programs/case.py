"""What a case is, and what cases share.

A case is a function of a world. It starts the tested program with `tested=True`, and returns text, which has to be the same with the
program under `run` and alone.
"""

import re
from pathlib import Path

from world import ADDRESS, CLIENT, Failed  # noqa: F401

HERE = Path(__file__).parent

# What a case is expected to end as: its datagrams come by the ring while a lease is held; whatever it is, as the kernel has its
# sockets, or as how long it spins depends on what else the machine does; or it has no datagrams.
FAST = "fast"
ANY = "any"
TCP = "tcp"

SERVERS = "[[rule]]\n"
# Also sockets whose port the kernel has chosen, as those of clients.
CLIENTS = "[[rule]]\nchosen-ports = true\n"

CASES = []


class Case:
    def __init__(self, name, what, function, needs, expects=FAST, rules=SERVERS, rate=None, otherwise=None, costs=False):
        self.name = name
        self.what = what
        self.function = function
        # Names of programs.
        self.needs = needs
        self.expects = expects
        self.rules = rules
        # Finds in the text what is not the same each time: a rate, which is compared as such.
        self.rate = rate
        # Why the kernel has the datagrams of sockets with a fast path, if it has.
        self.otherwise = otherwise
        # Whether it measures what the program costs: see costs.py.
        self.costs = costs


def case(name, what, **more):
    """Adds a case, whose function follows."""
    def add(function):
        CASES.append(Case(name, what, function, **more))
        return function

    return add


def ask(world, address, what, port, count, *more):
    """A client that is of no package: see peers.py."""
    return world.run(CLIENT, "python3", HERE / "peers.py", what, address, port, count, *more)


def ended(server):
    """How a server ends when it is told to."""
    return f"exit code {server.stop()}\n"


def listening(server, port, kind="udp"):
    """Until a socket receives on that port in the server's namespace."""
    # Of TCP one that listens: connections of a former server may be in TIME_WAIT there.
    state = "0A" if kind == "tcp" else "07"

    def has_socket():
        files = (Path(f"/proc/{server.child.pid}/net/{name}") for name in (kind, kind + "6"))
        line = rf"^ *\d+: \w+:{port:04X} \w+:\w+ {state} "
        return any(re.search(line, file.read_text(), re.MULTILINE) for file in files)

    server.await_that(has_socket, f"socket on port {port}")


def one(pattern, text, what):
    """The groups of the only place where the pattern is found."""
    match = re.search(pattern, text)
    if not match:
        raise Failed(f"{what} is not in: {text.strip()[-300:]}")
    return match.groups()
