#!/usr/bin/env bash
# Installs what was built: the program, the C library, the manual, completions for shells, the units of systemd with their user and
# their directory. Everything is made ready without root; only the copying is done as root, where this user may not write. Writes nothing
# outside of $DESTDIR$PREFIX.
#
#   PREFIX=/usr/local DESTDIR= install.sh BUILT        BUILT such as target/release
set -euo pipefail
built=$1
here=$(dirname "$0")
prefix=${PREFIX:-/usr/local}
case $prefix in /*) ;; *) echo "install.sh: PREFIX=$prefix: write an absolute path" >&2; exit 2 ;; esac
ready=$(mktemp -d)
trap 'rm -rf "$ready"' EXIT
into=$ready$prefix

install -D -m 755 "$built/twinpath" "$into/bin/twinpath"
for library in libtwinpath_preloader.so libtwinpath_preload.so; do
    install -D -m 755 "$built/$library" "$into/lib/twinpath/$library"
done
PREFIX="$prefix" DESTDIR="$ready" "$here/../sockets/capi/install.sh" "$built/libtwinpath_c.a"

install -d "$into/share/man/man1"
install -m 644 "$here"/../docs/man/*.1 "$here"/../docs/generated/man/*.1 "$into/share/man/man1"

completions=$here/../docs/generated/completions
install -D -m 644 "$completions/twinpath.bash" "$into/share/bash-completion/completions/twinpath"
install -D -m 644 "$completions/_twinpath" "$into/share/zsh/site-functions/_twinpath"
install -D -m 644 "$completions/twinpath.fish" "$into/share/fish/vendor_completions.d/twinpath.fish"

# The units name the program by its path.
install -d "$into/lib/systemd/system"
for unit in "$here"/../docs/*@.service; do
    sed "s|/usr/local/bin/|$prefix/bin/|" "$unit" >"$into/lib/systemd/system/$(basename "$unit")"
    chmod 644 "$into/lib/systemd/system/$(basename "$unit")"
done
install -D -m 644 "$here/sysusers.conf" "$into/lib/sysusers.d/twinpath.conf"
install -D -m 644 "$here/tmpfiles.conf" "$into/lib/tmpfiles.d/twinpath.conf"

# What uninstall.sh removes again, and a cache of the loader: packages have their own for both.
ldconfig=
if [ -z "${DESTDIR:-}" ]; then
    ldconfig=ldconfig
    (cd "$into" && find . ! -type d | LC_ALL=C sort >"$ready/installed")
    mv "$ready/installed" "$into/lib/twinpath/installed"
fi
"$here/../xtask/host.sh" writing-to "${DESTDIR:-}$prefix" "installing below ${DESTDIR:-}$prefix" \
    "$here/place.sh" "$into" "${DESTDIR:-}$prefix" $ldconfig
