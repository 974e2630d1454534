#!/usr/bin/env bash
# Removes what install.sh has installed below $PREFIX, by the list that it has left there.
#
#   PREFIX=/usr/local uninstall.sh
set -euo pipefail
host=$(realpath "$(dirname "$0")/../xtask/host.sh")
prefix=${PREFIX:-/usr/local}
list=$prefix/lib/twinpath/installed
[ -f "$list" ] || { echo "make uninstall: nothing of \`make install PREFIX=$prefix\` is here: there is no $list" >&2; exit 1; }
cd "$prefix"
mapfile -t files <"$list"
"$host" writing-to "$prefix" "removing what is listed in $list" rm -f "${files[@]}" "$list"
"$host" writing-to "$prefix" "and its directory" rmdir lib/twinpath
