#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Boots TREE with its own systemd and udevd, on a temporary writable layer, until stdin ends. So
# it ends with the test that started it, however that ends. It runs in a separate session, and
# restores the host's values that systemd sets at boot.
#
#   rig.sh boot TREE INSTALLED   INSTALLED is an overlay on TREE, and removed at the end
set -euo pipefail

# Belong to the kernel, not to the container; systemd sets them, and fusetune for some mounts.
values=(fs/file-max fs/nr_open fs/pipe-max-size fs/fuse/max_pages_limit)

# The first of several rigs notes the values, the last restores them. Each holds a shared lock
# while it runs. The notes of a killed rig stay valid.
noted=/run/fusetune-rig.values
exec 9>>"$noted"

note_values() {
	local name
	while true; do
		if flock --exclusive --nonblock 9 && [[ ! -s $noted ]]; then
			for name in "${values[@]}"; do
				[[ ! -e /proc/sys/$name ]] || echo "$name $(cat "/proc/sys/$name")" >&9
			done
		fi
		flock --shared 9
		# Otherwise the last one has restored them between the two locks.
		[[ ! -s $noted ]] || return 0
	done
}

restore_values() {
	local name value
	flock --exclusive --nonblock 9 || return 0
	while read -r name value; do
		echo "$value" >"/proc/sys/$name"
	done <"$noted"
	: >"$noted"
}

boot() {
	local tree=$1 installed=$2 group scratch inner
	scratch=$(mktemp -d "${TMPDIR:-/tmp}/fusetune-rig.XXXXXX")
	group=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)/${scratch##*/}
	mkdir "$group"
	note_values
	# Its own cgroup, because nspawn makes cgroups below its own and leaves them there; its own
	# network, and /sys as seen from there. Everything inside ends with --kill-child.
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		exec unshare --mount --propagation private --net --ipc --pid --fork --kill-child --mount-proc \
			-- "$0" inside "$tree" "$installed" "$scratch" </dev/null 9>&-
	) &
	inner=$!
	# Until stdin ends, or the container does.
	while kill -0 "$inner" 2>/dev/null; do
		read -r -t 1 _ || [[ $? -gt 128 ]] || break
	done
	kill -KILL "$inner" 2>/dev/null || true
	wait "$inner" || true
	restore_values
	rm -rf "$scratch" "$installed"
	# The last processes leave the cgroups shortly after they are killed. nspawn makes the same
	# cgroups in systemd's cgroup v1 hierarchy, if there is one.
	for _ in $(seq 500); do
		! find /sys/fs/cgroup -depth -type d -path "*/${scratch##*/}*" -exec rmdir {} + || break
		sleep 0.02
	done 2>/dev/null
}

# This is process 1 of a namespace, so all its processes end with it.
inside() {
	local tree=$1 installed=$2 scratch=$3 status=1
	mount -t tmpfs tmpfs /run # nspawn's own traces
	mount -t tmpfs tmpfs "$scratch"
	mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
	mount -t overlay -o "lowerdir=$installed:$tree,upperdir=$scratch/upper,workdir=$scratch/work" \
		overlay "$scratch/root"
	# udevd changes its mode, which must not affect the host's.
	mknod "$scratch/fuse" c 10 229
	export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 SYSTEMD_NSPAWN_API_VFS_WRITABLE=1
	# After a reboot or a crash it boots again; power-off ends it.
	while [[ $status != 0 ]]; do
		status=0
		# Without devtmpfs, systemd listens to udevd only if this exists when it starts
		# (sd-device, device_monitor_new_full()); udevd's socket takes its place.
		rm -rf "$scratch/udev"
		mkdir "$scratch/udev"
		touch "$scratch/udev/control"
		systemd-nspawn --quiet --register=no --keep-unit --machine=fusetune --link-journal=no \
			--resolv-conf=off --timezone=off --console=pipe --capability=all \
			--bind="$scratch/fuse:/dev/fuse" --bind="$scratch/udev:/run/udev" \
			--boot --directory="$scratch/root" || status=$?
		echo "rig: systemd-nspawn ended with status $status" >&2
		sleep 0.05
	done
}

"$@"
