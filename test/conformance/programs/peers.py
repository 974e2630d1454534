"""The other ends that are of no package: clients that ask a server over UDP, and say what they got.

    peers.py echo ADDRESS PORT COUNT          numbered datagrams, one in flight; each has to come back as it was
    peers.py memcached ADDRESS PORT COUNT     keys are set and read again
    peers.py syslog ADDRESS PORT COUNT FILE   lines; now and then it waits until all of them are in the file that the server writes
"""

import socket
import struct
import sys
import time
from pathlib import Path

# UDP may lose a datagram. A client asks again after so long, s, and gives up after so many times.
AGAIN_S = 1.0
TRIES = 10

# Lines that are sent without waiting: the buffer of a socket has room for them. How long they may take, s.
LINES = 100
LINES_S = 60


def main():
    what, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    peer = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    peer.connect((address, port))
    peer.settimeout(AGAIN_S)
    again = {"echo": echo, "memcached": memcached, "syslog": syslog}[what](peer, count)
    # Datagrams that were asked for again are the same for both sides of a comparison only if there are none.
    print(f"{what}: {count} right")
    print(f"{again} asked again", file=sys.stderr)


def ask(peer, request, is_answer):
    """Sends until the answer comes. Returns it, and how often it was asked again."""
    for again in range(TRIES):
        peer.send(request)
        try:
            while True:
                answer = peer.recv(65536)
                if is_answer(answer):
                    return answer, again
        except (TimeoutError, ConnectionRefusedError):
            continue
    sys.exit(f"no answer after {TRIES} s")


def echo(peer, count):
    asked_again = 0
    for number in range(count):
        request = struct.pack("!I", number) * (1 + number % 256)
        _, again = ask(peer, request, lambda answer: answer == request)
        asked_again += again
    return asked_again


def memcached(peer, count):
    asked_again = 0
    number = 0

    def call(text, wanted):
        nonlocal asked_again, number
        number = (number + 1) % 65536
        # The header of a request: its number, 0 of 1 datagrams, reserved.
        header = struct.pack("!HHHH", number, 0, 1, 0)
        answer, again = ask(peer, header + text.encode(), lambda answer: answer[:2] == header[:2])
        asked_again += again
        if answer[8:].decode() != wanted:
            sys.exit(f"{text!r} was answered by {answer[8:]!r}")

    keys = min(count, 100)
    for key in range(keys):
        value = f"value {key} " * (1 + key % 8)
        call(f"set key{key} {key} 0 {len(value)}\r\n{value}\r\n", "STORED\r\n")
    for turn in range(count - keys):
        key = turn % keys
        value = f"value {key} " * (1 + key % 8)
        call(f"get key{key}\r\n", f"VALUE key{key} {key} {len(value)}\r\n{value}\r\nEND\r\n")
    return asked_again


def syslog(peer, count):
    file = Path(sys.argv[5])
    for number in range(count):
        peer.send(f"<13>Jan  1 00:00:00 client test: line {number} of {count}".encode())
        if (number + 1) % LINES and number + 1 < count:
            continue
        deadline = time.monotonic() + LINES_S
        while not file.exists() or file.read_bytes().count(b"\n") <= number:
            if time.monotonic() > deadline:
                sys.exit(f"of {number + 1} lines the file has {file.read_bytes().count(10) if file.exists() else 'none'}")
            time.sleep(0.001)
    return 0


main()
