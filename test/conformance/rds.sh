#!/usr/bin/env bash
# Runs rds-ping, rds-info and rds-stress of rds-tools (github.com/oracle/rds-tools), and a program that counts messages, between
# `twinpath rds` and rds_tcp of a kernel in a virtual machine. rds.txt says which cases do not pass, and why; docs/conformance.md
# explains it.
#
#   rds.sh build CHECKOUT OUT               build the programs from CHECKOUT in the directory OUT, and fetch kernels
#   rds.sh run OUT TWINPATH                 run them (as root); the last line is `N passed, N failed`
#
# OUT/packages has busybox-static and cpio, unpacked. PEER=kernel has a second guest of the same kernel at our end, to see what it
# does with itself; then the table says nothing. KERNELS are packages of Debian's, PACKAGE or PACKAGE/SUITE. ONLY is a regular
# expression of cases.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
table=$here/rds.txt
# This release's, its backports' and the newest one. Those of 2026 speak another form.
kernels=${KERNELS:-linux-image-cloud-amd64 linux-image-cloud-amd64/bookworm-backports linux-image-cloud-amd64/trixie-backports}
modules=(virtio_pci virtio_console virtio_net inet_diag tcp_diag sch_netem rds rds_tcp)
tools=(rds-ping rds-info rds-stress)
# The end with the smaller address opens the connections: the guest by its first address, we to its second one.
ours=10.9.0.2
guests=(10.9.0.1 10.9.0.3)
# What a command may take, s. The guest's instructions are emulated, and the machine may be busy.
limit_s=120

fail() { printf '%s\n' "$*" >&2; exit 1; }

# Our end: what serves it, and a program of its. The one that counts is written with the library as well.
serve() { exec "$twinpath" rds --on tap0; }
beside() {
    if [ "$1" = counted ]; then
        timeout "$limit_s" "$out/library/counted" "${@:2}"
    else
        timeout "$limit_s" "$twinpath" run -- "$@"
    fi
}

# Sets what apt is told to know of a suite of Debian's (nothing: of this machine's) alone; its lists are kept in a directory.
apt_of() {
    local suite=$1 place=$2 archive
    apt=(-q -o APT::Sandbox::User=root)
    [ -n "$suite" ] || return 0
    mkdir -p "$place"/lists/partial "$place"/archives/partial
    archive=$(apt-cache policy | grep -o 'http[^ ]*/debian ' | head -n 1)
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
        "${archive:-http://deb.debian.org/debian}" "$suite" >"$place/sources"
    apt+=(-o "Dir::Etc::SourceList=$place/sources" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$place/lists"
        -o "Dir::Cache=$place" -o "Dir::Cache::archives=$place/archives")
    apt-get "${apt[@]}" update >"$place/log" 2>&1 || { tail -n 5 "$place/log" >&2; fail "Cannot list the packages of $suite."; }
}

