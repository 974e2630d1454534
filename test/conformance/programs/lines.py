"""Receivers of lines and of streams that nobody sends again."""

import re

from case import ADDRESS, ANY, case, one
from costs import await_bound, send_lines, settled, weigh
from world import CLIENT, SERVER

# In one burst, from the moment when the port is open, at a rate that a receiver that runs keeps up with.
LINES = 3_000
A_SECOND = 10_000


def came(world, count):
    """How many lines came. A burst is received as it comes, so that how many are lost is a figure, and not what the program does."""
    lines = settled(count, lambda lines: lines >= LINES)
    world.figures["lost"] = 100 * (LINES - lines) / LINES
    return "lines\n" if lines else "no line\n"


def start_netcat(world):
    """It writes what comes to its standard output."""
    return world.start(SERVER, "nc.openbsd", "-u", "-l", "-k", ADDRESS[SERVER], 514, tested=True)


@case("nc", f"-u -l -k: {LINES:,} lines in a burst as soon as it has its port", needs=("nc.openbsd",), expects=ANY, costs=True)
def netcat(world):
    server = start_netcat(world)
    await_bound(world, server, 514)
    send_lines(ADDRESS[SERVER], 514, LINES, A_SECOND)
    said = came(world, lambda: len(re.findall(r"^line \d+$", server.said(), re.MULTILINE)))
    weigh(world, server)
    server.stop()
    return said


def start_haproxy(world, side, to, tested):
    """It answers each request itself, and writes a line about it."""
    conf = world.write("haproxy.cfg", f"""global
  log {to}:514 local0
defaults
  mode http
  log global
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend all
  bind {ADDRESS[side]}:8080
  log-format "line %rt"
  http-request return status 200 content-type text/plain string ok
""")
    server = world.start(side, "haproxy", "-db", "-f", conf, tested=tested)
    server.await_that(lambda: is_open(server, 8080), "port", step_s=0.002)
    return server


def is_open(server, port):
    with open(f"/proc/{server.child.pid}/net/tcp") as table:
        return f":{port:04X} 00000000:0000 0A" in table.read()


@case("nc, haproxy's log", f"the lines that haproxy sends about {LINES:,} requests in a burst", needs=("nc.openbsd", "haproxy", "curl"),
      expects=ANY, costs=True)
def netcat_haproxy(world):
    start_haproxy(world, CLIENT, ADDRESS[SERVER], False)
    server = start_netcat(world)
    await_bound(world, server, 514)
    world.run(CLIENT, "curl", "-sS", "-o", "/dev/null", f"http://{ADDRESS[CLIENT]}:8080/[1-{LINES}]")
    said = came(world, lambda: len(re.findall(r"line \d+", server.said())))
    weigh(world, server)
    server.stop()
    return said


@case("haproxy", "answers requests, and writes a line about each to a receiver at the other end", needs=("haproxy", "nc.openbsd", "curl"),
      expects=ANY, costs=True)
def haproxy(world):
    receiver = world.start(CLIENT, "nc.openbsd", "-u", "-l", "-k", ADDRESS[CLIENT], 514)
    server = start_haproxy(world, SERVER, ADDRESS[CLIENT], True)
    count = 2 * LINES
    said = world.run(
        CLIENT, "curl", "-sS", "-o", "/dev/null", "-w", "%{time_total}\n", f"http://{ADDRESS[SERVER]}:8080/[1-{count}]"
    )
    world.figures["rate"] = count / sum(map(float, said.split()))
    weigh(world, server)
    lines = settled(lambda: len(re.findall(r"line \d+", receiver.said())), lambda lines: lines >= count)
    world.figures["lost"] = 100 * (count - lines) / count
    server.stop()
    return f"{said.count(chr(10))} answers\n"


@case("rsyslogd, a burst", f"imudp: {LINES:,} lines as soon as it has its port", needs=("rsyslogd",), expects=ANY, costs=True)
def rsyslogd(world):
    messages = world.path("messages")
    conf = world.write("rsyslog.conf", f"""module(load="imudp")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="lines") {{ action(type="omfile" file="{messages}" template="line") }}
input(type="imudp" address="{ADDRESS[SERVER]}" port="514" ruleset="lines")
""")
    server = world.start(SERVER, "rsyslogd", "-n", "-f", conf, "-i", world.path("rsyslogd.pid"), tested=True)
    await_bound(world, server, 514)
    begin = "<13>Jan  1 00:00:00 client test: "
    send_lines(ADDRESS[SERVER], 514, LINES, A_SECOND, begin)
    said = came(world, lambda: messages.read_text().count("line ") if messages.exists() else 0)
    weigh(world, server)
    server.stop()
    return said


@case("iperf", "server of iperf 2, -u: 2 s of datagrams of 200 bytes as soon as it has its port", needs=("iperf",), expects=ANY, costs=True)
def iperf(world):
    server = world.start(SERVER, "iperf", "-s", "-u", "-B", ADDRESS[SERVER], "-e", tested=True)
    await_bound(world, server, 5001)
    said = world.run(CLIENT, "iperf", "-c", ADDRESS[SERVER], *"-u -b 8M -l 200 -t 2 -e".split())
    lost, sent = one(r"Server Report.*?\s(\d+)/\s*(\d+) \(", " ".join(said.split()), "a report")
    world.figures["lost"] = 100 * int(lost) / int(sent)
    weigh(world, server)
    server.stop()
    return "a report\n"
