#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# build.sh SOURCE DESTDIR
#
# Builds the tuned libfuse3 in SOURCE, which import_libfuse.py made, by the
# distribution's own rules and so with its flags; runs libfuse's own tests
# where there is a /dev/fuse, of which none may fail that the distribution's
# library passes; and installs the library to
# DESTDIR/usr/lib/TRIPLET/fusetune. Its exported symbols and their versions
# must be those of the distribution's library, or nothing is installed.
#
# With LIBDIR, as rpmbuild has it, meson builds it with CFLAGS and LDFLAGS, and
# it goes to DESTDIR/LIBDIR/fusetune, not stripped: debug packages are made of it.
#
# Needs the build dependencies of fuse3, fuse3 itself, and abigail-tools.
# TESTS=no leaves out the tests.
set -euo pipefail

source=$1 destdir=$2

cd "$source"
if [[ -n ${LIBDIR-} ]]; then
	folder=$destdir$LIBDIR/fusetune
	build=$source/obj-meson
	# No rule of udev's is installed from here.
	options=(--buildtype=plain --prefix=/usr -Duseroot=false -Dudevrulesdir=/)
	[[ ${TESTS-} != no ]] || options+=(-Dexamples=false -Dtests=false -Dutils=false)
	meson setup "${options[@]}" "$build"
	ninja -C "$build"
else
	folder=$destdir/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/fusetune
	DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" debian/rules build-arch
	build=$(echo "$source"/obj-*)
fi
library=$(find "$build/lib" -maxdepth 1 -type f -name 'libfuse3.so.*.*')
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
stock=$(ldconfig -p | sed -n "s/.*$soname .* => //p" | head -n 1)
[[ -n $stock ]] || { echo "build.sh: no $soname of the distribution to compare with" >&2; exit 1; }

# Of the stripped library: the distribution's has no types to compare with.
stripped=$build/$soname.stripped
strip --strip-unneeded -o "$stripped" "$library"
exported() {
	readelf --dyn-syms --wide "$1" | awk '$7 != "UND" && NF >= 8 { print $4, $5, $8 }' | sort
}
diff <(exported "$stock") <(exported "$stripped")
abidiff "$stock" "$stripped"

# Runs libfuse's own tests, all or those named, and prints the names of those that failed.
own_tests() {
	if [[ -e test/run-tests.py ]]; then
		# Where there is no user session, the runner is not to look for one.
		FUSE_TESTS_UNDER_SCOPE=1 test/run-tests.py --build-dir "$build" \
			--run-dir "$(mktemp -d)" "${@/#/--test=}" | tee >(cat >&2) |
			awk '/^failed:/ { on = 1; next } on && /^  [a-z]/ { print $1 }'
	else
		(cd "$build" && /usr/bin/python3 -m pytest -q -p no:cacheprovider --maxfail=1000 -rf \
			"${@:-test}") | tee >(cat >&2) | sed -n 's/^FAILED \([^ ]*\).*/\1/p'
	fi || true # it says which
}

if [[ ${TESTS-} != no && -e /dev/fuse ]]; then
	mapfile -t failed < <(own_tests)
	# Some hang on time, some on what the host has: again, and with the distribution's.
	[[ ${#failed[@]} == 0 ]] || mapfile -t failed < <(own_tests "${failed[@]}")
	if [[ ${#failed[@]} != 0 ]]; then
		# In a folder of its own: what runs the tests is not to find others by this path.
		alone=$build/stock
		install -D -m 644 "$stock" "$alone/$soname"
		mapfile -t theirs < <(LD_LIBRARY_PATH=$alone own_tests "${failed[@]}")
		mapfile -t ours < <(printf '%s\n' "${failed[@]}" "${theirs[@]}" "${theirs[@]}" | sort | uniq -u)
		for _ in 1 2; do
			[[ ${#ours[@]} == 0 ]] || mapfile -t ours < <(own_tests "${ours[@]}")
		done
		if [[ ${#ours[@]} != 0 ]]; then
			echo "build.sh: libfuse's own tests fail: ${ours[*]};" \
				"not with the distribution's library" >&2
			exit 1
		fi
		echo "build.sh: these fail with the distribution's library, too: ${failed[*]}" >&2
	fi
fi

if [[ -n ${LIBDIR-} ]]; then
	# rpm strips, and looks for dependencies in, what is executable.
	install -D -m 755 "$library" "$folder/$soname"
else
	install -D -m 644 "$stripped" "$folder/$soname"
fi
install -m 644 fusetune-source "$folder/libfuse3.source"
echo "$folder/$soname"
