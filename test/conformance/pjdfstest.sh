#!/usr/bin/env bash
# Runs pjdfstest (github.com/pjd/pjdfstest), tests of what POSIX asks of a file system, over files of `twinpath serve nfs` that a
# kernel's client has mounted, both in a virtual machine. pjdfstest.txt says which do not pass, and why; docs/conformance.md
# explains it.
#
#   pjdfstest.sh build CHECKOUT OUT         build its program from CHECKOUT in the directory OUT, and fetch a kernel
#   pjdfstest.sh run OUT TWINPATH           run the tests; the last line is `N passed, N failed`, of files
#
# OUT/packages has busybox-static and cpio, unpacked. KERNEL=PACKAGE is another kernel of Debian's, ACCEL=kvm runs it by KVM.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
table=$here/pjdfstest.txt
kernel=${KERNEL:-linux-image-cloud-amd64}
# How long all of it may take: where instructions are emulated, some half an hour.
limit_s=5400

fail() { printf '%s\n' "$*" >&2; exit 1; }

# What its configure looks for, and finds with glibc.
functions=(FACCESSAT FCHMODAT FCHOWNAT FSTATAT LINKAT MKDIRAT MKFIFOAT MKNODAT OPENAT POSIX_FALLOCATE READLINKAT RENAMEAT
    SYMLINKAT UTIMENSAT STRUCT_STAT_ST_ATIM STRUCT_STAT_ST_MTIM STRUCT_STAT_ST_CTIM SYS_SYSMACROS_H)

build() {
    local checkout=$1 out=$2 image
    [ -f "$checkout/pjdfstest.c" ] && [ -d "$checkout/tests/chmod" ] ||
        fail "$checkout is no checkout of pjdfstest: it has no pjdfstest.c and no tests/chmod. Say DIR=... of one, from https://github.com/pjd/pjdfstest."
    mkdir -p "$out"
    rm -rf "$out/suite"
    mkdir "$out/suite"
    cp -r "$checkout/tests" "$out/suite/tests"
    mkdir -p "$out/config"
    : >"$out/config/config.h"
    gcc -static -O1 -D_GNU_SOURCE "${functions[@]/#/-DHAVE_}" -I "$out/config" -o "$out/suite/pjdfstest" "$checkout/pjdfstest.c"
    if [ ! -d "$out/kernel" ]; then
        # The package of the newest one has nothing but the name of another.
        image=$(apt-cache depends "$kernel" | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
        rm -rf "$out/fetched"
        mkdir "$out/fetched"
        (cd "$out/fetched" && apt-get -q -o APT::Sandbox::User=root download "${image:-$kernel}" >&2)
        dpkg-deb -x "$out"/fetched/*.deb "$out/kernel.part"
        mv "$out/kernel.part" "$out/kernel"
    fi
    printf 'pjdfstest %s, %s\n' "$(git -C "$checkout" describe --always 2>/dev/null || echo unknown)" "$(ls "$out/kernel/lib/modules")"
}

# The guest's files, as the kernel unpacks them into its memory.
guest() {
    local out=$1 twinpath=$2 root=$1/root module library
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,srv,mnt,tmp,run,etc,usr/bin}
    cp "$out/packages/bin/busybox" "$twinpath" "$root/bin/"
    cp -r "$out/suite" "$root/suite"
    cp "$here/pjdfstest/init.sh" "$root/init"
    # Names of files are made by `openssl md5`.
    printf '#!/bin/sh\nexec md5sum | cut -c1-32\n' >"$root/bin/openssl"
    chmod +x "$root/bin/openssl" "$root/init"
    # Tests act as these two.
    printf '%s\n' 'root:x:0:0::/:/bin/sh' 'nobody:x:65534:65534::/:/bin/sh' >"$root/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nobody:x:65534:' >"$root/etc/group"
    for library in $(ldd "$twinpath" | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
    for module in netfs fscache sunrpc grace lockd nfs nfs_acl nfsv3; do
        (cd "$out/kernel" && find lib/modules -name "$module.ko" -exec cp --parents {} "$root" \;)
    done
    (cd "$root" && find . | "$out/packages/bin/cpio" --quiet -o -H newc) >"$out/initrd"
}

run() {
    local out twinpath=$2 passed=0 failed=0 assertions=0 refused=0 word file plan ok not todo outcome expected
    out=$(cd "$1" && pwd)
    guest "$out" "$twinpath"
    timeout "$limit_s" qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu max -smp 2 -m 2048 -nographic -no-reboot \
        -kernel "$out"/kernel/boot/vmlinuz-* -initrd "$out/initrd" -append 'console=ttyS0 panic=-1 quiet' </dev/null >"$out/serial.raw" ||
        fail "The guest did not end: $out/serial.raw."
    tr -d '\r' <"$out/serial.raw" >"$out/serial.txt"
    grep -qx 'all files have run' "$out/serial.txt" ||
        { tail -n 20 "$out/serial.txt" >&2; fail "The guest ended before the tests did."; }
    while read -r word file plan ok not todo; do
        [ "$word" = result ] || continue
        outcome=failed
        [ "$not" != 0 ] || [ "$plan" != $((ok + todo)) ] || outcome=passed
        expected=passed
        ! grep -q "^$file " "$table" || expected=failed
        assertions=$((assertions + ok)) refused=$((refused + not))
        if [ "$outcome" = "$expected" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            printf '%s %s, which was not expected\n' "$file" "$outcome"
            grep "^failed $file " "$out/serial.txt" || true
        fi
    done <"$out/serial.txt"
    [ $((passed + failed)) = "$(cd "$out/suite/tests" && ls -d [!cg]*/*.t c[!h]*/*.t ch[!f]*/*.t 2>/dev/null | wc -l)" ] ||
        fail "Not every file has a result: $out/serial.txt."
    printf '%s assertions hold, %s do not\n%s passed, %s failed\n' "$assertions" "$refused" "$passed" "$failed"
    [ "$failed" = 0 ]
}

command=${1:?usage: see the top of this file}
shift
case $command in
    build) build "$1" "$2" ;;
    run) run "$1" "$2" ;;
    *) fail "pjdfstest.sh: no such command: $command" ;;
esac
