#!/usr/bin/env bash
# Runs the switch test of os-ken (opendev.org/openstack/os-ken, tag 3.1.1) against `twinpath switch`, and against Open vSwitch as
# the target, with another Open vSwitch as the tester's switch. docs/conformance.md explains it. docs/generated/conformance/openflow.md
# holds each case and how it ends.
#
#   os-ken.sh build CHECKOUT OUT            install os-ken from CHECKOUT, and what it needs, in the directory OUT
#   os-ken.sh run OUT TWINPATH              run all cases (as root); the last line is `N passed, N failed`
#
# ONLY=PATTERN runs only files of cases whose path matches the shell pattern; TARGETS="ours ovs" says against what; LANES=N says how
# many testers run at a time against each; WRITE_DOCUMENTS=1 writes the table that is committed, else it is OUT/openflow.md.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cases=$here/os-ken/cases.py
committed=$here/../../docs/generated/conformance/openflow.md

# The switch that is tested has this datapath id, and so has the tester's.
target_id=0000000000000001
tester_id=0000000000000002
controller_port=6653

fail() { printf '%s\n' "$*" >&2; exit 1; }

build() {
    local checkout=$1 out=$2
    [ -d "$checkout/os_ken/tests/switch/of13" ] && [ -f "$checkout/os_ken/cmd/manager.py" ] ||
        fail "$checkout is no checkout of os-ken 3.1.1: it has no os_ken/tests/switch/of13 and os_ken/cmd/manager.py (4.0 has no command line any more). Say DIR=... of one, from https://opendev.org/openstack/os-ken."
    mkdir -p "$out"
    if [ ! -x "$out/python/bin/osken-manager" ]; then
        rm -rf "$out/python"
        python3 -m venv "$out/python"
        # A checkout without tags, or an unpacked archive, has no version that pbr could find.
        PBR_VERSION=3.1.1 "$out/python/bin/pip" install --quiet --disable-pip-version-check "$checkout" ||
            fail "os-ken or what it needs cannot be installed by pip: see above."
    fi
    rm -rf "$out/cases"
    cp -r "$checkout/os_ken/tests/switch/of13" "$out/cases"
    printf 'os-ken %s\n' "$("$out/python/bin/pip" --disable-pip-version-check list 2>/dev/null | sed -n 's/^os[-_.]ken *//p')"
}

run() {
    local twinpath=$2 target
    local targets=${TARGETS:-ours ovs} lanes=${LANES:-4} lane running=() code=0
    out=$(cd "$1" && pwd)
    rm -rf "$out/lanes"
    python3 "$cases" plan "$out/cases" "$out/lanes" --lanes "$lanes" --only "${ONLY:-*}"
    trap 'kill "${running[@]}" 2>/dev/null || true' EXIT
    # Cases whose frames the tester sends seldom: it mostly waits, so many of them run at once.
    for target in $targets; do
        for lane in "$out"/lanes/many-*; do
            [ -d "$lane" ] || continue
            start_lane "$out" "$twinpath" "$target" "$lane" &
            running+=($!)
        done
    done
    wait
    running=()
    # Cases for which the tester sends as fast as it can have the machine for themselves.
    for lane in "$out"/lanes/alone-*; do
        [ -d "$lane" ] || continue
        for target in $targets; do
            start_lane "$out" "$twinpath" "$target" "$lane" &
            running=($!)
            wait
        done
    done
    python3 "$cases" table "$out/cases" "$out/lanes" "$committed" "$out/openflow.md" \
        "$(ovs_program ovs-vswitchd --version | sed -n '1s/.*) //p')" || code=$?
    [ -z "${WRITE_DOCUMENTS:-}" ] || cp "$out/openflow.md" "$committed"
    return "$code"
}

# A lane is a network of its own with both switches and one tester. What runs in it ends with it.
start_lane() {
    local deadline_s
    deadline_s=$(cat "$4/deadline_s")
    timeout --kill-after 10 "$deadline_s" unshare --net --mount --pid --fork --kill-child --mount-proc \
        "$here/os-ken.sh" lane "$@" >"$4/$3.lane" 2>&1 || {
        printf 'os-ken.sh: %s against %s did not end well:\n' "$(basename "$4")" "$3"
        tail -n 5 "$4/$3.lane"
    } >&2
}

