"""Plans the runs of os-ken's switch test, and writes the table of their outcomes. os-ken.sh calls it.

    cases.py plan CASES LANES --lanes N --only PATTERN   part the files of cases into lanes that run at a time
    cases.py table CASES LANES COMMITTED OUT OVS         the table, written to OUT; held against COMMITTED
"""

import argparse
import fnmatch
import json
import os
import re
import sys
from pathlib import Path

# Frames per second above which a tester in Python is a load on the machine.
MANY_PER_S = 5000
# What a case takes, s: one that measures throughput for as long as it says, and at most three time-outs otherwise.
SETTLE_S = 4
FAILED_S = 12
START_S = 60

# Complaints whose cause is known: what they contain, in which files of cases, and the cause.
KNOWN = (
    ("sctp(csum", "SCTP", "os-ken: under Python 3 it computes the checksum of the text of a buffer"),
    ("malformed", "ICMPV4", "os-ken: it expects the frame padded to 60 bytes, which it was not when it was sent"),
    ("throughput", "DSCP_REMARK", "the tester sends fewer frames than it says, and so fewer are beyond the meter's rate"),
)

TARGETS = ("ours", "ovs")
OUTCOME = re.compile(r"^    (\S.*?) +(OK|ERROR)$")


def cases_of(path):
    """The description of a file of cases, and its cases."""
    description, *cases = json.loads(path.read_text())
    return description, cases


def rates(case):
    """The frames per second that the tester is to send, and for how long, s; nothing for single frames."""
    for test in case["tests"]:
        if isinstance(test["ingress"], dict):
            packets = test["ingress"]["packets"]
            yield packets.get("pktps", 1000), packets.get("duration_time", 30)


def plan(arguments):
    files = sorted(
        path
        for path in arguments.cases.rglob("*.json")
        if fnmatch.fnmatch(str(path.relative_to(arguments.cases)), arguments.only)
    )
    if not files:
        sys.exit(f"no file of cases matches {arguments.only}")
    lanes = [[0.0, 0, []] for _ in range(arguments.lanes)]
    alone = [0.0, 0, []]
    measured = []
    for path in files:
        _, cases = cases_of(path)
        sent = [rate for case in cases for rate in rates(case)]
        takes_s = sum(seconds + SETTLE_S for _, seconds in sent) + len(cases)
        at_most_s = sum(seconds for _, seconds in sent) + FAILED_S * len(cases)
        measured.append((takes_s, at_most_s, path, any(rate > MANY_PER_S for rate, _ in sent)))
    # The longest first, each to the lane that has least: no lane ends long after the others.
    for takes_s, at_most_s, path, many in sorted(measured, key=lambda file: (-file[0], file[2])):
        lane = alone if many else min(lanes, key=lambda lane: lane[0])
        lane[0] += takes_s
        lane[1] += at_most_s
        lane[2].append(path)
    named = [(f"many-{index}", lane) for index, lane in enumerate(lanes)] + [("alone-0", alone)]
    for name, (_, at_most_s, paths) in named:
        if not paths:
            continue
        directory = arguments.out / name
        (directory / "cases").mkdir(parents=True)
        for path in paths:
            link = directory / "cases" / str(path.relative_to(arguments.cases)).replace(os.sep, "-")
            link.symlink_to(path)
        (directory / "deadline_s").write_text(f"{START_S + at_most_s}\n")
    count = sum(len(cases_of(path)[1]) for path in files)
    print(f"{count} cases of {len(files)} files")


def outcomes(log):
    """What the tester said: (file, case) to None for a case that passed, else its complaint."""
    found, files, last = {}, "", None
    for line in log.splitlines():
        outcome = OUTCOME.match(line)
        if outcome:
            last = (files, outcome.group(1))
            found[last] = None if outcome.group(2) == "OK" else "failed"
        elif line.startswith("        ") and last and found[last] == "failed":
            found[last] = line.strip()
        elif re.match(r"^(action|group|match|meter): ", line):
            files = line.strip()
    return found


def committed(path):
    """The rows of a table that this has written: (file, case) to its cells for ours, OVS and the reason."""
    rows, file = {}, ""
    for line in path.read_text().splitlines() if path.exists() else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            file = line[3:].strip()
        elif line.startswith("| `") and len(cells) == 4:
            rows[file, cells[0].strip("`")] = cells[1:]
    return rows


