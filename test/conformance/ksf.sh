#!/usr/bin/env bash
# Runs rpctest and echotest of ksf (github.com/beckerg/ksf) against `twinpath serve rpc` and `serve echo`, over a veth pair
# between two namespaces of its own. ksf.md holds the settings, and how each is expected to end; docs/conformance.md explains it.
#
#   ksf.sh build CHECKOUT OUT               build both from a copy of CHECKOUT in the directory OUT
#   ksf.sh run OUT TWINPATH                 run them (as root); the last line is `N passed, N failed`
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
table=$here/ksf.md

# Messages of each thread in each iteration, iterations, and how long a setting may take. One that hangs takes all of it.
count=2000
iterations=2
limit_s=20

fail() { printf '%s\n' "$*" >&2; exit 1; }

build() {
    local checkout=$1 out=$2 tool version
    for tool in rpctest echotest; do
        [ -f "$checkout/bin/$tool/GNUmakefile" ] ||
            fail "$checkout is no checkout of ksf: it has no bin/$tool. Say DIR=... of one, from https://github.com/beckerg/ksf."
    done
    rm -rf "$out"
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    cp -r "$checkout/bin" "$checkout/lib" "$checkout/include" "$out"
    version=$(git -C "$checkout" describe --always 2>/dev/null || echo unknown)
    # FreeBSD's macros that glibc lacks. Without HAVE_TSC the clock is clock_gettime: ksf looks for the TSC's frequency in the name
    # of the CPU, where most virtual machines have none.
    cat >"$out/linux.h" <<'SHIM'
#undef HAVE_TSC
#define timespecsub(a, b, out) do { \
    (out)->tv_sec = (a)->tv_sec - (b)->tv_sec; \
    (out)->tv_nsec = (a)->tv_nsec - (b)->tv_nsec; \
    if ((out)->tv_nsec < 0) { (out)->tv_sec--; (out)->tv_nsec += 1000000000; } \
} while (0)
#define CPU_FFS(set) ({ int cpu = 0; \
    while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, set)) cpu++; \
    cpu < CPU_SETSIZE ? cpu + 1 : 0; })
SHIM
    # On Linux, who has read a part of a message and waits for the rest is woken when as many bytes as SO_RCVLOWAT says are there to be
    # read, which is then more than will come. echotest asks for a whole message; here for one byte, as sockets do of themselves.
    sed -i 's/optval = msglen;/optval = 1;/' "$out/bin/echotest/main.c"
    for tool in rpctest echotest; do
        make -s -C "$out/bin/$tool" CC="cc -include '$out/linux.h'" PROG_VERSION="$version" >"$out/$tool.log" 2>&1 ||
            { cat "$out/$tool.log" >&2; fail "$tool does not build: see above."; }
    done
    printf 'ksf %s\n' "$version"
}

# Namespaces of the network, of host names (AUTH_SYS carries the name, and rpctest has 128 bytes for a call) and of mounts. They are
# nobody else's, and go with the last process in them.
run() {
    exec unshare --net --uts --mount "$here/ksf.sh" inside "$@"
}

server=
scratch=
finish() {
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    [ -z "$scratch" ] || rm -rf "$scratch"
}

start_server() {
    local line=
    # echotest's one client asks more of an echo than --reply-rate grants an address.
    exec {said}< <(exec setpriv --pdeathsig KILL "$twinpath" serve "$1" --on ksf0 --udp "$2" --tcp "$2" --reply-rate 0 \
        --socket "$scratch/socket" 2>"$scratch/server")
    server=$!
    until [[ $line == "serving "* ]]; do
        read -r -t 20 line <&"$said" || { cat "$scratch/server" >&2; fail "twinpath serve $1 did not start: see above."; }
    done
    printf '== %s\n' "$line"
}

# The server has to have outlived all that was sent to it, and to end when it is asked to.
stop_server() {
    local status=0
    [ -n "$server" ] || return 0
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || status=$?
    exec {said}<&-
    server=
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: twinpath serve %s ended with exit code %s\n' "$1" "$status"
        cat "$scratch/server"
    fi
}