lane() {
    local twinpath=$2 target=$3 lane=$4 number
    out=$1
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    # No frames of the kernel's own are to be counted.
    echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
    ip link set lo up
    for number in 1 2 3; do
        # Frames of 1,500 bytes are pushed another header.
        ip link add "target$number" mtu 2000 type veth peer name "tester$number" mtu 2000
        ip link set "target$number" up
        ip link set "tester$number" up
    done
    # Two Open vSwitches with datapaths in user space have no room in one namespace, so one has both switches as its bridges.
    start_ovs "$scratch"
    add_bridge tester "$tester_id"
    case $target in
        ours) start_twinpath "$scratch" "$twinpath" ;;
        ovs) add_bridge target "$target_id" ;;
        *) fail "no such target: $target" ;;
    esac
    # The tester ends by a signal to itself. Open vSwitch answers a barrier at once, and forwards by the former rules until a sweep has
    # found them changed, so that each case begins with a rest in which what the former one left in the tester's switch expires.
    OSKEN_HUB_TYPE=eventlet PYTHONUNBUFFERED=1 "$out/python/bin/osken-manager" \
        --ofp-listen-host 127.0.0.1 --ofp-tcp-listen-port "$controller_port" \
        --test-switch-target "$target_id" --test-switch-tester "$tester_id" --test-switch-dir "$lane/cases" \
        --test-switch-interval 1 os_ken.tests.switch.tester >"$lane/$target.dots" 2>"$lane/$target.log" || true
    case $target in
        ours) stop_twinpath "$scratch" ;;
    esac
}

# A program of Open vSwitch: of the packages that were unpacked beside this suite, else the one installed here.
ovs_program() {
    local program=$1 unpacked=$out/packages place
    shift
    for place in usr/sbin usr/bin usr/lib/openvswitch-switch; do
        if [ -x "$unpacked/$place/$program" ]; then
            LD_LIBRARY_PATH=$(echo "$unpacked"/usr/lib/*-linux-gnu | tr ' ' :) "$unpacked/$place/$program" "$@"
            return
        fi
    done
    "$program" "$@"
}

start_ovs() {
    local directory=$1/ovs schema
    mkdir "$directory"
    for schema in "$out/packages/usr/share/openvswitch/vswitch.ovsschema" /usr/share/openvswitch/vswitch.ovsschema; do
        [ ! -f "$schema" ] || break
    done
    database=unix:$directory/db.sock
    export OVS_RUNDIR=$directory OVS_LOGDIR=$directory OVS_DBDIR=$directory OVS_SYSCONFDIR=$directory
    ovs_program ovsdb-tool create "$directory/conf.db" "$schema"
    ovs_program ovsdb-server "$directory/conf.db" --remote="punix:$directory/db.sock" --unixctl="$directory/db.ctl" \
        --pidfile="$directory/db.pid" 2>"$directory/db.log" &
    await "$directory/db.sock"
    ovs_program ovs-vswitchd "$database" --unixctl="$directory/vs.ctl" --pidfile="$directory/vs.pid" 2>"$directory/vs.log" &
    await "$directory/vs.ctl"
}

# A bridge of Open vSwitch with the ports NAME1 to NAME3.
add_bridge() {
    local name=$1 id=$2 number said
    # Its counters and its flows in the datapath are swept ten times a second, and unused flows go in the next sweep.
    local arguments=(set Open_vSwitch . other_config:max-idle=100 other_config:max-revalidator=100
        -- add-br "$name" -- set bridge "$name" datapath_type=netdev protocols=OpenFlow13 fail-mode=secure
        "other-config:datapath-id=$id")
    for number in 1 2 3; do
        arguments+=(-- add-port "$name" "$name$number" -- set interface "$name$number" "ofport_request=$number")
    done
    arguments+=(-- set-controller "$name" "tcp:127.0.0.1:$controller_port"
        -- set controller "$name" connection-mode=out-of-band max-backoff=1000)
    # It complains of what it could not set up, but ends with 0.
    said=$(ovs_program ovs-vsctl --db="$database" --timeout=20 "${arguments[@]}" 2>&1)
    [ -z "$said" ] || fail "$said"
}

# twinpath's switch with the ports target1 to target3, numbered so.
start_twinpath() {
    local scratch=$1 twinpath=$2
    "$twinpath" switch target --port target1 --port target2 --port target3 --controller "tcp:127.0.0.1:$controller_port" \
        --datapath-id "$target_id" --socket "$scratch/commands" >"$scratch/said" 2>&1 &
    switch=$!
    await "$scratch/commands"
}

# It has to have outlived all cases, and to end when it is asked to.
stop_twinpath() {
    local scratch=$1 status=0
    kill -TERM "$switch" || true
    wait "$switch" || status=$?
    [ "$status" = 0 ] || { cat "$scratch/said"; fail "twinpath switch ended with exit code $status"; }
}

# Waits for a file that a program makes when it is ready.
await() {
    local rounds=0
    until [ -e "$1" ]; do
        rounds=$((rounds + 1))
        [ "$rounds" -lt 2000 ] || fail "there is no $1 after 20 s"
        sleep 0.01
    done
}

command=${1:?usage: see the top of this file}
shift
case $command in
    build) build "$@" ;;
    run) run "$@" ;;
    lane) lane "$@" ;;
    *) fail "os-ken.sh: no such command: $command" ;;
esac
