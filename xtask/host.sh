#!/usr/bin/env bash
# What make asks of the machine it runs on: a toolchain, a linker, packages, root for single steps.
# Every step that changes the machine or needs root is named on the terminal before it happens.
#
#   host.sh toolchain                       fail with one clear sentence if Rust is missing or too old
#   host.sh component NAME                  add a part of the toolchain (rustfmt, clippy) if it is missing
#   host.sh target NAME                     add what is needed to build for another machine if it is missing
#   host.sh deny VERSION                    licences, sources and known vulnerabilities of what is depended on, by that cargo-deny
#   host.sh mutants VERSION CRATE SHARD ARG...
#                                           how many small changes of a crate's code its tests notice, by that cargo-mutants;
#                                           SHARD: K/N for every N-th change from the K-th on, or nothing for all
#   host.sh has PACKAGE=PROBE...            fail, naming what is missing; a PROBE is a command or a file
#   host.sh need PACKAGE=PROBE...           install each Debian package whose PROBE is missing
#   host.sh unpack DIRECTORY PACKAGE...     fetch Debian packages and unpack them there, without installing them; what cannot be
#                                           fetched is left out, as a lab says which of its rows it goes without
#   host.sh may-be-root WHY                 fail with one clear sentence if `as-root` could not work
#   host.sh may-write DIRECTORY WHY         fail with one clear sentence if `writing-to` could not work
#   host.sh writing-to DIRECTORY WHY COMMAND...
#                                           run COMMAND, which writes below DIRECTORY: as root only where this user may not
#   host.sh as-root WHY COMMAND...          run COMMAND as root: directly, or through sudo
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# The oldest Rust that builds the workspace; stated once, in Cargo.toml.
oldest_rust() { sed -n 's/^rust-version = "\([0-9.]*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml"; }

toolchain() {
    local needed found
    needed=$(oldest_rust)
    command -v cargo >/dev/null ||
        fail "cargo was not found in PATH or ~/.cargo/bin: install Rust $needed or newer from https://rustup.rs, then run make again${SUDO_USER:+ (as $SUDO_USER, without sudo: make asks for root only where it needs it)}."
    found=$(cargo --version | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
    [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ] ||
        fail "Rust $found is too old: twinpath needs $needed or newer; with rustup: rustup update stable."
}

component() {
    cargo "${1/rustfmt/fmt}" --version >/dev/null 2>&1 && return
    say "make: adding $1 to the Rust toolchain: rustup component add $1"
    rustup component add "$1" || fail "$1 is missing and rustup could not add it: install it, then run make again."
}

target() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] && return
    say "make: adding the standard library for $1 to the Rust toolchain: rustup target add $1"
    rustup target add "$1" || fail "the standard library for $1 is missing and rustup could not add it: install it, then run make again."
}

# Pinned tools are kept beside what is built. They run for a second, or mostly wait: building them fast counts for more than their
# speed.
tool() {
    local tools="${CARGO_TARGET_DIR:-target}/tools"
    tool="$tools/bin/$1"
    grep -qsF "\"$1 $2 " "$tools/.crates.toml" && [ -x "$tool" ] && return
    say "make: building $1 $2 into $tools (a minute or two): cargo install $1"
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --version "$2" --root "$tools" \
        --target-dir "$tools/build" "$1" || fail "$1 $2 could not be built: see above."
    rm -rf "$tools/build"
}

deny() {
    local said tool
    tool cargo-deny "$1"
    local deny=$tool
    "$deny" --log-level error check --hide-inclusion-graph licenses bans sources
    # Where vulnerabilities are published there may be no way to; that is no fault of what is checked.
    if said=$(timeout 120 "$deny" fetch db 2>&1); then
        "$deny" --log-level error --offline check --hide-inclusion-graph advisories
    else
        said=$(grep -m 1 -i '^fatal' <<<"$said" || tail -n 1 <<<"$said")
        say "SKIPPED: known vulnerabilities of dependencies: no database can be fetched (${said:-no answer in 120 s})"
    fi
}

# The percentage of viable mutants that a crate's tests have to notice.
caught_at_least=90

