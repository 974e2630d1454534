"""Programs that speak UDP, but for name servers."""

import hashlib
import json
import re
import signal

from case import ADDRESS, CLIENTS, ANY, ask, case, ended, listening, one
from world import CLIENT, SERVER, Failed


def memcached(world, threads):
    at = ADDRESS[SERVER]
    server = world.start(SERVER, "memcached", "-u", "root", "-l", at, "-p", 11211, "-U", 11211, "-t", threads, tested=True)
    listening(server, 11211)
    return f"{ask(world, at, 'memcached', 11211, 20000)}{ended(server)}"


@case("memcached, one thread", "keys are set and read over UDP, one request in flight", needs=("memcached",))
def memcached_one(world):
    return memcached(world, 1)


@case(
    "memcached", "the same with its four threads, each with a duplicate of one socket in an epoll set of its own",
    needs=("memcached",), expects=ANY,
)
def memcached_four(world):
    return memcached(world, 4)


def chronyd(world, side, name, lines, tested, *more):
    conf = world.write(f"{name}.conf", f"cmdport 0\nbindcmdaddress /\npidfile {world.folder}/{name}.pid\n{lines}")
    return world.start(side, "chronyd", "-x", "-u", "root", "-f", conf, *more, tested=tested)


def chrony(world, is_server_tested):
    server = chronyd(world, SERVER, "server", "local stratum 5\nallow all\n", is_server_tested, "-d")
    listening(server, 123)
    asks = f"server {ADDRESS[SERVER]} iburst minpoll 0 maxpoll 0\n"
    client = chronyd(world, CLIENT, "client", asks, not is_server_tested, "-Q", "-t", 30)
    client.await_end()
    (offset,) = one(r"clock wrong by (-?[0-9.]+) seconds", client.said(), "an offset")
    agree = "the clocks agree\n" if abs(float(offset)) < 0.05 else f"the clocks differ by {offset} s\n"
    return f"{agree}{ended(server)}"


FEW = "too few datagrams: it sleeps until each of them comes"


@case("chronyd, server", "another chronyd asks it for the time", needs=("chronyd",), expects=ANY, otherwise=FEW)
def chrony_server(world):
    return chrony(world, True)


@case("chronyd, client", "asks another one", needs=("chronyd",), rules=CLIENTS, expects=ANY, otherwise=FEW)
def chrony_client(world):
    return chrony(world, False)


@case("iperf3", "server of `iperf3 -u`: 20 Mbit/s for 3 s", needs=("iperf3",), expects=ANY)
def iperf3(world):
    server = world.start(SERVER, "iperf3", "-s", "-1", "--forceflush", "-B", ADDRESS[SERVER], tested=True)
    server.await_text("Server listening")
    said = world.run(CLIENT, "iperf3", "-c", ADDRESS[SERVER], *"-u -b 20M -l 1000 -t 3 --json".split())
    total = json.loads(said)["end"]["sum"]
    # It sends whatever the machine does, and the buffer of a socket is short.
    is_right = total["packets"] > 7000 and total["lost_packets"] * 20 <= total["packets"]
    lost = "fewer than one datagram in 20 lost" if is_right else f"{total['lost_packets']} of {total['packets']} lost"
    return f"{lost}\nexit code {server.await_end()}\n"


def sockperf(world, is_server_tested):
    at = ("-i", ADDRESS[SERVER], "-p", 11111)
    server = world.start(SERVER, "sockperf", "server", *at, tested=is_server_tested)
    listening(server, 11111)
    said = world.run(CLIENT, "sockperf", "ping-pong", *at, "-t", 3, "-m", 64, tested=not is_server_tested)
    pattern = r"dropped messages = (\d+).*duplicated messages = (\d+).*out-of-order messages = (\d+)"
    counts = one(pattern, said, "the counts of messages")
    server.send(signal.SIGINT)
    return "dropped {}, duplicated {}, out of order {}\nexit code {}\n".format(*counts, server.await_end())


@case("sockperf, server", "ping-pong for 3 s", needs=("sockperf",))
def sockperf_server(world):
    return sockperf(world, True)


@case("sockperf, client", "the same from the other end", needs=("sockperf",), rules=CLIENTS)
def sockperf_client(world):
    return sockperf(world, False)


def http3(world, is_server_tested):
    """Fetches a file of 4 MB, and says what came."""
    root, got = world.path("root"), world.path("got")
    root.mkdir()
    got.mkdir()
    (root / "large").write_text("".join(f"line {number}\n" for number in range(400_000)))
    at = (ADDRESS[SERVER], 4433)
    out = world.places.out
    server = world.start(
        SERVER, "gtlsserver", "-q", "-d", root, *at, out / "key.pem", out / "certificate.pem", tested=is_server_tested
    )
    listening(server, 4433)
    client = world.start(
        CLIENT, "gtlsclient", "-q", "--exit-on-all-streams-close", f"--download={got}", *at,
        f"https://{ADDRESS[SERVER]}:4433/large", tested=not is_server_tested,
    )
    code = client.await_end()
    is_same = (got / "large").exists() and (got / "large").read_bytes() == (root / "large").read_bytes()
    server.send(signal.SIGTERM)
    return f"{'the file came' if is_same else 'not the file'}, exit code {code}\nserver's exit code {server.await_end()}\n"


