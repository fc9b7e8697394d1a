#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The parts of the kernel tests that need mounts. Each runs in its own namespaces,
# which end with this script, however it ends.
#
#   rig.sh inside TREE OUT [DIRECTORY=PATH...] -- COMMAND...
#       Runs a command in a tree, which is not changed. OUT is /out there, and each
#       DIRECTORY is at PATH, read-only. The results of ccache and spatch, if the
#       tree has them, are kept for the next run; CCACHE_DISABLE=1 ignores them.
#   rig.sh image TREE FILE
#       Makes a file system image with the parts of a tree that a virtual machine needs.
set -euo pipefail

if [[ ${RIG_INSIDE-} != yes ]]; then
	[[ $(id -u) == 0 ]] || { echo "rig: run as root" >&2; exit 1; }
	RIG_INSIDE=yes exec unshare --mount --propagation private --pid --fork --kill-child \
		--net -- "$0" "$@"
fi

merged=/run/fusetune-rig
compiled=${XDG_CACHE_HOME:-/var/cache}/fusetune/ccache
mkdir -p "$merged"
mount -t tmpfs tmpfs "$merged"

# Mount the tree at $merged/root, with changes kept in memory.
overlay() {
	mkdir "$merged/upper" "$merged/work" "$merged/root"
	mount -t overlay -o "lowerdir=$1,upperdir=$merged/upper,workdir=$merged/work" \
		overlay "$merged/root"
}

inside() {
	local out=$2 root=$merged/root bound environment path=/usr/sbin:/usr/bin:/sbin:/bin
	overlay "$1"
	shift 2
	mount --rbind /dev "$root/dev"
	mount -t proc proc "$root/proc"
	mkdir -p "$root/out"
	mount --bind "$out" "$root/out"
	# In CI, skipped tests are failures there as well.
	environment=(${CI:+CI="$CI"})
	if [[ -e $root/usr/bin/ccache ]]; then
		mkdir -p "$compiled" "$root/ccache"
		mount --bind "$compiled" "$root/ccache"
		# Debian's kernel headers use the second variable; meson finds ccache by itself.
		environment+=(CCACHE_DIR=/ccache DEBIAN_KERNEL_USE_CCACHE=yes)
	fi
	if [[ -e $root/usr/bin/spatch ]]; then
		mkdir -p "$compiled/spatch" "$root/cached" "$root/spatch"
		mount --bind -o ro "$(dirname "$0")/cached" "$root/cached"
		mount --bind "$compiled/spatch" "$root/spatch"
		environment+=(SPATCH_CACHE=/spatch)
		path=/cached:$path
	fi
	while [[ $1 != -- ]]; do
		bound=$root${1#*=}
		mkdir -p "$bound"
		mount --bind -o ro "${1%%=*}" "$bound"
		shift
	done
	shift
	chroot "$root" /usr/bin/env -i PATH="$path" LC_ALL=C \
		"${environment[@]}" "$@"
}

# Compilers, sources and kernels are omitted: the machine gets its modules on a
# separate disk, and starts the program there.
image() {
	local root=$merged/root directory
	overlay "$1"
	for directory in usr/src usr/lib/gcc usr/lib/modules usr/share/doc usr/share/locale boot \
		var/cache/apt var/lib/apt/lists; do
		mkdir -p "$root/$directory"
		mount -t tmpfs tmpfs "$root/$directory"
	done
	mkdir -p "$root/rig"
	cat >"$root/rig-init" <<'INIT'
#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
for directory in /run /tmp /mnt /srv /var/tmp; do mount -t tmpfs tmpfs "$directory"; done
mount -o ro /dev/vdb /rig
mount --bind /rig/lib/modules /usr/lib/modules
sh /rig/start </dev/null
echo b >/proc/sysrq-trigger
INIT
	chmod 755 "$root/rig-init"
	rm -f "$2.new"
	mke2fs -q -t ext4 -O ^has_journal -d "$root" "$2.new" 2500M
	mv "$2.new" "$2"
}

"$@"
