"""Name servers, and who asks them."""

from case import ADDRESS, CLIENTS, ANY, case, ended, one
from costs import ask, await_answer, weigh
from world import CLIENT, SERVER

HOSTS = 1000


def address_of(number):
    return f"198.51.100.{number % 250 + 1}"


def start_nsd(world, tested, more="", side=SERVER):
    lines = "".join(f"host{number} IN A {address_of(number)}\n" for number in range(HOSTS))
    head = "$ORIGIN example.org.\n$TTL 3600\n@ IN SOA ns hostmaster 1 3600 600 86400 60\n@ IN NS ns\nns IN A 192.0.2.1\n"
    world.write("zone", head + lines + "*.any IN A 198.51.100.1\n")
    folder = world.folder
    conf = world.write("nsd.conf", f"""server:
  ip-address: {ADDRESS[side]}
  username: ""
  chroot: ""
  database: ""
  pidfile: "{folder}/nsd.pid"
  zonesdir: "{folder}"
  zonelistfile: "{folder}/zone.list"
  xfrdfile: "{folder}/xfrd.state"
  xfrdir: "{folder}"
  rrl-ratelimit: 0
  {more}
remote-control:
  control-enable: no
zone:
  name: "example.org"
  zonefile: "zone"
""")
    server = world.start(side, "nsd", "-d", "-c", conf, tested=tested)
    server.await_text("nsd started")
    return server


def start_unbound(world, threads):
    data = "".join(
        f'  local-data: "host{number}.example.org. 3600 IN A {address_of(number)}"\n' for number in range(HOSTS)
    )
    conf = world.write("unbound.conf", f"""server:
  interface: {ADDRESS[SERVER]}
  access-control: 192.0.2.0/24 allow
  username: ""
  chroot: ""
  directory: "{world.folder}"
  pidfile: ""
  do-daemonize: no
  use-syslog: no
  verbosity: 1
  num-threads: {threads}
  module-config: "iterator"
  local-zone: "example.org." static
{data}
remote-control:
  control-enable: no
""")
    server = world.start(SERVER, "unbound", "-d", "-p", "-c", conf, tested=True)
    server.await_text("start of service")
    return server


def dnsperf(world):
    """20,000 queries, of which one in eleven is for a name that is not there."""
    queries = "".join(f"host{number % (HOSTS + 100)}.example.org A\n" for number in range(2 * (HOSTS + 100)))
    said = world.run(
        CLIENT, "dnsperf", "-s", ADDRESS[SERVER], "-d", world.write("queries", queries),
        "-n", 9, "-c", 4, "-q", 4, "-t", 10,
    )
    wanted = ("Queries sent", "Queries completed", "Queries lost", "Response codes")
    return "".join(" ".join(line.split()) + "\n" for line in said.splitlines() if line.strip().startswith(wanted))


@case("nsd", "dnsperf, 19,800 queries, 4 in flight on 4 sockets; one server process", needs=("nsd", "dnsperf"), expects=ANY)
def nsd(world):
    server = start_nsd(world, True)
    return f"{dnsperf(world)}{ended(server)}"


@case("nsd, two processes", "the same; `reuseport`: each process has a socket of one group", needs=("nsd", "dnsperf"), expects=ANY)
def nsd_group(world):
    server = start_nsd(world, True, "server-count: 2\n  reuseport: yes")
    return f"{dnsperf(world)}{ended(server)}"


@case("unbound", "the same with local data; one thread", needs=("unbound", "dnsperf"), expects=ANY)
def unbound(world):
    server = start_unbound(world, 1)
    return f"{dnsperf(world)}{ended(server)}"


@case("unbound, two threads", "the same; each thread has a socket of one SO_REUSEPORT group", needs=("unbound", "dnsperf"), expects=ANY)
def unbound_group(world):
    server = start_unbound(world, 2)
    return f"{dnsperf(world)}{ended(server)}"


# Each of its sockets gets one datagram, which it waits for asleep.
@case(
    "dig", "20 queries, each by a socket of its own", needs=("dig", "nsd"), rules=CLIENTS, expects=ANY,
    otherwise="each socket waits for one datagram, asleep",
)
def dig(world):
    server = start_nsd(world, False)
    names = world.write("names", "".join(f"host{number}.example.org A\n" for number in range(20)))
    said = world.run(CLIENT, "dig", f"@{ADDRESS[SERVER]}", "+short", "-f", names, tested=True)
    return f"{said}{ended(server)}"


# Seconds of queries, and in flight. Before they count, the first port of the program has earned its lease, or has not: to begin, an owner
# takes some 90 ms of the program's CPUs, once.
BEGIN_S = 1
FORWARD_S = 2
IN_FLIGHT = 20


def forwarded(world, start):
    """A forwarder that asks nsd at the other end of the link for each name, of which none is asked for twice."""
    start_nsd(world, False, side=CLIENT)
    server = start()
    await_answer(world, server, ADDRESS[SERVER], 53, QUERY_ANY)
    ask(world, 53, IN_FLIGHT, BEGIN_S)
    ask(world, 53, IN_FLIGHT, FORWARD_S)
    weigh(world, server)
    return f"answers\n{ended(server)}"


# For host.any.example.org.
QUERY_ANY = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04host\x03any\x07example\x03org\x00\x00\x01\x00\x01"


@case("unbound, forwarder", f"{FORWARD_S} s of queries, {IN_FLIGHT} in flight; a random port for each", needs=("unbound", "nsd", "answer"),
      expects=ANY, costs=True)
def unbound_forwarder(world):
    conf = world.write("unbound.conf", f"""server:
  interface: {ADDRESS[SERVER]}
  access-control: 192.0.2.0/24 allow
  username: ""
  chroot: ""
  directory: "{world.folder}"
  pidfile: ""
  do-daemonize: no
  use-syslog: no
  num-threads: 1
  module-config: "iterator"
  do-not-query-localhost: no
forward-zone:
  name: "."
  forward-addr: {ADDRESS[CLIENT]}
remote-control:
  control-enable: no
""")
    return forwarded(world, lambda: world.start(SERVER, "unbound", "-d", "-p", "-c", conf, tested=True))


@case("named, forwarder", "the same", needs=("named", "nsd", "answer"), expects=ANY, costs=True)
def named_forwarder(world):
    conf = world.write("named.conf", f"""options {{
  directory "{world.folder}";
  pid-file none;
  session-keyfile "{world.folder}/session.key";
  lock-file none;
  listen-on {{ {ADDRESS[SERVER]}; }};
  listen-on-v6 {{ none; }};
  forwarders {{ {ADDRESS[CLIENT]}; }};
  forward only;
  recursion yes;
  allow-query {{ any; }};
  allow-recursion {{ any; }};
  dnssec-validation no;
}};
controls {{ }};
""")
    return forwarded(world, lambda: world.start(SERVER, "named", "-g", "-n", 1, "-c", conf, tested=True))


@case("dnsmasq, forwarder", "the same", needs=("dnsmasq", "nsd", "answer"), expects=ANY, costs=True)
def dnsmasq_forwarder(world):
    return forwarded(world, lambda: world.start(
        SERVER, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file", "--no-resolv", "--no-hosts",
        "--cache-size=0", f"--listen-address={ADDRESS[SERVER]}", "--bind-interfaces", f"--server={ADDRESS[CLIENT]}",
        "--dns-forward-max=500", tested=True,
    ))
