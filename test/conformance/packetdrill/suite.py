"""Runs the scripts of a suite by packetdrill, as many at a time as there are processors, and compares what comes out with the table.

    suite.py SUITE OUT TABLE

OUT is what `build` has left: packetdrill, the shared object, bin with the commands that scripts run, and scripts. OUT/results.txt gets
a line for each script, with the first lines of its error. ONLY=PATTERN;PATTERN... runs only scripts whose path matches one.
"""

import concurrent.futures
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# No script takes a second of real time, but for the few that block while other calls are made.
LIMIT_S = 30

# What FreeBSD calls otherwise than Linux, or what Linux has no like of, for a parser that knows Linux's names.
FREEBSD_WORDS = {
    "TCPI_CLOSED": "TCP_CLOSE",
    "TCPI_LISTEN": "TCP_LISTEN",
    "TCPI_SYN_SENT": "TCP_SYN_SENT",
    "TCPI_SYN_RECEIVED": "TCP_SYN_RECV",
    "TCPI_ESTABLISHED": "TCP_ESTABLISHED",
    "TCPI_CLOSE_WAIT": "TCP_CLOSE_WAIT",
    "TCPI_FIN_WAIT_1": "TCP_FIN_WAIT1",
    "TCPI_FIN_WAIT_2": "TCP_FIN_WAIT2",
    "TCPI_CLOSING": "TCP_CLOSING",
    "TCPI_LAST_ACK": "TCP_LAST_ACK",
    "TCPI_TIME_WAIT": "TCP_TIME_WAIT",
    "TCP_KEEPINIT": "1000",
    "TCP_NOOPT": "1001",
    "ttl_exceeded_in_transit": "code_0",
    "frag_reass_exceeded": "code_1",
    "IPV6_UNICAST_HOPS": "16",
    "IPTOS_DSCP_CS1": "0x20",
    "IPTOS_DSCP_CS7": "0xe0",
}


# The last byte of FreeBSD's receive buffer, which is larger than a window that is not scaled can say, by IP version and by how much has
# arrived, and the last byte of the largest window that can be said (RFC 9293 section 3.4).
RIGHT_EDGES = {"65700": "65535", "65701": "65536", "66240": "65535", "66241": "65536"}


def suited(suite, name, text):
    """The script as packetdrill's parser takes it. Scripts about the right edge of the receive window mean the edge that was said. Some scripts of FreeBSD say by #ifdef what RFC 793 demands, and what FreeBSD does as
    later RFCs allow: either will do, so there are two."""
    if suite != "tcp-testsuite":
        # Parameters of the kernel's module are those of the machine.
        return [re.sub(r">\s*/sys/\S+", "> /dev/null", text)]
    text = re.sub(r"\b[A-Za-z_]\w+\b", lambda word: FREEBSD_WORDS.get(word.group(), word.group()), text)
    text = re.sub(r"\((hlim|class) (\w+)\)", lambda part: f"({'ttl' if part[1] == 'hlim' else 'tos'} {part[2]})", text)
    text = text.replace("0:0(0)!", "0:0(0)")
    place = re.search(r"(left|right)-edge|outside-(left|right)", name)
    if place and place[0] == "right-edge":
        text = re.sub(r"\b(\d+):\1\(0\)", lambda at: f"{RIGHT_EDGES.get(at[1], at[1])}:{RIGHT_EDGES.get(at[1], at[1])}(0)", text)
    return [branch(text, name) for name in ("FreeBSD", "STANDARD")] if "#ifdef" in text else [text]


def branch(text, name):
    """What an #ifdef of this name leaves."""
    kept, within = [], None
    for line in text.splitlines(keepends=True):
        if line.startswith("#ifdef"):
            within = line.split()[1]
        elif line.startswith("#endif"):
            within = None
        elif within in (None, name):
            kept.append(line)
    return "".join(kept)


def option(text, name, default):
    """The value of an option that a script gives packetdrill."""
    found = re.search(rf"^--{name}=(\S+)", text, re.MULTILINE)
    return found.group(1) if found else default


# What the runner of Linux's selftests defines for a script, by IP version, and the interface of its IPv6.
LINUX_WORDS = {
    "ipv4": ["TFO_COOKIE=3021b9d889017eeb", "TFO_COOKIE_ZERO=b7c12350a90dc8f5", "CMSG_LEVEL_IP=SOL_IP", "CMSG_TYPE_RECVERR=IP_RECVERR"],
    "ipv6": ["TFO_COOKIE=c1d1e9742a47a9bc", "TFO_COOKIE_ZERO=82af1a8f9a205c34", "CMSG_LEVEL_IP=SOL_IPV6", "CMSG_TYPE_RECVERR=IPV6_RECVERR"],
}
LINUX_MTU = {"ipv4": "1500", "ipv6": "1520"}


