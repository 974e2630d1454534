#!/bin/sh
# A container and a process on one switch. The process has no interface and no socket: it takes frames from shared memory
# and answers ARP, pings, and UDP echo at 10.8.0.9. It is an example of the library, ports/shm/examples/responder.rs.
# Run as root; TWINPATH names the program if it is not in the PATH, RESPONDER the example if cargo is not to run it.
set -eu
twinpath=${TWINPATH:-twinpath}
responder=${RESPONDER:-cargo run -q -p twinpath-shm --example responder --}
# Names that are free on any host.
container=container-$$ port=port-$$
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

"$twinpath" switch "example-$$" --port "$port" --port memory:app1 --socket "$log/switch.sock" >"$log/switch" 2>&1 &
started=$!
while ! grep -q '^ready ' "$log/switch"; do
    kill -0 "$started" 2>/dev/null || { cat "$log/switch" >&2; exit 1; }
    sleep 0.1
done

# `twinpath show ports` names the socket: it is beside that of the switch.
$responder "$log/ports/example-$$-app1" 10.8.0.9 >"$log/responder" 2>&1 &
started="$started $!"
until "$twinpath" show ports --socket "$log/switch.sock" | grep -q 'process .* has it'; do
    kill -0 $! 2>/dev/null || { cat "$log/responder" >&2; exit 1; }
    sleep 0.1
done
if command -v ping >/dev/null; then ip netns exec "$container" ping -c 3 -i 0.2 10.8.0.9; fi
ip netns exec "$container" "$twinpath" bench echo 10.8.0.9:7 --udp --count 1000
"$twinpath" show ports --socket "$log/switch.sock"
"$twinpath" show macs --socket "$log/switch.sock"