# unpack DIRECTORY PACKAGE...: fetched by `apt`, not installed.
unpack() {
    local to=$1 package
    shift
    rm -rf "$to.part"
    mkdir -p "$to.part/fetched"
    (cd "$to.part/fetched" && apt-get "${apt[@]}" download "$@" >&2)
    for package in "$to.part"/fetched/*.deb; do
        dpkg-deb -x "$package" "$to.part/unpacked"
    done
    mv "$to.part/unpacked" "$to"
    rm -rf "$to.part"
}

depends() { apt-cache "${apt[@]}" depends "$1" | sed -n "s/^ *Depends: \($2-[0-9].*\)/\1/p"; }

fetch_kernel() {
    local out=$1 kernel=$2 suite='' image
    [ ! -d "$out/kernels/${kernel/\//.}" ] || return 0
    [ "${kernel#*/}" = "$kernel" ] || suite=${kernel#*/}
    apt_of "$suite" "$out/apt.$suite"
    # A package of the newest one has nothing but the name of another, and newer ones are divided.
    image=$(depends "${kernel%/*}" linux-image | head -n 1)
    image=${image:-${kernel%/*}}
    # shellcheck disable=SC2046
    unpack "$out/kernels/${kernel/\//.}" "$image" $(depends "$image" linux-binary) $(depends "$image" linux-modules)
}

build() {
    local checkout=$1 out tool kernel
    mkdir -p "$2/bin" "$2/kernels"
    out=$(cd "$2" && pwd)
    [ -f "$checkout/rds-stress.c" ] && [ -f "$checkout/pfhack.c" ] ||
        fail "$checkout is no checkout of rds-tools: it has no rds-stress.c and no pfhack.c. Say DIR=... of one, from https://github.com/oracle/rds-tools."
    for tool in "${tools[@]}"; do
        gcc -O2 -w -I "$checkout/include" -I "$checkout" -DRDS_VERSION='"conformance"' -DDYNAMIC_PF_RDS -o "$out/bin/$tool" \
            "$checkout/$tool.c" "$checkout/pfhack.c"
    done
    gcc -O1 -Wall -Wextra -o "$out/bin/counted" "$here/rds/counted.c"
    (cd "$here" && cargo build -q -p twinpath-rds-socket --example counted)
    mkdir -p "$out/library"
    cp "${CARGO_TARGET_DIR:-$here/../../target}/debug/examples/counted" "$out/library/"
    for kernel in $kernels; do
        fetch_kernel "$out" "$kernel"
    done
    # Emulation of qemu 7 breaks kernels from 6.12 on.
    if [ "$(qemu-system-x86_64 --version | sed -n 's/.*version \([0-9]*\).*/\1/p')" -lt 8 ] && [ ! -d "$out/qemu" ]; then
        apt_of bookworm-backports "$out/apt.bookworm-backports"
        unpack "$out/qemu" qemu-system-x86 qemu-system-data
    fi
    printf 'rds-tools %s, %s\n' "$(git -C "$checkout" describe --always 2>/dev/null || echo unknown)" \
        "$(cd "$out/kernels" && find . -name rds_tcp.ko\* | sed 's|.*modules/||; s|/.*||' | sort | xargs)"
}

# module KERNEL ROOT NAME: puts a module and what it needs into the guest's files, in the order in which they are to be loaded.
module() {
    local kernel=$1 root=$2 name=$3 file needed
    [ ! -e "$root/lib/modules/$name" ] || return 0
    file=$(find "$kernel" -name "$name.ko" -o -name "$name.ko.xz" -o -name "${name//_/-}.ko" -o -name "${name//_/-}.ko.xz" | head -n 1)
    # Some kernels have it built in.
    [ -n "$file" ] || return 0
    case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac >"$root/lib/modules/$name"
    for needed in $(tr '\0' '\n' <"$root/lib/modules/$name" | grep -a '^depends=' | sed 's/^depends=//; s/,/ /g'); do
        module "$kernel" "$root" "${needed//-/_}"
    done
    printf '%s\n' "$name" >>"$root/lib/modules/order"
}

# The guest's files, as the kernel unpacks them into its memory.
initrd() {
    local out=$1 kernel=$2 root=$1/root name file
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,etc,usr/bin,lib/modules}
    cp "$out/packages/bin/busybox" "$root/bin/"
    cp "$here/rds/init.sh" "$root/init"
    chmod +x "$root/init"
    for file in "$out"/bin/* "$(PATH=$PATH:/sbin:/usr/sbin command -v ss)" "$(PATH=$PATH:/sbin:/usr/sbin command -v tc)"; do
        cp "$file" "$root/usr/bin/"
        for name in $(ldd "$file" | grep -o '/[^ ]*'); do
            mkdir -p "$root$(dirname "$name")"
            cp -L "$name" "$root$name"
        done
    done
    for name in "${modules[@]}"; do
        module "$kernel" "$root" "$name"
    done
    (cd "$root" && find . | "$out/packages/bin/cpio" --quiet -o -H newc) >"$out/initrd"
}

# boot NAME TAP ADDRESS KERNEL: a guest that does what `tell NAME` says.
boot() {
    local name=$1 tap=$2 at=$3 kernel=$4 qemu=(qemu-system-x86_64) mac
    [ ! -d "$out/qemu" ] || qemu=("$out/qemu/usr/bin/qemu-system-x86_64" -L "$out/qemu/usr/share/qemu" -L /usr/share/seabios -L /usr/share/qemu)
    mac=52:54:00:00:00:0${at##*.}
    rm -f "$out/$name.in" "$out/$name.out"
    mkfifo "$out/$name.in" "$out/$name.out"
    timeout --foreground 3000 "${qemu[@]}" -accel "${ACCEL:-tcg}" -cpu max -smp 1 -m 512 -nodefaults -display none -no-reboot \
        -kernel "$(find "$kernel" -name 'vmlinuz*' | head -n 1)" -initrd "$out/initrd" \
        -append "console=ttyS0 loglevel=4 panic=-1 tsc=reliable at=$at" \
        -serial "file:$out/$name.console" -chardev stdio,id=shell,signal=off -device virtio-serial-pci \
        -device virtserialport,chardev=shell,name=shell \
        -netdev "tap,id=cable,ifname=$tap,script=no,downscript=no" -device "virtio-net-pci,netdev=cable,romfile=,mac=$mac" \
        <"$out/$name.in" >"$out/$name.out" 2>"$out/$name.complaints" &
    machines+=($!)
    exec {to[$name]}>"$out/$name.in" {from[$name]}<"$out/$name.out"
    heard "$name" >/dev/null || fail "The guest does not start: $out/$name.console."
}

# What a guest says up to the end of its command, whose exit code this has.
heard() {
    local line
    while IFS= read -r -t "$limit_s" -u "${from[$1]}" line; do
        case $line in
            'end '*) return "${line#end }" ;;
            '') ;;
            *) printf '%s\n' "$line" ;;
        esac
    done
    printf '%s is silent\n' "$1"
    return 99
}

tell() { printf '%s\n' "${*:2}" >&"${to[$1]}" && heard "$1"; }

is_guest() { [ "$1" != ours ] || [ "$peer" = kernel ]; }

# on END COMMAND...: at the end `guest` or `ours`.
on() { if is_guest "$1"; then tell "$1" "timeout $limit_s ${*:2}"; else beside "${@:2}" </dev/null 2>&1; fi; }

# Begins a command at an end, in the background; `ended END` has its output and its code.
begin() {
    if is_guest "$1"; then
        tell "$1" "rm -f /run/code; { timeout $limit_s ${*:2}; echo \$? >/run/code.part; mv /run/code.part /run/code; } >/run/begun 2>&1 &"
    else
        beside "${@:2}" </dev/null >"$out/begun" 2>&1 &
        begun=$!
    fi
}

ended() {
    local code=0
    if is_guest "$1"; then
        # shellcheck disable=SC2016
        tell "$1" 'until [ -e /run/code ]; do usleep 50000; done; cat /run/begun; exit $(cat /run/code)'
    else
        wait "$begun" || code=$?
        cat "$out/begun"
        return "$code"
    fi
}

# until_said END TEXT: what was begun there has said it.
until_said() {
    local waited=0
    if is_guest "$1"; then
        tell "$1" "until grep -q '$2' /run/begun; do [ ! -e /run/code ] || { cat /run/begun; exit 1; }; usleep 50000; done"
    else
        until grep -q "$2" "$out/begun"; do
            kill -0 "$begun" 2>/dev/null && [ $((waited += 1)) -lt $((limit_s * 10)) ] || { cat "$out/begun"; return 1; }
            sleep 0.1
        done
    fi
}

address() { if [ "$1" = ours ]; then echo "$ours"; else echo "$guest"; fi; }
other() { if [ "$1" = ours ]; then echo guest; else echo ours; fi; }

# The cases: each has the end that acts, and its other words; what it prints says why it fails.
ping() {
    local said
    said=$(on "$1" rds-ping -c 4 -I "$(address "$1")" "$(address "$(other "$1")")") || { echo "$said"; return 1; }
    [ "$(grep -c '^ *[0-9]*: [0-9]* usec$' <<<"$said")" = 4 ] || { echo "$said"; return 1; }
}

info() {
    local said there
    there=$(address "$(other "$1")")
    said=$(on "$1" rds-info -n -c -k -s -r -t) || { echo "$said"; return 1; }
    grep -q "^ *$(address "$1") *$there .*C" <<<"$said" || { echo "no connection with $there: $said"; return 1; }
    grep -q '^ *send_pong *[1-9]' <<<"$said" || { echo "it has answered no ping: $said"; return 1; }
}

# stress END BYTES: it asks, the other end answers, and asks as well.
stress() {
    local there code=0 said
    there=$(other "$1")
    begin "$there" rds-stress -r "$(address "$there")" -p 4000
    said=$(on "$1" rds-stress -r "$(address "$1")" -s "$(address "$there")" -p 4000 --connect-retries 20 -t 4 -d 8 -q "$2" -a 256 -T 4) || code=$?
    ended "$there" >"$out/ended" || code=$?
    # Of its lines, one a second, the last one is the average: tasks, requests sent and received, and so on.
    [ "$code" = 0 ] && tail -n 1 <<<"$said" | grep -q '^ *4 *[1-9][0-9]* *[1-9]' || { echo "$said; $(<"$out/ended")"; return 1; }
}

# counted END COUNT BYTES [QUEUE]: it sends.
counted() {
    local there said code=0
    there=$(other "$1")
    begin "$there" counted receive "$(address "$there")" 5000 "$2" ${4:+"$4"}
    until_said "$there" ready || { echo "the receiver is not ready"; ended "$there"; return 1; }
    said=$(on "$1" counted send "$(address "$1")" 4000 "$(address "$there")" 5000 "$2" "$3") || code=$?
    ended "$there" >"$out/ended" || code=$?
    [ "$code" = 0 ] || { echo "$said; $(<"$out/ended")"; return 1; }
    [ -z "${4:-}" ] || ! grep -q 'refused 0$' <<<"$said" || { echo "its queue was never full: $said; $(<"$out/ended")"; return 1; }
}

# What the guest sends is lost, changed and doubled.
lossy() {
    local code=0
    tell guest "/usr/bin/tc qdisc add dev eth0 root netem loss 2% corrupt 2% duplicate 2%" || return 1
    counted "$@" || code=$?
    tell guest "/usr/bin/tc qdisc del dev eth0 root"
    return "$code"
}

# severed END COUNT BYTES: it sends while the guest's kernel ends all connections, five times.
severed() {
    local there said code=0
    there=$(other "$1")
    begin "$there" counted receive "$(address "$there")" 5000 "$2"
    until_said "$there" ready || { echo "the receiver is not ready"; ended "$there"; return 1; }
    if [ "$1" = guest ]; then
        said=$(on guest "counted send $guest 4000 $ours 5000 $2 $3 & sender=\$!; $cuts; wait \$sender") || code=$?
        ended "$there" >"$out/ended" || code=$?
    else
        # The guest's shell is free for it: its receiver is in the background.
        on ours counted send "$ours" 4000 "$guest" 5000 "$2" "$3" >"$out/sender" &
        local sender=$!
        tell guest "$cuts" || code=$?
        wait "$sender" || code=$?
        said=$(cat "$out/sender")
        ended guest >"$out/ended" || code=$?
    fi
    [ "$code" = 0 ] || { echo "$said; $(<"$out/ended")"; return 1; }
}
cuts='for i in 1 2 3 4 5; do usleep 300000; ss -K dst '$ours' >/dev/null; done'

# The daemon is killed and begun again.
killed() {
    kill -KILL "$server"
    wait "$server" || true
    start_server && ping guest && counted guest 100 64
}

start_server() {
    local waited=0
    (serve) >"$out/server.log" 2>&1 &
    server=$!
    until grep -q '^ready' "$out/server.log"; do
        kill -0 "$server" 2>/dev/null && [ $((waited += 1)) -le 200 ] || { cat "$out/server.log"; return 1; }
        sleep 0.1
    done
}

# try NAME COMMAND...
try() {
    local name=$1 said outcome=passed expected=passed
    shift
    [[ $name =~ ${ONLY:-} ]] || return 0
    if [ "$runs" = 0 ] && [[ $name =~ (ping|info)-ours|stress ]]; then
        printf '%s not run: twinpath run has no RDS sockets\n' "$name"
        return 0
    fi
    # Not in a shell of its own: the daemon that a case begins again is this one's to end.
    "$@" >"$out/said" 2>&1 || outcome=failed
    said=$(<"$out/said")
    [ "$peer" = kernel ] || ! grep -q "^$name " "$table" || expected=failed
    printf '%s %s\n' "$name" "$outcome" >>"$out/results.txt"
    if [ "$outcome" = "$expected" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s %s, which was not expected: %s\n' "$name" "$outcome" "$(tr -s ' \n' ' ' <<<"$said" | tail -c 500)"
    fi
}

cases() {
    local release=$1 opener guest=${guests[0]}
    for opener in they-open we-open; do
        try "$release $opener ping-theirs" ping guest
        try "$release $opener ping-ours" ping ours
        try "$release $opener info-theirs" info guest
        try "$release $opener info-ours" info ours
        try "$release $opener stress-theirs" stress guest 1024
        try "$release $opener stress-ours" stress ours 1024
        try "$release $opener stress-64k-ours" stress ours 65536
        try "$release $opener counted-theirs" counted guest 20000 64
        try "$release $opener counted-ours" counted ours 20000 64
        try "$release $opener counted-64k-theirs" counted guest 500 65536
        try "$release $opener full-theirs" counted guest 3000 1024 16384
        try "$release $opener full-ours" counted ours 3000 1024 16384
        try "$release $opener lossy-theirs" lossy guest 5000 64
        try "$release $opener lossy-ours" lossy ours 5000 64
        try "$release $opener severed-theirs" severed guest 20000 64
        try "$release $opener severed-ours" severed ours 20000 64
        [ "$peer" = kernel ] || try "$release $opener killed" killed
        guest=${guests[1]}
    done
}

# Both ends on one cable; ours is this namespace's own, or another guest.
plug() {
    ip link set lo up
    ip tuntap add dev tap0 mode tap
    if [ "$peer" = kernel ]; then
        ip tuntap add dev tap1 mode tap
        ip link add bridge0 type bridge forward_delay 0
        for port in tap0 tap1 bridge0; do
            [ "$port" = bridge0 ] || ip link set "$port" master bridge0
            ip link set "$port" up
        done
    else
        ip addr add "$ours/24" dev tap0
        ip link set tap0 up
    fi
}

# Namespaces of the network, of mounts and of processes. They are nobody else's, and go with the last process in them.
run() {
    exec unshare --net --mount --pid --fork --kill-child --mount-proc "$here/rds.sh" inside "$@"
}

inside() {
    local kernel directory release machine code
    # Of the functions above as well.
    out=$(cd "$1" && pwd) twinpath=$2 peer=${PEER:-twinpath} passed=0 failed=0 runs=1 server='' begun=''
    export PATH="$out/bin:$PATH"
    mount -t tmpfs none /run
    declare -gA to from
    : >"$out/results.txt"
    plug
    for kernel in $kernels; do
        directory=$out/kernels/${kernel/\//.}
        machines=()
        initrd "$out" "$directory"
        boot guest tap0 "${guests[0]},${guests[1]}" "$directory"
        if [ "$peer" = kernel ]; then boot ours tap1 "$ours" "$directory"; else start_server; fi
        release=$(tell guest 'uname -r' | sed 's/[+]deb.*//; s/-cloud.*//')
        runs=1
        on ours rds-info -n >/dev/null || runs=0
        cases "$release"
        if [ "$peer" != kernel ]; then
            code=0
            kill -TERM "$server"
            wait "$server" || code=$?
            try "$release serve" [ "$code" = 0 ]
        fi
        for machine in "${machines[@]}"; do
            kill -TERM "$machine"
            wait "$machine" || true
        done
    done
    printf '%s passed, %s failed\n' "$passed" "$failed"
    [ "$failed" = 0 ]
}

command=${1:?usage: see the top of this file}
shift
case $command in
    build) build "$1" "$2" ;;
    run) run "$1" "$2" ;;
    inside) inside "$1" "$2" ;;
    *) fail "rds.sh: no such command: $command" ;;
esac
