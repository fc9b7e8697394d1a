#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# In a booted machine: checks that the configuration is in force, and runs the
# packages' own test of the module.
set -eu
ended() {
	state=$?
	[ $state = 0 ] || { echo "FAILED: $state"; systemctl --no-block poweroff; }
}
trap ended EXIT

value() {
	cat "/sys/class/bdi/$(mountpoint -d "$1")/$2"
}

# The service is at work as mounts appear.
verified() {
	for second in $(seq 60); do
		fusetune verify >/dev/null && break
		sleep 1
	done
	echo "verified after ${second} s"
	fusetune verify
}

systemctl --failed --no-legend
[ -z "$(systemctl --failed --no-legend)" ]
[ -e /sys/module/fusetuned ]
grep ' /stock fuse.mirrorfs ' /proc/mounts
grep ' /tuned fusetuned' /proc/mounts
mountpoint /sys/fs/fusetuned/connections
connection=/sys/fs/fusetuned/connections/$(mountpoint -d /tuned | cut -d: -f2)
[ "$(cat "$connection/max_pages")" = 512 ]
verified
[ "$(value /stock read_ahead_kb)" = 512 ]
[ "$(value /stock max_ratio)" = 7 ]
[ "$(value /tuned read_ahead_kb)" = 2048 ]
systemctl is-enabled fusetune-verify.timer
# Raised for /tuned before it was mounted.
[ "$(cat /proc/sys/fs/pipe-max-size)" = 4194304 ]

umount /tuned
sh -x /usr/local/lib/debian-tests/module

# A service that has been running sees mounts of a module that is loaded again.
service=$(systemctl show -P MainPID fusetune.service)
fusetune module load
mount /tuned
verified
[ "$service" -gt 0 ]
[ "$(systemctl show -P MainPID fusetune.service)" = "$service" ]
nsenter --mount --target "$service" sh -exc "
	[ -w /sys/class/bdi/$(mountpoint -d /tuned)/read_ahead_kb ]
	[ ! -w /sys/power/state ]
	[ ! -w /sys/module/fuse/parameters/max_user_bgreq ]
"
echo passed
systemctl --no-block poweroff