# Each of the frames has several datagrams, for the kernel to part or to give to the program at once.
SUPER_FRAMES = "super-frames of several datagrams (UDP_SEGMENT), which the ring does not take"


@case(
    "gtlsserver", "HTTP/3 by ngtcp2's server: a file of 4 MB", needs=("gtlsserver", "gtlsclient"), expects=ANY,
    otherwise="waiting adaptively, it slept until they came",
)
def http3_server(world):
    return http3(world, True)


@case(
    "gtlsclient", "HTTP/3 by ngtcp2's client: the same file", needs=("gtlsserver", "gtlsclient"), rules=CLIENTS, expects=ANY,
    otherwise=SUPER_FRAMES,
)
def http3_client(world):
    return http3(world, False)


def socat(world, tested):
    server = world.start(
        SERVER, "socat", "-T", 5, f"UDP4-LISTEN:9000,bind={ADDRESS[SERVER]}", "PIPE", tested=tested
    )
    listening(server, 9000)
    return server


@case("socat, server", "UDP4-LISTEN sends 40,000 datagrams back, one in flight", needs=("socat",))
def socat_server(world):
    server = socat(world, True)
    return f"{ask(world, ADDRESS[SERVER], 'echo', 9000, 40000)}{ended(server)}"


@case("socat, client", "sends its input, and gets it back", needs=("socat",), rules=CLIENTS, expects=ANY)
def socat_client(world):
    socat(world, False)
    to = f"UDP4:{ADDRESS[SERVER]}:9000"
    return world.run(CLIENT, "socat", "-t", 2, "-", to, tested=True, given="one\ntwo\nthree\n")


# It waits by an edge-triggered set, for bursts of lines.
@case(
    "rsyslogd", "imudp: 10,000 lines into a file, in bursts", needs=("rsyslogd",), expects=ANY,
    otherwise="waiting adaptively, it slept until each burst came",
)
def rsyslogd(world):
    messages = world.path("messages")
    conf = world.write("rsyslog.conf", f"""module(load="imudp")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="lines") {{ action(type="omfile" file="{messages}" template="line") }}
input(type="imudp" address="{ADDRESS[SERVER]}" port="514" ruleset="lines")
""")
    server = world.start(SERVER, "rsyslogd", "-n", "-f", conf, "-i", world.path("rsyslogd.pid"), tested=True)
    listening(server, 514)
    ask(world, ADDRESS[SERVER], "syslog", 514, 10000, messages)
    # In the order in which they were sent.
    text = messages.read_text()
    return f"{len(text.splitlines())} lines, {hashlib.sha256(text.encode()).hexdigest()[:16]}\n{ended(server)}"


# Both ends of these tests are threads of one process, so everything passes the loopback.
PYTHON_TESTS = "test.test_socket test.test_asyncio.test_events test.test_asyncio.test_sock_lowlevel test.test_asyncio.test_base_events"


@case("python3, its tests", "test_socket and test_asyncio, as far as they are about UDP", needs=("python3.11",), expects=ANY)
def python_tests(world):
    tests = world.start(
        SERVER, "python3.11", "-m", "unittest", "-v", *PYTHON_TESTS.split(),
        *"-k UDP -k udp -k atagram".split(), tested=True,
    )
    code = tests.await_end()
    said = re.findall(r"^(test\w+ \([^)]+\)).*?\.\.\. (ok|FAIL|ERROR|skipped)", tests.said(), re.MULTILINE | re.DOTALL)
    if not said:
        raise Failed(f"no test was run: {tests.said()[-300:]}")
    right = sum(outcome == "ok" for _, outcome in said)
    others = sorted(f"{name}: {outcome}\n" for name, outcome in said if outcome != "ok")
    return f"{right} tests ok\n{''.join(others)}exit code {code}\n"


@case("python3", "asyncio: a server of datagrams sends 40,000 back, one in flight", needs=("python3.11",))
def python_asyncio(world):
    server = world.start(SERVER, "python3.11", "-c", ASYNCIO, ADDRESS[SERVER], tested=True)
    server.await_text("ready")
    return f"{ask(world, ADDRESS[SERVER], 'echo', 9000, 40000)}{ended(server)}"


ASYNCIO = """
import asyncio, signal, sys

class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.transport.sendto(data, address)

async def main():
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=(sys.argv[1], 9000))
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    await ended.wait()
    transport.close()

asyncio.run(main())
"""


def go_echo(world, program):
    server = world.start(SERVER, program, f"{ADDRESS[SERVER]}:9000", tested=True)
    server.await_text("ready")
    return f"{ask(world, ADDRESS[SERVER], 'echo', 9000, 2000)}{ended(server)}"


@case("Go, static", "net.ListenPacket: 2,000 datagrams are sent back", needs=("go-echo-static",), expects=ANY)
def go_static(world):
    return go_echo(world, "go-echo-static")


@case("Go, dynamic", "the same, linked with the C library", needs=("go-echo-dynamic",), expects=ANY)
def go_dynamic(world):
    return go_echo(world, "go-echo-dynamic")
