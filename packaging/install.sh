#!/usr/bin/env bash
# Installs what stands beside the program: the manual, completions for shells, the units of systemd with their user and their
# directory. Writes nothing outside of $DESTDIR$PREFIX.
#
#   PREFIX=/usr/local DESTDIR= install.sh
set -euo pipefail
here=$(dirname "$0")
prefix=${PREFIX:-/usr/local}
into=${DESTDIR:-}$prefix
case $prefix in /*) ;; *) echo "install.sh: PREFIX=$prefix: write an absolute path" >&2; exit 2 ;; esac

install -d "$into/share/man/man1"
install -m 644 "$here"/../docs/man/*.1 "$into/share/man/man1"

completions=$here/../docs/completions
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
