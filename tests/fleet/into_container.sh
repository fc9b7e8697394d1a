#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Stands for ssh(1): runs the last argument as a command line in the container whose name is the
# argument before. $FLEET/NAME has the process id of its systemd; 255: it cannot be reached.
for word; do
	host=$command
	command=$word
done
leader=$(cat "${FLEET:?}/$host") && kill -0 "$leader" || exit 255
exec nsenter --target "$leader" --mount --uts --ipc --net --pid -- \
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 /bin/sh -c "$command"
