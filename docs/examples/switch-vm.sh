#!/bin/sh
# A virtual machine and a container on one switch. The machine has no disk: its firmware starts from the network, so it
# asks for an address, which the switch floods to the container, and learns the machine's own. Without QEMU, the script
# says what to start. Run as root; TWINPATH names the program if it is not in the PATH.
set -eu
twinpath=${TWINPATH:-twinpath}
# Names that are free on any host.
container=container-$$ port=port-$$ machine=vm-$$
address=02:00:00:00:00:99
log=$(mktemp -d)
started=

clean_up() {
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    wait
    ip netns delete "$container" 2>/dev/null || true
    rm -r "$log"
}
trap clean_up EXIT

ip netns add "$container"
ip link add "$port" type veth peer name eth0 netns "$container"
ip -n "$container" address add 10.8.0.1/24 dev eth0
ip -n "$container" link set eth0 up
ip link set "$port" up

# The port exists before the machine does, and goes and comes with it.
"$twinpath" switch "example-$$" --port "$port" --port "tap:$machine" --socket "$log/switch.sock" >"$log/switch" 2>&1 &
started=$!
while ! grep -q '^ready ' "$log/switch"; do
    kill -0 "$started" 2>/dev/null || { cat "$log/switch" >&2; exit 1; }
    sleep 0.1
done

qemu="qemu-system-x86_64 -m 64 -display none -netdev tap,id=n0,ifname=$machine,script=no,downscript=no"
qemu="$qemu -device virtio-net-pci,netdev=n0,mac=$address -boot n"
if ! command -v qemu-system-x86_64 >/dev/null; then
    echo "QEMU is not installed; the switch would carry: $qemu, and then: ip link set $machine up"
    "$twinpath" show ports --socket "$log/switch.sock"
    exit 0
fi
$qemu </dev/null >"$log/machine" 2>&1 &
started="$started $!"
# QEMU makes the interface, and leaves it down.
until ip link set "$machine" up 2>/dev/null; do
    kill -0 $! 2>/dev/null || { cat "$log/machine" >&2; exit 1; }
    sleep 0.1
done
until "$twinpath" show macs --socket "$log/switch.sock" | grep -q "$address"; do
    kill -0 $! 2>/dev/null || { cat "$log/machine" >&2; exit 1; }
    sleep 0.2
done
"$twinpath" show ports --socket "$log/switch.sock"
"$twinpath" show macs --socket "$log/switch.sock"
