#!/usr/bin/env bash
# Copies a tree of files to where it is installed, with the modes of its files, owned by who calls. What is there as a directory, or as a
# link to one, stays as it is.
#
#   place.sh FROM INTO [ldconfig]        ldconfig: and has the loader look there for libraries, as far as this user may
set -euo pipefail
from=$1
into=$2
mkdir -p "$into"
tar -C "$from" --owner=0 --group=0 -cf - . |
    tar -C "$into" --no-same-owner --preserve-permissions --no-overwrite-dir --keep-directory-symlink -xf -
if [ "${3:-}" = ldconfig ] && [ "$(id -u)" = 0 ]; then /sbin/ldconfig; fi
