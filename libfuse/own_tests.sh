#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# own_tests.sh SOURCE BUILD STOCK
#
# Runs the tests in libfuse's SOURCE with the library in BUILD. Repeats those that
# fail, in turn with STOCK, the distribution's library, and with the one in BUILD.
# The exit status is 1 if a test always failed with the library in BUILD and never
# with STOCK.
#
# Repeats, because some of these tests depend on timing. One in 3.14 expires an entry
# one second before it looks at it; from Linux 6.2 on, its server exits if it is
# slightly late (libfuse issue 769).
set -euo pipefail

source=$1 build=$2 stock=$3
PAIRS=4

# Run the named tests, or all, and print the names of those that fail.
failing() {
	if [[ -e $source/test/run-tests.py ]]; then
		# Keep the runner from looking for a user session, which a build may not have.
		(cd "$source" && FUSE_TESTS_UNDER_SCOPE=1 test/run-tests.py --build-dir "$build" \
			--run-dir "$(mktemp -d)" "${@/#/--test=}") | tee >(cat >&2) |
			awk '/^failed:/ { on = 1; next } on && /^  [a-z]/ { print $1 }'
	else
		(cd "$build" && /usr/bin/python3 -m pytest -q -p no:cacheprovider --maxfail=1000 -rf \
			"${@:-test}") | tee >(cat >&2) | sed -n 's/^FAILED \([^ ]*\).*/\1/p'
	fi || true # the output names the tests that failed
}

mapfile -t first < <(failing)
ours=("${first[@]}")
for ((pair = 0; pair < PAIRS && ${#ours[@]} > 0; pair++)); do
	mapfile -t theirs < <(LD_LIBRARY_PATH=$stock failing "${ours[@]}")
	mapfile -t ours < <(printf '%s\n' "${ours[@]}" "${theirs[@]}" "${theirs[@]}" | sort | uniq -u)
	[[ ${#ours[@]} == 0 ]] || mapfile -t ours < <(failing "${ours[@]}")
done
if [[ ${#ours[@]} != 0 ]]; then
	echo "own_tests.sh: libfuse's own tests fail: ${ours[*]};" \
		"they pass with the distribution's library" >&2
	exit 1
fi
[[ ${#first[@]} == 0 ]] ||
	echo "own_tests.sh: these fail sometimes, or also with the distribution's library: ${first[*]}" >&2
