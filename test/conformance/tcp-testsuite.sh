#!/usr/bin/env bash
# Runs FreeBSD's tests of TCP (github.com/freebsd-net/tcp-testsuite) against the engine in stack/tcp, in virtual time and without a
# network. packetdrill.txt says which do not pass, and why; docs/conformance.md explains it.
#
#   tcp-testsuite.sh build CHECKOUT OUT     take the scripts of CHECKOUT; PACKETDRILL names a checkout of google/packetdrill
#   tcp-testsuite.sh run OUT TWINPATH       run all scripts; the last line is `N passed, N failed`
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/conformance/packetdrill/build.bash
. "$here/packetdrill/build.bash"

command=${1:?usage: see the top of this file}
shift
case $command in
    build)
        [ -d "$1/state-event-engine" ] || fail "$1 is no checkout of freebsd-net/tcp-testsuite: it has no state-event-engine."
        [ -n "${PACKETDRILL:-}" ] ||
            fail "the scripts are run by packetdrill: say PACKETDRILL=... of a checkout of github.com/google/packetdrill."
        build_packetdrill "$PACKETDRILL" "$2" && copy_scripts "$1" "$2"
        ;;
    run) run_scripts tcp-testsuite "$1" ;;
    *) fail "tcp-testsuite.sh: no such command: $command" ;;
esac