def run_against(lanes, target):
    """The cases of the lanes that have run against a target."""
    files = [link for log in lanes.glob(f"*/{target}.log") for link in log.parent.glob("cases/*.json")]
    return {(file, case["description"]) for file, cases in map(cases_of, files) for case in cases}


def found_in(lanes, target):
    """The outcomes against a target."""
    found = {}
    for log in sorted(lanes.glob(f"*/{target}.log")):
        found.update(outcomes(log.read_text(errors="replace")))
    return found


def word(complaint):
    return "passes" if complaint is None else "fails"


def why(complaint, file):
    """A complaint of the tester, and what is known of it; nothing of a case that passed."""
    if complaint is None:
        return ""
    known = [text for pattern, of, text in KNOWN if pattern in complaint and of in file]
    text = f"{complaint} ({known[0]})" if known else complaint
    text = text.replace("|", "/").replace("\n", " ")
    return text if len(text) <= 240 else text[:237] + "..."


def reason(ours, theirs):
    """What is said of both."""
    said = [ours] if ours else []
    if theirs:
        said.append("OVS: " + ("the same" if theirs == ours else theirs))
    return "; ".join(said)


def table(arguments):
    was, found = committed(arguments.committed), {target: found_in(arguments.lanes, target) for target in TARGETS}
    wanted = {}
    for path in sorted(arguments.cases.rglob("*.json")):
        file, cases = cases_of(path)
        for case in cases:
            wanted[file, case["description"]] = case
    ran = {target: run_against(arguments.lanes, target) for target in TARGETS}
    rows, known, failed = {}, 0, []
    for key in sorted(wanted):
        before = was.get(key, ["not run", "not run", ""])
        cells = list(before)
        complaints = {}
        for column, target in enumerate(TARGETS):
            if key in ran[target]:
                complaints[target] = found[target].get(key, "no outcome: the tester did not come so far")
                cells[column] = word(complaints[target])
        # What was not run against one of them keeps what the table says of it.
        ours, theirs = before[2].partition("OVS: ")[::2]
        if "ours" in complaints:
            ours = why(complaints["ours"], key[0])
        if "ovs" in complaints:
            theirs = why(complaints["ovs"], key[0])
        cells[2] = reason(ours.removesuffix("; "), theirs)
        rows[key] = cells
        if "ours" not in complaints or complaints["ours"] is None:
            continue
        # What a tester in Python cannot send fast enough is held against OVS in the same run.
        measured = any(rate > MANY_PER_S for rate, _ in rates(wanted[key]))
        if before[0] == "fails" or (measured and complaints.get("ovs") is not None):
            known += 1
        else:
            failed.append((key, complaints["ours"]))
    write(arguments.out, rows, arguments.ovs)
    for target in TARGETS:
        if ran[target]:
            passed = sum(1 for key in ran[target] if found[target].get(key, "") is None)
            print(f"{target}: {passed} of {len(ran[target])} cases pass")
    for (file, case), complaint in failed:
        print(f"FAILED: {file}: {case}: {complaint}")
    if not ran["ours"]:
        print("nothing was run against twinpath")
        return
    print(f"of these {known} fail as docs/generated/conformance/openflow.md says, or as fast frames do against OVS, too")
    print(f"{len(ran['ours']) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


def write(out, rows, ovs):
    count = [sum(1 for cells in rows.values() if cells[column] == "passes") for column in (0, 1)]
    lines = [
        "# OpenFlow: the cases of os-ken's switch test",
        "",
        "Written by `make conformance SUITE=os-ken`; [conformance.md](../../conformance.md) explains it. The last column",
        f"holds what the tester complains of. Of {len(rows)} cases twinpath passes {count[0]}, Open vSwitch {ovs} passes {count[1]}.",
    ]
    file = None
    for (of, case), (ours, theirs, why) in rows.items():
        if of != file:
            file = of
            lines += ["", f"## {file}", "", "| case | twinpath | OVS | reason |", "|---|---|---|---|"]
        lines.append(f"| `{case}` | {ours} | {theirs} | {why} |".replace("|  |", "| |"))
    out.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("plan")
    command.add_argument("cases", type=Path)
    command.add_argument("out", type=Path)
    command.add_argument("--lanes", type=int, required=True)
    command.add_argument("--only", default="*")
    command.set_defaults(run=plan)
    command = commands.add_parser("table")
    command.add_argument("cases", type=Path)
    command.add_argument("lanes", type=Path)
    command.add_argument("committed", type=Path)
    command.add_argument("out", type=Path)
    command.add_argument("ovs")
    command.set_defaults(run=table)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
