#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Installs each package, after its dependencies, and prints a line of a table: kB to
# download, kB installed, and the time as a multiple of the first package's.
# shellcheck source=/dev/null
. /inside/common.sh

offer /repo
install linux-headers-amd64
first=
for package in fusetune-mirrorfs fusetune-intercept libfuse3-tuned fusetune fusetuned-dkms f2fs-tuned-dkms; do
	began=$(date +%s%N)
	install "$package"
	took=$((($(date +%s%N) - began) / 1000000))
	first=${first:-$took}
	size=$(apt-cache show --no-all-versions "$package" | sed -n 's/^Size: //p')
	# shellcheck disable=SC2016  # these belong to the table
	printf '| `%s` | %d | %d | %s |\n' "$package" $((size / 1000)) \
		"$(dpkg-query -Wf '${Installed-Size}' "$package")" \
		"$(echo "$took $first" | awk '{ printf "%.1f", $1 / $2 }')"
done
