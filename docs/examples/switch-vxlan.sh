#!/bin/sh
# Two hosts, each with a switch and a container, joined by VXLAN: the containers are on one Ethernet network. The hosts
# are network namespaces here, with a veth pair for the network between them. One container serves echo, the other one
# measures it. Run as root; TWINPATH names the program if it is not in the PATH.
set -eu
twinpath=${TWINPATH:-twinpath}
log=$(mktemp -d)
started=

clean_up() {
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    wait
    for name in east west first second; do ip netns delete "$name-$$" 2>/dev/null || true; done
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

# Names that are free on any host.
east=east-$$ west=west-$$ first=first-$$ second=second-$$
for namespace in "$east" "$west" "$first" "$second"; do
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
done

# The network between the hosts.
ip link add underlay netns "$east" type veth peer name underlay netns "$west"
ip -n "$east" address add 192.0.2.1/24 dev underlay
ip -n "$west" address add 192.0.2.2/24 dev underlay
ip -n "$east" link set underlay up
ip -n "$west" link set underlay up

# Each container's `eth0` leads to a port of its host. It leaves 50 bytes to VXLAN.
ip link add port netns "$east" type veth peer name eth0 netns "$first"
ip link add port netns "$west" type veth peer name eth0 netns "$second"
ip -n "$first" address add 10.8.0.1/24 dev eth0
ip -n "$second" address add 10.8.0.2/24 dev eth0
for namespace in "$first" "$second"; do ip -n "$namespace" link set eth0 mtu 1450 up; done
for namespace in "$east" "$west"; do ip -n "$namespace" link set port up; done

start east ip netns exec "$east" "$twinpath" switch "east-$$" --port port --port vxlan:west,vni=100,remotes=192.0.2.2 \
    --socket "$log/east.sock"
start west ip netns exec "$west" "$twinpath" switch "west-$$" --port port --port vxlan:east,vni=100,remotes=192.0.2.1 \
    --socket "$log/west.sock"
# Where a host has the kernel's own VXLAN interface instead of a switch:
#   ip link add vx0 type vxlan id 100 remote 192.0.2.1 dstport 4789

start echo ip netns exec "$second" "$twinpath" serve echo --on eth0 --udp 7 --path kernel --socket "$log/echo.sock"
ip netns exec "$first" "$twinpath" bench echo 10.8.0.2:7 --udp --count 1000
"$twinpath" show ports --socket "$log/east.sock"
"$twinpath" show macs --socket "$log/east.sock"
