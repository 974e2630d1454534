#!/usr/bin/env bash
# Runs the TCP scripts of packetdrill (github.com/google/packetdrill) against the engine in stack/tcp, in virtual time and without a
# network. packetdrill.txt says which do not pass, and why; docs/conformance.md explains it.
#
#   packetdrill.sh build CHECKOUT OUT       build packetdrill from a copy of CHECKOUT in the directory OUT
#   packetdrill.sh run OUT TWINPATH         run all scripts; the last line is `N passed, N failed`
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/conformance/packetdrill/build.bash
. "$here/packetdrill/build.bash"

command=${1:?usage: see the top of this file}
shift
case $command in
    build) build_packetdrill "$1" "$2" && copy_scripts "$1/gtests/net" "$2" ;;
    run) run_scripts packetdrill "$1" ;;
    *) fail "packetdrill.sh: no such command: $command" ;;
esac