mutants() {
    local version=$1 crate=$2 shard=$3 tool package all out code=0 caught missed
    shift 3
    package=$(sed -n 's/^name = "\(.*\)"$/\1/p' "$crate/Cargo.toml" 2>/dev/null) && [ -n "$package" ] ||
        fail "make mutants needs CRATE=FOLDER, the folder of a crate, such as core/wire (here: '$crate')."
    tool cargo-mutants "$version"
    all=${CARGO_TARGET_DIR:-target}/mutants
    out=$all/$package
    mkdir -p "$out" "$all/build"
    # In the order of the files, so that the same shard is the same sample. It is a copy of the tree that is changed and tested; what
    # that depends on is built once.
    CARGO_TARGET_DIR=$(realpath "$all/build") "$tool" mutants --package "$package" --output "$out" --jobs 1 --no-shuffle \
        ${shard:+--shard "$shard" --sharding round-robin} "$@" || code=$?
    # 2: some were missed. 3: the tests ran into their deadline, which notices a change, too.
    case $code in 0 | 2 | 3) ;; *) fail "cargo-mutants stopped: see above." ;; esac
    caught=$(cat "$out"/mutants.out/{caught,timeout}.txt | wc -l)
    missed=$(wc -l <"$out/mutants.out/missed.txt")
    say "make mutants: $package: $caught caught, $missed missed, $(wc -l <"$out/mutants.out/unviable.txt") that do not build"
    [ $((caught * 100)) -ge $(((caught + missed) * caught_at_least)) ] ||
        fail "make mutants: fewer than $caught_at_least % caught; the missed ones are in $out/mutants.out/missed.txt"
}

probe() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) [ -x "$(PATH="$PATH:/usr/sbin:/sbin" command -v "$1")" ] ;;
    esac
}

may_be_root() {
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        fail "$1 needs root, and there is no sudo here: run make as root, or install sudo and let $(id -un) use it."
}

as_root() {
    local why=$1
    shift
    may_be_root "$why"
    if [ "$(id -u)" = 0 ]; then
        say "make: $why: $*"
        "$@"
    else
        say "make: $why, through sudo: $*"
        sudo "$@"
    fi
}

# Whether this user may write to a directory, or make it.
writable() {
    local directory=$1
    until [ -e "$directory" ]; do directory=$(dirname "$directory"); done
    [ -w "$directory" ]
}

may_write() {
    writable "$1" || may_be_root "$2 writes to $1, which"
}

writing_to() {
    local directory=$1
    shift
    if writable "$directory"; then
        shift
        "$@"
    else
        as_root "$@"
    fi
}

install_packages() {
    local why="installing $*"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        fail "make needs $*, and there is no sudo here to install it: as root, apt-get install $* does it; then run make again."
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
    command -v apt-get >/dev/null ||
        fail "$* is missing, and this system has no apt-get: install it (or what your distribution calls it), then run make again."
    # A fresh system has no package lists, an old one has stale ones.
    if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
        as_root "$why" "${apt[@]}" install -y --no-install-recommends "$@" </dev/null && return
    fi
    as_root "fetching the package lists" "${apt[@]}" update </dev/null ||
        fail "make needs $* and could not fetch it: see above (may $(id -un) use sudo? is the network up?). As root, apt-get install $* does it too; then run make again."
    as_root "$why" "${apt[@]}" install -y --no-install-recommends "$@" </dev/null ||
        fail "apt-get could not install $*: see above; as root, apt-get install $* says more. Then run make again."
}

# The packages, of PACKAGE=PROBE..., whose probe fails.
missing_of() {
    local pair
    for pair in "$@"; do
        probe "${pair#*=}" || printf '%s\n' "${pair%%=*}"
    done
}

has() {
    local missing
    missing=$(missing_of "$@")
    [ -z "$missing" ] || fail "missing here:" $missing
}

need() {
    local missing
    mapfile -t missing < <(missing_of "$@")
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

unpack() {
    local into=$1 fetched deb
    shift
    grep -qsxF "$*" "$into/packages" && return
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { say "make: no apt-get here: the lab goes without $*"; return; }
    say "make: fetching into $into, without installing: $*"
    rm -rf "$into"
    mkdir -p "$into"
    fetched=$(mktemp -d)
    if ! (cd "$fetched" && apt-get -q -o APT::Sandbox::User=root download "$@" >&2); then
        say "make: not everything could be fetched (are the package lists fresh? apt-get update)"
    fi
    for deb in "$fetched"/*.deb; do
        [ ! -e "$deb" ] || dpkg-deb -x "$deb" "$into"
    done
    [ "$(find "$fetched" -name '*.deb' | wc -l)" != $# ] || printf '%s\n' "$*" >"$into/packages"
    rm -rf "$fetched"
}

command=${1:?usage: see the top of this file}
shift
case $command in
    toolchain) toolchain ;;
    component) component "$@" ;;
    target) target "$@" ;;
    deny) deny "$@" ;;
    mutants) mutants "$@" ;;
    has) has "$@" ;;
    need) need "$@" ;;
    unpack) unpack "$@" ;;
    may-be-root) may_be_root "$@" ;;
    may-write) may_write "$@" ;;
    writing-to) writing_to "$@" ;;
    as-root) as_root "$@" ;;
    *) fail "host.sh: no such command: $command" ;;
esac
