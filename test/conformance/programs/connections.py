"""Programs that speak TCP: `run` is to change nothing for them."""

import hashlib
import re
import signal
import time

from case import ADDRESS, TCP, case, ended, listening, one
from world import CLIENT, SERVER


@case("redis-server", "redis-benchmark: SET and GET on 4 connections", needs=("redis-server", "redis-benchmark"), expects=TCP,
      rate=r"(\d+) requests/s")
def redis(world):
    server = world.start(
        SERVER, "redis-server", "--bind", ADDRESS[SERVER], "--port", 6379, "--save", "", "--dir", world.folder,
        "--protected-mode", "no", tested=True,
    )
    server.await_text("Ready to accept connections")
    at = ("-h", ADDRESS[SERVER], "-p", 6379)
    stored = world.run(CLIENT, "redis-cli", *at, "SET", "key", "value")
    read = world.run(CLIENT, "redis-cli", *at, "GET", "key")
    said = world.run(CLIENT, "redis-benchmark", *at, *"-n 40000 -c 4 -t get --csv".split())
    (rate,) = one(r'"GET","(\d+)', said, "a rate")
    return f"{stored}{read}{rate} requests/s\n{ended(server)}"


def start_nginx(world, tested):
    for name, size in (("small", 100), ("large", 1_000_000)):
        world.path("root").mkdir(exist_ok=True)
        world.write(f"root/{name}", hashlib.sha256(name.encode()).hexdigest() * (size // 64))
    conf = world.write("nginx.conf", f"""daemon off;
worker_processes 2;
pid {world.folder}/nginx.pid;
error_log stderr notice;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {world.folder}/body;
  proxy_temp_path {world.folder}/proxy;
  fastcgi_temp_path {world.folder}/fastcgi;
  uwsgi_temp_path {world.folder}/uwsgi;
  scgi_temp_path {world.folder}/scgi;
  server {{ listen {ADDRESS[SERVER]}:8080; root {world.folder}/root; }}
}}
""")
    server = world.start(SERVER, "nginx", "-p", world.folder, "-c", conf, "-g", "user root;", tested=tested)
    listening(server, 8080, "tcp")
    return server


def fetch(world, names, tested=False):
    """Fetches files in one go. What they are, by a hash."""
    urls = [f"http://{ADDRESS[SERVER]}:8080/{name}" for name in names]
    text = world.run(CLIENT, "curl", "-sS", "--fail", *urls, tested=tested)
    return f"{len(text)} bytes, {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"


def requests_per_second(world, tested=False):
    """The rate at which curl fetches a small file again and again, by one connection; its start is part of it."""
    count = 4_000
    begun = time.monotonic()
    url = f"http://{ADDRESS[SERVER]}:8080/small?[1-{count}]"
    world.run(CLIENT, "curl", "-sS", "--fail", "-o", "/dev/null", url, tested=tested)
    return f"{count / (time.monotonic() - begun):.0f} requests/s\n"


@case("nginx", "files by curl, before and after a reload", needs=("nginx", "curl"), expects=TCP, rate=r"(\d+) requests/s")
def nginx(world):
    server = start_nginx(world, True)
    before = fetch(world, ["small", "large"] * 20)
    workers = len(re.findall("start worker process ", server.said()))
    world.write("root/small", "changed")
    server.send(signal.SIGHUP)
    server.await_that(lambda: server.said().count("start worker process ") >= workers + 2, "new workers")
    after = fetch(world, ["small", "large"] * 20)
    return f"{before}{after}{requests_per_second(world)}{ended(server)}"


@case("curl", "fetches files from nginx", needs=("nginx", "curl"), expects=TCP, rate=r"(\d+) requests/s")
def curl(world):
    start_nginx(world, False)
    return fetch(world, ["small", "large"] * 20, tested=True) + requests_per_second(world, tested=True)
