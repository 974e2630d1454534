#!/bin/sh
# Two containers on one switch: network namespaces, each with an interface `eth0` whose other end is a port. One serves
# echo, the other one measures it. Run as root; TWINPATH names the program if it is not in the PATH.
set -eu
twinpath=${TWINPATH:-twinpath}
# Names that are free on any host.
first=first-$$ second=second-$$ one=one-$$ two=two-$$
log=$(mktemp -d)
started=

clean_up() {
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    wait
    ip netns delete "$first" 2>/dev/null || true
    ip netns delete "$second" 2>/dev/null || true
    rm -r "$log"
}
trap clean_up EXIT

# Runs a command in the background until it says that it is ready.
start() {
    name=$1
    shift
    "$@" >"$log/$name" 2>&1 &
    started="$started $!"
    while ! grep -q '^ready ' "$log/$name"; do
        kill -0 $! 2>/dev/null || { cat "$log/$name" >&2; exit 1; }
        sleep 0.1
    done
}

ip netns add "$first"
ip netns add "$second"
ip link add "$one" type veth peer name eth0 netns "$first"
ip link add "$two" type veth peer name eth0 netns "$second"
ip -n "$first" address add 10.8.0.1/24 dev eth0
ip -n "$second" address add 10.8.0.2/24 dev eth0
for namespace in "$first" "$second"; do
    ip -n "$namespace" link set lo up
    ip -n "$namespace" link set eth0 up
done
ip link set "$one" up
ip link set "$two" up

start switch "$twinpath" switch "example-$$" --port "$one" --port "$two" --socket "$log/switch.sock"
start echo ip netns exec "$second" "$twinpath" serve echo --on eth0 --udp 7 --path kernel --socket "$log/echo.sock"
ip netns exec "$first" "$twinpath" bench echo 10.8.0.2:7 --udp --count 1000
"$twinpath" show ports --socket "$log/switch.sock"
"$twinpath" show macs --socket "$log/switch.sock"
