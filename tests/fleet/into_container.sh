#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Used instead of ssh(1): runs the last argument as a command line in the container named by the
# argument before it. $FLEET/NAME has the pid of its systemd. Exit status 255: it cannot be reached.
for word; do
	host=$command
	command=$word
done
leader=$(cat "${FLEET:?}/$host") && kill -0 "$leader" || exit 255
exec nsenter --target "$leader" --mount --uts --ipc --net --pid -- \
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 /bin/sh -c "$command"
