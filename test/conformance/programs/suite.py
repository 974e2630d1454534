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
import lines  # noqa: F401
import names  # noqa: F401
import plain  # noqa: F401
import services  # noqa: F401
import world
from case import CASES, FAST, TCP
from costs import COLUMNS, LOW, RUN_MS, cells_of
from costs import PAIRS as COST_PAIRS

# Below this share of what came under a lease, a program does not count as fast.
FAST_SHARE = 0.99

# Rates are compared by the median of so many pairs.
PAIRS = 9

# Both sides are the program alone: what comes out is by chance.
IS_ZERO = bool(os.environ.get("ZERO"))


class Places:
    """Where programs are: unpacked beside the suite, or installed."""

    def __init__(self, out, twinpath):
        self.out = out
        self.twinpath = twinpath
        self.unpacked = out / "packages"

    def find(self, name):
        if "/" in name:
            return str(self.unpacked / name) if (self.unpacked / name).exists() else None
        folders = [self.out / "bin", *(self.unpacked / place for place in ("usr/sbin", "usr/bin", "bin"))]
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
        # Pairs of figures: alone, and under `run`.
        self.costs = []

    @property
    def path(self):
        if self.skipped or self.outcome is None:
            return ""
        if self.case.expects == TCP:
            return "TCP"
        is_fast = self.outcome.under_lease and self.outcome.ring_share >= FAST_SHARE
        return FAST if is_fast else "kernel"


def run_once(places, case, under, explains=True):
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        with world.World(places, Path(folder), under, case.rules, case.costs or case.rate, explains) as here:
            text = case.function(here)
            return text, here.outcome(), here.figures


def without_rate(case, text):
    return re.sub(case.rate, "", text) if case.rate else text


def run_case(places, case):
    row = Row(case)
    missing = [name for name in case.needs if places.find(name) is None]
    if missing:
        row.skipped = f"there is no {', '.join(missing)} here"
        return row
    try:
        run_pairs(places, row)
    except (world.Failed, subprocess.TimeoutExpired) as error:
        row.failure = str(error)
    except Exception:
        row.failure = traceback.format_exc(limit=-2).replace("\n", " / ")
    return row


def run_pairs(places, row):
    case, ratios = row.case, []
    for number in range(PAIRS if case.rate else COST_PAIRS if case.costs else 1):
        # The first of a pair may find the machine in another state than the second.
        under = (False, True) if number % 2 == 0 else (True, False)
        # What costs is measured without `--explain`, for which each child writes a line.
        runs = {side: run_once(places, case, side and not IS_ZERO, explains=not case.costs) for side in under}
        (alone, _, figures_alone), (ours, row.outcome, figures) = runs[False], runs[True]
        if without_rate(case, alone) != without_rate(case, ours):
            row.failure = f"alone: {alone.strip()!r}; under run: {ours.strip()!r}"
            return
        row.costs.append((figures_alone, figures))
        if case.rate:
            ratios.append(int(re.search(case.rate, ours)[1]) / int(re.search(case.rate, alone)[1]))
    if case.costs:
        row.outcome = run_once(places, case, not IS_ZERO)[1]
    if ratios:
        row.rate = statistics.median(ratios)
    if case.expects == FAST and row.path != FAST and not IS_ZERO:
        row.failure = "it was expected to be fast"
    elif row.outcome.is_untrue:
        row.failure = "--explain says that sockets have the fast path, and not by what else the program has received"
    elif worse := cells_of(row.costs)[1]:
        row.failure = f"it costs more than alone, {'; '.join(worse)}"


def percent(share):
    return f"{100 * share:.1f} %"


def cells(row, places):
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
    why = "; ".join(outcome.reasons).replace(f"{places.unpacked}/", "")
    if row.path == "kernel" and case.otherwise:
        why = "; ".join(filter(None, (case.otherwise, why)))
    ring = percent(outcome.ring_share) if outcome.under_lease else ""
    return [case.name, case.what, same, f"{outcome.all:,}", percent(outcome.leased_share), ring, f"{row.path}: {why}" if why else row.path]


# Below the table of outcomes.
COSTS = f"""
## What it costs

Alone → under `run`, by the medians of {COST_PAIRS} runs of each by turns, and how both compare, with the spread of
that: half of what lies between the first and the third quarter. It is **worse** if it is so by more than 2 % beyond
the spread (lost: 0.1 of a percent; memory: 1 MiB a process; descriptors: 3 a process, none of them below {LOW}). Of
what passes until the program has its port and answers, the {RUN_MS} ms that `run` itself takes are left out of the
ratio. The program has one half of the CPUs for itself, and who asks it the other.

| program | {" | ".join(column.title for column in COLUMNS)} |
|---{"|---" * len(COLUMNS)}|
"""

HEAD = """# Programs under `twinpath run`

Written by `make conformance SUITE=programs`; [conformance.md](../../conformance.md) explains it. Each program runs
unmodified, once alone and once under `run`, on the same virtual link, and what it does has to be the same.

| program | what it does | with `run` | datagrams | under a lease | of these by the ring | path, and why the kernel's |
|---|---|---|---|---|---|---|
"""


def table(rows, places, committed):
    """The tables, with the committed rows of cases that were not run."""
    outcomes, costs = (committed.read_text() if committed.exists() else "").partition(COSTS.split("\n")[1])[::2]
    outcomes = merged(outcomes, {row.case.name: cells(row, places) for row in rows})
    costs = merged(costs, {row.case.name: [row.case.name, *cells_of(row.costs)[0]] for row in rows if row.case.costs and row.costs})
    return HEAD + outcomes + COSTS + costs + "\n" + versions(places)


def merged(before, now):
    """Rows of a table, in the order of the cases."""
    lines = {case.name: line for case in CASES for line in before.splitlines() if line.startswith(f"| {case.name} |")}
    for name, texts in now.items():
        lines[name] = "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
    return "".join(lines[case.name] + "\n" for case in CASES if case.name in lines)


PACKAGES = """memcached nsd unbound dnsperf chrony iperf3 sockperf socat bind9-dnsutils rsyslog redis-tools nginx ngtcp2-server bind9
dnsmasq-base haproxy iperf netcat-openbsd openbsd-inetd python3-uvloop musl"""


def versions(places):
    """The versions of the packages, as their change logs say."""
    found = []
    for name in PACKAGES.split():
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
        numbers = " ".join(filter(None, cells(row, places)[2:] if not why else cells(row, places)[3:6]))
        print(f"{outcome:7} {case.name}: {numbers}{f': {why}' if why else ''}", flush=True)
        if row.costs and case.costs:
            titled = zip((column.title for column in COLUMNS), cells_of(row.costs)[0])
            print("".join(f"        {title}: {text}\n" for title, text in titled if text), end="", flush=True)
    if not IS_ZERO:
        (arguments.out / "programs.md").write_text(table(rows, places, arguments.committed))
    failed = sum(bool(row.failure) for row in rows)
    skipped = sum(bool(row.skipped) for row in rows)
    print(f"{len(rows) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


main()
