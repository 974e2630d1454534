#!/usr/bin/env bash
# Links the shared library from the archive: with its soname, and with versions of its symbols, which cargo cannot give them, as it
# passes a list of symbols of its own to the linker.
#
#   link.sh ARCHIVE LIBRARY
set -euo pipefail
here=$(dirname "$0")
"${CC:-cc}" -shared -o "$2" -Wl,-soname,libtwinpath.so.0 -Wl,--version-script="$here/twinpath.map" -Wl,--gc-sections \
    -Wl,-z,defs,-z,relro,-z,now -Wl,--whole-archive "$1" -Wl,--no-whole-archive -lgcc_s -lutil -lrt -lpthread -lm -ldl