# The value of an option of one letter, of the options that follow; else the default.
option() {
    local letter=$1 value=$2
    shift 2
    while [ $# -gt 0 ]; do
        [ "$1" != "$letter" ] || value=$2
        shift
    done
    printf '%s\n' "$value"
}

# Both end with exit code 0 whatever happened, so what they count decides, and that they report no error.
check() {
    local tool=$1 port=$2 each=$count status=0 counted errors wanted
    shift 2
    # Without pipelining echotest counts one message more than it sent.
    [ "$tool $(option -a 1 "$@")" != "echotest 0" ] || each=$((count + 1))
    wanted=$((each * $(option -j 1 "$@") * iterations))
    local extended=()
    [ "$tool" != rpctest ] || extended=(-x)
    ip netns exec client timeout --signal KILL "$limit_s" "$out/bin/$tool/$tool" "$@" "${extended[@]}" \
        -c "$count" -i "$iterations" "192.0.2.1:$port" >"$scratch/out" 2>"$scratch/errors" || status=$?
    [ "$status" != 137 ] || { echo "no end within $limit_s s"; return 1; }
    [ "$status" = 0 ] || { echo "exit code $status"; return 1; }
    # These are no errors of what is served: page faults of the tool itself, and an option of TCP set for UDP.
    errors=$(grep -v -e 'unexpected maj/min faults' -e 'setsockopt(TCP_NODELAY)' "$scratch/errors" | head -n 1 || true)
    [ -z "$errors" ] || { echo "$errors"; return 1; }
    counted=$(awk 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "TotalRPC" || $i == "totmsgs") column = i; next }
        { total += $column } END { print total + 0 }' "$scratch/out")
    [ "$counted" = "$wanted" ] || { echo "$counted messages of $wanted"; return 1; }
    echo "$counted messages"
}

inside() {
    out=$(cd "$1" && pwd)
    twinpath=$2
    local tool='' setting expected port words said_now outcome was=''
    trap finish EXIT
    scratch=$(mktemp -d)
    passed=0
    failed=0
    known=0

    echo ksf >/proc/sys/kernel/hostname
    mkdir -p /run/netns
    mount -t tmpfs ksf /run/netns
    ip netns add client
    ip link add ksf0 type veth peer name ksf1 netns client
    ip address add 192.0.2.1/24 dev ksf0
    ip link set lo up
    ip link set ksf0 up
    ip -n client address add 192.0.2.2/24 dev ksf1
    ip -n client link set ksf1 up

    while IFS='|' read -r _ setting expected _; do
        read -ra words <<<"${setting//\`/}"
        read -r expected <<<"$expected"
        tool=${words[0]}
        if [ "$tool" != "$was" ]; then
            stop_server "$was"
            case $tool in
                rpctest) port=62049; start_server rpc "$port" ;;
                echotest) port=60007; start_server echo "$port" ;;
            esac
            was=$tool
        fi
        outcome=passes
        said_now=$(check "$tool" "$port" "${words[@]:1}") || outcome=fails
        if [ "$outcome" != "$expected" ]; then
            failed=$((failed + 1))
            printf 'FAILED: %s: %s (%s); ksf.md says that it %s\n' "${words[*]}" "$outcome" "$said_now" "$expected"
            head -n 20 "$scratch/errors"
        else
            passed=$((passed + 1))
            [ "$outcome" = passes ] || known=$((known + 1))
            printf '%-6s  %s: %s\n' "$outcome" "${words[*]}" "$said_now"
        fi
    done < <(grep -E '^\| `(rpctest|echotest)' "$table")
    [ -n "$was" ] || fail "no settings of ksf in $table"
    stop_server "$was"

    printf 'of these %s fail as ksf.md says, for a reason of ksf\n' "$known"
    printf '%s passed, %s failed\n' "$passed" "$failed"
    [ "$failed" = 0 ]
}

command=${1:?usage: see the top of this file}
shift
case $command in
    build) build "$@" ;;
    run) run "$@" ;;
    inside) inside "$@" ;;
    *) fail "ksf.sh: no such command: $command" ;;
esac
