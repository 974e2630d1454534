# What the suites of packetdrill's scripts have in common. Sourced by packetdrill.sh, tcp-testsuite.sh and linux-packetdrill.sh.

fail() { printf '%s\n' "$*" >&2; exit 1; }

# Packetdrill, from a copy of the checkout $1 in the directory $2, and what it runs against.
build_packetdrill() {
    local checkout=$1/gtests/net/packetdrill out=$2 target
    [ -f "$checkout/so_testing.c" ] ||
        fail "$1 is no checkout of packetdrill: it has no gtests/net/packetdrill. Get it from github.com/google/packetdrill."
    rm -rf "$out/build" "$out/bin"
    mkdir -p "$out/bin"
    out=$(cd "$out" && pwd)
    cp -r "$checkout" "$out/build"
    adapt "$out/build"
    make -s -C "$out/build" -f Makefile.Linux packetdrill >"$out/packetdrill.log" 2>&1 ||
        { tail -n 30 "$out/packetdrill.log" >&2; fail "packetdrill does not build: see above."; }
    cargo build -q --release -p twinpath-test-packetdrill
    target=${CARGO_TARGET_DIR:-$here/../../target}/release
    cp "$out/build/packetdrill" "$target/libtwinpath_packetdrill.so" "$target/packetdrill-command" "$out"
    for name in sysctl ip tc ethtool nstat ifconfig sockstat tcpdrop setkey kldstat kldload; do
        ln -sf ../packetdrill-command "$out/bin/$name"
    done
}

# Packetdrill keeps to the pace of a machine's clock, also where the clock is the shared object's. Here time is virtual: nothing is
# waited for and no priority is needed. What it asks the kernel although there is a shared object is asked of that.
adapt() {
    sed -i 's/-Werror//' "$1/Makefile.common"
    sed -i -e 's/const int MAX_SPIN_USECS = 20;/const int MAX_SPIN_USECS = 0;/' \
        -e 's/state->num_events > 0 && wait_usecs > MAX_SPIN_USECS/wait_usecs > MAX_SPIN_USECS/' \
        -e 's/const int TARGET_JIFFY_TICKS = 10;/const int TARGET_JIFFY_TICKS = 0;/' \
        -e 's/^\tset_scheduling_priority();$//' -e 's/^\tlock_memory();$//' "$1/run.c"
    sed -i -e 's/int result = getsockopt(fd, level, opt_name, data, &opt_len);/int result = state->so_instance ? \
        state->so_instance->ifc.getsockopt(state->so_instance->ifc.userdata, fd, level, opt_name, data, \&opt_len) : \
        getsockopt(fd, level, opt_name, data, \&opt_len);/' \
        -e 's/#include "run.h"/#include "run.h"\n#include "so_testing.h"/' "$1/code.c"
    # A segment may also come for a socket that is bound and does not listen.
    sed -i 's/(socket->state == SOCKET_PASSIVE_LISTENING);/(socket->state == SOCKET_PASSIVE_LISTENING || socket->state == SOCKET_NEW);/' \
        "$1/run_packet.c"
    sed -i -e 's/result = sendfile(live_outfd, live_infd, &live_offset, count);/char *file = calloc(1, count); \
        result = pread(live_infd, file, count, live_offset); \
        if (result > 0) result = state->so_instance->ifc.send(state->so_instance->ifc.userdata, live_outfd, file, result, 0); \
        free(file);/' "$1/run_system_call.c"
}

# The scripts below $1, in $2/scripts, with the one program of theirs that would change settings of this machine replaced.
copy_scripts() {
    rm -rf "$2/scripts"
    cp -r "$1" "$2/scripts"
    find "$2/scripts" -name set_sysctls.py -exec ln -sf "$(cd "$2" && pwd)/packetdrill-command" {} \;
}

# Runs the suite $1, which was built in $2. As root it has a network of its own, as a safeguard: no script needs one.
run_scripts() {
    local isolated=()
    [ "$(id -u)" != 0 ] || isolated=(unshare --net)
    exec "${isolated[@]}" env PYTHONDONTWRITEBYTECODE=1 python3 "$here/packetdrill/suite.py" "$1" "$2" "$here/packetdrill.txt"
}
