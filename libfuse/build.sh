#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# build.sh SOURCE DESTDIR
#
# Builds the tuned libfuse3 in SOURCE, which import_libfuse.py made, with the
# distribution's own rules and thus its flags. Runs libfuse's own tests if /dev/fuse
# exists (own_tests.sh). Installs the library to DESTDIR/usr/lib/TRIPLET/fusetune,
# unless its exported symbols and their versions differ from those of the
# distribution's library.
#
# If LIBDIR is set, as by rpmbuild, builds with meson, CFLAGS and LDFLAGS instead,
# and installs to DESTDIR/LIBDIR/fusetune without stripping, for the debug packages.
#
# Needs the build dependencies of fuse3, fuse3 itself, and abigail-tools.
# TESTS=no skips the tests.
set -euo pipefail

source=$1 destdir=$2
tests=$(realpath "$(dirname "$0")/own_tests.sh")

cd "$source"
if [[ -n ${LIBDIR-} ]]; then
	dir=$destdir$LIBDIR/fusetune
	build=$source/obj-meson
	# libfuse's udev rule is not installed from this build.
	options=(--buildtype=plain --prefix=/usr -Duseroot=false -Dudevrulesdir=/)
	[[ ${TESTS-} != no ]] || options+=(-Dexamples=false -Dtests=false -Dutils=false)
	meson setup "${options[@]}" "$build"
	ninja -C "$build"
else
	dir=$destdir/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/fusetune
	DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" debian/rules build-arch
	build=$(echo "$source"/obj-*)
fi
library=$(find "$build/lib" -maxdepth 1 -type f -name 'libfuse3.so.*.*')
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
stock=$(ldconfig -p | sed -n "s/.*$soname .* => //p" | head -n 1)
[[ -n $stock ]] || { echo "build.sh: no $soname of the distribution to compare with" >&2; exit 1; }

# Compare the stripped library, because the distribution's has no debug information.
stripped=$build/$soname.stripped
strip --strip-unneeded -o "$stripped" "$library"
exported() {
	readelf --dyn-syms --wide "$1" | awk '$7 != "UND" && NF >= 8 { print $4, $5, $8 }' | sort
}
diff <(exported "$stock") <(exported "$stripped")
abidiff "$stock" "$stripped"

if [[ ${TESTS-} != no && -e /dev/fuse ]]; then
	# In its own directory, so that the tests find no other library through this path.
	install -D -m 644 "$stock" "$build/stock/$soname"
	"$tests" "$source" "$build" "$build/stock"
fi

if [[ -n ${LIBDIR-} ]]; then
	# rpm strips and scans for dependencies only files that are executable.
	install -D -m 755 "$library" "$dir/$soname"
else
	install -D -m 644 "$stripped" "$dir/$soname"
fi
install -m 644 fusetune-source "$dir/libfuse3.source"
echo "$dir/$soname"
