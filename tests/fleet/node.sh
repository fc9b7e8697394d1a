#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# node.sh: becomes a node's first process, in mount and process namespaces of its own. All mounts
# are shared there, as systemd has them, and /var/lib, /var/log and /run are empty. It says that it
# is ready, and ends with its standard input; all that ran there ends with it.
set -eu
mount --make-rshared /
for directory in /var/lib /var/log /run; do
	mount -t tmpfs -o mode=755 tmpfs "$directory"
done
mkdir -p /var/lib/kubelet /var/log/pods
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl fusectl /sys/fs/fuse/connections
echo ready
cat >/dev/null
