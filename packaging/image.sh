#!/usr/bin/env bash
# Builds an OCI image by docker or podman: the program, and the libraries that it is linked with, as this machine has them.
# It fetches no base image.
#
#   image.sh DIRECTORY NAME        NAME such as twinpath:latest; DIRECTORY for what is built on the way
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
name=$2
engine=$(command -v podman || command -v docker) ||
    { echo "make image needs podman or docker: install one of them (apt-get install podman), then run it again" >&2; exit 1; }

rm -rf "$out"
mkdir -p "$out/rootfs"
out=$(cd "$out" && pwd)
make --no-print-directory install PREFIX=/usr DESTDIR="$out/whole"
install -D -m 755 "$out/whole/usr/bin/twinpath" "$out/rootfs/usr/bin/twinpath"
install -d "$out/rootfs/tmp" "$out/rootfs/run/twinpath" "$out/rootfs/etc/twinpath"
chmod 1777 "$out/rootfs/tmp"

# The libraries, with the loader, at the paths where the program looks for them.
ldd "$out/rootfs/usr/bin/twinpath" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' |
    while read -r library; do install -D -m 755 "$library" "$out/rootfs$library"; done

cat >"$out/Dockerfile" <<'END'
FROM scratch
COPY rootfs/ /
ENV XDG_RUNTIME_DIR=/run/twinpath
ENTRYPOINT ["/usr/bin/twinpath"]
CMD ["--help"]
END
"$engine" build --quiet --tag "$name" "$out"
rm -rf "$out"
echo "built $name: docs/install.md says with which capabilities it runs"
