#!/bin/busybox sh
# The first program of the guest of pjdfstest.sh: `twinpath serve nfs` and the kernel's client, over the loopback interface. For each
# file of tests it prints `result FILE PLAN PASSED FAILED TODO`, and for each assertion that fails `failed FILE LINE`. Then it ends the guest.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
# In this order each finds what it needs. Which of them are modules depends on the kernel.
for module in netfs fscache sunrpc grace lockd nfs nfs_acl nfsv3; do
    file=$(find /lib/modules -name "$module.ko")
    [ -z "$file" ] || insmod "$file"
done
ip link set lo up
mount -t tmpfs none /srv
mkdir /srv/data

twinpath serve nfs --on lo --path kernel --tcp 2049 --udp 2049 --socket /run/nfs.sock --state-directory /run/state \
    --export /srv/data:rw,insecure,no_root_squash >/run/log 2>&1 &
server=$!
until grep -q '^ready' /run/log; do
    kill -0 $server || { cat /run/log; poweroff -f; }
    sleep 1
done
ports=port=2049,mountport=2049
if ! mount -t nfs -o "vers=3,nolock,addr=127.0.0.1,proto=tcp,mountproto=tcp,mountvers=3,$ports" 127.0.0.1:/srv/data /mnt; then
    dmesg | tail -n 5
    poweroff -f
fi

# Each file has a directory of its own. They run in so many lanes, because many of them wait for a clock to go on.
lane() {
    number=0
    cd /suite/tests || return
    for file in */*.t; do
        case $file in granular/* | chflags/*) continue ;; esac
        number=$((number + 1))
        [ $((number % lanes)) = "$1" ] || continue
        out=/run/out.$1
        directory=/mnt/$(echo "${file%.t}" | tr / -)
        mkdir "$directory"
        (cd "$directory" && sh "/suite/tests/$file") >"$out" 2>/dev/null
        plan=$(sed -n 's/^1\.\.//p' "$out" | head -n 1)
        echo "result $file ${plan:-none} $(grep -c '^ok' "$out") $(grep -v '# TODO' "$out" | grep -c '^not ok')" \
            "$(grep -c '^not ok.*# TODO' "$out")"
        grep '^not ok' "$out" | grep -v '# TODO' | cut -c1-300 | sed "s|^|failed $file |"
    done
}
# What firmware and kernel have written ends here.
echo
lanes=3
lane 0 & first=$!
lane 1 & second=$!
lane 2 & third=$!
wait $first $second $third
kill -0 $server && echo 'all files have run'
poweroff -f