def arguments(suite, out, text):
    """How packetdrill is called for a script. The shared object has to know what packetdrill keeps for itself."""
    version = option(text, "ip_version", "ipv4")
    local = option(text, "local_ip", "fd3d:fa7b:d17d::2" if version == "ipv6" else "192.168.0.2")
    profile = "freebsd" if suite == "tcp-testsuite" else "linux"
    of_linux = suite == "linux-packetdrill"
    mtu = option(text, "mtu", LINUX_MTU[version] if of_linux else "1500")
    flags = f"{profile},{local.split('/')[0]},mtu={mtu},unit={option(text, 'mss', '0')}"
    return [
        str(out / "packetdrill"),
        *([f"--mtu={mtu}"] if of_linux else []),
        *(part for word in (LINUX_WORDS[version] if of_linux else []) for part in ("-D", word)),
        f"--ip_version={version}",
        f"--local_ip={local}",
        f"--so_filename={out / 'libtwinpath_packetdrill.so'}",
        f"--so_flags={flags}",
    ]


def run(suite, out, script):
    """The error of a script; None if it passes."""
    text = script.read_text(errors="replace")
    for adapted in suited(suite, script.name, text):
        error = run_text(suite, out, script, adapted)
        if error is None:
            return None
    return error


def run_text(suite, out, script, text):
    adapted = script.with_suffix(".run.pkt")
    adapted.write_text(text)
    with tempfile.TemporaryDirectory() as scratch:
        environment = dict(
            os.environ,
            PATH=f"{out / 'bin'}:{os.environ['PATH']}",
            TWINPATH_PACKETDRILL_COMMANDS=f"{scratch}/commands",
        )
        try:
            ended = subprocess.run(
                [*arguments(suite, out, text), adapted.name],
                cwd=script.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {LIMIT_S} s"
    adapted.unlink()
    if ended.returncode == 0:
        return None
    return (ended.stderr + ended.stdout).replace(".run.pkt", ".pkt").strip() or f"exit code {ended.returncode}"


def expected(table, suite):
    """Patterns of scripts that do not pass, with the reason of each: a line that begins in the first column is `SUITE: REASON`, and
    lines below it that are indented are paths."""
    patterns, of_suite, reason = [], None, None
    for line in pathlib.Path(table).read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            if of_suite == suite:
                patterns.append((line.strip(), reason))
        else:
            of_suite, _, reason = line.partition(": ")
    return patterns


def main():
    suite, out, table = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    top = out / "scripts"
    only = [pattern for pattern in os.environ.get("ONLY", "").split(";") if pattern]
    scripts = sorted(it for it in (top / "tcp" if suite == "packetdrill" else top).rglob("*.pkt") if ".run." not in it.name)
    names = {script: str(script.relative_to(top)) for script in scripts}
    scripts = [script for script in scripts if not only or any(fnmatch.fnmatch(names[script], pattern) for pattern in only)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = dict(zip(scripts, pool.map(lambda script: run(suite, out, script), scripts)))
    table = expected(table, suite)
    passed = failed = known = 0
    with open(out / "results.txt", "w") as results:
        for script in scripts:
            name, error = names[script], errors[script]
            reason = next((reason for pattern, reason in table if fnmatch.fnmatch(name, pattern)), None)
            results.write(f"{'ok' if error is None else 'FAILS'} {name}\n")
            if error is not None:
                results.write("".join(f"    {line}\n" for line in error.splitlines()[:6]))
            if (error is None) == (reason is None):
                passed += 1
                known += error is not None
                continue
            failed += 1
            if error is None:
                print(f"FAILED: {name} passes; the table says that it does not: {reason}")
            else:
                print(f"FAILED: {name}: {error.splitlines()[0]}")
    for pattern, _ in table:
        if not only and not any(fnmatch.fnmatch(name, pattern) for name in names.values()):
            failed += 1
            print(f"FAILED: the table names {pattern}, and no script has this name")
    print(f"{suite}: {len(scripts)} scripts, {sum(error is None for error in errors.values())} pass; of the others {known} are in the table")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
