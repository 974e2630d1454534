#!/usr/bin/env bash
# Runs Linux's own packetdrill scripts of TCP (tools/testing/selftests/net/packetdrill) against the engine in stack/tcp, in virtual time
# and without a network. packetdrill.txt says which do not pass, and why; docs/conformance.md explains it.
#
#   linux-packetdrill.sh build CHECKOUT OUT   take the scripts of CHECKOUT, that folder or a tree of Linux; PACKETDRILL names a checkout of
#                                           google/packetdrill
#   linux-packetdrill.sh run OUT TWINPATH     run all scripts; the last line is `N passed, N failed`
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/conformance/packetdrill/build.bash
. "$here/packetdrill/build.bash"

command=${1:?usage: see the top of this file}
shift
case $command in
    build)
        scripts=$1
        [ ! -d "$1/tools/testing/selftests" ] || scripts=$1/tools/testing/selftests/net/packetdrill
        [ -e "$scripts/tcp_basic_server.pkt" ] || fail "$1 has no scripts of Linux's selftests/net/packetdrill."
        [ -n "${PACKETDRILL:-}" ] ||
            fail "the scripts are run by packetdrill: say PACKETDRILL=... of a checkout of github.com/google/packetdrill."
        build_packetdrill "$PACKETDRILL" "$2" && copy_scripts "$scripts" "$2"
        ;;
    run) run_scripts linux-packetdrill "$1" ;;
    *) fail "linux-packetdrill.sh: no such command: $command" ;;
esac
