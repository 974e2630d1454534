#!/usr/bin/env bash
# Builds three Debian packages: twinpath (the program, its units and manual), libtwinpath0 (the C library) and libtwinpath-dev
# what programs in C are built with). Times in them are those of the commit.
#
#   deb.sh DIRECTORY        where the packages are put
#
# DEBFULLNAME and DEBEMAIL name the maintainer, as for Debian's own tools; without them it is the author of the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-$(git log -1 --format=%an)} <${DEBEMAIL:-$(git log -1 --format=%ae)}>"
architecture=$(dpkg --print-architecture)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
homepage=$(sed -n '/^\[workspace.package\]/,/^\[/s/^repository = "\(.*\)"$/\1/p' Cargo.toml)

rm -rf "$out"
mkdir -p "$out/whole" "$out/debian"
out=$(cd "$out" && pwd)
whole=$out/whole
make --no-print-directory install PREFIX=/usr DESTDIR="$whole"

# Debian's place for libraries is one for each architecture.
for file in "$whole"/usr/lib/libtwinpath*; do
    install -d "$whole/usr/lib/$triplet"
    mv "$file" "$whole/usr/lib/$triplet/"
done
mv "$whole/usr/lib/pkgconfig" "$whole/usr/lib/$triplet/pkgconfig"
sed -i "s|^libdir=.*|libdir=\${prefix}/lib/$triplet|" "$whole/usr/lib/$triplet/pkgconfig/twinpath.pc"
mv "$whole/usr/share/zsh/site-functions" "$whole/usr/share/zsh/vendor-completions"
gzip -9n "$whole"/usr/share/man/man1/*.1

# Moves paths of the whole into a package.
package() {
    local name=$1 path
    shift
    for path in "$@"; do
        install -d "$out/$name/$(dirname "$path")"
        mv "$whole/$path" "$out/$name/$path"
    done
}
package libtwinpath-dev usr/include "usr/lib/$triplet/pkgconfig" "usr/lib/$triplet/libtwinpath.a" "usr/lib/$triplet/libtwinpath.so"
package libtwinpath0 "usr/lib/$triplet"
package twinpath usr

# What every package has: its licence and its changes.
documents() {
    local name=$1 into=$out/$1/usr/share/doc/$1
    install -d "$into"
    cat >"$into/copyright" <<-END
	Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
	Upstream-Name: twinpath

	Files: *
	Copyright: 2026 the twinpath developers
	License: Apache-2.0 or Expat

	License: Apache-2.0
	 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.

	License: Expat
	$(sed 's/^$/./; s/^/ /' LICENSE-MIT)
	END
    gzip -9nc >"$into/changelog.gz" <<-END
	twinpath ($version) unstable; urgency=medium

	  * Built from commit $(git rev-parse HEAD).

	 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
	END
}

# Writes a control file: its own lines on standard input.
control() {
    local name=$1 size
    size=$(du -k -s --apparent-size "$out/$name" | cut -f1)
    install -d "$out/$name/DEBIAN"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$name" "$version" "$architecture"
        printf 'Maintainer: %s\nInstalled-Size: %s\n' "$maintainer" "$size"
        [ -z "$homepage" ] || printf 'Homepage: %s\n' "$homepage"
        cat
    } >"$out/$name/DEBIAN/control"
    (cd "$out/$name" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
}

# The libraries that files of a package are linked with, as its dependencies.
depends() {
    printf 'Source: twinpath\n\nPackage: twinpath\nArchitecture: any\n' >"$out/debian/control"
    (cd "$out" && dpkg-shlibdeps -O --ignore-missing-info "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

for name in twinpath libtwinpath0 libtwinpath-dev; do documents "$name"; done
chmod 644 "$out/libtwinpath0/usr/lib/$triplet"/libtwinpath.so.*.*
strip --strip-unneeded "$out/libtwinpath0/usr/lib/$triplet"/libtwinpath.so.*.* "$out/twinpath/usr/lib/twinpath/libtwinpath_preload.so"

control twinpath <<END
Section: net
Priority: optional
Depends: $(depends twinpath/usr/bin/twinpath twinpath/usr/lib/twinpath/libtwinpath_preload{,er}.so)
Recommends: systemd | systemd-standalone-sysusers
Description: two paths for every network service
 A fast path in user space for the flows that a service claims, and the
 kernel's own stack for everything else, at the same time, on the same
 ordinary interface. This package has the program: services, a switch,
 sockets for unmodified programs, and the tools that look at them.
END
control libtwinpath0 <<END
Section: libs
Priority: optional
Depends: $(depends libtwinpath0/usr/lib/"$triplet"/libtwinpath.so.0)
Multi-Arch: same
Description: UDP sockets with a fast path, for programs in C
 The kernel's sockets, whose datagrams come by a ring in memory while a
 thread waits for them.
END
control libtwinpath-dev <<END
Section: libdevel
Priority: optional
Depends: libtwinpath0 (= $version)
Multi-Arch: same
Description: UDP sockets with a fast path, for programs in C: development
 The header, the static library, and what pkg-config reads.
END

printf 'libtwinpath 0 libtwinpath0 (>= %s)\n' "$version" >"$out/libtwinpath0/DEBIAN/shlibs"
printf 'activate-noawait ldconfig\n' >"$out/libtwinpath0/DEBIAN/triggers"

# A user for the units, and the directory of their sockets; instances end with the package.
cat >"$out/twinpath/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then systemd-sysusers twinpath.conf; fi
    # It fails where a system has no /run to write to, and the units make the directory themselves.
    if command -v systemd-tmpfiles >/dev/null; then systemd-tmpfiles --create twinpath.conf || true; fi
    # A package that is installed while systemd restarts is still installed.
    if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
fi
END
cat >"$out/twinpath/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    # With no instance there is nothing to stop, and the package is removed all the same.
    deb-systemd-invoke stop 'twinpath@*.service' 'twinpath-sockets@*.service' || true
fi
END
cat >"$out/twinpath/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
if [ "$1" = purge ]; then rmdir /run/twinpath 2>/dev/null || true; fi
END
chmod 755 "$out"/twinpath/DEBIAN/post* "$out"/twinpath/DEBIAN/prerm

for name in twinpath libtwinpath0 libtwinpath-dev; do
    find "$out/$name" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch -hd "@$SOURCE_DATE_EPOCH"
    dpkg-deb --root-owner-group -Zxz --build "$out/$name" "$out" >/dev/null
    rm -rf "${out:?}/$name"
done
rm -rf "$whole" "$out/debian"
ls -l "$out"/*.deb
