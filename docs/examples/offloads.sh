#!/bin/sh
# What each offload of a virtual link does for a service on both paths: two hosts (network namespaces) with a veth pair
# between them, one serves echo, the other measures it by kernel sockets, with the offload on and off by turns. Prints a
# line for each offload, path and figure: the medians, and the ratio of off to on. Run as root, with ethtool installed;
# TWINPATH names the program if it is not in the PATH, ROUNDS says how many pairs (5), COUNT how many requests a run
# (20,000 small ones).
set -eu
twinpath=${TWINPATH:-twinpath}
rounds=${ROUNDS:-5}
count=${COUNT:-20000}
# The client on the first CPU, the server on the last one.
last=$(($(nproc) - 1))
client=client-$$ server=server-$$
log=$(mktemp -d)
echo=

# What has ended, or was never made, is nothing to clean up.
clean_up() {
    [ -z "$echo" ] || { kill "$echo" 2>/dev/null && wait "$echo" || true; }
    for name in "$client" "$server"; do ip netns delete "$name" 2>/dev/null || true; done
    rm -r "$log"
}
trap clean_up EXIT

for name in "$client" "$server"; do ip netns add "$name"; done
ip link add eth0 netns "$client" type veth peer name eth0 netns "$server"
host=1
for name in "$client" "$server"; do
    for interface in lo eth0; do ip -n "$name" link set "$interface" up; done
    ip -n "$name" address add "10.9.0.$host/24" dev eth0
    # A VLAN above the link, where the kernel has them.
    if ip -n "$name" link add link eth0 name eth0.5 type vlan id 5 2>"$log/vlan"; then
        ip -n "$name" link set eth0.5 up
        ip -n "$name" address add "10.9.5.$host/24" dev eth0.5
    fi
    host=$((host + 1))
done

# Starts echo on an interface ($1) and path ($2). Every reply is the worker's, and each sender may have as many as it asks
# for.
serve() {
    : >"$log/echo"
    ip netns exec "$server" "$twinpath" serve echo --on "$1" --path "$2" --udp 7 --tcp 7 --reply-rate 0 --reflex off \
        --cpu "$last" --socket "$log/echo.sock" >"$log/echo" 2>&1 &
    echo=$!
    while ! grep -q '^ready ' "$log/echo"; do
        kill -0 "$echo" 2>/dev/null || { cat "$log/echo" >&2; exit 1; }
        sleep 0.1
    done
}

# The status of a process that is ended by a signal is not 0.
stop() {
    kill "$echo"
    wait "$echo" || true
    echo=
}

# Sets features of both ends of the link: NAME on|off [NAME on|off ...].
offload() {
    for name in "$client" "$server"; do ip netns exec "$name" ethtool -K eth0 "$@" >/dev/null; done
}

# One run; prints the field $1 of its report.
run() {
    field=$1
    shift
    ip netns exec "$client" "$twinpath" bench echo "$@" --cpu 0 --json >"$log/run"
    sed -n "s/.*\"$field\":\\([0-9.]*\\).*/\\1/p" "$log/run" | head -1
}

median() {
    sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

# compare LABEL PATH FIGURE 'FEATURE ...' FIELD BENCH-ARGUMENT...: the features on and off by turns.
compare() {
    label=$1 path=$2 figure=$3 features=$4 field=$5
    shift 5
    : >"$log/on"
    : >"$log/off"
    round=0
    while [ "$round" -lt "$rounds" ]; do
        for state in on off; do
            # The features are words, each with its state behind it.
            # shellcheck disable=SC2046
            offload $(for feature in $features; do echo "$feature" "$state"; done)
            run "$field" "$@" >>"$log/$state"
        done
        round=$((round + 1))
    done
    # shellcheck disable=SC2046
    offload $(for feature in $features; do echo "$feature" on; done)
    on=$(median "$log/on") off=$(median "$log/off")
    ratio=$(awk -v on="$on" -v off="$off" 'BEGIN { printf "%.2f", off / on }')
    printf '| %s | %s | %s | %.1f | %.1f | %s |\n' "$label" "$path" "$figure" "$on" "$off" "$ratio"
}

echo '| offload | path | figure | on | off | off / on |'
echo '|---|---|---|---|---|---|'
for path in kernel packet; do
    serve eth0 "$path"
    compare checksum "$path" '1400 B, p50 us' 'tx rx' p50 10.9.0.2:7 --udp --size 1400 --count "$count"
    compare checksum "$path" '1400 B, 32 in flight, replies/s' 'tx rx' requests_per_s \
        10.9.0.2:7 --udp --size 1400 --inflight 32 --count "$count"
    compare GRO "$path" '64 B, p50 us' gro p50 10.9.0.2:7 --udp --count "$count"
    compare 'TSO, GSO, GRO' "$path" 'TCP, 60,000 B, 8 in flight, replies/s' 'tso gso gro' requests_per_s \
        10.9.0.2:7 --tcp --size 60000 --inflight 8 --count $((count / 10))
    stop
    [ ! -s "$log/vlan" ] || continue
    serve eth0.5 "$path"
    compare 'VLAN tags beside the frame' "$path" '64 B, p50 us' 'txvlan rxvlan' p50 10.9.5.2:7 --udp --count "$count"
    stop
done
[ ! -s "$log/vlan" ] || echo "VLAN tags: not measured, as this kernel has no VLAN interfaces ($(cat "$log/vlan"))"
