"""Programs that cannot take the library, or that receive by other means than the C library: they do as they do alone, and it is said."""

from case import ADDRESS, ANY, case, ended
from costs import await_answer, weigh
from services import PORT, asked, echoes
from world import SERVER


def answers(world, program):
    return asked(world, world.start(SERVER, program, ADDRESS[SERVER], PORT, tested=True), 4, 1)


@case("C", "a server of datagrams, 4 requests in flight", needs=("answer",), expects=ANY, costs=True)
def dynamic(world):
    return answers(world, "answer")


@case("C, static", "the same, linked statically", needs=("answer-static",), expects=ANY, costs=True)
def static(world):
    return answers(world, "answer-static")


@case("C, musl", "the same with another C library", needs=("answer-musl",), expects=ANY, costs=True)
def musl(world):
    return answers(world, "answer-musl")


@case("C, 32 bits", "the same of 32 bits", needs=("answer-32",), expects=ANY, costs=True)
def of_32_bits(world):
    return answers(world, "answer-32")


@case("C, AddressSanitizer", "the same with its checks", needs=("answer-asan",), expects=ANY, costs=True)
def asan(world):
    return answers(world, "answer-asan")


@case("sh, AddressSanitizer", "a shell that starts it", needs=("answer-asan",), expects=ANY, costs=True)
def asan_of_shell(world):
    return by_shell(world, "answer-asan")


@case("sh, musl", "a shell that starts the one with another C library", needs=("answer-musl",), expects=ANY, costs=True)
def musl_of_shell(world):
    return by_shell(world, "answer-musl")


def by_shell(world, program):
    line = f"{world.places.find(program)} {ADDRESS[SERVER]} {PORT} & trap 'kill $!; wait $!; exit $?' TERM; wait $!"
    return asked(world, world.start(SERVER, "sh", "-c", line, tested=True), 4, 1)


@case("chronyd -F 1", "with its own filter of system calls: another one asks it for the time", needs=("chronyd",), expects=ANY, costs=True)
def chronyd(world):
    conf = world.write("server.conf", f"cmdport 0\nbindcmdaddress /\npidfile {world.folder}/server.pid\nlocal stratum 5\nallow all\n")
    server = world.start(SERVER, "chronyd", "-x", "-u", "root", "-F", 1, "-d", "-f", conf, tested=True)
    # A request of a client, version 4.
    await_answer(world, server, ADDRESS[SERVER], 123, b"\x23" + bytes(47))
    weigh(world, server)
    return ended(server)


@case("uvloop", "asyncio with libuv's loop: a server of datagrams", needs=("python3.11", "usr/lib/python3/dist-packages/uvloop"), expects=ANY, costs=True)
def uvloop(world):
    server = world.start(SERVER, "python3.11", "-c", UVLOOP, ADDRESS[SERVER], PORT, tested=True)
    await_answer(world, server, ADDRESS[SERVER], PORT)
    echoes(world, PORT, 1)
    weigh(world, server)
    return ended(server)


UVLOOP = """
import asyncio, signal, sys
import uvloop

class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.transport.sendto(data, address)

async def main():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Echo, local_addr=(sys.argv[1], int(sys.argv[2])))
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()

uvloop.run(main()) if hasattr(uvloop, "run") else (uvloop.install(), asyncio.run(main()))
"""
