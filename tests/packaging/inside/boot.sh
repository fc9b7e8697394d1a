#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# In a machine that has booted: what was set up is in force. At the first boot it
# is then put through the packages' own tests, and boots again.
set -eu
ended() {
	state=$?
	[ $state = 0 ] || { echo "FAILED: $state"; systemctl --no-block poweroff; }
}
trap ended EXIT

value() {
	cat "/sys/class/bdi/$(mountpoint -d "$1")/$2"
}

systemctl --failed --no-legend
[ -z "$(systemctl --failed --no-legend)" ]
[ -e /sys/module/fusetuned ]
grep ' /stock fuse.mirrorfs ' /proc/mounts
grep ' /tuned fusetuned' /proc/mounts
mountpoint /sys/fs/fusetuned/connections
connection=/sys/fs/fusetuned/connections/$(mountpoint -d /tuned | cut -d: -f2)
[ "$(cat "$connection/max_pages")" = 512 ]
# The service is at work as mounts appear.
for second in $(seq 60); do
	fusetune verify >/dev/null && break
	sleep 1
done
echo "verified after ${second} s"
fusetune verify
[ "$(value /stock read_ahead_kb)" = 512 ]
[ "$(value /stock max_ratio)" = 7 ]
[ "$(value /tuned read_ahead_kb)" = 2048 ]
systemctl is-enabled fusetune-verify.timer
[ "$(cat /proc/sys/fs/pipe-max-size)" = 2097152 ]

if [ -e /var/lib/second ]; then
	umount /tuned
	# Its mount of the control filesystem holds no reference.
	BUDGET=20 sh -x /usr/local/lib/debian-tests/auto
	sh -x /usr/local/lib/debian-tests/module
	fusetune report >/dev/null
	echo "passed twice"
	systemctl --no-block poweroff
else
	: >/var/lib/second
	echo "passed once"
	systemctl --no-block reboot
fi
