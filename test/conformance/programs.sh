#!/usr/bin/env bash
# Runs unmodified programs of Debian under `twinpath run`, and beside it alone, in network namespaces of its own, and compares what
# they do. docs/conformance.md explains it, docs/conformance/programs.md is the table that it writes.
#
#   programs.sh build NOTHING OUT           build what is of no package in the directory OUT
#   programs.sh run OUT TWINPATH            run all programs (as root); the last line is `N passed, N failed, N skipped`
#
# ONLY=PATTERN;PATTERN... runs only programs whose name in the table matches a shell pattern, the rows of others stay as they are;
# WRITE_DOCUMENTS=1 writes the table that is committed, else it is OUT/programs.md.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
committed=$here/../../docs/conformance/programs.md

fail() { printf '%s\n' "$*" >&2; exit 1; }

build() {
    local out=$2
    mkdir -p "$out/bin"
    # For HTTP/3.
    [ -s "$out/certificate.pem" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
        -subj /CN=localhost -keyout "$out/key.pem" -out "$out/certificate.pem" 2>"$out/openssl.log" ||
        { cat "$out/openssl.log" >&2; fail "openssl makes no certificate: see above."; }
    # Without Go the rows of its programs say so.
    if command -v go >/dev/null; then
        CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o "$out/bin/go-echo-static" "$here/programs/go/echo.go"
        CGO_ENABLED=1 GOFLAGS=-mod=mod go build -o "$out/bin/go-echo-dynamic" "$here/programs/go/echo.go"
    fi
}

run() {
    local out code=0
    out=$(cd "$1" && pwd)
    # What runs in these namespaces ends with them.
    unshare --mount --pid --fork --kill-child --mount-proc \
        env PYTHONDONTWRITEBYTECODE=1 python3 "$here/programs/suite.py" "$out" "$2" "$committed" || code=$?
    [ -z "${WRITE_DOCUMENTS:-}" ] || cp "$out/programs.md" "$committed"
    return "$code"
}

command=${1:?usage: see the top of this file}
shift
case $command in
    build) build "$@" ;;
    run) run "$@" ;;
    *) fail "programs.sh: no such command: $command" ;;
esac
