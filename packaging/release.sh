#!/usr/bin/env bash
# Builds a release of the present commit: an archive of what `make install` installs, Debian packages, the list of the crates
# that are linked into them (CycloneDX), and checksums. The same commit, toolchain and Debian give the same bytes, wherever
# and whenever it is built.
#
#   release.sh DIRECTORY           the release, into DIRECTORY
#   release.sh --check DIRECTORY   build it twice, in clones at different places, as users with different homes, and compare
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C TZ=UTC
umask 022
cargo_home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")

# Builds what was committed at a place of its own, with $cargo_home at another place as well.
build_at() {
    local place=$1
    mkdir -p "$place/cargo"
    git clone -q . "$place/source"
    git -C "$place/source" checkout -q --detach "$commit"
    ln -s "$cargo_home/registry" "$place/cargo/registry"
    env -u CARGO_TARGET_DIR CARGO_HOME="$place/cargo" "$place/source/packaging/release.sh" "$place/release"
    rm -rf "$place/source"
}

if [ "$1" = --check ]; then
    out=$2
    commit=$(git rev-parse HEAD)
    rm -rf "$out"
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    build_at "$out/a"
    build_at "$out/elsewhere/b"
    diff -r "$out/a/release" "$out/elsewhere/b/release"
    cat "$out/a/release/SHA256SUMS"
    echo "the same bytes, twice"
    exit
fi

out=$1
[ -z "$(git status --porcelain)" ] || { echo "make release builds what is committed, and there are changes: commit them first (git status)" >&2; exit 1; }
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
target=$(rustc -vV | sed -n 's/^host: //p')
name=twinpath-$version-${target%%-*}
epoch=$(git log -1 --format=%ct)
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)

cargo run -q --locked -p xtask -- sbom --target "$target" >"$out/$name.cdx.json"

# Panics name the files of crates, which are below the home of the user who builds.
CARGO_TARGET_DIR="$(realpath "${CARGO_TARGET_DIR:-target}")/dist"
export CARGO_TARGET_DIR
export RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$cargo_home}/registry/src=/registry"
make --no-print-directory install PREFIX=/usr/local DESTDIR="$out/whole"
install -D -m 644 "$out/$name.cdx.json" "$out/whole/usr/local/share/doc/twinpath/$name.cdx.json"
tar -C "$out/whole" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -cf - usr | gzip -9n >"$out/$name.tar.gz"

# The program itself says which crates are in it: where they can panic.
strings -a "$out/whole/usr/local/bin/twinpath" | grep -o '/registry/[^/]*/[^/]*-[0-9][^/]*' | sed 's|.*/||' | sort -u |
    sed 's/-\([0-9][0-9]*\.\)/@\1/' | while read -r crate; do
        grep -qF "\"bom-ref\": \"$crate\"" "$out/$name.cdx.json" ||
            { echo "release.sh: $crate is in the program, and not in $name.cdx.json" >&2; exit 1; }
    done
rm -rf "$out/whole"

make --no-print-directory deb
mv "$CARGO_TARGET_DIR"/deb/*.deb "$out/"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
