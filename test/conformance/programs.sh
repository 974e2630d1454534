#!/usr/bin/env bash
# Runs unmodified programs of Debian under `twinpath run`, and beside it alone, in network namespaces of its own, and compares what
# they do. docs/conformance.md explains it, docs/generated/conformance/programs.md is the table that it writes.
#
#   programs.sh build NOTHING OUT           build what is of no package in the directory OUT
#   programs.sh run OUT TWINPATH            run all programs (as root); the last line is `N passed, N failed, N skipped`
#
# ONLY=PATTERN;PATTERN... runs only programs whose name in the table matches a shell pattern, the rows of others stay as they are;
# ZERO=1 runs both sides alone: what is "worse" then is by chance. WRITE_DOCUMENTS=1 writes the table that is committed, else it is OUT/programs.md.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
committed=$here/../../docs/generated/conformance/programs.md

fail() { printf '%s\n' "$*" >&2; exit 1; }

build() {
    local out=$2
    mkdir -p "$out/bin"
    # For HTTP/3.
    [ -s "$out/certificate.pem" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
        -subj /CN=localhost -keyout "$out/key.pem" -out "$out/certificate.pem" 2>"$out/openssl.log" ||
        { cat "$out/openssl.log" >&2; fail "openssl makes no certificate: see above."; }
    build_answer "$out"
    # Without Go the rows of its programs say so.
    if command -v go >/dev/null; then
        CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o "$out/bin/go-echo-static" "$here/programs/go/echo.go"
        CGO_ENABLED=1 GOFLAGS=-mod=mod go build -o "$out/bin/go-echo-dynamic" "$here/programs/go/echo.go"
    fi
}

# The server of programs/c, also for those who cannot take the library. Rows of what cannot be built here say so. The other C library
# and the 32 bits are of unpacked packages, so their loaders and libraries are named by their places.
build_answer() {
    local bin=$1/bin musl=$1/musl.specs source=$here/programs/c/answer.c flags=(-std=gnu11 -O2 -Wall -Wextra) packages of_32
    packages=$(realpath "$1/packages")
    of_32=$packages/usr/lib32
    cc "${flags[@]}" "$source" -o "$bin/answer"
    cc "${flags[@]}" -static "$source" -o "$bin/answer-static" || say_not_built static
    cc "${flags[@]}" -fsanitize=address "$source" -o "$bin/answer-asan" || say_not_built AddressSanitizer
    sed "s#/usr/\(lib\|include\)/x86_64-linux-musl#$packages&#g; s#/lib/ld-musl-x86_64.so.1#$packages&#g" \
        "$packages/usr/lib/x86_64-linux-musl/musl-gcc.specs" >"$musl" &&
        gcc -specs "$musl" "${flags[@]}" "$source" -L"$packages/lib/x86_64-linux-musl" -l:libc.so -o "$bin/answer-musl" || say_not_built musl
    cc -m32 -nostdlib "${flags[@]}" -isystem /usr/include/x86_64-linux-gnu -isystem "$packages/usr/include/x86_64-linux-gnu" \
        "$of_32"/{Scrt1.o,crti.o} "$source" "$packages/lib32/libc.so.6" "$of_32"/{libc_nonshared.a,crtn.o} \
        -Wl,-dynamic-linker,"$packages/lib32/ld-linux.so.2" -Wl,-rpath,"$packages/lib32" -o "$bin/answer-32" || say_not_built "32 bits"
}

say_not_built() { printf 'programs.sh: no program that is linked for: %s\n' "$1" >&2; }

run() {
    local out code=0
    out=$(cd "$1" && pwd)
    # What runs in these namespaces ends with them.
    unshare --mount --pid --fork --kill-child --mount-proc \
        env PYTHONDONTWRITEBYTECODE=1 python3 "$here/programs/suite.py" "$out" "$2" "$committed" || code=$?
    [ -z "${WRITE_DOCUMENTS:-}" ] || [ -n "${ZERO:-}" ] || cp "$out/programs.md" "$committed"
    return "$code"
}

command=${1:?usage: see the top of this file}
shift
case $command in
    build) build "$@" ;;
    run) run "$@" ;;
    *) fail "programs.sh: no such command: $command" ;;
esac
