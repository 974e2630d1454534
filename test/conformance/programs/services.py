"""Servers of datagrams as they are deployed: by inetd, with workers, and replaced while they are asked."""

import socket
import struct
import threading
import time

from case import ADDRESS, ANY, case, ended, one
from costs import QUERY, ask, await_answer, weigh
from world import CLIENT, SERVER, socket_in

PORT = 9053
ASK_S = 2


def asked(world, server, in_flight, seconds=ASK_S):
    """A server that is asked by one thread, which always has so many requests in flight."""
    await_answer(world, server, ADDRESS[SERVER], PORT)
    ask(world, PORT, in_flight, seconds)
    weigh(world, server)
    return f"answers\n{ended(server)}"


@case("inetd", "a program is started for each datagram (dgram, wait)", needs=("inetd", "answer"), expects=ANY, costs=True)
def inetd(world):
    conf = world.write("inetd.conf", f"{ADDRESS[SERVER]}:{PORT} dgram udp wait.100000 root {world.places.find('answer')} answer --one\n")
    server = world.start(SERVER, "inetd", "-i", conf, tested=True)
    return asked(world, server, 1)


@case("inetd, internal", "its own service echo", needs=("inetd",), expects=ANY, costs=True)
def inetd_internal(world):
    conf = world.write("inetd.conf", f"{ADDRESS[SERVER]}:echo dgram udp wait root internal\n")
    server = world.start(SERVER, "inetd", "-i", conf, tested=True)
    await_answer(world, server, ADDRESS[SERVER], 7)
    echoes(world, 7, 1)
    weigh(world, server)
    return ended(server)


def echoes(world, port, seconds):
    """Datagrams that come back, one in flight."""
    with socket_in(CLIENT, (ADDRESS[SERVER], port)) as peer:
        peer.settimeout(AGAIN_S)
        sent, came, begun = 0, 0, time.monotonic()
        while time.monotonic() < begun + seconds:
            peer.send(QUERY)
            sent += 1
            try:
                peer.recv(2048)
                came += 1
            except TimeoutError:
                continue
        world.figures["rate"] = came / (time.monotonic() - begun)
        world.figures["lost"] = 100 * (sent - came) / sent


# One that has not come back by then is lost, s.
AGAIN_S = 0.5


@case("socat, RECVFROM", "UDP4-RECVFROM, fork: a process for each datagram", needs=("socat",), expects=ANY, costs=True)
def socat_fork(world):
    server = world.start(SERVER, "socat", f"UDP4-RECVFROM:{PORT},bind={ADDRESS[SERVER]},fork", "PIPE", tested=True)
    await_answer(world, server, ADDRESS[SERVER], PORT)
    echoes(world, PORT, ASK_S)
    weigh(world, server)
    return ended(server)


@case("prefork", "four children receive from the socket of their parent", needs=("answer",), expects=ANY, costs=True)
def prefork(world):
    return asked(world, world.start(SERVER, "answer", ADDRESS[SERVER], PORT, 4, tested=True), 4)


@case("bind", "sockets are opened with a port that the program names, and closed, for 1 s", needs=("answer",), expects=ANY, costs=True)
def bind(world):
    said = world.run(SERVER, "answer", "--bind", ADDRESS[SERVER], 1, tested=True)
    world.figures["rate"] = float(one(r"(\d+) a second", said, "a rate")[0])
    return "bound\n"


# Requests of the client, and when an answer is late, s.
EACH_S = 0.002
LATE_S = 0.1
# How long the client goes on, and when the server is replaced, s.
RESTART_S = 2.4
REPLACED_S = 0.8


class Numbered:
    """A client that sends numbered requests at a steady rate, whatever becomes of those before."""

    def __init__(self, port):
        self.peer = socket_in(CLIENT, (ADDRESS[SERVER], port))
        self.sent, self.took = [], {}
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=each) for each in (self.send, self.receive)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()
        self.peer.close()

    def send(self):
        begun = time.monotonic()
        while not self.ends.is_set() and (due := begun + len(self.sent) * EACH_S) < begun + RESTART_S:
            time.sleep(max(0, due - time.monotonic()))
            request = QUERY[:3] + b"\0" + struct.pack("!I", len(self.sent)) + QUERY[8:]
            self.sent.append(time.monotonic())
            try:
                self.peer.send(request)
            except ConnectionRefusedError:
                continue

    def receive(self):
        self.peer.settimeout(0.3)
        # What comes later counts as lost.
        while not self.ends.is_set():
            try:
                (number,) = struct.unpack("!I", self.peer.recv(2048)[4:8])
            except socket.timeout:
                if len(self.sent) * EACH_S >= RESTART_S:
                    return
            except ConnectionRefusedError:
                continue
            else:
                self.took[number] = time.monotonic() - self.sent[number]

    def late_or_lost(self):
        self.threads[0].join()
        self.threads[1].join()
        late = sum(took > LATE_S for took in self.took.values())
        return 100 * (late + len(self.sent) - len(self.took)) / len(self.sent)


@case("rolling restart", f"SO_REUSEPORT: another server takes over, while a client sends a request every {1000 * EACH_S:.0f} ms; late: after "
      f"{1000 * LATE_S:.0f} ms", needs=("answer",), expects=ANY, costs=True)
def rolling_restart(world):
    def start():
        return world.start(SERVER, "answer", "--group", ADDRESS[SERVER], PORT, tested=True)

    before = start()
    await_answer(world, before, ADDRESS[SERVER], PORT)
    with Numbered(PORT) as client:
        time.sleep(REPLACED_S)
        after = start()
        sockets = f":{PORT:04X} "
        after.await_that(lambda: open(f"/proc/{after.child.pid}/net/udp").read().count(sockets) > 1, "second socket", step_s=0.001)
        said = ended(before)
        world.figures["lost"] = client.late_or_lost()
    weigh(world, after)
    return f"{said}{ended(after)}"
