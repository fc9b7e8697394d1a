#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What a new user does: installs the packages, and runs each command of /commands/list, on a mount
# that takes 2 ms for each request. The output of the last ones goes to /out.
# shellcheck source=/dev/null
. /inside/common.sh

mount -t sysfs sysfs /sys
mount -t fusectl fusectl /sys/fs/fuse/connections
mount -t tracefs tracefs /sys/kernel/tracing
mkdir -p /source /mnt/x
mount -t tmpfs tmpfs /source
offer /repo
install fusetune fusetune-mirrorfs
if grep -q '^fusetune profile' /commands/list; then install bpftrace; fi
echo "/source /mnt/x fuse.mirrorfs delay=2ms,served=8,no_xattr,writeback,max_background=1 0 0" >>/etc/fstab
mount /mnt/x
cd /out || fail "no /out"

# profile saves what it sees, so something has to use the mount.
head -c 8M /dev/zero >/source/file
while [ ! -e /source/enough ]; do cat /mnt/x/file >/dev/null; sleep 0.1; done &
user=$!
while read -r command; do
	echo "+ $command"
	state=0
	sh -ec "$command" </dev/null || state=$?
	# Status 4 means that nothing better was found.
	case $state in 0 | 4) ;; *) fail "$command: status $state" ;; esac
done </commands/list
touch /source/enough
wait "$user"
mountpoint -q /mnt/x || fail "the mount is gone"
umount /mnt/x
echo passed
