#!/bin/busybox sh
# The first program of a guest of rds.sh: it has the addresses of the kernel's command line, and does what the lines of a serial port of
# the host's say, one after the other: for each the output, and then `end CODE`.
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
# In the order in which each finds what it needs.
while read -r module; do
    insmod "/lib/modules/$module"
done </lib/modules/order
ip link set lo up
ip link set eth0 up
ips=
for word in $(cat /proc/cmdline); do
    case $word in at=*) ips=$(echo "${word#at=}" | tr , ' ') ;; esac
done
for ip in $ips; do
    ip addr add "$ip/24" dev eth0
done
for port in /dev/vport*p1; do
    exec <>"$port" >&0 2>&1
done
echo "end 0"
while IFS= read -r line; do
    sh -c "$line" </dev/null >/run/said 2>&1
    code=$?
    cat /run/said
    # What it wrote may end without a new line.
    printf '\nend %s\n' "$code"
done
