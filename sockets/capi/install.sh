#!/usr/bin/env bash
# Installs the C interface: both libraries, the header, what pkg-config reads. Writes nothing outside of $DESTDIR$PREFIX.
#
#   PREFIX=/usr/local DESTDIR= install.sh ARCHIVE
set -euo pipefail
here=$(dirname "$0")
archive=$1
prefix=${PREFIX:-/usr/local}
into=${DESTDIR:-}$prefix
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$here/../../Cargo.toml")
case $prefix in /*) ;; *) echo "install.sh: PREFIX=$prefix: write an absolute path" >&2; exit 2 ;; esac

install -d "$into/lib/pkgconfig" "$into/include"
strip -g -o "$into/lib/libtwinpath.a" "$archive"
chmod 644 "$into/lib/libtwinpath.a"
"$here/link.sh" "$into/lib/libtwinpath.a" "$into/lib/libtwinpath.so.$version"
chmod 755 "$into/lib/libtwinpath.so.$version"
ln -sf "libtwinpath.so.$version" "$into/lib/libtwinpath.so.0"
ln -sf libtwinpath.so.0 "$into/lib/libtwinpath.so"
install -m 644 "$here/include/twinpath.h" "$into/include/twinpath.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/twinpath.pc.in" >"$into/lib/pkgconfig/twinpath.pc"
chmod 644 "$into/lib/pkgconfig/twinpath.pc"
