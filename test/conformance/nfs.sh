#!/usr/bin/env bash
# Runs the tests of libnfs (github.com/sahlberg/libnfs), a client of NFS in user space, against `twinpath serve nfs` in namespaces of
# its own. nfs.txt says which do not pass, and why; docs/conformance.md explains it.
#
#   nfs.sh build CHECKOUT OUT               build libnfs with its tests from a copy of CHECKOUT in the directory OUT
#   nfs.sh run OUT TWINPATH                 run them (as root); the last line is `N passed, N failed`
#
# SERVER=ganesha runs them against nfs-ganesha instead, to compare; then the table says nothing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
table=$here/nfs.txt

# How long a test may take. One that hangs takes all of it.
limit_s=60

fail() { printf '%s\n' "$*" >&2; exit 1; }

build() {
    local checkout=$1 out=$2
    [ -f "$checkout/tests/prog_open_read.c" ] ||
        fail "$checkout is no checkout of libnfs: it has no tests/prog_open_read.c. Say DIR=... of one, from https://github.com/sahlberg/libnfs."
    rm -rf "$out"
    mkdir -p "$out"
    cp -r "$checkout/." "$out/libnfs"
    mkdir "$out/libnfs/build"
    (cd "$out/libnfs/build" && cmake .. -DENABLE_TESTS=ON -DENABLE_UTILS=ON -DCMAKE_BUILD_TYPE=Release && make -s) >"$out/build.log" 2>&1 ||
        { tail -n 40 "$out/build.log" >&2; fail "libnfs does not build: see above."; }
    # What the tests call to export a directory by the kernel's server. Here a server has it all the time: only its contents change.
    cat >"$out/libnfs/build/tests/functions.sh" <<'SHIM'
TESTDIR=$(pwd)/testdata
TESTSHARE="127.0.0.1:${TESTDIR}"
TESTURL="nfs://127.0.0.1${TESTDIR}"
VERS=3
start_share() { find "${TESTDIR}" -mindepth 1 -delete; }
stop_share() { find "${TESTDIR}" -mindepth 1 -delete; }
success() { echo "[OK]"; }
failure() { echo "[FAILED]"; exit 1; }
SHIM
    printf 'libnfs %s\n' "$(git -C "$checkout" describe --always 2>/dev/null || echo unknown)"
}

# Namespaces of the network, of mounts and of processes. They are nobody else's, and go with the last process in them.
run() {
    exec unshare --net --mount --pid --fork --kill-child --mount-proc "$here/nfs.sh" inside "$@"
}

serve_twinpath() {
    "$1" serve nfs --on lo --path kernel --tcp 2049 --udp 2049 --rpcbind --socket /run/nfs.sock \
        --export "$2:rw,insecure,no_root_squash" >"$3" 2>&1 &
}

serve_ganesha() {
    cat >/run/ganesha.conf <<CONF
NFS_CORE_PARAM { Protocols = 3; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = true; }
NFS_KRB5 { Active_krb5 = false; }
NFSv4 { Graceless = true; UseGetpwnam = true; }
EXPORT { Export_Id = 1; Path = "$2"; Pseudo = /t; Protocols = 3; Transports = TCP, UDP; Access_Type = RW; Squash = No_Root_Squash;
    SecType = none, sys; FSAL { Name = VFS; } }
CONF
    ganesha.nfsd -F -f /run/ganesha.conf -L "$3" -p /run/ganesha.pid >/dev/null 2>&1 &
}

# Whether the server answers MOUNT and NFS at the ports that rpcbind has.
answers() { rpcinfo -t 127.0.0.1 nfs 3 && rpcinfo -t 127.0.0.1 mountd 3; } >/dev/null 2>&1

inside() {
    local out=$1 server=${SERVER:-twinpath} passed=0 failed=0 test name outcome expected waited=0 as_user
    local tests=$out/libnfs/build/tests results=$out/results.txt
    ip link set lo up
    mount -t tmpfs none /run
    [ ! -d /var/lib/nfs ] || mount -t tmpfs none /var/lib/nfs
    mkdir -p /run/rpcbind "$tests/testdata"
    mount -t tmpfs none "$tests/testdata"
    rpcbind -w
    "serve_$server" "$2" "$tests/testdata" "$out/server.log"
    until answers; do
        [ $((waited += 1)) -le 200 ] && kill -0 $! 2>/dev/null || { tail -n 20 "$out/server.log" >&2; fail "$server does not serve."; }
        sleep 0.1
    done
    : >"$results"
    cd "$tests"
    for test in test_*.sh; do
        name=${test%.sh}
        # The same again under valgrind: it judges libnfs, not a server.
        case $name in *valgrind*) continue ;; esac
        outcome=passed
        as_user=()
        # Root may read everything: what may not be read has to be another's.
        case $name in *_access*) as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups) ;; esac
        chown "$([ ${#as_user[@]} = 0 ] && echo 0 || echo 65534)" testdata
        timeout "$limit_s" "${as_user[@]}" sh "./$test" >"$out/$name.log" 2>&1 || outcome=failed
        grep -q 'FAILED' "$out/$name.log" && outcome=failed
        expected=passed
        [ "$server" != twinpath ] || ! grep -q "^$name " "$table" || expected=failed
        printf '%s %s\n' "$name" "$outcome" >>"$results"
        if [ "$outcome" = "$expected" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            printf '%s %s, which was not expected: %s\n' "$name" "$outcome" "$(tail -n 1 "$out/$name.log")"
        fi
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
    *) fail "nfs.sh: no such command: $command" ;;
esac
