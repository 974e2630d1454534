"""Runs programs of Debian with and without `twinpath run`, compares what they do, and writes the table. programs.sh calls it.

    suite.py OUT TWINPATH COMMITTED      as root, in namespaces of mounts and processes of its own; the table is written to OUT, with
                                         the rows of COMMITTED for what was not run
"""

import argparse
import fnmatch
import gzip
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import traceback
from pathlib import Path

import connections  # noqa: F401
import datagrams  # noqa: F401
import names  # noqa: F401
import world
from case import CASES, FAST, TCP

# Below this share of what came under a lease, a program does not count as fast.
FAST_SHARE = 0.99

# Rates are compared by the median of so many pairs.
PAIRS = 9


class Places:
    """Where programs are: unpacked beside the suite, or installed."""

    def __init__(self, out, twinpath):
        self.out = out
        self.twinpath = twinpath
        self.unpacked = out / "packages"

    def find(self, name):
        folders = [self.out / "bin", *(self.unpacked / place for place in ("usr/sbin", "usr/bin"))]
        return shutil.which(name, path=":".join(map(str, folders)) + ":/usr/sbin:/sbin:" + os.environ["PATH"])

    def environment(self, name):
        found = self.find(name)
        if not found or not Path(found).is_relative_to(self.unpacked):
            return {}
        libraries = [str(folder) for folder in (self.unpacked / "usr/lib").glob("*-linux-gnu")]
        more = {"LD_LIBRARY_PATH": ":".join(libraries)}
        if name.startswith("python"):
            more["PYTHONHOME"] = str(self.unpacked / "usr")
        if name == "rsyslogd":
            more["RSYSLOG_MODDIR"] = f"{libraries[0]}/rsyslog"
        return more


class Row:
    """What became of a case."""

    def __init__(self, case):
        self.case = case
        self.failure = None
        self.skipped = None
        self.outcome = None
        self.rate = None

    @property
    def path(self):
        if self.skipped or self.outcome is None:
            return ""
        if self.case.expects == TCP:
            return "TCP"
        is_fast = self.outcome.under_lease and self.outcome.ring_share >= FAST_SHARE
        return FAST if is_fast else "kernel"


def run_once(places, case, under):
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        with world.World(places, Path(folder), under, case.rules) as here:
            text = case.function(here)
            return text, here.outcome()


def without_rate(case, text):
    return re.sub(case.rate, "", text) if case.rate else text


def run_case(places, case):
    row = Row(case)
    missing = [name for name in case.needs if places.find(name) is None]
    if missing:
        row.skipped = f"there is no {', '.join(missing)} here"
        return row
    ratios = []
    try:
        for _ in range(PAIRS if case.rate else 1):
            alone, _ = run_once(places, case, under=False)
            ours, row.outcome = run_once(places, case, under=True)
            if without_rate(case, alone) != without_rate(case, ours):
                row.failure = f"alone: {alone.strip()!r}; under run: {ours.strip()!r}"
                return row
            if case.rate:
                ratios.append(int(re.search(case.rate, ours)[1]) / int(re.search(case.rate, alone)[1]))
    except (world.Failed, subprocess.TimeoutExpired) as error:
        row.failure = str(error)
        return row
    except Exception:
        row.failure = traceback.format_exc(limit=-2).replace("\n", " / ")
        return row
    if ratios:
        row.rate = statistics.median(ratios)
    if case.expects == FAST and row.path != FAST:
        row.failure = "it was expected to be fast"
    return row


def percent(share):
    return f"{100 * share:.1f} %"


def cells(row):
    """The row of the table."""
    case, outcome = row.case, row.outcome
    if row.skipped:
        return [case.name, case.what, "not run", "", "", "", row.skipped]
    if outcome is None:
        return [case.name, case.what, "fails", "", "", "", row.failure]
    same = "differs" if row.failure and "alone:" in row.failure else "the same"
    if case.expects == TCP:
        cost = f"; {row.rate:.2f} of the requests a second" if row.rate else ""
        return [case.name, case.what, same + cost, "", "", "TCP", "the kernel's, untouched"]
    why = "; ".join(outcome.reasons)
    if row.path == "kernel" and case.otherwise:
        why = "; ".join(filter(None, (case.otherwise, why)))
    ring = percent(outcome.ring_share) if outcome.under_lease else ""
    return [case.name, case.what, same, f"{outcome.all:,}", percent(outcome.leased_share), ring, f"{row.path}: {why}" if why else row.path]


HEAD = """# Programs under `twinpath run`

Written by `make conformance SUITE=programs`; [conformance.md](../conformance.md) explains it. Each program runs
unmodified, once alone and once under `run`, on the same virtual link, and what it does has to be the same.

| program | what it does | with `run` | datagrams | under a lease | of these by the ring | path, and why the kernel's |
|---|---|---|---|---|---|---|
"""


def table(rows, places, committed):
    """The table, with the committed rows of cases that were not run."""
    before = committed.read_text().splitlines() if committed.exists() else []
    lines = {case.name: line for case in CASES for line in before if line.startswith(f"| {case.name} |")}
    for row in rows:
        lines[row.case.name] = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |"
    ordered = [lines[case.name] for case in CASES if case.name in lines]
    return HEAD + "\n".join(ordered) + "\n\n" + versions(places)


def versions(places):
    """The versions of the packages, as their change logs say."""
    found = []
    for name in "memcached nsd unbound dnsperf chrony iperf3 sockperf socat bind9-dnsutils rsyslog redis-tools nginx ngtcp2-server".split():
        logs = [places.unpacked / "usr/share/doc" / name / f"changelog.Debian{end}.gz" for end in ("", ".amd64")]
        for log in filter(Path.exists, logs):
            with gzip.open(log, "rt", errors="replace") as text:
                version = re.match(r"\S+ \((\S+)\)", text.readline())
            found.append(f"{name} {version[1]}" if version else name)
            break
    return textwrap.fill(f"Debian's packages: {', '.join(found)}.", 119) + "\n" if found else ""


def main():
    arguments = argparse.ArgumentParser()
    for name in ("out", "twinpath", "committed"):
        arguments.add_argument(name, type=lambda path: Path(path).resolve())
    arguments = arguments.parse_args()
    places = Places(arguments.out, arguments.twinpath)
    world.join()
    only = (os.environ.get("ONLY") or "*").split(";")
    rows = []
    for case in CASES:
        if not any(fnmatch.fnmatch(case.name, pattern) for pattern in only):
            continue
        row = run_case(places, case)
        rows.append(row)
        outcome = "SKIPPED" if row.skipped else "FAILED" if row.failure else "passes"
        why = row.skipped or row.failure
        numbers = " ".join(filter(None, cells(row)[2:] if not why else cells(row)[3:6]))
        print(f"{outcome:7} {case.name}: {numbers}{f': {why}' if why else ''}", flush=True)
    (arguments.out / "programs.md").write_text(table(rows, places, arguments.committed))
    failed = sum(bool(row.failure) for row in rows)
    skipped = sum(bool(row.skipped) for row in rows)
    print(f"{len(rows) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


main()
