#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Builds mirrorfs against the libfuse of other Debian suites and runs it there,
# with the features that only newer versions have: passthrough and parallel direct
# writes.
#
#   mirrorfs/test-versions.sh TREE...
#
# Each TREE is a Debian tree with gcc, make, pkg-config, fuse3 and libfuse3-dev,
# and is not changed. Needs root and Linux 6.9.
# Mounts and servers live in namespaces of their own, so they end with this script,
# however it ends.
set -euo pipefail

if [[ ${1-} != --inside ]]; then
	[[ $(id -u) == 0 ]] || { echo "test-versions: run as root" >&2; exit 1; }
	exec unshare --mount --propagation private --pid --fork --kill-child -- "$0" --inside "$@"
fi
shift
[[ $# -gt 0 ]] || { echo "test-versions: no TREE" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Runs inside the tree. With `set -e` the functions end at the first test that is false.
smoke() {
	cat <<'SMOKE'
set -eu
counters=/run/counters.json
server=

start() {
	/checkout/build/mirrorfs -f -o "counters=$counters,$1" /source /mirror &
	server=$!
	for _ in $(seq 200); do
		if grep -q ' /mirror .* fuse.mirrorfs ' /proc/self/mountinfo; then
			# Replies as soon as INIT has been negotiated.
			stat -f /mirror >/dev/null
			return
		fi
		sleep 0.02
	done
	echo "did not mount: $1" >&2
	return 1
}

stop() {
	kill "$server"
	wait "$server"
	! grep -q ' /mirror ' /proc/self/mountinfo
}

# field OPCODE NAME: print a number from the last document
field() {
	sed -n "s/^    \"$1\": {.*\"$2\": \([0-9]*\).*/\1/p" "$counters"
}

check() {
	test "$2" "$3" "$4" || { echo "$1: $2 $3 $4 is false" >&2; cat "$counters" >&2; return 1; }
}

copy_through() {
	head -c 5000001 /dev/urandom >/random
	cp /random /mirror/file
	cmp /random /source/file
	cmp /random /mirror/file
	mv /mirror/file /mirror/other
	rm /mirror/other
	test ! -e /source/other
}

two_direct_writers() {
	head -c 1048576 /dev/zero >/source/shared
	dd if=/dev/zero of=/mirror/shared bs=64k count=8 oflag=direct conv=notrunc status=none &
	first=$!
	dd if=/dev/zero of=/mirror/shared bs=64k count=8 seek=8 oflag=direct conv=notrunc status=none
	wait "$first"
}

for options in timeout=1 writeback splice=off splice=read+write+move,clone_fd max_write=4M; do
	start "$options"
	copy_through
	stop
	check "$options" "$(field WRITE bytes)" -ge 5000001
done

start write_delay=20ms
two_direct_writers
stop
check "serial writes" "$(field WRITE most_in_flight)" -eq 1

start parallel_direct_writes,write_delay=20ms
two_direct_writers
stop
check parallel_direct_writes "$(field WRITE most_in_flight)" -ge 2

start passthrough
copy_through
stop
check passthrough "$(field WRITE count)" -eq 0
check passthrough "$(field READ count)" -eq 0
check passthrough "$(field CREATE count)" -ge 1
SMOKE
}

run_in() {
	local dir=$1
	mount -t tmpfs tmpfs "$scratch"
	mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
	# An overlay keeps the tree unchanged.
	mount -t overlay -o "lowerdir=$dir,upperdir=$scratch/upper,workdir=$scratch/work" \
		overlay "$scratch/root"
	local root=$scratch/root
	mount --rbind /dev "$root/dev"
	mount -t proc proc "$root/proc"
	mkdir -p "$root/source" "$root/mirror" "$root/checkout/fusetune" "$root/checkout/dkms/fusetuned"
	mount -t tmpfs tmpfs "$root/source"
	cp -r "$here" "$root/checkout/mirrorfs"
	cp -r "$here/../dkms/fusetuned/tuned" "$root/checkout/dkms/fusetuned/tuned"
	cp "$here/../fusetune/__init__.py" "$root/checkout/fusetune/"
	chroot "$root" make -s -C /checkout/mirrorfs
	smoke >"$root/smoke.sh"
	timeout 120 chroot "$root" sh /smoke.sh
	echo "$(basename "$dir"): $(chroot "$root" /checkout/build/mirrorfs --version | tail -n 1): ok"
	umount --recursive --lazy "$scratch"
}

for dir; do
	run_in "$dir"
done
